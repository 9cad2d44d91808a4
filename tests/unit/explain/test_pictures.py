"""Heat maps: pictures of a sensible size, pages that are right, notes about what is left out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from catchline.cli.explain import write_heatmap
from catchline.explain import pictures
from catchline.explain.pictures import HeatMap, draw_png
from catchline.types import Summary, SummaryWord


def some_map(rows: int = 4, columns: int = 9, title: str = "layer 2, head 4", seed: int = 0) -> HeatMap:
    weights = np.random.default_rng(seed).random((rows, columns))
    weights /= weights.sum(1, keepdims=True)
    return HeatMap(
        title, weights, [f"row{i}" for i in range(rows)], [f"word{i}" for i in range(columns)], "entropy 1.00 of 2.20"
    )


def test_picture(tmp_path: Path) -> None:
    path = tmp_path / "new" / "map.png"
    assert draw_png([some_map()], path, title=r"a $\frac$ pair") == []
    pixels = imread(path)
    assert pixels.shape[1] < 900
    assert not list(path.parent.glob("*.partial"))
    assert len(np.unique(pixels.reshape(-1, pixels.shape[2]), axis=0)) > 20  # colours, not an empty sheet


def test_long_documents_and_summaries_are_cut_with_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "MAX_ROWS", 4)
    monkeypatch.setattr(pictures, "MAX_COLUMNS", 6)
    long = some_map(rows=5, columns=30)
    notes = draw_png([long], tmp_path / "map.png")
    share = round(100 * long.weights[:, :6].sum() / long.weights.sum())
    assert notes[0].startswith(f"The first 6 of 30 document words are drawn; they hold {share}% of the weight.")
    assert notes[1] == "The first 4 of 5 summary words are drawn."


def test_columns_of_special_tokens_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[HeatMap] = []
    monkeypatch.setattr("catchline.explain.pictures.draw_png", lambda maps, *_, **__: drawn.extend(maps) or [])
    weights = (0.1, 0.5, 0.3, 0.1)
    word = SummaryWord("cat", 0, 3, 1.0, copied=True, copy_share=1.0, p_gen=None, sources=(), attention=weights)
    offsets = ((0, 0), (0, 3), (4, 7), (7, 7))
    write_heatmap(tmp_path / "map.png", [Summary("cat", document="cat sat", words=(word,), source_offsets=offsets)])
    assert list(drawn[0].columns) == ["(start)", "cat", "sat", "(end)"]
