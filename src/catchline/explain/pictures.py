"""Pictures drawn by matplotlib: heat maps of attention, which have an HTML page too, and training curves.

Heat maps have summary words down and document words across. Several maps of one pair stand side by side, or below each
other where the document is long; they share one colour scale unless asked otherwise, so that a flat map looks flat.
What a map's colours may hide is written above it.
"""

from __future__ import annotations

import re
import unicodedata
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, PowerNorm
from matplotlib.figure import Figure
from matplotlib.ft2font import FT2Font
from matplotlib.ticker import MaxNLocator

from catchline.explain.html import render_report
from catchline.files import part_of

MAX_ROWS, MAX_COLUMNS = 40, 60  # words drawn; more would not be readable
PAGE_COLUMNS = 400
_LONGEST_LABEL = 18  # characters of a word that are drawn
_WIDEST = 15.0  # inches; wider rows of maps are stacked
_CELL, _ROW = 0.24, 0.26  # inches
_TITLE, _GAP, _BAR, _EDGE = 0.56, 0.3, 0.14, 0.18
_BAR_OF_FOUR = 0.5  # inches; a lower bar has no room for four numbers
_INK, _QUIET, _LINE, _UNREAD = "#1d1b19", "#66615a", "#d8d2c8", "#e4e2df"
_COLOURS = LinearSegmentedColormap.from_list("catchline", ["#fdfbf7", "#f3d3b3", "#d4803f", "#9a3a06", "#481a02"])
# Okabe and Ito's (2008), which the colour-blind tell apart, without their yellow
_CURVES = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#000000")
_BASE_FONT = "DejaVu Sans"


@dataclass(frozen=True, slots=True)
class HeatMap:
    """One map: ``weights`` (summary words, document words), what it shows, and its numbers in a line. ``read`` is how
    many document words the model reads (none: all); the others have no weight and are drawn grey, not white.

    As a part of a page it is a table whose cells are coloured, darkest at the weight ``scale``, and say their weight
    when pointed at; ``note`` stands below."""

    title: str
    weights: np.ndarray
    rows: Sequence[str]
    columns: Sequence[str]
    numbers: str = ""
    read: int | None = None
    scale: float = 1.0
    note: str = ""
    template: ClassVar[str] = "components/heatmap.html"

    @property
    def heaviest(self) -> float:
        return float(self.weights.max(initial=0.0))

    @property
    def cells(self) -> list[tuple[str, list[tuple[float, str]]]]:
        """Row by row: the summary word, and of each document word the depth of colour and the weight."""
        values = np.sqrt(np.clip(self.weights / (self.scale or 1.0), 0.0, 1.0))
        return [
            (word, [(round(float(depth), 3), f"{weight:.3f}") for depth, weight in zip(depths, weights, strict=True)])
            for word, depths, weights in zip(self.rows, values, self.weights, strict=True)
        ]


# ---------------------------------------------------------------------------------------- the picture


def draw_png(maps: Sequence[HeatMap], path: Path, *, title: str = "", own_scale: bool = False) -> list[str]:
    """Draw the maps into ``path`` (written beside and renamed).

    ``own_scale`` gives each map its own colours. Returns what the reader should know: words left out, characters
    that no font of this machine has.
    """
    maps, notes = _cut(maps, MAX_ROWS, MAX_COLUMNS)
    texts = "".join([title, *(word for one in maps for word in (one.title, *one.rows, *one.columns))])
    families, missing = fonts_for(texts)
    if missing:
        shown = "".join(sorted(missing)[:8])
        notes.append(
            f"No font here has {len(missing)} of the characters ({shown}); the picture shows boxes, the page is "
            "right. Install a font such as Noto Sans CJK and draw again."
        )
    figure = _figure(maps, title, notes, families, own_scale)
    with part_of(path) as file, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*[Gg]lyph.*")
        figure.savefig(file, format="png", dpi=150, facecolor="white")
    return notes


def _cut(maps: Sequence[HeatMap], rows: int, columns: int) -> tuple[list[HeatMap], list[str]]:
    notes = []
    kept = [
        replace(one, weights=one.weights[:rows, :columns], rows=one.rows[:rows], columns=one.columns[:columns])
        for one in maps
    ]
    longest = max(maps, key=lambda one: len(one.columns))
    if len(longest.columns) > columns:
        total = sum(float(one.weights.sum()) for one in maps)
        share = sum(float(one.weights[:, :columns].sum()) for one in maps) / total if total else 0.0
        notes.append(
            f"The first {columns} of {len(longest.columns)} document words are drawn; they hold {share:.0%} of the "
            "weight."
        )
    if (most := max(len(one.rows) for one in maps)) > rows:
        notes.append(f"The first {rows} of {most} summary words are drawn.")
    return kept, notes


def _figure(maps: Sequence[HeatMap], title: str, notes: Sequence[str], families: list[str], own_scale: bool) -> Figure:
    """Place every part in inches: nothing overlaps, and cells have the same size however many there are."""
    fonts: dict[str, Any] = {"fontfamily": families}
    left = 0.12 + max(_label_width(word) for one in maps for word in one.rows)
    foot = 0.12 + max(_label_width(word) for one in maps for word in one.columns)
    sizes = [(len(one.columns) * _CELL, len(one.rows) * _ROW) for one in maps]
    bar = _BAR + 0.62
    head = 0.3 if title else 0.0
    note_room = 0.2 * len(notes) + (0.08 if notes else 0.0)
    lines = [max(0.096 * len(one.title), 0.075 * len(one.numbers)) for one in maps]
    widths = [max(size[0] + (bar if own_scale else 0.0), line) + left for size, line in zip(sizes, lines, strict=True)]
    across = sum(widths) + _GAP * (len(maps) - 1)
    stacked = len(maps) > 1 and across > _WIDEST
    same_columns = all(list(one.columns) == list(maps[0].columns) for one in maps)
    feet = [0.1 if stacked and same_columns and one is not maps[-1] else foot for one in maps]
    if stacked:
        width = max(widths)
        height = sum(size[1] + _TITLE + below for size, below in zip(sizes, feet, strict=True))
    else:
        width, height = across, max(size[1] for size in sizes) + _TITLE + foot
    width += 2 * _EDGE + (0.0 if own_scale else bar)
    height += 2 * _EDGE + head + note_room
    figure = Figure(figsize=(width, height))
    if title:
        figure.text(
            _EDGE / width, 1 - _EDGE / height, _plain(title), va="top", fontsize=13, weight="bold", color=_INK, **fonts
        )
    top = max(one.heaviest for one in maps)
    x, y = _EDGE, height - _EDGE - head
    images = []
    for one, size, wide, below in zip(maps, sizes, widths, feet, strict=True):
        box = (x + left, y - _TITLE - size[1], *size)
        axes = figure.add_axes(_share(box, width, height))
        images.append(_draw(axes, one, one.heaviest if own_scale else top, fonts, labels=below == foot))
        if own_scale:
            _colour_bar(figure, images[-1], (box[0] + box[2] + 0.12, box[1], _BAR, box[3]), width, height)
        if stacked:
            y -= size[1] + _TITLE + below
        else:
            x += wide + _GAP
    if not own_scale:
        tall = max(size[1] for size in sizes)
        right = (_EDGE + left + max(size[0] for size in sizes) if stacked else width - _EDGE - bar) + 0.12
        _colour_bar(figure, images[0], (right, height - _EDGE - head - _TITLE - tall, _BAR, tall), width, height)
    for index, note in enumerate(reversed(notes)):
        place = (_EDGE + 0.2 * index) / height
        figure.text(_EDGE / width, place, note, va="bottom", fontsize=8, color=_QUIET, **fonts)
    return figure


def _share(box: tuple[float, float, float, float], width: float, height: float) -> tuple[float, float, float, float]:
    """Inches as shares of the figure."""
    return box[0] / width, box[1] / height, box[2] / width, box[3] / height


def _draw(axes: Axes, one: HeatMap, scale: float, fonts: dict[str, Any], *, labels: bool) -> Any:
    norm = PowerNorm(0.5, 0.0, scale or 1.0)
    image = axes.pcolormesh(one.weights, cmap=_COLOURS, norm=norm, edgecolors="#f1eee8", linewidth=0.6)
    if one.read is not None and one.read < len(one.columns):
        axes.axvspan(one.read, len(one.columns), facecolor=_UNREAD, edgecolor="none", zorder=image.get_zorder() + 0.1)
    axes.set_xlim(0, len(one.columns))
    axes.set_ylim(len(one.rows), 0)
    names = [_plain(_short(word)) for word in one.columns] if labels else []
    turned = 90 if any(len(name) > 2 for name in names) else 0  # a language of single characters reads upright
    look = {"fontsize": 9, "color": _INK, **fonts}
    places = np.arange(len(one.columns)) + 0.5
    axes.set_xticks(places, names or [""] * len(one.columns), rotation=turned, **look)
    axes.set_yticks(np.arange(len(one.rows)) + 0.5, [_plain(_short(word)) for word in one.rows], **look)
    axes.tick_params(length=0, pad=4)
    axes.spines[:].set_color(_LINE)
    above = {"xy": (0, 1), "xycoords": "axes fraction", "textcoords": "offset points", **fonts}
    axes.annotate(_plain(one.title), xytext=(0, 20), fontsize=10.5, weight="bold", color=_INK, **above)
    axes.annotate(one.numbers, xytext=(0, 6), fontsize=8.5, color=_QUIET, **above)
    return image


def _colour_bar(
    figure: Figure, image: Any, box: tuple[float, float, float, float], width: float, height: float
) -> None:
    bar = figure.colorbar(image, cax=figure.add_axes(_share(box, width, height)))
    top = float(image.norm.vmax)
    ticks = (0.0, top / 16, top / 4, top) if box[3] >= _BAR_OF_FOUR else (0.0, top)
    bar.set_ticks(ticks, labels=[f"{value:.2g}" for value in ticks])
    bar.ax.tick_params(labelsize=8, length=0, labelcolor=_QUIET)
    bar.outline.set_edgecolor(_LINE)


def _plain(text: str) -> str:
    """Dollars begin formulas in matplotlib."""
    return text.replace("$", r"\$")


def _short(word: str) -> str:
    return word if len(word) <= _LONGEST_LABEL else word[: _LONGEST_LABEL - 1] + "…"


def _label_width(word: str) -> float:
    """Inches that a label of nine points takes, about."""
    wide = sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in _short(word))
    return 0.07 * wide + 0.08


# ------------------------------------------------------------------------------------------- the fonts


def fonts_for(text: str) -> tuple[list[str], set[str]]:
    """Font families of this machine that together can write ``text``, and the characters that none of them has."""
    missing = {char for char in text if not char.isspace() and unicodedata.category(char) not in ("Cc", "Cf")}
    families = [_BASE_FONT]
    missing -= _characters(font_manager.findfont(_BASE_FONT))
    while missing:
        best, name = max(((len(missing & _characters(path)), family) for family, path in _installed()), default=(0, ""))
        if not best:
            break
        families.append(name)
        missing -= _characters(dict(_installed())[name])
    return families, missing


@cache
def _installed() -> tuple[tuple[str, str], ...]:
    """One regular face a family; fonts that draw the same box for everything are none."""
    faces: dict[str, str] = {}
    for font in sorted(font_manager.fontManager.ttflist, key=lambda font: (font.style != "normal", str(font.weight))):
        if "Last Resort" not in font.name and not font.name.startswith(("cm", "STIX")):
            faces.setdefault(font.name, font.fname)
    return tuple(faces.items())


@cache
def _characters(path: str) -> frozenset[str]:
    try:
        return frozenset(map(chr, FT2Font(path).get_charmap()))
    except (OSError, RuntimeError):  # a damaged font file
        return frozenset()


# -------------------------------------------------------------------------------------------- the page


def heat_page(maps: Sequence[HeatMap], *, title: str = "Attention", own_scale: bool = False) -> str:
    """The maps as one self-contained page, at most `PAGE_COLUMNS` document words each."""
    maps, notes = _cut(maps, 10 * MAX_ROWS, PAGE_COLUMNS)
    top = max(one.heaviest for one in maps)
    sections = [replace(one, scale=one.heaviest if own_scale else top, note=" ".join(notes)) for one in maps]
    scale = "each map has its own colours" if own_scale else f"all maps share one scale, darkest at {top:.2g}"
    subtitle = f"Summary words down, document words across; {scale} (square root). Point at a cell for its weight."
    return render_report(title, sections, subtitle=subtitle)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------ the curves


def draw_curves(
    curves: Sequence[tuple[str, Sequence[float], np.ndarray]],
    path: str | Path,
    *,
    value: str = "loss",
    window: int = 1,
    log: bool = False,
    against: str = "update",
    unit: str = "",
) -> list[dict[str, Any]]:
    """Draw the curves (name, where, what) of runs and return one row a curve: name, place, final and best value.

    A name may be ``RUN, training`` or ``RUN, validation``: both have the run's colour, and validation is dashed.

    Args:
        value: what is drawn: a key of the runs' logs, such as ``loss``, ``nll``, ``val_loss_tf`` or ``rouge1``.
        window: how many points the running mean covers (1: none); the raw line stays visible behind it.
        log: draw the values on a logarithmic axis.
        against: ``update``, ``epoch`` or ``tokens`` (target tokens read).
        unit: of the values, such as ``nats per word``.
    """
    figure = Figure(figsize=(7.0, 4.5 + 0.2 * len(curves)), layout="constrained")
    axes = figure.add_subplot()
    rows = []
    parts = {name: re.split(", (training|validation)$", name) for name, _, _ in curves}
    runs = list(dict.fromkeys(run for run, *_ in parts.values()))
    for name, places, values in curves:
        run, part, *_ = [*parts[name], ""]
        smooth = running_mean(values, 1 if part == "validation" else window)
        again, place = divmod(runs.index(run), len(_CURVES))  # the eighth run has the first one's colour, dotted
        colour, dotted = _CURVES[place], again % 2
        if window > 1 and part != "validation":
            axes.plot(places, values, color=colour, alpha=0.25, linewidth=0.8)
        style: dict[str, Any] = {"linestyle": "-:"[dotted]}
        if part == "validation":
            style = {"linestyle": ("--", "-.")[dotted], "marker": "o", "markersize": 3}
        axes.plot(places, smooth, color=colour, label=name, linewidth=1.5, **style)
        best = min if "loss" in value or value in {"nll", "coverage", "grad_norm", "val_ppl"} else max
        rows.append({"run": name, against: places[-1], "final": float(smooth[-1]), "best": float(best(values))})
    axes.set_xlabel({"update": "updates", "epoch": "epochs", "tokens": "target tokens"}[against])
    axes.set_ylabel(value.replace("_", " ") + (f" ({unit})" if unit else ""))
    if log:
        axes.set_yscale("log")
    if against != "epoch":
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
    figure.legend(loc="outside lower left")  # within the axes that of many runs hides what is drawn
    figure.savefig(path, dpi=150)
    return rows


def running_mean(values: np.ndarray, window: int) -> np.ndarray:
    """The mean of each value and up to ``window - 1`` before it."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(ends - max(window, 1), 0)
    return (sums[ends] - sums[starts]) / (ends - starts)
