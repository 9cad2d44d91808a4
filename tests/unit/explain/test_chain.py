"""The chain of copying, token by token: gates, maps and places against numbers worked out by hand."""

from __future__ import annotations

import io
import json
import math
import re
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from catchline.explain.provenance import build_summary
from catchline.explain.record import from_dict, to_dict
from catchline.explain.terminal import show
from catchline.text.tokenizer import WordTokenizer
from catchline.types import Hypothesis, Summary, TokenizedText

DOCUMENT = "a red car hit a wall"
ALPHA = [[0.0, 0.5, 0.3, 0.0, 0.0, 0.1, 0.1], [0.1, 0.1, 0.1, 0.1, 0.1, 0.4, 0.1]]
P_CO = [[0.0] * 7, [0.0, 0.0, 0.7, 0.2, 0.0, 0.1, 0.0]]
P_FINAL = [[0.0, 0.5, 0.3, 0.0, 0.0, 0.1, 0.1], [0.0, 0.1, 0.6, 0.1, 0.0, 0.1, 0.1]]
DETAILS: dict[str, Any] = {
    "p_gen": [0.5, 0.25],
    "copy_probs": [[0.5 * w for w in P_FINAL[0]], [0.75 * w for w in P_FINAL[1]]],
    "p_final": P_FINAL,
    "copy_correlational": P_CO,
    "copy_attention_gate": [1.0, 0.2],
    "copy_semantic_gate": [0.3, 0.7],
}


def summary(details: dict[str, Any], probabilities: tuple[float, float] = (0.5, 0.6)) -> Summary:
    """'red car' by a model that read the document and an END, the last of seven tokens."""
    tokenizer = WordTokenizer(WordTokenizer.Config(min_frequency=1))
    tokenizer.train([DOCUMENT])
    encoding = tokenizer.encode(DOCUMENT)
    read = TokenizedText(
        ids=(*encoding.ids, tokenizer.eos_id),
        tokens=(*encoding.tokens, tokenizer.token(tokenizer.eos_id)),
        offsets=(*encoding.offsets, (len(DOCUMENT), len(DOCUMENT))),
        total=encoding.total,
        truncated=False,
    )
    ids = [encoding.ids[1], encoding.ids[2]]
    hypothesis = Hypothesis(
        ids=ids,
        score=-1.0,
        log_prob=-1.0,
        token_log_probs=[math.log(p) for p in probabilities],
        finished=False,
        attention=np.array(ALPHA),
        details={name: np.array(values) for name, values in details.items()},
    )
    return build_summary(hypothesis, document=DOCUMENT, source_encoding=read, tokenizer=tokenizer, model_name="m")


def test_each_token_has_its_gates_and_places() -> None:
    made = summary(DETAILS)
    red, car = made.words
    assert made.text == "red car"
    assert car.maps == {"p_co": pytest.approx(P_CO[1]), "p_final": pytest.approx(P_FINAL[1])}
    assert car.figures == pytest.approx(
        {"copy_attention_gate": 0.2, "copy_semantic_gate": 0.7, "copied_from_specials": 0.1}
    )
    (token,) = car.tokens
    assert (token.text, token.p_gen, token.figures) == ("car", 0.25, pytest.approx(car.figures))
    assert [(span.text, span.start, span.weight) for span in token.sources["p_final"]] == [
        ("car", 6, pytest.approx(0.6)),
        ("red", 2, pytest.approx(0.1)),
        ("hit", 10, pytest.approx(0.1)),
    ]
    assert [span.text for span in token.sources["attention"]] == ["wall", "a", "red"]
    assert [span.text for span in token.sources["p_co"]] == ["car", "hit", "wall"]
    assert red.tokens[0].sources["p_co"] == ()  # the first step has no history
    # what was copied of "car": (1 - 0.25) 0.6, of a probability of 0.6
    assert car.copy_share == pytest.approx(0.75 * 0.6 / 0.6)


def test_the_factor_of_copying_counts_once() -> None:
    """copy_probs are (1 - p_gen) P_final already; without them the attention is what was copied."""
    half = summary({"p_gen": DETAILS["p_gen"], "copy_probs": DETAILS["copy_probs"]}, (0.4, 0.6))
    assert [word.copy_share for word in half.words] == pytest.approx([0.5 * 0.5 / 0.4, 0.75 * 0.6 / 0.6])
    plain = summary({"p_gen": DETAILS["p_gen"]}, (0.4, 0.6))
    assert [word.copy_share for word in plain.words] == pytest.approx([0.5 * 0.5 / 0.4, 0.75 * 0.1 / 0.6])
    assert (plain.words[0].maps, plain.words[0].figures, plain.words[0].tokens) == ({}, {}, ())


def test_an_opponent_is_shown_too() -> None:
    opponent = {"opponent_attention": P_CO, "conventional_attention": ALPHA, "opponent_log_prob": [-1.5, -2.0]}
    words = summary(opponent).words
    assert list(words[1].maps) == ["opponent_attention", "conventional_attention"]
    assert words[1].maps["opponent_attention"] == pytest.approx(P_CO[1])
    assert [word.figures["opponent_log_prob"] for word in words] == [-1.5, -2.0]


def test_it_survives_being_stored() -> None:
    made = summary(DETAILS)
    stored = json.loads(json.dumps(to_dict(made)))
    again = from_dict(stored)
    assert again.words[1].maps["p_co"] == pytest.approx(P_CO[1])
    assert again.words[1].tokens == made.words[1].tokens
    bare = to_dict(made, attention=False)
    assert "maps" not in bare["words"][0]
    assert bare["words"][0]["tokens"][0]["sources"]["p_final"][0]["text"] == "red"


def test_the_table_of_tokens() -> None:
    out = io.StringIO()
    console = Console(file=out, width=200, color_system=None)
    show(summary(DETAILS), console, words=True)
    lines = out.getvalue().splitlines()
    header = next(line for line in lines if line.startswith("token"))
    assert header.split() == ["token", "P", "λ", "g", "u", "specials", "alpha", "P_co", "P_final"]
    row = next(line for line in reversed(lines) if line.startswith("car"))
    assert row.split()[1:6] == ["0.60", "0.25", "0.20", "0.70", "0.10"]
    assert re.search(r"wall \(0\.40\).*car \(0\.70\).*car \(0\.60\)", row)
    out.truncate(0)
    show(summary({}), console, words=True)
    assert "token  " not in out.getvalue()
