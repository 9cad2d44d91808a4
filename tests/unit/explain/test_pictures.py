"""Heat maps: pictures of a sensible size, pages that are right, notes about what is left out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib import font_manager
from matplotlib.colorbar import Colorbar
from matplotlib.image import imread

from catchline.cli.explain import write_heatmap
from catchline.explain import pictures
from catchline.explain.pictures import HeatMap, draw_png, fonts_for, heat_page
from catchline.types import Summary, SummaryWord


def some_map(rows: int = 4, columns: int = 9, title: str = "layer 2, head 4", seed: int = 0) -> HeatMap:
    weights = np.random.default_rng(seed).random((rows, columns))
    weights /= weights.sum(1, keepdims=True)
    return HeatMap(
        title, weights, [f"row{i}" for i in range(rows)], [f"word{i}" for i in range(columns)], "entropy 1.00 of 2.20"
    )


def size(path: Path) -> tuple[int, int]:
    height, width = imread(path).shape[:2]
    return width, height


def test_picture(tmp_path: Path) -> None:
    path = tmp_path / "new" / "map.png"
    assert draw_png([some_map()], path, title=r"a $\frac$ pair") == []
    pixels = imread(path)
    assert pixels.shape[1] < 900
    assert not list(path.parent.glob("*.partial"))
    assert len(np.unique(pixels.reshape(-1, pixels.shape[2]), axis=0)) > 20  # colours, not an empty sheet


def test_short_maps_stand_side_by_side_and_long_ones_below_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pictures, "_WIDEST", 6.0)
    sizes = []
    for columns in (5, 14):
        maps = [some_map(2, columns, seed=seed) for seed in range(2)]
        for drawn in (maps[:1], maps):
            draw_png(drawn, tmp_path / "map.png")
            sizes.append(size(tmp_path / "map.png"))
    one, two = sizes[:2]
    assert two[0] > 1.5 * one[0]
    assert two[1] == one[1]
    one, two = sizes[2:]
    assert two[0] == one[0]
    assert two[1] > 1.5 * one[1]


def test_long_documents_and_summaries_are_cut_with_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (pictures.MAX_COLUMNS, pictures.MAX_ROWS) == (60, 40), "as the page on alignment says"
    assert max(pictures.MAX_COLUMNS * pictures._CELL, pictures.MAX_ROWS * pictures._ROW) < pictures._WIDEST
    monkeypatch.setattr(pictures, "MAX_ROWS", 4)
    monkeypatch.setattr(pictures, "MAX_COLUMNS", 6)
    long = some_map(rows=5, columns=30)
    notes = draw_png([long], tmp_path / "map.png")
    share = round(100 * long.weights[:, :6].sum() / long.weights.sum())
    assert notes[0].startswith(f"The first 6 of 30 document words are drawn; they hold {share}% of the weight.")
    assert notes[1] == "The first 4 of 5 summary words are drawn."
    assert size(tmp_path / "map.png")[0] < 600


def test_a_flat_map_looks_flat_beside_a_sharp_one_unless_it_has_its_own_scale(tmp_path: Path) -> None:
    sharp = HeatMap("sharp", np.eye(4, 9), ["a"] * 4, ["b"] * 9)
    flat = HeatMap("flat", np.full((4, 9), 1 / 9), ["a"] * 4, ["b"] * 9)

    def darkest(own_scale: bool) -> float:
        draw_png([sharp, flat], tmp_path / "map.png", own_scale=own_scale)
        pixels = imread(tmp_path / "map.png")[..., :3].mean(-1)
        return float((pixels < 0.15).mean())  # cells of full weight

    assert darkest(True) > 3 * darkest(False)


@pytest.mark.parametrize(
    ("odd", "notes"),
    [
        (HeatMap("empty", np.zeros((1, 1)), ["a"], ["b"]), ""),
        # formulas and line breaks in words stay text
        (HeatMap("cost $x_{$", np.full((1, 3), 1 / 3), ["$a$"], [r"\frac{", "$5", "^_^"]), ""),
        (HeatMap("no font", np.ones((1, 1)), ["\U0010fffd"], ["b"]), "No font here has 1 of the characters"),
    ],
    ids=lambda value: getattr(value, "title", ""),
)
def test_odd_maps_are_drawn(odd: HeatMap, notes: str, tmp_path: Path) -> None:
    said = draw_png([odd], tmp_path / "map.png", title="$1 and $2")
    assert (tmp_path / "map.png").exists()
    assert len(said) == bool(notes)
    assert notes in "".join(said)


def test_fonts(monkeypatch: pytest.MonkeyPatch) -> None:
    assert fonts_for("Grüße, Москва") == (["DejaVu Sans"], set())
    families, missing = fonts_for("a\U0010fffd b\n")  # a private character that no font has
    assert families == ["DejaVu Sans"]
    assert missing == {"\U0010fffd"}
    base = font_manager.findfont("DejaVu Sans")

    def characters(path: str) -> frozenset[str]:
        return frozenset("天气") if path == "han.ttf" else frozenset("abc") if path == base else frozenset()

    monkeypatch.setattr(pictures, "_installed", lambda: (("Other", "other.ttf"), ("Han", "han.ttf")))
    monkeypatch.setattr(pictures, "_characters", characters)
    assert fonts_for("a天气") == (["DejaVu Sans", "Han"], set())
    assert fonts_for("a天だ") == (["DejaVu Sans", "Han"], {"だ"})


def test_page() -> None:
    first, second = some_map(title="layer 0, head 1"), some_map(title="<b>opponent</b>", seed=1)
    page = heat_page([first, second], title="pair <7>")
    assert page.count('class="heatmap"') == 2
    assert "pair &lt;7&gt;" in page
    assert "<b>opponent" not in page
    assert page.count("--w:") == 2 * first.weights.size
    assert f'title="row1 ← word3: {first.weights[1, 3]:.3f}"' in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    top = max(first.weights.max(), second.weights.max())
    depth = round(float(np.sqrt(first.weights[1, 3] / top)), 3)
    assert f'--w:{depth}" title="row1 ← word3' in page
    assert "--w:1.0" in heat_page([first], own_scale=True)
    long = heat_page([some_map(columns=900)])
    assert long.count("--w:") == 4 * 400
    assert "The first 400 of 900 document words" in long


def test_words_that_are_not_read_are_grey_and_words_without_weight_white(tmp_path: Path) -> None:
    weights = np.zeros((3, 6))
    weights[:, 0] = 1.0
    words = [f"w{number}" for number in range(6)]
    shades = []
    for read in (None, 4):
        one = HeatMap("map", weights, ["a", "b", "c"], words, read=read)
        draw_png([one], tmp_path / "map.png")
        pixels = np.round(imread(tmp_path / "map.png")[..., :3] * 255).astype(int)
        grey = (pixels == [int(pictures._UNREAD[place : place + 2], 16) for place in (1, 3, 5)]).all(-1)
        shades.append(grey.sum() / 150**2)
    assert shades[0] == 0
    cells = 2 * 3 * pictures._CELL * pictures._ROW  # square inches: two words in three rows
    assert shades[1] == pytest.approx(cells, rel=0.05)


def test_a_low_colour_bar_has_two_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    monkeypatch.setattr(Colorbar, "set_ticks", lambda bar, ticks, labels: shown.extend(labels))
    for rows in (1, 4):
        draw_png([HeatMap("map", np.ones((rows, 3)), ["a"] * rows, ["x"] * 3)], tmp_path / "map.png")
    assert shown == ["0", "1", "0", "0.062", "0.25", "1"]


def test_columns_of_special_tokens_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[HeatMap] = []
    monkeypatch.setattr("catchline.explain.pictures.draw_png", lambda maps, *_, **__: drawn.extend(maps) or [])
    weights = (0.1, 0.5, 0.3, 0.1)
    word = SummaryWord("cat", 0, 3, 1.0, copied=True, copy_share=1.0, p_gen=None, sources=(), attention=weights)
    offsets = ((0, 0), (0, 3), (4, 7), (7, 7))
    write_heatmap(tmp_path / "map.png", [Summary("cat", document="cat sat", words=(word,), source_offsets=offsets)])
    assert list(drawn[0].columns) == ["(start)", "cat", "sat", "(end)"]
