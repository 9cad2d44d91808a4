"""`Summarizer`, ``catchline summarize`` and ``catchline explain`` on a tiny pointer-generator and on extractive
methods."""

from __future__ import annotations

import gzip
import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from catchline import Summarizer
from catchline.cli.main import main
from catchline.config.schema import SearchConfig
from catchline.errors import ConfigError
from catchline.evaluation.run import identity, open_system
from catchline.metrics.confidence import Calibration
from catchline.models.folder import LoadedModel
from catchline.summarizer.decoding import DecodedDocument
from catchline.types import Record
from commands import Capture, refused, run
from json_lines import read_lines, write_lines
from tiny_models import DOCUMENTS, save_tiny_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("models") / "tiny", max_source_tokens=12)


@pytest.fixture(scope="module")
def summarizer(folder: Path) -> Summarizer:
    return Summarizer.from_pretrained(folder)


def test_one_text_gives_one_summary_and_a_list_a_list_in_order(summarizer: Summarizer) -> None:
    alone = [summarizer.summarize(text) for text in DOCUMENTS]
    together = summarizer.summarize(DOCUMENTS, batch_size=2)
    for several in (together, list(summarizer.stream(iter(DOCUMENTS), batch_size=3))):
        assert [(summary.text, summary.document) for summary in several] == [(s.text, s.document) for s in alone]
    assert [summary.score for summary in together] == pytest.approx([summary.score for summary in alone], abs=1e-4)
    assert len({summary.text for summary in alone}) > 1, "the toy model should not say the same to everything"
    assert summarizer.summarize([]) == []
    assert summarizer.name == alone[0].model == "tiny"


def test_every_word_points_into_the_users_text(summarizer: Summarizer) -> None:
    for document in DOCUMENTS:
        summary = summarizer.explain(document)
        assert summary.words
        for word in summary.words:
            assert summary.text[word.start : word.end] == word.text
            assert 0 <= word.copy_share <= 1
            assert word.copied == (word.copy_share > 0.5)
            assert 0 < word.probability <= 1
            assert len(word.attention) == len(summary.source_offsets) <= 12
            assert sum(word.attention) == pytest.approx(1.0, abs=1e-4)
            for span in word.sources:
                assert document[span.start : span.end] == span.text
                if word.copied:
                    assert span.text.lower() == word.text.lower()
    assert summarizer.summarize(DOCUMENTS[0]).words == ()


def test_what_is_scored_is_what_people_see_unless_the_run_says_otherwise(folder: Path, tmp_path: Path) -> None:
    paper, record = tmp_path / "paper", [Record(DOCUMENTS[2])]
    shutil.copytree(folder, paper)
    recipe = paper / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace("surface: null", "surface: raw"))

    def scored(place: Path, **search: Any) -> tuple[str, Any]:
        system = open_system(str(place), search)
        return system.summarize(record, always_write=True)[0].text, identity(system, str(place))

    (own, name), (raw, raw_name), (clean, clean_name) = (
        scored(paper, **search) for search in ({}, {"surface": "raw"}, {"surface": "clean"})
    )
    assert own == raw == raw.lower() == scored(folder, surface="raw")[0]
    assert clean == scored(folder)[0] != own
    assert name == raw_name != clean_name, "its run asks for raw"


def test_overrides_change_the_decoding_and_are_checked(summarizer: Summarizer) -> None:
    assert len(summarizer.summarize(DOCUMENTS[0], max_length=2).text.split()) <= 2
    several = summarizer.summarize(DOCUMENTS[0], num_return=np.int64(3), surface="raw")
    assert len({several.text, *(other.text for other in several.alternatives)}) == 3, "the beam grows"
    for options in ({"beam_size": -1}, {"beamsize": 3}, {"batch_size": 0}, {"batch_size": 2.5}):
        with pytest.raises(ConfigError, match=r"beam_size|batch_size"):
            summarizer.summarize(DOCUMENTS[0], **options)
    with pytest.raises(ConfigError, match="batch_size"):
        summarizer.score(DOCUMENTS[:1], ["x"], batch_size=0)
    assert summarizer.decoding(beam_size=5)["beam_size"] == 5


@pytest.mark.parametrize(
    ("lines", "best"),
    [
        (["the ferry the ferry sank", "the ferry sank", "ferry"], "the ferry sank"),
        (["12 ferries sank", "it sank on 5 May", "Oslo ferry sank", "a ferry sank"], "a ferry sank"),
        (["9 ferries", "the ferry the ferry"], "9 ferries"),  # all have one
        (["x" * 10_001, "the ferry"], "x" * 10_001),  # a copied word of any length is looked at in no time
    ],
)
def test_the_first_hypothesis_without_a_fault_is_given(lines: list[str], best: str) -> None:
    decoded: Any = object.__new__(DecodedDocument)
    decoded.record, decoded._plain = Record("The ferry sank near the island."), str
    decoded.options, decoded._length = SearchConfig(faultless=True), None
    assert decoded.in_order(lines) == [best, *(line for line in lines if line != best)]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    rows = [{"id": f"r{i}", "document": text, "summary": f"gold {i}"} for i, text in enumerate(DOCUMENTS)]
    return write_lines(tmp_path / "data.jsonl", rows)


@pytest.fixture
def article(tmp_path: Path) -> Path:
    path = tmp_path / "article.txt"
    path.write_text(DOCUMENTS[0])
    return path


def test_text_in_summary_out(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "a.txt").write_text("One fox. Two dogs. Three birds.")
    (tmp_path / "b.txt").write_text("Uno. Dos.")
    command = ["summarize", "lead", "--sentences", "1", tmp_path / "a.txt"]
    assert run(capsys, *command) == "One fox.\n"
    assert run(capsys, *command, tmp_path / "b.txt") == f"== {tmp_path}/a.txt\nOne fox.\n== {tmp_path}/b.txt\nUno.\n"


def test_records_in_json_lines_out_in_order(
    folder: Path, summarizer: Summarizer, corpus: Path, capsys: Capture
) -> None:
    out = [json.loads(line) for line in run(capsys, "summarize", folder, corpus, "--batch-size", 2).splitlines()]
    assert [line["id"] for line in out] == ["r0", "r1", "r2", "r3", "r4"]
    assert [line["summary"] for line in out] == [summary.text for summary in summarizer.summarize(DOCUMENTS)]
    assert {"id", "summary", "score", "tokens_read", "truncated", "model", "decoding"} <= set(out[0])
    assert not {"document", "words"} & set(out[0])
    assert out[0]["truncated"]


def test_explain_in_the_terminal_as_json_and_as_a_page(
    folder: Path, article: Path, corpus: Path, tmp_path: Path, capsys: Capture
) -> None:
    article.write_text(DOCUMENTS[2])
    assert "words copied" in run(capsys, "explain", folder, article)
    record = json.loads(run(capsys, "explain", folder, article, "--json"))
    assert record["words"]
    assert set(record["support"]["checked"]) == {"number", "date", "name", "word"}
    page = tmp_path / "page.html"
    run(capsys, "explain", folder, corpus, "--with", "lead", "--html", page, "--max-records", "2", "--beam-size", "3")
    text = page.read_text(encoding="utf-8")
    assert (text.count("<article"), "gold 1" in text, "gold 2" in text) == (2, True, False)


def test_stored_explanations_are_shown_without_the_model(
    folder: Path, corpus: Path, tmp_path: Path, capsys: Capture
) -> None:
    out, page, again = tmp_path / "out.jsonl", tmp_path / "page.html", tmp_path / "again.html"
    run(capsys, "summarize", folder, corpus, "--explain", "--output", out)
    line = read_lines(out)[0]
    assert line["support"]["words"] > 0
    assert "unsupported" in line["support"]
    packed = tmp_path / "out.jsonl.gz"
    packed.write_bytes(gzip.compress(b"\xef\xbb\xbf" + out.read_bytes() + b" \n"))
    for source, target in ((out, page), (packed, again)):
        run(capsys, "explain", "stored", source, "--html", target)
    assert page.read_text(encoding="utf-8").count("<article") == 5
    assert again.read_bytes() == page.read_bytes()
    for most, said in ((5, ""), (4, "catchline: showing the first 4 records; --max-records shows more.\n")):
        assert main(["explain", "stored", str(out), "--json", "--max-records", str(most)]) == 0
        shown = capsys.readouterr()
        assert (len(shown.out.splitlines()), shown.err) == (most, said)
    for ignored in (["--html", out], ["--with", "lead-1"], ["--beam-size", 3]):
        refused(capsys, 2, "", "explain", "stored", out, *ignored)
    assert read_lines(out)[0] == line, "as it was"
    write_lines(out, [line | {"words": [], "source_offsets": []}])
    refused(capsys, 3, "no words", "explain", "stored", out, "--heatmap", tmp_path / "map.png")
    out.write_text("{\n")
    refused(capsys, 3, "out.jsonl:1 is not a stored summary", "explain", "stored", out)


@pytest.fixture
def unsure(folder: Path, tmp_path: Path) -> Path:
    """The model with a calibration that is never sure enough."""
    place = tmp_path / "unsure"
    shutil.copytree(folder, place)
    replace(Calibration.blank(), bias=-2.0, threshold=0.5).save(place)
    return place


def test_a_model_that_is_not_sure_declines_unless_asked_to_write(unsure: Path, folder: Path) -> None:
    document, summarizer = DOCUMENTS[0], Summarizer.from_pretrained(unsure)
    written = Summarizer.from_pretrained(folder).summarize(document)
    declined, forced = summarizer.summarize(document), summarizer.explain(document, always_write=True)
    assert "not sure" in declined.extracted
    assert declined.text == document[: len(declined.text)]
    assert declined.alternatives[0].text == written.text != declined.text
    assert declined.confidence == pytest.approx(1 / (1 + math.exp(2.0)))
    assert (forced.text, forced.extracted, written.confidence) == (written.text, "", None)
    assert set(forced.facts) > {"mean_log_prob", "word_ratio"}
    LoadedModel.from_pretrained(unsure).save_pretrained(unsure.parent / "copy")
    assert Calibration.load(unsure.parent / "copy") == Calibration.load(unsure)


def test_no_salutation_answers_for_a_letter(unsure: Path) -> None:
    summarizer = Summarizer.from_pretrained(unsure)
    found = summarizer.summarize("Hi Anna,\n\nThe river rose in the night.\n\nSee you,\n\nBob")
    assert found.extracted
    assert found.text == "The river rose in the night."
    assert summarizer.summarize("Hi Anna,\n\nSee you,").text == "Hi Anna,", "where nothing else is there"


def test_the_commands_say_that_the_model_declined(unsure: Path, article: Path, capsys: Capture) -> None:
    assert main(["summarize", str(unsure), str(article)]) == 0
    shown = capsys.readouterr()
    assert shown.out.strip() in DOCUMENTS[0]
    assert "not sure of its words" in shown.err
    assert "--always-write" in shown.err
    assert "extracted" not in json.loads(run(capsys, "summarize", unsure, article, "--always-write", "--json"))
    assert "not sure" in json.loads(run(capsys, "explain", unsure, article, "--json"))["extracted"]
    article.write_text("QUJD" * 2000)  # a text without sentences: its beginning is given back
    assert main(["summarize", str(unsure), str(article)]) == 0
    shown = capsys.readouterr()
    assert len(shown.out) == 401
    assert len(shown.err) < 1000, "what the model wrote may be the one word of 8,000 letters"
