"""The table: means over seeds, intervals, marks with Holm's correction, published figures, and its file forms."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace

import numpy as np
import pytest

from catchline.config.loading import load_recipe, resolve_run
from catchline.errors import ConfigError
from catchline.evaluation.plan import PlannedRow
from catchline.evaluation.report import as_dict, compared, csv_text, latex, markdown, verdict
from catchline.evaluation.run import EvaluationResult, RougeScore
from catchline.evaluation.table import Outcome, Table, cells, differences, mark_of, notes, table_of, table_of_results
from catchline.metrics.scoring import ANOTHER_SCRIPT
from catchline.metrics.significance import approximate_randomization, holm

DOCUMENTS = 40
NOISE = np.random.default_rng(3).normal(0, 0.02, DOCUMENTS)
NOISE -= NOISE.mean()
BASE = np.random.default_rng(4).uniform(0.2, 0.5, DOCUMENTS)


def scored(values: np.ndarray, name: str = "x", **measures: float) -> EvaluationResult:
    per_document = {kind: tuple(map(float, values)) for kind in ("1", "2", "L")}
    mean = float(values.mean())
    rouge = {kind: RougeScore(mean, mean, mean, mean, mean) for kind in per_document}
    measures = {"words": 9.0, "bleu": 12.0, "bleu_paper": 0.123} | measures
    about = {"signature": "rouge:test", "bleu_signature": "bleu:test", "seconds": 0.0}
    return EvaluationResult(name, len(values), rouge, measures, per_document=per_document, **about)  # type: ignore[arg-type]


def outcome(name: str, *values: np.ndarray, published: dict[str, float] | None = None, **extra: object) -> Outcome:
    row = PlannedRow(name, name.upper(), published or {})
    return Outcome(row, [scored(v, name) for v in values], **extra)  # type: ignore[arg-type]


def table(*outcomes: Outcome, **about: str) -> Table:
    return table_of(outcomes, "base", data="v.jsonl", records=DOCUMENTS, title="A paper", **about)


def shown(made: Table) -> list[dict[str, str]]:
    """Of each row, what stands below the headings."""
    header, rows = cells(made)
    return [dict(zip(header, row, strict=True)) for row in rows]


def test_marks_are_those_of_the_corrected_test() -> None:
    others = {"same": BASE + NOISE, "slightly": BASE + NOISE + 0.0082, "better": BASE + NOISE + 0.05}
    made = table(outcome("base", BASE), *(outcome(name, values) for name, values in others.items()))
    raw = {name: approximate_randomization(values, BASE).p for name, values in others.items()}
    corrected = holm(raw)
    for row in made.rows[1:]:
        figure = row.rouge["1"]
        assert (figure.p, figure.p_holm) == (raw[row.name], corrected[row.name])
        assert figure.difference == pytest.approx(float((others[row.name] - BASE).mean()))
    found = {row["system"]: row["ROUGE-1"].rstrip() for row in shown(made)}
    assert found["BETTER"].endswith("**")
    assert not found["SAME"].endswith("*")
    assert raw["slightly"] < 0.05 < corrected["slightly"]
    assert not found["SLIGHTLY"].endswith("*")
    assert found["BASE (baseline)"] == f"{100 * BASE.mean():.2f} ±{found['BASE (baseline)'].split('±')[1]}"


def test_seeds_are_averaged_by_document() -> None:
    made = table(outcome("base", BASE), outcome("two", BASE + 0.1, BASE + 0.3))
    figure = made.rows[1].rouge["1"]
    assert figure.f == pytest.approx(float(BASE.mean()) + 0.2)
    assert figure.sd == pytest.approx(0.2 / 2**0.5)
    assert figure.low < figure.f < figure.high
    assert figure.difference == pytest.approx(0.2)
    assert "2 seeds" in notes(made)[0]
    made = table(outcome("base", BASE, BASE, errors=["seed 3: nan"]), outcome("two", *3 * [BASE]))
    assert [row["system"] for row in shown(made)] == ["BASE (baseline, 2 of 3 seeds)", "TWO"]


def test_what_is_shown_and_how_it_was_counted_is_said() -> None:
    usual = table(outcome("base", BASE))
    by_recall = replace(scored(BASE), shown="recall", flags="recall at 75 bytes")
    recall = table(Outcome(PlannedRow("base", "BASE"), [by_recall]))
    assert "ROUGE F1 x 100" in notes(usual)[0]
    assert "ROUGE recall x 100" in notes(recall)[0]
    assert notes(recall)[-3:] == ["recall at 75 bytes", *notes(usual)[-2:]]
    assert notes(usual)[-2:] == ["rouge:test", "BLEU bleu:test"]
    assert [as_dict(made)["shown"] for made in (usual, recall)] == ["f", "recall"]


def test_published_figures_stand_beside_ours() -> None:
    published = {"subset.bleu": 0.041, "subset.val_loss": 6.66, "rouge1": 39.5, "subset.odd_measure": 7}
    trained = [{"metrics": {"val_loss_tf": 5.0, "val_loss_free": 6.0}}]
    made = table(outcome("base", BASE, published=published, trained=trained))
    header, rows = cells(made)
    found = shown(made)[0]
    assert header[1:3] == ["ROUGE-1", "ROUGE-1, paper"]
    for ours, theirs in (("BLEU", "BLEU, paper (subset)"), ("val loss", "val loss, paper (subset)")):
        assert header[header.index(ours) + 1] == theirs
    assert (found["BLEU"], found["val loss"], found["paper odd measure (subset)"]) == ("0.123", "6.000", "7")
    assert rows[0][header.index("BLEU") + 1] == "0.041"
    assert found["ROUGE-1, paper"] == "39.5"
    assert "Derived." in notes(replace(made, note="Derived."))
    for nothing_or_percent in (None, {"bleu": 17.0}):
        assert shown(table(outcome("base", BASE, published=nothing_or_percent)))[0]["BLEU"] == "12.00"  # sacreBLEU's


def test_losses_are_the_likelihood_alone() -> None:
    """Beside a row with coverage a row without must not look better than it is."""
    parts = {"val_loss_tf_nll": 4.6, "val_loss_free": 5.6, "val_loss_free_nll": 4.733, "val_loss_free_coverage": 0.867}
    losses = {"train_loss": 5.8, "train_loss_nll": 4.9}
    covered = {"metrics": {"val_loss_tf": 5.5, **parts}, **losses}
    plain = {"metrics": {"val_loss_tf": 5.0, "val_loss_free": 5.1}, "train_loss": 5.2}
    published = {"subset.train_loss": 5.6, "subset.val_loss": 6.66}
    both = {"base": plain, "covered": covered}
    outcomes = [outcome(name, BASE, published=published, trained=[one]) for name, one in both.items()]
    made = table(*outcomes)
    assert [(row["train loss"], row["val loss"]) for row in shown(made)] == [("5.200", "5.100"), ("4.900", "4.733")]
    assert "Losses: nats per word, of the likelihood alone; val loss: the model reads its own words." in notes(made)
    run = resolve_run(load_recipe("distraction"), "uni-gru", "tiny")
    outcomes[0].row = replace(outcomes[0].row, runs=(run,))
    assert "Losses: nats per summary" in "\n".join(notes(table(outcomes[0])))


def test_what_is_rare_is_shown_where_there_is_any() -> None:
    made = table(outcome("base", BASE), Outcome(PlannedRow("marks", "M"), [scored(BASE, unk_rate=1.0, empty=0.25)]))
    assert [shown(made)[1][name] for name in ("unk %", "empty %")] == ["100.0", "25.0"]
    assert not {"unk %", "empty %"} & set(cells(table(outcome("base", BASE)))[0])


def test_a_failed_row_shows_its_error() -> None:
    made = table(outcome("base", BASE), outcome("bad", errors=["The loss is not finite."]))
    assert [row.name for row in made.rows if row.errors] == ["bad"]
    assert cells(made)[1][1][1] == "failed"
    assert "BAD failed: The loss is not finite." in notes(made)
    assert "not finite" in csv_text(made)
    json.dumps(as_dict(made), allow_nan=False)
    without_baseline = table(outcome("base", errors=["lost"]), outcome("x", BASE))
    assert without_baseline.rows[1].rouge["1"].p_holm is None


def test_file_forms_agree() -> None:
    alone, made = table(outcome("base", BASE)), table(outcome("base", BASE), outcome("a|b*", BASE + 0.1))
    assert cells(alone)[1][0][0] == "BASE"
    assert [any("p < 0.01" in line for line in notes(one)) for one in (alone, made)] == [False, True]
    tex = latex(made)
    ((columns, inside),) = re.findall(r"(?m)^\\begin\{tabular\}\{l(r+)\}\n((?s:.*?))\\end\{tabular\}$", tex)
    top, head, middle, *body, bottom = inside.splitlines()
    assert (top, middle, bottom) == (r"\toprule", r"\midrule", r"\bottomrule")
    lines = [[cell.strip() for cell in re.split(r"(?<!\\)&", line)] for line in (head, *body)]
    assert {len(line) for line in lines} == {len(columns) + 1}
    assert [line[0] for line in lines] == ["system", "BASE (baseline)", "A|B*"]
    assert all(line[-1].endswith(r"\\") for line in lines)
    heads = [cell.removesuffix(r" \\").strip().replace(r"\%", "%").replace(r"\_", "_") for cell in lines[0]]
    assert heads == cells(made)[0]
    assert r"$\pm$" in tex
    assert "$^{**}$ &" in tex
    assert "A|B* &" in tex
    rows = list(csv.DictReader(io.StringIO(csv_text(made))))
    values = as_dict(made)["rows"]
    assert [float(row["rouge1_f"]) for row in rows] == [row["rouge"]["1"]["f"] for row in values]
    assert float(rows[1]["rouge1_p_holm"]) == values[1]["rouge"]["1"]["p_holm"]
    text = markdown(made, "catchline compare p")
    assert "A\\|B\\*" in text
    assert "rouge:test" in text
    bars = {line.replace("\\|", "").count("|") for line in text.splitlines() if line.startswith("|")}
    assert len(bars) == 1


@pytest.mark.parametrize("test", ["bootstrap", "t"])
def test_other_tests(test: str) -> None:
    made = table(outcome("base", BASE), outcome("x", BASE + NOISE + 0.05), test=test)
    assert mark_of(made.rows[1].rouge["L"].p_holm) == "**"
    with pytest.raises(ConfigError, match="Did you mean 'bootstrap'"):
        differences({"1": BASE}, {}, "bootstap")


def test_evaluate_has_p_values_too() -> None:
    results = [scored(BASE, "a"), scored(BASE + NOISE + 0.05, "b")]
    made = table_of_results(results, "v.jsonl")
    listed = compared(made, results)
    assert "p" not in listed[0]
    assert listed[1]["p"]["1"] == listed[1]["p_holm"]["1"] == approximate_randomization(BASE + NOISE + 0.05, BASE).p
    assert listed[1]["difference"]["1"] == pytest.approx(float((NOISE + 0.05).mean()))
    assert cells(made)[1][1][1].endswith("**")
    assert "against a: paired test over documents (randomization)" in notes(made)[1]


# --------------------------------------------------------------------------- what is said when a training ends


def at(level: float, **measures: float) -> EvaluationResult:
    return scored(np.array([level + 0.001 * (number % 7) for number in range(60)]), **measures)


LEAD = at(0.2)


@pytest.mark.parametrize(
    ("level", "said"),
    [
        (0.1, "Worse than taking the first sentence: ROUGE-L 10.29 against 20.29 on 60 pairs"),
        (0.3, "Better than taking the first sentence by 10.00: ROUGE-L 30.29"),
        (0.2, "No clear difference from taking the first sentence"),
    ],
)
def test_against_the_first_sentence(level: float, said: str) -> None:
    lines = verdict([LEAD, at(level)], fine_tuned=False)
    assert lines[0].startswith(said)
    assert len(lines) == 1
    assert ("catchline train oneline" in lines[0]) == (level < 0.3)
    assert "oneline" not in verdict([LEAD, at(level)], fine_tuned=True)[0]


def test_what_else_is_wrong() -> None:
    measures = {"repeating": 0.89, "unsupported_word": 0.4, "empty": 0.25}
    lines, again = (verdict([LEAD, at(0.3, **measures)], fine_tuned=False, no_repeat=number) for number in (0, 2))
    assert [line.split()[0] for line in lines] == ["Better", "89%", "40%", "25%"]
    assert "no_repeat_ngram=2" in lines[1]
    assert again[1] == "89% of its summaries repeat themselves: train longer."
    other = verdict([LEAD, replace(at(0.0), flags=ANOTHER_SCRIPT)], fine_tuned=False)
    assert "oneline" not in other[0], "which is English"
    assert other[-1].startswith("How ROUGE counts: profile unicode")
