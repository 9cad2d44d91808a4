"""What is said of a model when its training ends."""

from __future__ import annotations

from dataclasses import replace

import pytest

from catchline.evaluation.run import EvaluationResult, RougeScore
from catchline.evaluation.table import verdict
from catchline.metrics.scoring import ANOTHER_SCRIPT


def result(name: str, level: float, **measures: float) -> EvaluationResult:
    scores = tuple(level + 0.001 * (number % 7) for number in range(60))
    mean = sum(scores) / 60
    figure = RougeScore(mean, mean, mean, mean, mean)
    kinds = ("1", "2", "L")
    return EvaluationResult(
        name, 60, dict.fromkeys(kinds, figure), measures, "signature", 0.0, dict.fromkeys(kinds, scores)
    )


@pytest.mark.parametrize(
    ("level", "said"),
    [
        (0.1, "Worse than taking the first sentence: ROUGE-L 10.29 against 20.29 on 60 pairs"),
        (0.3, "Better than taking the first sentence by 10.00: ROUGE-L 30.29"),
        (0.2, "No clear difference from taking the first sentence"),
    ],
)
def test_against_the_first_sentence(level: float, said: str) -> None:
    lines = verdict([result("lead-1", 0.2), result("the model", level)], fine_tuned=False)
    assert lines[0].startswith(said)
    assert len(lines) == 1
    assert ("catchline train oneline" in lines[0]) == (level < 0.3)
    assert "oneline" not in verdict([result("lead-1", 0.2), result("the model", level)], fine_tuned=True)[0]


def test_a_model_of_another_script_is_not_told_to_start_from_an_english_one() -> None:
    lead, model = result("lead-1", 0.2), result("the model", 0.0)
    lines = verdict([lead, replace(model, flags=ANOTHER_SCRIPT)], fine_tuned=False)
    assert "try more pairs or a longer training (training.max_epochs, training.max_minutes)." in lines[0]
    lines = verdict([replace(one, flags="profile unicode") for one in (lead, model)], fine_tuned=False)
    assert lines[-1] == "How ROUGE counts: profile unicode.", "where it is not as always"


def test_what_else_is_wrong() -> None:
    measures = {"repeating": 0.89, "unsupported_word": 0.4, "empty": 0.25}
    lines = verdict([result("lead-1", 0.2), result("the model", 0.3, **measures)], fine_tuned=False)
    assert [line.split()[0] for line in lines] == ["Better", "89%", "40%", "25%"]
    assert "no_repeat_ngram=2" in lines[1]
    again = verdict([result("lead-1", 0.2), result("the model", 0.3, repeating=0.89)], fine_tuned=False, no_repeat=2)
    assert again[1] == "89% of its summaries repeat themselves: train longer."
