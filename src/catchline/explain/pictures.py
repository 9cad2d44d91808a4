"""Heat maps of attention, drawn by matplotlib: summary words down, document words across. Several maps share one colour
scale, so that a flat map looks flat."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import font_manager
from matplotlib.colors import LinearSegmentedColormap, PowerNorm
from matplotlib.figure import Figure

from catchline.files import part_of

MAX_ROWS, MAX_COLUMNS = 40, 60  # words drawn; more would not be readable
_LONGEST_LABEL = 18  # characters of a word that are drawn
_CELL, _ROW = 0.24, 0.26  # inches
_UNREAD = "#e4e2df"
_COLOURS = LinearSegmentedColormap.from_list("catchline", ["#fdfbf7", "#f3d3b3", "#d4803f", "#9a3a06", "#481a02"])
_FONTS = (
    *("DejaVu Sans", "Noto Sans CJK JP", "Noto Sans CJK SC", "Noto Sans Arabic", "Noto Sans Devanagari"),
    *("WenQuanYi Zen Hei", "Arial Unicode MS", "Hiragino Sans", "Microsoft YaHei", "Segoe UI"),
)


@dataclass(frozen=True, slots=True)
class HeatMap:
    """One map of attention."""

    title: str
    weights: np.ndarray  # (summary words, document words)
    rows: Sequence[str]
    columns: Sequence[str]
    numbers: str = ""  # a line below the title
    read: int | None = None  # how many document words the model reads; the others are drawn grey

    @property
    def heaviest(self) -> float:
        return float(self.weights.max(initial=0.0))


def draw_png(maps: Sequence[HeatMap], path: Path, *, title: str = "") -> list[str]:
    """Draw the maps below each other. Returns notes: words left out, characters that no font of this machine has."""
    maps, notes = _cut(maps, MAX_ROWS, MAX_COLUMNS)
    width = 3.0 + _CELL * max(len(one.columns) for one in maps)
    figure = Figure(figsize=(width, 0.5 + sum(1.9 + _ROW * len(one.rows) for one in maps)), layout="constrained")
    if title:
        figure.suptitle(_plain(title), fontsize=13, weight="bold")
    top = max(one.heaviest for one in maps)
    heights = [1.0 + _ROW * len(one.rows) for one in maps]
    for one, axes in zip(maps, figure.subplots(len(maps), 1, squeeze=False, height_ratios=heights)[:, 0], strict=True):
        image = _draw(axes, one, top)
        figure.colorbar(image, ax=axes, shrink=0.8, pad=0.01).ax.tick_params(labelsize=8, length=0)
    if notes:
        figure.supxlabel("\n".join(notes), fontsize=8)
    installed = {font.name for font in font_manager.fontManager.ttflist}
    for text in figure.findobj(match=lambda artist: hasattr(artist, "set_fontfamily")):
        text.set_fontfamily([name for name in _FONTS if name in installed])  # type: ignore[attr-defined]
    with part_of(path) as file, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        figure.savefig(file, format="png", dpi=150, facecolor="white")
    if any("lyph" in str(warning.message) for warning in caught):
        notes.append("No font here has some of the characters: install one such as Noto Sans CJK, or draw a page.")
    return notes


def _draw(axes: Any, one: HeatMap, scale: float) -> Any:
    norm = PowerNorm(0.5, 0.0, scale or 1.0)
    image = axes.pcolormesh(one.weights, cmap=_COLOURS, norm=norm, edgecolors="#f1eee8", linewidth=0.6)
    if one.read is not None and one.read < len(one.columns):
        axes.axvspan(one.read, len(one.columns), facecolor=_UNREAD, edgecolor="none", zorder=image.get_zorder() + 0.1)
    axes.set_xlim(0, len(one.columns))
    axes.set_ylim(len(one.rows), 0)
    names = [_plain(word, _LONGEST_LABEL) for word in one.columns]
    upright = all(len(name) <= 2 for name in names)  # a language of single characters
    axes.set_xticks(np.arange(len(names)) + 0.5, names, rotation=0 if upright else 90, fontsize=9)
    axes.set_yticks(np.arange(len(one.rows)) + 0.5, [_plain(word, _LONGEST_LABEL) for word in one.rows], fontsize=9)
    axes.tick_params(length=0, pad=4)
    axes.set_title("\n".join(filter(None, [_plain(one.title), one.numbers])), loc="left", fontsize=10)
    return image


def _plain(text: str, most: int = 1000) -> str:
    """Cut a text to a number of characters; escape dollars, which begin formulas in matplotlib."""
    return (text if len(text) <= most else text[: most - 1] + "…").replace("$", r"\$")


def _cut(maps: Sequence[HeatMap], rows: int, columns: int) -> tuple[list[HeatMap], list[str]]:
    notes = []
    cut = [
        replace(one, weights=one.weights[:rows, :columns], rows=one.rows[:rows], columns=one.columns[:columns])
        for one in maps
    ]
    longest = max(maps, key=lambda one: len(one.columns))
    if len(longest.columns) > columns:
        total = sum(float(one.weights.sum()) for one in maps)
        share = sum(float(one.weights[:, :columns].sum()) for one in maps) / total if total else 0.0
        drawn = f"The first {columns} of {len(longest.columns)} document words are drawn"
        notes.append(f"{drawn}; they hold {share:.0%} of the weight.")
    if (most := max(len(one.rows) for one in maps)) > rows:
        notes.append(f"The first {rows} of {most} summary words are drawn.")
    return cut, notes
