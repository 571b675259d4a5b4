"""The notebooks with explorers in JupyterLab: run from top to bottom, in light and dark themes."""

import io

import numpy as np
import pytest
from PIL import Image

pytestmark = pytest.mark.slow
EXPLORERS = ("03_structural", "04_projections", "05_weighting", "06_evaluation")


@pytest.mark.parametrize("notebook", EXPLORERS, indirect=True)
def test_all_cells_run_without_an_error_and_can_be_read_in_light_and_dark(notebook):
    cells = notebook.cells()
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert not [output["evalue"] for output in outputs if output["output_type"] == "error"]
    assert all(cell["execution_count"] for cell in cells if cell["source"])
    assert int(notebook.kernel("import overlaps; print(len(overlaps.drawn))"))
    assert notebook.kernel("print(*overlaps.found, sep='\\n', end='')") == ""  # text on text
    for theme, page in (("Light", 255), ("Dark", 17)):
        notebook.use_theme(f"JupyterLab {theme}")
        assert notebook.too_wide() == []
        figures = notebook.figures()
        assert figures
        for picture in figures:
            figure = np.asarray(Image.open(io.BytesIO(picture)).convert("L"), dtype=int)
            assert np.bincount(figure.ravel()).argmax() == page
            assert (abs(figure - page) > 80).mean() > 0.001  # there is something to see
        contrasts = notebook.look(CONTRASTS)
        assert len(contrasts) > 5
        assert not [each for each in contrasts if each[0] < 4.5]  # WCAG 2, level AA


# ---- What the explorers answer is tested in tests/widgets, with the same controls; here a move of
# each, seen by a browser.

MEAN = """
chosen = (distances["model"] == "S (cosine)") & (distances["distance"] == "mse")
means = distances[chosen].groupby("kind")["value"].mean()
print(round(means["positive"], 4), end="")
"""


@pytest.mark.parametrize("notebook", ["03_structural"], indirect=True)
def test_the_distance_explorer_shows_the_means_of_what_is_chosen(notebook):
    notebook.choose("loss", "S (cosine)")
    notebook.choose("distance", "squared L2 distance per dimension")
    notebook.shows(".docemb-explorer tbody td", notebook.kernel(MEAN))


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
        const holder = (one.placeholder ?? "").replace("\\u200b", "");  // of ipywidgets
        for (const part of [null, ...(holder ? ["::placeholder"] : [])]) {
            const pair = [ground, over(ground, numbers(getComputedStyle(one, part).color))];
            const [low, high] = pair.map(light).sort((a, b) => a - b);
            found.push([high / low, one.className + ": " + (one.innerText ?? one.placeholder)]);
        }
    }
    return found;
}"""
