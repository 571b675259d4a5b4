"""Every notebook in JupyterLab: opened, run from top to bottom, shown in light and dark themes,
saved.
"""

import io
import json
import re
import subprocess
import sys

import nbformat
import numpy as np
import pytest
from matplotlib import pyplot as plt
from overlaps import overlapping
from PIL import Image

from docemb_lib.settings.notebooks import REGISTRY

pytestmark = pytest.mark.slow
every_notebook = pytest.mark.parametrize("notebook", REGISTRY, indirect=True)
explorers = [name for name in REGISTRY if name[:2] in ("03", "04", "05", "06")]
every_explorer = pytest.mark.parametrize("notebook", explorers, indirect=True)


@every_notebook
def test_all_cells_run_without_an_error_and_the_first_shows_the_configuration(notebook):
    cells = [cell for cell in notebook.content()["cells"] if cell["cell_type"] == "code"]
    assert not [
        o["evalue"] for cell in cells for o in cell["outputs"] if o["output_type"] == "error"
    ]
    assert all(cell["execution_count"] for cell in cells if cell["source"])
    first = next(cell for cell in cells if cell.get("outputs"))  # the configuration
    (shown,) = [
        o["data"]["text/plain"] for o in first["outputs"] if o["output_type"] == "execute_result"
    ]
    rows = {line.split()[0]: line for line in "".join(shown).splitlines()[1:]}
    assert "small" in rows["profile"]
    idle = {
        "compound",
        "beside_teachers",
        "distance",
        "gamma",
        "temperature",
        "negatives",
        "lam_by_length",
    }  # do not count with these values
    assert {*REGISTRY[notebook.name].values} - idle <= set(rows)


@every_notebook
def test_nothing_is_wider_than_the_page_and_figures_have_its_colour_in_light_and_dark(
    notebook,
):
    for theme, page in (("Light", 255), ("Dark", 17)):
        notebook.use_theme(f"JupyterLab {theme}")
        notebook.screenshot(f"{notebook.name}-{theme.lower()}")
        assert notebook.too_wide() == []
        figures = notebook.figures()
        assert figures
        for picture in figures:
            figure = np.asarray(Image.open(io.BytesIO(picture)).convert("L"), dtype=int)
            assert np.bincount(figure.ravel()).argmax() == page
            assert (abs(figure - page) > 80).mean() > 0.005  # there is something to see


def test_overlapping_texts_are_found():
    figure = plt.figure(figsize=(4, 2))
    for x, text in ((0.1, "one"), (0.12, "other"), (0.8, "beside")):
        figure.text(x, 0.5, text)
    figure.canvas.draw()
    assert [*overlapping(figure.texts, figure.canvas.get_renderer())] == ["'one' lies on 'other'"]
    plt.close(figure)


@every_explorer
def test_the_keyboard_reaches_every_control_and_each_has_a_label(notebook):
    labels = notebook.labels()
    assert labels
    assert all(labels)
    notebook.control(labels[0]).first.locator(
        "select, input, textarea, [tabindex='0']"
    ).first.focus()
    reached = []
    for _ in range(4 * len(labels)):  # a slider has a handle or two, and a value to edit
        reached.append(notebook.focused())
        notebook.page.keyboard.press("Tab")
    assert set(labels) <= set(reached)
    named = notebook.named()
    assert all(name for _, name in named), named
    assert {name.split(", ")[0] for _, name in named} == set(labels)
    sliders = [name for role, name in named if role == "slider"]
    assert len(sliders) == notebook.count(".noUi-handle")
    assert len(set(sliders)) == len(sliders)  # both handles of an interval have names of their own


@pytest.mark.parametrize("notebook", ["01_corpus"], indirect=True)
def test_saving_keeps_the_pair_in_step_and_its_outputs_out_of_git(notebook, lab):
    committed = lab.root / "notebooks" / "01_corpus.ipynb"
    script, before = committed.with_suffix(".py"), nbformat.read(committed, as_version=4)
    halves = committed.read_bytes(), script.read_bytes()
    notebook.command("docmanager:save")
    assert (
        committed.read_bytes(),
        script.read_bytes(),
    ) == halves  # a run changes no committed file
    notebook.command("notebook:insert-cell-below")
    notebook.page.locator(".jp-Cell.jp-mod-active .cm-content").click()
    notebook.page.keyboard.insert_text("documents_seen = 42")
    notebook.command("notebook:run-cell")
    notebook.command("docmanager:save")
    saved = nbformat.read(committed, as_version=4)
    assert len(saved.cells) == len(before.cells) + 1
    assert not [cell for cell in saved.cells if cell.get("outputs") or cell.get("execution_count")]
    assert "\ndocuments_seen = 42" in script.read_text(encoding="utf-8")
    apart = nbformat.read(
        lab.root / "outputs" / "notebooks" / "01_corpus" / "as-last-saved.ipynb", as_version=4
    )
    assert [cell for cell in apart.cells if cell.get("outputs")]
    assert [
        cell for cell in notebook.content()["cells"] if cell.get("outputs")
    ]  # the page keeps the outputs


@pytest.mark.parametrize("notebook", ["01_corpus"], indirect=True)
def test_an_executed_notebook_converts_to_a_page(notebook, browser, tmp_path):
    (tmp_path / "run.ipynb").write_text(json.dumps(notebook.content()), encoding="utf-8")
    command = [sys.executable, "-m", "nbconvert", "--to", "html", "run.ipynb"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    page = browser.new_page()
    page.goto(
        (tmp_path / "run.html").as_uri(), wait_until="domcontentloaded"
    )  # without a network, equations stay TeX
    widths = page.evaluate("() => [...document.images].map(image => image.naturalWidth)")
    assert widths
    assert min(widths) > 300
    assert page.evaluate("() => document.body.scrollWidth <= window.innerWidth")
    page.close()


# ---- explorers: what they answer is tested in tests/widgets, with the same controls; here what
# only a browser shows

SEPARATION = """
import numpy as np
from sklearn.metrics import roc_auc_score
found = distances.measured["mse"][distances.student]
kept, negatives = distances.documents["length"].to_numpy() >= {shortest}, {negatives}
near, far = found.positive[kept], found.negative[kept][:, :negatives].ravel()
print(f"{{roc_auc_score(np.r_[0 * near, 0 * far + 1], np.r_[near, far]):.3f}}", end="")
"""


@pytest.mark.parametrize("notebook", ["03_structural"], indirect=True)
def test_the_distance_explorer_shows_the_auc_of_what_is_chosen(notebook):
    auc = ".docemb-separation td:nth-child(2)"
    notebook.choose("loss", "this student: cosine")
    notebook.choose(
        "distance",
        notebook.kernel("from docemb_lib.figures import UNITS; print(UNITS['mse'], end='')"),
    )
    most = int(
        notebook.kernel("print(distances.measured['mse'][distances.student].negative.shape[1])")
    )
    notebook.shows(auc, notebook.kernel(SEPARATION.format(shortest=0, negatives=most)))
    notebook.press("negatives", "Home")
    notebook.shows(auc, notebook.kernel(SEPARATION.format(shortest=0, negatives=1)))
    notebook.press("tokens", "PageUp")
    tokens = notebook.control("tokens").locator(".widget-readout").inner_text()
    shortest = int(tokens.split()[0].replace(",", ""))
    notebook.shows(auc, notebook.kernel(SEPARATION.format(shortest=shortest, negatives=1)))
    kept = int(notebook.kernel(f"print((distances.documents['length'] >= {shortest}).sum())"))
    assert kept < len(
        json.loads(notebook.kernel("print(distances.documents['id'].to_json(orient='values'))"))
    )
    notebook.shows(".docemb-documents", str(kept))
    before = notebook.page.locator("img.docemb-figure").first.get_attribute("src")
    notebook.press("γ", "ArrowRight")
    notebook.page.wait_for_function(
        "([selector, src]) => document.querySelector(selector).src !== src",
        arg=["img.docemb-figure", before],
        timeout=10_000,
    )


THEMES = ("JupyterLab Light", "JupyterLab Dark")
# The scope orders tests by theme, because a change of theme takes longer than most of them.
in_light_and_dark = pytest.mark.parametrize("theme", THEMES, scope="class")

# The contrast of each text of the explorers, also of what fields hold, with what lies behind it.
CONTRASTS = """shown => {
    const numbers = colour => colour.match(/[\\d.]+/g).map(Number);
    const over = (below, [r, g, b, a = 1]) => [r, g, b].map((c, i) => a * c + (1 - a) * below[i]);
    const behind = one => {
        const layers = [];
        for (let e = one; e; e = e.parentElement) layers.unshift(getComputedStyle(e));
        const colours = layers.map(({backgroundColor}) => numbers(backgroundColor));
        return colours.reduce(over, [255, 255, 255]);
    };
    const linear = c => c / 255 <= .03928 ? c / 255 / 12.92 : ((c / 255 + .055) / 1.055) ** 2.4;
    const share = [.2126, .7152, .0722];
    const light = rgb => rgb.reduce((sum, c, i) => sum + share[i] * linear(c), .05);
    const found = [];
    for (const one of document.querySelectorAll(`${shown} .docemb-explorer *`)) {
        const texts = [...one.childNodes].filter(node => node.nodeType === 3);
        const own = one.matches("select, input, textarea")
            || texts.some(({textContent}) => textContent.trim());
        if (!own || one.matches("option, style, title") || !one.getClientRects().length) continue;
        const ground = behind(one);
        for (const part of [null, ...(one.placeholder ? ["::placeholder"] : [])]) {
            const pair = [ground, over(ground, numbers(getComputedStyle(one, part).color))];
            const [low, high] = pair.map(light).sort((a, b) => a - b);
            found.push([high / low, one.className + ": " + (one.innerText ?? one.placeholder)]);
        }
    }
    return found;
}"""
# Which parts that take the keyboard do not show it: neither outline, border, shadow nor colour.
UNSEEN = """async shown => {
    const looks = one => {
        const of = getComputedStyle(one);
        const outline = of.outlineStyle === "none" ? "" : of.outline;
        return [outline, of.borderColor, of.boxShadow, of.backgroundColor].join();
    };
    const parts = "button, select, input, textarea, [tabindex='0'], [contenteditable=true]";
    const unseen = [];
    for (const one of document.querySelectorAll(`${shown} .docemb-explorer :is(${parts})`)) {
        if (!one.getClientRects().length) continue;
        document.activeElement.blur();
        const before = looks(one);
        one.focus({focusVisible: true, preventScroll: true});
        await new Promise(done => setTimeout(done, 0));
        if (looks(one) === before) unseen.push(one.outerHTML.slice(0, 150));
    }
    return unseen;
}"""
# Columns whose heading and values differ in side, or begin or end at different places.
ASKEW = """shown => {
    const edges = cell => {
        const range = document.createRange();
        range.selectNodeContents(cell);
        const {left, right} = range.getBoundingClientRect();
        const side = getComputedStyle(cell).textAlign;
        return [side, Math.round(side === "right" ? right : left)].join(" ");
    };
    const askew = [];
    for (const table of document.querySelectorAll(`${shown} .docemb-explorer table`)) {
        for (const [column, heading] of [...table.rows[0].cells].entries()) {
            const below = [...table.rows].slice(1).map(row => row.cells[column]);
            const others = below.filter(cell => cell.innerText.trim()).map(edges);
            if (others.some(place => place !== edges(heading))) {
                askew.push([table.className, heading.innerText, edges(heading), ...others]);
            }
        }
    }
    return askew;
}"""
# Words of texts that stand on two lines though one has room for them.
BROKEN = """shown => {
    const broken = [];
    for (const text of document.querySelectorAll(`${shown} .docemb-explorer pre`)) {
        for (const node of [...text.childNodes].filter(({nodeType}) => nodeType === 3)) {
            for (const {index, 0: word} of node.data.matchAll(/[\\p{L}\\d]{2,20}/gu)) {
                const range = document.createRange();
                range.setStart(node, index);
                range.setEnd(node, index + word.length);
                if (range.getClientRects().length > 1) broken.push(word);
            }
        }
    }
    return broken;
}"""


@in_light_and_dark
@every_explorer
def test_every_text_of_an_explorer_can_be_read(notebook, theme):
    notebook.use_theme(theme)
    contrasts = notebook.look(CONTRASTS)
    assert len(contrasts) > 5
    assert not [each for each in contrasts if each[0] < 4.5]  # WCAG 2, level AA


@in_light_and_dark
@every_explorer
def test_every_part_that_has_the_keyboard_shows_it(notebook, theme):
    notebook.use_theme(theme)
    assert notebook.look(UNSEEN) == []


@in_light_and_dark
@every_explorer
def test_headings_stand_over_their_columns(notebook, theme):
    notebook.use_theme(theme)
    assert notebook.look(ASKEW) == []


@every_explorer
def test_numbers_have_separators_of_thousands(notebook):
    explorer = notebook.page.locator(".docemb-explorer").first
    tables = explorer.locator("table, p, .widget-readout").all_inner_texts()
    assert not re.findall(r"(?<![\w.-])\d{4,}(?![\w-])", " ".join(tables))


@in_light_and_dark
@pytest.mark.parametrize("notebook", ["03_structural"], indirect=True)
def test_text_boxes_break_lines_between_words(notebook, theme):
    notebook.use_theme(theme)
    assert notebook.count(".docemb-explorer pre") == 2
    assert notebook.look(BROKEN) == []


UNITS = """
import json
from docemb_lib.figures import UNITS
print(json.dumps([*UNITS.values()]))
"""


@in_light_and_dark
@pytest.mark.parametrize("notebook", ["03_structural"], indirect=True)
def test_no_text_of_the_distances_is_cut(notebook, theme):
    notebook.use_theme(theme)
    for unit in json.loads(notebook.kernel(UNITS)):
        notebook.choose("distance", unit)
        figure = notebook.page.locator(f'img.docemb-figure[alt^="{unit}"]')
        picture = figure.screenshot(timeout=10_000)
        pixels = np.asarray(Image.open(io.BytesIO(picture)).convert("RGB"))
        edges = [pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]]
        assert len(np.unique(np.concatenate(edges), axis=0)) == 1


@in_light_and_dark
@pytest.mark.parametrize("notebook", ["04_projections"], indirect=True)
def test_a_document_of_a_map_is_pointed_at_in_all_planes_and_read_beside_them(notebook, theme):
    notebook.use_theme(theme)
    planes = notebook.page.locator(".docemb-map svg")
    planes.first.locator("circle").last.click()  # no other lies above it
    shown = notebook.page.locator(".docemb-map circle.docemb-pointed")
    assert shown.count() == planes.count() == 2
    (row,) = {each.get_attribute("data-row") for each in shown.all()}
    name = shown.first.locator("title").text_content()
    beside = notebook.page.locator(".docemb-map .docemb-clicked")
    assert beside.inner_text().startswith(name)
    planes.first.press("ArrowRight")  # the next document, without a mouse
    assert shown.first.get_attribute("data-row") == str(
        (int(row) + 1) % planes.first.locator("circle").count()
    )
    assert not beside.inner_text().startswith(name)
    planes.first.press("Escape")
    assert shown.count() == 0


@pytest.mark.parametrize("notebook", ["04_projections"], indirect=True)
def test_a_line_around_documents_marks_them_in_all_planes(notebook):
    plane = notebook.page.locator(".docemb-map svg").first
    plane.scroll_into_view_if_needed()
    box = plane.bounding_box()
    mouse = notebook.page.mouse
    mouse.move(box["x"] + 2, box["y"] + 2)
    mouse.down()
    for x, y in ((0.5, 0), (0.5, 1), (0, 1)):
        right = box["x"] + 2 + x * (box["width"] - 4)
        mouse.move(right, box["y"] + 2 + y * (box["height"] - 4), steps=3)
    mouse.up()
    circles = plane.locator("circle").all()
    left = [circle for circle in circles if float(circle.get_attribute("cx")) < 180]
    faded = notebook.count(".docemb-map circle.docemb-faded")
    assert faded == 2 * (len(circles) - len(left))
    beside = notebook.page.locator(".docemb-map .docemb-clicked").inner_text()
    assert beside.startswith(f"{len(left)} documents")
    plane.press("Escape")


@pytest.mark.parametrize("notebook", ["04_projections"], indirect=True)
def test_keys_zoom_and_move_a_plane_alone(notebook):
    first, second = notebook.page.locator(".docemb-map svg").all()
    whole = first.get_attribute("viewBox")
    first.press("+")
    zoomed = first.get_attribute("viewBox")
    first.press("Shift+ArrowRight")
    assert len({whole, zoomed, first.get_attribute("viewBox")}) == 3
    assert second.get_attribute("viewBox") == whole
    first.press("Escape")
    assert first.get_attribute("viewBox") == whole


@in_light_and_dark
@pytest.mark.parametrize("notebook", ["05_weighting"], indirect=True)
def test_a_place_without_a_run_offers_its_command_to_copy(notebook, theme):
    notebook.use_theme(theme)
    notebook.press("λ", "Home")
    command = notebook.page.locator(".docemb-explorer .docemb-command")
    command.wait_for()
    assert command.inner_text().startswith("docemb run 05_weighting -p ")
    button = notebook.page.locator(".docemb-explorer [data-copy]")
    button.press("Enter")
    assert button.inner_text() == "copied"
    assert notebook.count("button[data-set]:text-is('make this run')") == 1


@in_light_and_dark
@pytest.mark.parametrize("notebook", ["06_evaluation"], indirect=True)
def test_a_key_on_a_neighbour_makes_it_the_query_and_keeps_the_keyboard(notebook, theme):
    notebook.use_theme(theme)
    before = notebook.page.locator(".docemb-query b").inner_text()
    cells = notebook.page.locator(".docemb-explorer .docemb-neighbours td")
    neighbour = cells.first.locator("button").first
    name = neighbour.inner_text()
    assert name != before
    assert cells.first.locator(".docemb-right, .docemb-wrong").inner_text()[0] in "✓✗"
    neighbour.press("Enter")
    notebook.shows(".docemb-query b", name)
    on_query = "() => document.activeElement.closest('.docemb-explorer') !== null"
    notebook.page.wait_for_function(on_query)
    assert notebook.control("document").locator("select option:checked").inner_text() == name


TEXT_IS_SHOWN = "text => document.querySelector('pre.docemb-document').textContent === text"


@pytest.mark.parametrize("notebook", ["06_evaluation"], indirect=True)
def test_a_text_of_ones_own_is_shown_as_text(notebook):
    hostile = "<img src=x onerror='window.harmed = true'><script>window.harmed = true</script>"
    notebook.write("your text", hostile)
    notebook.page.wait_for_function(TEXT_IS_SHOWN, arg=hostile, timeout=60_000)
    assert notebook.page.evaluate("() => window.harmed") is None


@pytest.mark.parametrize("notebook", ["06_evaluation"], indirect=True)
def test_find_and_document_wait_until_a_text_of_ones_own_is_cleared(notebook):
    text = "a violin in an orchestra"
    notebook.write("your text", text)
    # The answer to the text before has such a button, too, which is about to be replaced.
    notebook.page.wait_for_function(TEXT_IS_SHOWN, arg=text, timeout=60_000)
    clear = notebook.page.locator(".docemb-query").get_by_text("clear your text")
    clear.press("Enter")
    clear.wait_for(state="detached")
    assert notebook.control("your text").locator("textarea").input_value() == ""


# ---- last, because they move controls and look at all that was drawn


@every_explorer
def test_every_control_can_be_moved_there_and_back(notebook):
    for label in notebook.labels():
        for there, back in notebook.moves(label):
            before = notebook.settings()[label]
            there()
            notebook.wait_for(label, lambda value, before=before: value != before)
            assert not notebook.count(".docemb-message")
            back()
            notebook.wait_for(label, lambda value, before=before: value == before)


@every_notebook
def test_no_text_of_a_figure_lies_on_another(notebook):
    shown = notebook.kernel(
        "import json, overlaps; print(json.dumps([len(overlaps.drawn), sorted(overlaps.found)]))"
    )
    drawn, found = json.loads(shown)
    assert drawn
    assert not found
