"""`Summarizer`, ``catchline summarize`` and ``catchline explain`` on a tiny pointer-generator and on extractive
methods."""

from __future__ import annotations

import gzip
import json
import math
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from catchline import Summarizer
from catchline.cli.main import main
from catchline.config.schema import SearchConfig, TextConfig
from catchline.errors import ConfigError, DataError, ModelError
from catchline.evaluation.run import Contender
from catchline.metrics.confidence import CHOOSING, Calibration
from catchline.metrics.consensus import expected_utilities
from catchline.models.bart import BartSummarizer
from catchline.models.folder import LoadedModel
from catchline.summarizer.bulk import SummaryJob
from catchline.summarizer.summarize import with_graphs
from catchline.summarizer.torch_backend import NeuralSystem
from catchline.text.tokenizer import BpeTokenizer
from catchline.types import Record
from commands import refused, run
from json_lines import read_lines, write_lines
from tiny_bart import architecture
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
    streamed = list(summarizer.stream(iter(DOCUMENTS), batch_size=3))
    assert [summary.text for summary in together] == [summary.text for summary in alone]
    assert [summary.text for summary in streamed] == [summary.text for summary in alone]
    assert [summary.score for summary in together] == pytest.approx([summary.score for summary in alone], abs=1e-4)
    assert [summary.document for summary in together] == DOCUMENTS
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


def test_a_word_outside_the_vocabulary_is_copied_and_says_so(folder: Path) -> None:
    summarizer = Summarizer.from_pretrained(folder)
    model = summarizer.system.model  # type: ignore[attr-defined]
    with torch.no_grad():  # never generate, always point
        for parameter in model.head.gate.parameters():
            parameter.zero_()
        model.head.gate.bias.fill_(-20.0)
    summary = summarizer.explain("Zebratown Ellinghaus Zebratown")
    assert summary.words
    for word in summary.words:
        assert word.copied
        assert word.p_gen == pytest.approx(0.0, abs=1e-3)
        assert word.text in {"Zebratown", "Ellinghaus"}, "as the source writes it"
        assert [span.text for span in word.sources] == [word.text] * (2 if word.text == "Zebratown" else 1)
    raw = summarizer.explain("Zebratown Ellinghaus Zebratown", surface="raw")
    assert {word.text for word in raw.words} <= {"zebratown", "ellinghaus"}


def test_raw_shows_what_the_model_wrote(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    article = tmp_path / "article.txt"
    article.write_text(DOCUMENTS[2])

    def shown(*arguments: str) -> str:
        assert main([*arguments]) == 0
        return capsys.readouterr().out.strip()

    raw, usual = shown("summarize", str(folder), str(article), "--raw"), shown("summarize", str(folder), str(article))
    assert raw == raw.lower()
    assert usual[0] == raw[0].upper()
    assert json.loads(shown("explain", str(folder), str(article), "--raw", "--json"))["summary"] == raw
    beside = shown("explain", "lead", str(article), "--with", str(folder), "--raw", "--json").splitlines()
    assert json.loads(beside[1])["summary"] == raw, "whatever stands first"
    assert shown("summarize", "lead", str(article), "--raw") == DOCUMENTS[2]


def test_what_is_scored_is_what_people_see_unless_the_run_says_otherwise(folder: Path, tmp_path: Path) -> None:
    paper = tmp_path / "paper"
    shutil.copytree(folder, paper)
    recipe = paper / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace("surface: null", "surface: raw"))
    record = [Record(DOCUMENTS[2])]

    def scored(place: Path, **search: Any) -> str:
        return Contender(str(place), settings=search).summarize(record)[0].text

    assert scored(paper) == scored(folder, surface="raw") == scored(folder, surface="raw").lower()
    assert scored(folder) == scored(paper, surface="clean") != scored(paper)
    searches: list[dict[str, Any]] = [{}, {"surface": "raw"}, {"surface": "clean"}]
    own, raw, clean = (Contender(str(paper), settings=search).identity for search in searches)
    assert own == raw != clean, "its run asks for raw"


def test_overrides_change_the_decoding_and_are_checked(summarizer: Summarizer) -> None:
    short = summarizer.summarize(DOCUMENTS[0], max_length=2)
    assert len(short.text.split()) <= 2
    several = summarizer.summarize(DOCUMENTS[0], num_return=3, surface="raw")
    assert len(several.alternatives) == 2
    texts = [several.text, *[other.text for other in several.alternatives]]
    assert len(set(texts)) == 3
    assert len(summarizer.summarize(DOCUMENTS[0], num_return=np.int64(3)).alternatives) == 2, "the beam grows"
    with pytest.raises(ConfigError, match=r"coverage_penalty wu weighs nothing: set coverage_beta above 0"):
        summarizer.summarize(DOCUMENTS[0], coverage_penalty="wu")
    with pytest.raises(ConfigError, match=r"^'beam_size': [^']*$"):
        summarizer.summarize(DOCUMENTS[0], beam_size=-1)
    with pytest.raises(ConfigError, match="Did you mean 'beam_size'"):
        summarizer.summarize(DOCUMENTS[0], beamsize=3)
    for size in (0, "4", 2.5):
        with pytest.raises(ConfigError, match="batch_size must be at least 1, a whole number"):
            summarizer.summarize(DOCUMENTS[0], batch_size=size)
        with pytest.raises(ConfigError, match="batch_size must be at least 1, a whole number"):
            summarizer.score(DOCUMENTS[:1], ["x"], batch_size=size)  # type: ignore[arg-type]
    assert summarizer.decoding(beam_size=5)["beam_size"] == 5


def test_of_the_beams_summaries_the_one_that_the_others_agree_with_is_chosen(summarizer: Summarizer) -> None:
    plain = summarizer.summarize(DOCUMENTS, beam_size=6, num_return=6, surface="raw")
    chosen = summarizer.summarize(DOCUMENTS, beam_size=6, num_return=2, choose="mbr", surface="raw")
    changed = 0
    for first, best in zip(plain, chosen, strict=True):
        found = [first, *first.alternatives]
        utilities = expected_utilities([one.text for one in found], [one.score for one in found])
        order = sorted(range(len(found)), key=lambda place: -utilities[place])
        assert [best.text, *(one.text for one in best.alternatives)] == [found[place].text for place in order[:2]]
        changed += order[0] != 0
    assert changed, "the likeliest was always the one agreed with"
    with pytest.raises(ConfigError, match="choose mbr picks one of several summaries: set beam_size to 2 or more"):
        summarizer.summarize(DOCUMENTS, beam_size=1, choose="mbr")


def test_a_calibrated_model_chooses_by_what_it_has_learnt_of_hypotheses(summarizer: Summarizer, folder: Path) -> None:
    """Weights that count tokens alone put the longest hypothesis first."""
    plain = summarizer.summarize(DOCUMENTS, beam_size=6, num_return=6)
    said = "has not learnt to rerank: run `catchline calibrate MODEL --data PAIRS --set"
    with pytest.raises(ConfigError, match=said):
        summarizer.summarize(DOCUMENTS, beam_size=6, choose="rerank")
    with pytest.raises(ConfigError, match=said):
        Summarizer.from_pretrained(folder, choose="rerank")
    system: Any = summarizer.system
    usual = system.search
    try:
        system.search = usual.model_copy(update={"choose": "rerank", "beam_size": 6})
        by_score = summarizer.summarize(DOCUMENTS)
    finally:
        system.search = usual
    assert [one.text for one in by_score] == [one.text for one in plain], "not calibrated: by their score"
    weights = tuple(float(name == "tokens") for name in CHOOSING)
    system.calibration = replace(Calibration.blank(), choosing=weights)
    try:
        chosen = summarizer.summarize(DOCUMENTS, beam_size=6, num_return=6, choose="rerank")
        again = summarizer.summarize(DOCUMENTS, beam_size=6, num_return=6)
        greedy = summarizer.summarize(DOCUMENTS, beam_size=1)
        assert summarizer.summarize(DOCUMENTS, beam_size=1, choose="rerank") == greedy, "one hypothesis is the best"
    finally:
        system.calibration = None
    for first, best in zip(plain, chosen, strict=True):
        tokens = [one.facts["tokens"] for one in (best, *best.alternatives)]
        assert tokens == sorted(tokens, reverse=True)
        assert {one.text for one in (best, *best.alternatives)} == {one.text for one in (first, *first.alternatives)}
    assert [one.text for one in again] == [one.text for one in plain]


def test_the_score_is_the_teacher_forced_log_probability(folder: Path) -> None:
    """Greedy decoding's own sum of log-probabilities, end token included, is what `score` must give back."""
    summarizer = Summarizer.from_pretrained(folder)
    system: Any = summarizer.system
    with torch.no_grad():  # so that summaries end
        system.model.head.projection.bias[system.tokenizer.eos_id] += 8.0
    options = {"beam_size": 1, "min_length": 1, "max_length": 9, "forbid_unk": False, "surface": "raw"}
    made = [
        summary
        for summary in summarizer.summarize(DOCUMENTS, **options)
        if summary.finished and "<unk>" not in summary.text
    ]
    assert made, "the toy model should end a summary"
    scores = summarizer.score([s.document for s in made], [s.text for s in made], batch_size=2)
    assert scores == pytest.approx([s.log_prob for s in made], abs=1e-3)
    with pytest.raises(DataError, match="2 documents and 1 summaries"):
        summarizer.score(DOCUMENTS[:2], ["x"])
    with pytest.raises(DataError, match="Summary 2 is empty"):
        summarizer.score(DOCUMENTS[:2], ["x", " "])
    with pytest.raises(DataError, match=r"record 2 is longer than the \d+ tokens that this model scores"):
        summarizer.score(DOCUMENTS[:2], ["x", "x " * 99])
    with pytest.raises(DataError, match="Summary 1 is of type NoneType; a summary is a text"):
        summarizer.score(DOCUMENTS[:1], [None])  # type: ignore[list-item]
    assert summarizer.score(iter(DOCUMENTS[:2]), iter(["x", "y"])) == summarizer.score(DOCUMENTS[:2], ["x", "y"])


def test_a_bad_document_is_named_or_skipped(summarizer: Summarizer) -> None:
    bad: list[Any] = [DOCUMENTS[0], " \n", 7, "\u200b", DOCUMENTS[1]]
    with pytest.raises(DataError, match="Document 2 is empty"):
        summarizer.summarize(bad[:2])
    with pytest.raises(DataError, match="Document 1 is of type int"):
        summarizer.summarize([7])
    for nothing in (None, float("nan")):
        with pytest.raises(DataError, match=f"Document 1 is of type {type(nothing).__name__}; a document is a text"):
            summarizer.summarize(nothing)  # type: ignore[arg-type]
    for one in ({"document": DOCUMENTS[0]}, b"bytes", Record(None)):  # type: ignore[arg-type]
        with pytest.raises(DataError, match=r"Document 1 is of type (dict|bytes|NoneType); a document is a text"):
            summarizer.summarize(one)  # type: ignore[arg-type]
    for one in ("A text.", {"document": "A text."}, None):
        with pytest.raises(ConfigError, match=r"stream takes several documents: stream\(\[document\]\)"):
            summarizer.stream(one)  # type: ignore[arg-type]
    with pytest.raises(DataError, match=r"file:3: Document 1 \(id 'x'\) is empty"):
        summarizer.summarize(Record("", id="x", origin="file:3"))
    told: list[str] = []
    results = list(summarizer.stream(bad, on_error="skip", on_skip=lambda record, error: told.append(str(error))))
    assert [result is None for result in results] == [False, True, True, results[3] is None, False]
    assert len(told) == sum(result is None for result in results)
    assert results[4].text == summarizer.summarize(DOCUMENTS[1]).text


@pytest.mark.parametrize(("first", "batch_size", "number"), [(1, None, 2), (101, None, 102), (1, 1, 2)])
def test_a_document_of_no_token_is_named_by_its_place(
    summarizer: Summarizer, first: int, batch_size: int | None, number: int
) -> None:
    texts = ["a small cat sat on the mat .", "\u200b\u200b", "it was late", *DOCUMENTS]
    with pytest.raises(DataError, match=rf"^Document {number} is empty; there is nothing to summarize"):
        list(summarizer.stream(texts, first=first, batch_size=batch_size))
    with pytest.raises(DataError, match=r"^Document 'x7' is empty"):
        summarizer.summarize([texts[0], Record("\u200b", id="x7")])
    assert summarizer.summarize(texts[2]).id == ""


def test_a_wrong_setting_is_no_bad_document(summarizer: Summarizer) -> None:
    wrong: list[dict[str, Any]] = [
        {"scorers": [{"type": "nope"}]},
        {"model": {"nope": 1}},
        {"distraction": {"state": 1}, "scorers": [{"type": "renormalise", "groups": 3}]},
    ]
    for settings in wrong:
        with pytest.raises(ConfigError):
            summarizer.summarize(DOCUMENTS[:2], on_error="skip", **settings)


def test_a_document_of_200_000_words_is_cut_and_says_so(summarizer: Summarizer) -> None:
    started = time.monotonic()
    summary = summarizer.explain("the quick fox jumps over Zebratown " * 33_334)
    assert (summary.tokens_read, summary.tokens_given, summary.truncated) == (12, 200_004, True)
    assert time.monotonic() - started < 60


@pytest.mark.parametrize("batch_size", [None, 2])
def test_progress_counts_every_document(summarizer: Summarizer, batch_size: int | None) -> None:
    seen: list[int] = []
    summarizer.summarize([*DOCUMENTS, ""], on_error="skip", progress=seen.append, batch_size=batch_size)
    assert sum(seen) == 6


def test_extractive_methods_have_the_same_interface() -> None:
    text = "One  fox runs. Two dogs sleep\nhere. Three birds sing."
    lead = Summarizer.from_pretrained("lead", sentences=2)
    summary = lead.explain(text)
    assert summary.text == "One fox runs. Two dogs sleep here."
    assert summary.source_offsets == ((0, 14), (15, 35))
    assert all(text[w.sources[0].start : w.sources[0].end] == w.text for w in summary.words)
    assert lead.summarize(text, sentences=1).text == "One fox runs."
    assert Summarizer.from_pretrained("first_words", words=5).summarize(text).text == "One fox runs. Two dogs"
    with pytest.raises(ConfigError, match="no setting 'beam_size'"):
        lead.summarize(text, beam_size=3)
    with pytest.raises(ConfigError, match="gives summaries no probability"):
        lead.score([text], ["x"])
    with pytest.raises(ConfigError, match="picks by the reference"):
        Summarizer.from_pretrained("oracle-1")
    with pytest.raises(DataError, match="empty"):
        lead.summarize("")


def test_no_such_device_or_model(folder: Path) -> None:
    for device in ("warp", "meta", None):
        with pytest.raises(ConfigError, match=f"no device '{device}'"):
            Summarizer.from_pretrained(folder, device=device)
    with pytest.raises(ModelError, match="Did you mean 'lead'"):
        Summarizer.from_pretrained("laed")


def test_a_bart_checkpoint_summarizes_explains_and_scores() -> None:
    tokenizer = BpeTokenizer(BpeTokenizer.Config(vocab_size=80, min_frequency=1))
    tokenizer.train(DOCUMENTS)
    torch.manual_seed(2)
    ids = {f"{name}_token_id": getattr(tokenizer, f"{name}_id") for name in ("pad", "bos", "eos")}
    sizes = {"vocab_size": tokenizer.vocab_size, "max_position_embeddings": 16, "init_std": 0.3}
    described = architecture(**ids, decoder_start_token_id=tokenizer.eos_id, **sizes)
    model = BartSummarizer(BartSummarizer.Config(architecture=described), unk_id=tokenizer.unk_id)
    text = TextConfig(max_source_tokens=400, source_specials=True, oov_copy="unk")
    loaded = LoadedModel(model, tokenizer, text=text, search=SearchConfig(beam_size=3, max_length=8), name="bart")
    summarizer = Summarizer(NeuralSystem(loaded))
    summaries = summarizer.summarize(DOCUMENTS, explain=True, batch_size=2)
    for document, summary in zip(DOCUMENTS, summaries, strict=True):
        assert summary.tokens_read <= 14  # 16 positions, two of them special tokens
        assert all(not word.copied and word.p_gen is None for word in summary.words)
        assert all(document[s.start : s.end] == s.text for word in summary.words for s in word.sources)
    scores = summarizer.score(DOCUMENTS[:2], ["it was late", "the cat"])
    assert all(score < 0 for score in scores)
    with pytest.raises(ConfigError, match="more than the 15 tokens this model can write"):  # and the end
        summarizer.summarize("x", max_length=16)


# ---------------------------------------------------------------------------------------- the commands


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    rows = [{"id": f"r{i}", "document": text, "summary": f"gold {i}"} for i, text in enumerate(DOCUMENTS)]
    return write_lines(tmp_path / "data.jsonl", rows)


def test_a_text_of_unknown_words_is_told_without_a_calibration(
    folder: Path, summarizer: Summarizer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A German text to an English model was answered without a word."""
    (tmp_path / "de.txt").write_text("der schnelle fuchs it was 3", encoding="utf-8")
    (tmp_path / "en.txt").write_text(DOCUMENTS[0], encoding="utf-8")
    assert main(["summarize", str(folder), str(tmp_path / "de.txt"), str(tmp_path / "en.txt")]) == 0
    said = "the text is unlike those the model knows: 60% of its words are unknown to the model."
    err = capsys.readouterr().err
    assert f"de.txt: {said}" in err
    assert err.count("unlike") == 1
    assert summarizer.summarize(DOCUMENTS[2]).unlike == ()


def test_text_in_summary_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.txt").write_text("One fox. Two dogs. Three birds.")
    (tmp_path / "b.txt").write_text("Uno. Dos.")
    assert run(capsys, "summarize", "lead", tmp_path / "a.txt", "--sentences", "1") == "One fox.\n"
    assert (
        run(capsys, "summarize", "lead", tmp_path / "a.txt", tmp_path / "b.txt", "--sentences", "1")
        == f"== {tmp_path}/a.txt\nOne fox.\n== {tmp_path}/b.txt\nUno.\n"
    )


def test_records_in_json_lines_out_in_order(
    folder: Path, summarizer: Summarizer, corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["summarize", str(folder), str(corpus), "--batch-size", "2"]) == 0
    out = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["id"] for line in out] == ["r0", "r1", "r2", "r3", "r4"]
    assert [line["summary"] for line in out] == [summary.text for summary in summarizer.summarize(DOCUMENTS)]
    assert {"id", "summary", "score", "tokens_read", "truncated", "model", "decoding"} <= set(out[0])
    assert "document" not in out[0]
    assert "words" not in out[0]
    assert out[0]["truncated"]


def test_ctrl_c_keeps_what_is_done(
    folder: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.jsonl"
    line_of = SummaryJob.line

    def interrupted(self: Any, name: str, summary: Any) -> str:
        if name == "r2":
            raise KeyboardInterrupt
        return line_of(self, name, summary)

    monkeypatch.setattr(SummaryJob, "line", interrupted)
    assert main(["summarize", str(folder), str(corpus), "--output", str(out)]) == 130
    assert "the same command completes them" in capsys.readouterr().err
    assert len(read_lines(tmp_path / "out.jsonl.partial")) == 2
    monkeypatch.setattr(SummaryJob, "line", line_of)
    assert main(["summarize", str(folder), str(corpus), "--output", str(out)]) == 0
    assert [line["id"] for line in read_lines(out)] == ["r0", "r1", "r2", "r3", "r4"]


def test_a_bad_record_stops_the_job_or_is_skipped_and_counted(
    folder: Path, corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus.write_text(corpus.read_text() + '{"id": "broken", "document": \n{"id": "r6", "document": "it was late"}\n')
    refused(capsys, 3, "data.jsonl:6", "summarize", folder, corpus)
    assert main(["summarize", str(folder), str(corpus), "--skip-bad"]) == 0
    captured = capsys.readouterr()
    assert len(captured.out.splitlines()) >= 5
    assert "skipped" in captured.err
    assert main(["explain", "lead", str(corpus), "--skip-bad", "--json"]) == 0
    captured = capsys.readouterr()
    assert len(captured.out.splitlines()) == 6
    assert "1 record skipped:\n" in captured.err


def test_explain_in_the_terminal_as_json_and_as_a_page(
    folder: Path, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.txt").write_text(DOCUMENTS[2])
    assert "words copied" in run(capsys, "explain", folder, tmp_path / "a.txt")
    record = json.loads(run(capsys, "explain", folder, tmp_path / "a.txt", "--json"))
    assert record["words"]
    assert set(record["support"]["checked"]) == {"number", "date", "name", "word"}
    page = tmp_path / "page.html"
    arguments = ["--with", "lead", "--html", str(page), "--max-records", "2", "--beam-size", "3"]
    assert main(["explain", str(folder), str(corpus), *arguments]) == 0
    text = page.read_text(encoding="utf-8")
    assert text.count("<article") == 2
    assert "gold 1" in text
    assert "gold 2" not in text


def test_stored_explanations_are_shown_without_the_model(
    folder: Path, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, page = tmp_path / "out.jsonl", tmp_path / "page.html"
    assert main(["summarize", str(folder), str(corpus), "--explain", "--output", str(out)]) == 0
    assert read_lines(out)[0]["support"]["words"] > 0
    assert "unsupported" in read_lines(out)[0]["support"]
    assert main(["explain", "stored", str(out), "--html", str(page)]) == 0
    assert page.read_text(encoding="utf-8").count("<article") == 5
    for most, said in ((5, ""), (4, "catchline: the first 4 records; --max-records shows more.\n")):
        capsys.readouterr()
        assert main(["explain", "stored", str(out), "--json", "--max-records", str(most)]) == 0
        shown = capsys.readouterr()
        assert (len(shown.out.splitlines()), shown.err) == (most, said)
    packed = tmp_path / "out.jsonl.gz"
    packed.write_bytes(gzip.compress(b"\xef\xbb\xbf" + out.read_bytes() + b" \n"))
    assert main(["explain", "stored", str(packed), "--html", str(tmp_path / "again.html")]) == 0
    assert (tmp_path / "again.html").read_bytes() == page.read_bytes()
    assert main(["explain", "stored", str(out), "--html", str(out)]) == 2
    for ignored in (["--with", "lead-1"], ["--beam-size", "3"]):
        assert main(["explain", "stored", str(out), *ignored]) == 2
    assert read_lines(out), "as it was"
    capsys.readouterr()
    line, picture = read_lines(out)[0], str(tmp_path / "map.png")
    bare = [
        {name: value for name, value in word.items() if name not in ("attention", "maps")} for word in line["words"]
    ]
    for words, said in (
        ([], "no words, so there is nothing to draw; `catchline summarize"),
        (bare, "models without it"),
    ):
        out.write_text(json.dumps(line | {"words": words, "source_offsets": []}) + "\n")
        refused(capsys, 3, said, "explain", "stored", out, "--heatmap", picture)
    out.write_text('{"x": 1}\n')
    assert main(["explain", "stored", str(out)]) == 3
    (tmp_path / "bad.jsonl").write_text("{\n")
    refused(capsys, 3, "bad.jsonl:1 is not a stored summary", "explain", "stored", tmp_path / "bad.jsonl")


@pytest.fixture
def unsure(folder: Path, tmp_path: Path) -> Path:
    """The model with a calibration that is never sure enough."""
    place = tmp_path / "unsure"
    shutil.copytree(folder, place)
    replace(Calibration.blank(), bias=-2.0, threshold=0.5).save(place)
    return place


def test_a_model_that_is_not_sure_declines_unless_asked_to_write(unsure: Path, folder: Path) -> None:
    document = DOCUMENTS[0]
    summarizer = Summarizer.from_pretrained(unsure)
    written = Summarizer.from_pretrained(folder).summarize(document)
    found = summarizer.summarize(document)
    assert "not sure" in found.declined
    assert found.text == document[0].upper() + document[1 : len(found.text)]
    assert found.alternatives[0].text == written.text != found.text
    assert found.confidence == pytest.approx(1 / (1 + math.exp(2.0)))
    forced = summarizer.explain(document, always_write=True)
    assert forced.text == written.text
    assert not forced.declined
    assert set(forced.facts) > {"mean_log_prob", "source_common"}
    assert written.confidence is None
    again = LoadedModel.from_pretrained(unsure)
    again.save_pretrained(unsure.parent / "copy")
    assert Calibration.load(unsure.parent / "copy") == Calibration.load(unsure)


def test_of_a_text_without_sentences_it_gives_back_the_first_words(
    unsure: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = "\n".join(f"entry {number} of the river" for number in range(500))
    found = Summarizer.from_pretrained(unsure).summarize(log)
    assert found.declined
    assert found.text.split() == log.split()[:50]
    assert [word.text for word in found.words][:3] == ["entry", "0", "of"]
    (tmp_path / "log.txt").write_text(log)
    assert main(["summarize", str(unsure), str(tmp_path / "log.txt")]) == 0
    assert "so this is how the text begins" in capsys.readouterr().err
    (tmp_path / "log.txt").write_text("QUJD" * 2000)
    assert main(["summarize", str(unsure), str(tmp_path / "log.txt")]) == 0
    told = capsys.readouterr()
    assert len(told.out) < 1100
    assert "so this is how the text begins" in told.err
    assert len(told.err) < 1000, "what the model wrote may be the one word of 8,000 letters"


def test_no_salutation_answers_for_a_letter(unsure: Path) -> None:
    summarizer = Summarizer.from_pretrained(unsure)
    found = summarizer.summarize("Hi Anna,\n\nThe river rose in the night.\n\nSee you,\n\nBob")
    assert found.declined
    assert found.text == "The river rose in the night."
    assert summarizer.summarize("Hi Anna,\n\nSee you,").text == "Hi Anna", "where nothing else is there"


def test_the_commands_say_that_the_model_declined(
    unsure: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    article = tmp_path / "article.txt"
    article.write_text(DOCUMENTS[0])
    assert main(["summarize", str(unsure), str(article)]) == 0
    shown = capsys.readouterr()
    assert shown.out.strip() in DOCUMENTS[0][0].upper() + DOCUMENTS[0][1:]
    assert "not sure of its words" in shown.err
    assert "--always-write" in shown.err
    values = json.loads(run(capsys, "summarize", unsure, article, "--always-write", "--json"))
    assert "declined" not in values
    assert values["confidence"] == pytest.approx(0.1192, abs=1e-4)
    assert "not sure" in json.loads(run(capsys, "explain", unsure, article, "--json"))["declined"]
    picture = tmp_path / "map.png"
    assert main(["explain", str(unsure), str(article), "--heatmap", str(picture)]) == 3
    said = capsys.readouterr().err
    assert "no attention to draw; the model is not sure of its words (confidence 0.12). --always-write gives" in said
    assert main(["explain", str(unsure), str(article), "--heatmap", str(picture), "--always-write"]) == 0
    assert picture.is_file()


def test_an_exported_folder_is_found_where_a_killed_replacement_left_it(tmp_path: Path) -> None:
    previous = tmp_path / ".run.12345678.previous"
    previous.mkdir()
    (previous / "export.json").touch()
    assert with_graphs(str(tmp_path / "run")) == tmp_path / "run"
    (tmp_path / "run").rename(tmp_path / ".model.12345678.previous")
    assert with_graphs(str(tmp_path)) == tmp_path / "model"
