"""Documents as points of one or more planes, side by side and linked.

In a live notebook a map is SVG, which `SCRIPT` lets a person explore; elsewhere it is a figure.
"""

import json
from collections.abc import Mapping
from html import escape
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.colors import LogNorm, to_hex
from matplotlib.figure import Figure

from docemb_lib.figures import series_colors, short
from docemb_lib.figures.documents import plot_plane

WIDTH = 360  # of a panel, in the units of its points
HEIGHT = 300
MARGIN = 12
LEGEND = 60  # characters of a value
TEXT = 1500  # characters of a document that are shown beside the map
HELP = (
    "Click: text; drag: mark; Shift and drag: move; Ctrl and wheel, + or −: zoom; ← →: next "
    "document; Esc: all."
)
STYLE = """<style>
.docemb-map {display: flex; flex-wrap: wrap; gap: 8px; font-size: 12px; line-height: 1.4;}
.docemb-map figure {margin: 0; flex: 1 1 280px; max-width: 480px;}
.docemb-map svg {
    width: 100%; touch-action: none; cursor: crosshair; border: 1px solid var(--jp-border-color2);
}
.docemb-map circle {r: var(--r, 4px); fill-opacity: .85;}
.docemb-map circle.docemb-faded {fill-opacity: .12;}
.docemb-map circle.docemb-pointed {
    r: calc(2 * var(--r, 4px)); stroke: var(--jp-ui-font-color0); stroke-width: 2px;
    vector-effect: non-scaling-stroke;
}
.docemb-map polygon {
    fill: rgba(128, 128, 128, .2); stroke: gray; vector-effect: non-scaling-stroke;
}
.docemb-map .docemb-clicked {
    flex: 1 1 200px; max-height: 330px; overflow: auto; margin: 0; white-space: pre-wrap;
    word-break: normal; overflow-wrap: anywhere; font-family: inherit; font-size: 12px;
    color: inherit; background: none;
}
.docemb-map .docemb-legend {flex-basis: 100%;}
.docemb-map .docemb-legend span {display: inline-block;}
.docemb-map .docemb-legend i {
    display: inline-block; width: 10px; height: 10px; border-radius: 5px; margin: 0 4px 0 10px;
}
.docemb-map .docemb-legend i.docemb-bar {width: 160px; border-radius: 0; margin: 0 6px;}
</style>"""
# Handlers of all maps of a page. A document has its number in the data of its points.
SCRIPT = """
if (!window.docembMaps) {
    window.docembMaps = true;
    const mapOf = target => target.closest?.(".docemb-map");
    const pointsOf = map => [...map.querySelectorAll("circle")];
    const show = (map, rows) => {
        const texts = map.docembTexts ??= JSON.parse(map.dataset.texts);
        const only = rows.length === 1;
        for (const point of pointsOf(map)) {
            const marked = rows.includes(Number(point.dataset.row));
            point.classList.toggle("docemb-faded", rows.length > 1 && !marked);
            point.classList.toggle("docemb-pointed", only && marked);
        }
        map.docembRow = only ? rows[0] : -1;
        const names = rows.map(row => texts[row][0]);
        map.querySelector(".docemb-clicked").textContent = only ? texts[rows[0]].join("\\n\\n")
            : names.length ? names.length.toLocaleString("en") + " documents\\n" + names.join("\\n")
            : "";
    };
    const at = (svg, {clientX, clientY}) =>
        new DOMPoint(clientX, clientY).matrixTransform(svg.getScreenCTM().inverse());
    const view = (svg, box) => {
        svg.setAttribute("viewBox", box.join(" "));
        svg.style.setProperty("--r", `${4 * box[2] / WIDTH}px`);
    };
    const boxOf = svg => svg.getAttribute("viewBox").split(" ").map(Number);
    const zoom = (svg, factor, {x, y}) => {
        const [left, top, width, height] = boxOf(svg);
        const scale = Math.min(1, Math.max(.02, factor * width / WIDTH)) * WIDTH / width;
        view(svg, [x - scale * (x - left), y - scale * (y - top), scale * width, scale * height]);
    };
    const inside = (corners, x, y) => {
        let odd = false;
        corners.forEach((a, i) => {
            const b = corners.at(i - 1);
            if (a.y > y !== b.y > y && x < (b.x - a.x) * (y - a.y) / (b.y - a.y) + a.x) odd = !odd;
        });
        return odd;
    };
    let drag = null;
    let under = null;  // the point below the pointer
    document.addEventListener("pointerdown", event => {
        const svg = event.target.closest?.(".docemb-map svg");
        if (!svg || event.button) return;
        svg.focus({preventScroll: true});  // else the pointer may leave the point
        const point = event.target.closest(".docemb-map circle");
        const corners = [at(svg, event)];
        drag = {svg, point, corners, start: event, moving: event.shiftKey, box: boxOf(svg)};
        if (drag.moving) return;
        drag.lasso = document.createElementNS(svg.namespaceURI, "polygon");
        svg.append(drag.lasso);
    });
    document.addEventListener("pointermove", event => {
        if (!drag) {
            const circle = event.target.closest?.(".docemb-map circle") ?? null;
            if (circle === under) return;
            under = circle;
            const row = circle?.dataset.row;
            for (const point of document.querySelectorAll(".docemb-map circle")) {
                const map = mapOf(point);
                const pointed = map.contains(event.target) && point.dataset.row === row;
                const shown = Number(point.dataset.row) === map.docembRow;
                point.classList.toggle("docemb-pointed", pointed || shown);
            }
            return;
        }
        const {svg, start, moving, box, corners, lasso} = drag;
        // Of a click the page may still scroll, which moves the map and not the pointer.
        const far = Math.hypot(event.clientX - start.clientX, event.clientY - start.clientY);
        drag.far ||= far > 4;
        if (moving) {
            const {x, y} = at(svg, event);
            const [left, top] = boxOf(svg);
            view(svg, [left + corners[0].x - x, top + corners[0].y - y, box[2], box[3]]);
        } else {
            corners.push(at(svg, event));
            lasso.setAttribute("points", corners.map(({x, y}) => `${x},${y}`).join(" "));
        }
    });
    document.addEventListener("pointerup", event => {
        if (!drag) return;
        const {svg, point, moving, far, corners, lasso} = drag;
        drag = null;
        lasso?.remove();
        if (moving) return;
        if (!far) return show(mapOf(svg), point ? [Number(point.dataset.row)] : []);
        const caught = [...svg.querySelectorAll("circle")].filter(
            ({cx, cy}) => inside(corners, cx.baseVal.value, cy.baseVal.value));
        show(mapOf(svg), caught.map(({dataset}) => Number(dataset.row)));
    });
    document.addEventListener("wheel", event => {
        const svg = event.target.closest?.(".docemb-map svg");
        if (!svg || !event.ctrlKey) return;
        event.preventDefault();
        zoom(svg, Math.exp(event.deltaY / 300), at(svg, event));
    }, {passive: false});
    document.addEventListener("keydown", event => {
        const svg = event.target.closest?.(".docemb-map svg");
        if (!svg || event.ctrlKey || event.metaKey) return;
        const map = mapOf(svg);
        const [left, top, width, height] = boxOf(svg);
        const count = svg.querySelectorAll("circle").length;
        const step = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1]};
        const [x, y] = step[event.key] ?? [0, 0];
        if ("+=-−".includes(event.key)) {
            const factor = "+=".includes(event.key) ? .8 : 1.25;
            zoom(svg, factor, {x: left + width / 2, y: top + height / 2});
        } else if (event.key === "Escape") {
            show(map, []);
            map.querySelectorAll("svg").forEach(each => view(each, [0, 0, WIDTH, HEIGHT]));
        } else if (event.shiftKey && (x || y)) {
            view(svg, [left + x * width / 10, top + y * height / 10, width, height]);
        } else if (x) {
            show(map, [((map.docembRow ?? -1) + x + count) % count]);
        } else return;
        event.preventDefault();
    });
    document.addEventListener("click", ({target}) => {
        const button = target.closest?.(".docemb-map [data-mark]");
        if (button) show(mapOf(button), JSON.parse(button.dataset.mark));
    });
}
""".replace("WIDTH", str(WIDTH)).replace("HEIGHT", str(HEIGHT))


class Panel(NamedTuple):
    """N documents in a plane."""

    places: np.ndarray  # (N, 2)
    caption: str = ""


class Map(NamedTuple):
    """The same N documents in one or more planes."""

    panels: Mapping[str, Panel]  # by title
    documents: pd.DataFrame  # a row for each: id, text, and the column `colour`
    colour: str  # the column that colours documents; `length` is logarithmic

    def html(self) -> str:
        """SVG in which a document that is pointed at or marked is so in all planes."""
        colours, legend = self._colours()
        names = self._names()
        figures = ""
        for title, panel in self.panels.items():
            points = ""
            for row, (x, y) in enumerate(_fitted(panel.places)):
                name = f"<title>{escape(names[row])}</title>"
                place = f'data-row="{row}" cx="{x:.1f}" cy="{y:.1f}"'
                points += f'<circle {place} fill="{colours[row]}">{name}</circle>'
            label = f"{escape(title)}: {len(names):,} documents. {HELP}"
            options = (
                f'viewBox="0 0 {WIDTH} {HEIGHT}" tabindex="0" data-lm-suppress-shortcuts="true"'
            )
            svg = f'<svg {options} role="group" aria-label="{label}">{points}</svg>'
            caption = f"<b>{escape(title)}</b> {escape(panel.caption)}"
            figures += f"<figure><figcaption>{caption}</figcaption>{svg}</figure>"
        texts = [text[:TEXT] for text in self.documents["text"]]
        data = escape(json.dumps(list(zip(names, texts, strict=True))))
        beside = '<pre class="docemb-clicked" tabindex="0" aria-live="polite"></pre>'
        return (
            f'{STYLE}<div class="docemb-map" data-texts="{data}">{figures}{beside}'
            f'<div class="docemb-legend">{legend}<br>{HELP}</div></div>'
        )

    def figure(self) -> Figure:
        """The planes side by side, with one legend."""
        longest = self.documents[self.colour].map(lambda value: len(str(value))).max()
        legend = 0.6 + 0.07 * min(longest, 60)  # inches
        figure = Figure(figsize=(4 * len(self.panels) + legend, 4), layout="constrained")
        axes = figure.subplots(1, len(self.panels), squeeze=False)[0]
        for ax, (title, (places, caption)) in zip(axes, self.panels.items(), strict=True):
            points = self.documents.assign(first=places[:, 0], second=places[:, 1])
            plot_plane(points, colour=self.colour, legend=ax is axes[-1], ax=ax)
            ax.set(title=title, xlabel=caption)
        return figure

    def _names(self) -> list[str]:
        """The id of each document with its value of `colour`."""
        values = self.documents[self.colour]
        written = values.map("{:,}".format) if self.colour == "length" else values.map(str)
        ids = self.documents["id"].map(str)
        return [*(ids + f", {self.colour} " + written)]

    def _colours(self) -> tuple[list[str], str]:
        """The colour of each document, and a legend: a colour bar, or a button for each value."""
        values = self.documents[self.colour]
        if self.colour == "length":
            lengths = values.clip(lower=1)
            norm = LogNorm(lengths.min(), lengths.max())

            def scale(share: float) -> str:
                return to_hex(colormaps["viridis"](0.15 + 0.75 * share))  # seen on light and dark

            steps = ", ".join(map(scale, np.linspace(0, 1, 9)))
            bar = f'<i class="docemb-bar" style="background: linear-gradient(90deg, {steps})"></i>'
            low, middle, high = (f"{norm.inverse(share):,.0f}" for share in (0, 0.5, 1))
            legend = f"{low}{bar}{high} tokens (logarithmic; {middle} in the middle)"
            return [scale(norm(length)) for length in lengths], legend
        values = values.map(str)
        palette = series_colors(values.sort_values())
        legend = ""
        for value, colour in palette.items():
            rows = np.flatnonzero(values == value).tolist()
            swatch = f'<i style="background: {to_hex(colour)}"></i>'
            button = f'<button data-mark="{rows}">{escape(short(value, LEGEND))}</button>'
            legend += f"<span>{swatch}{button} ({len(rows):,})</span> "
        return [to_hex(palette[value]) for value in values], legend


def _fitted(places: np.ndarray) -> np.ndarray:
    """The places in a panel, (N, 2), with equal scales on both axes and y upwards."""
    low = places.min(axis=0)
    spread = np.ptp(places, axis=0)
    room = np.array([WIDTH, HEIGHT]) - 2 * MARGIN
    scale = (room / np.maximum(spread, 1e-12)).min() if spread.any() else 1.0
    fitted = (places - low - spread / 2) * scale * [1, -1]
    return fitted + np.array([WIDTH, HEIGHT]) / 2
