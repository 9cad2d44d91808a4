"""What `import catchline` gives, and what newcomers met."""

from __future__ import annotations

import copy
import html
import json
import pickle
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import catchline
from catchline.cli.main import main
from catchline.cli.summarize import remarks
from catchline.errors import ConfigError, DataError, ModelError
from catchline.explain.html import render
from catchline.models import folder
from catchline.summarizer import Summarizer
from catchline.text.control import json_line
from catchline.types import Summary
from commands import run
from json_lines import read_lines, write_lines
from tiny_models import DOCUMENTS, save_tiny_model

TEXT = DOCUMENTS[0]


@pytest.fixture(scope="module")
def summarizer(tmp_path_factory: pytest.TempPathFactory) -> catchline.Summarizer:
    folder = save_tiny_model(tmp_path_factory.mktemp("python") / "tiny")
    return catchline.Summarizer.from_pretrained(folder, beam_size=3)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pairs")
    pairs = [{"document": f"item {i} is {colour} .", "summary": colour} for i in range(6) for colour in ("red", "blue")]
    for split in ("train", "validation", "test"):
        write_lines(folder / f"{split}.jsonl", pairs)
    return folder


def test_the_names_are_there_and_the_import_brings_no_tensors() -> None:
    code = (
        "import sys, catchline\n"
        "assert not {'torch', 'transformers', 'numpy'} & set(sys.modules)\n"
        "print(dir(catchline) == catchline.__all__, catchline.errors.DataError.__name__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "True DataError\n", done.stderr
    assert all(getattr(catchline, name) for name in catchline.__all__)


def test_what_is_shown_of_them_is_short(summarizer: catchline.Summarizer) -> None:
    lead = catchline.Summarizer.from_pretrained("lead-1")
    assert repr(lead) == "Summarizer('lead-1')"
    for one in (summarizer.explain(TEXT), lead(TEXT)):
        assert str(one) == one.text
        assert one.words
        assert repr(one).startswith(f"Summary(text={one.text!r}, ")
        assert len(repr(one)) < 400, "of the source, of words and of weights there may be thousands"
        assert len(repr(one.words[0])) < 400


def test_what_is_saved_opens_and_writes_the_same(summarizer: catchline.Summarizer, tmp_path: Path) -> None:
    summarizer.save_pretrained(tmp_path / "saved")
    again = catchline.Summarizer.from_pretrained(tmp_path / "saved")
    assert again.decoding() == summarizer.decoding()
    assert again.decoding()["beam_size"] == 3  # the defaults that it was opened with
    assert [one.text for one in again(DOCUMENTS)] == [one.text for one in summarizer(DOCUMENTS)]


def test_a_copy_here_or_in_another_process_writes_the_same(summarizer: catchline.Summarizer) -> None:
    for one in (summarizer, catchline.Summarizer.from_pretrained("oneline", beam_size=2)):
        written = one.explain(TEXT)
        for again in (copy.deepcopy(one), pickle.loads(pickle.dumps(one))):
            assert (again.decoding(), again.explain(TEXT)) == (one.decoding(), written)


def test_a_notebook_shows_the_page_in_a_frame(summarizer: catchline.Summarizer) -> None:
    summary = summarizer.explain("A <b>small</b> cat & a fox sat on the mat .")
    (page,) = re.findall(r'<iframe title="[^"]+" srcdoc="([^"]*)" style="[^"]*"></iframe>', summary._repr_html_())
    assert html.unescape(page) == render([summary], title=summary.model)
    plain = summarizer("it was <late>")
    assert "explain" in plain._repr_html_()
    assert "<late>" not in plain._repr_html_()


def test_training_and_evaluation_are_functions(data: Path, tmp_path: Path) -> None:
    settings = {"training": {"max_updates": 2}, "search.max_length": 4}
    result = catchline.train("headline_writer", data, tmp_path / "run", size="tiny", settings=settings)
    assert result.updates == 2
    scores = catchline.evaluate(["lead-1", str(result.model_folder)], data, max_records=4)
    assert list(scores) == ["lead-1", str(result.model_folder)]
    assert scores["lead-1"].records == 4
    assert scores["lead-1"].rouge["1"].recall == 1.0  # the colour is a word of the sentence
    records = list(catchline.read_records(data / "test.jsonl"))
    assert catchline.evaluate("lead-1", records, max_records=4)["lead-1"].rouge == scores["lead-1"].rouge


def test_pairs_in_memory_are_read_as_those_of_a_file(data: Path) -> None:
    class Frame:
        columns = ("document", "summary")

        def to_dict(self, kind: str) -> list[dict[str, Any]]:
            assert kind == "records"
            return read_lines(data / "test.jsonl")

    rows = Frame().to_dict("records")
    records = [catchline.Record(row["document"], row["summary"], references=(row["summary"], "or so")) for row in rows]
    expected = list(catchline.read_records(data / "test.jsonl"))
    for given in (Frame(), rows, iter(rows), expected):
        assert [(one.document, one.summary, one.id) for one in catchline.read_records(given)] == [
            (one.document, one.summary, one.id) for one in expected
        ]
    assert next(catchline.read_records(records)).references == records[0].references
    score = catchline.evaluate("lead-1", data)["lead-1"].rouge
    assert all(catchline.evaluate("lead-1", given)["lead-1"].rouge == score for given in (Frame(), rows, expected))


def test_training_holds_out_pairs_of_one_file_and_of_memory(tmp_path: Path) -> None:
    rows = [{"Text": f"entry {n} names w{n} and v{n * 7} .", "title": f"w{n}"} for n in range(40)]
    write_lines(tmp_path / "pairs.jsonl", rows)
    settings = {"training.max_updates": 2, "training.max_epochs": None}
    said: list[str] = []

    def trained(given: Any, name: str, **how: Any) -> tuple[dict[str, int], Any]:
        out = tmp_path / name
        how = {"settings": settings, "on_message": said.append} | how
        result = catchline.train("headline_writer", given, out, size="tiny", **how)
        parts = sorted((out / "data").glob("*.jsonl"))
        return {part.stem: len(part.read_text().splitlines()) for part in parts}, result

    (parts, one), (same, other) = trained(tmp_path / "pairs.jsonl", "file"), trained(iter(rows), "memory")
    assert parts == same == {"train": 36, "validation": 4}
    assert one.metrics == other.metrics != {}
    assert "pairs.jsonl has no validation file: 36 for train, 4 for validation" in "\n".join(said)
    longer = settings | {"training.max_updates": 3}
    for given, name in ((tmp_path / "pairs.jsonl", "file"), (rows, "memory")):
        assert trained(given, name, settings=longer, resume=True)[1].updates == 3
    with pytest.raises(ConfigError, match="already has a run"):
        trained(rows, "memory")
    assert trained(tmp_path / "pairs.jsonl", "all", all_pairs=True)[0] == {}
    assert trained(rows, "memory", all_pairs=True, force=True)[0] == {"train": 40}
    assert trained({"train": rows[:30], "validation": rows[30:]}, "parts")[0] == {"train": 30, "validation": 10}
    assert trained(rows[:5], "few")[0] == {"train": 5}
    for how in ({"force": True}, {"resume": True}):  # its own parts as a folder of them
        assert trained(tmp_path / "file" / "data", "file", **how)[0] == parts


def test_a_table_is_not_taken_for_the_names_of_its_columns() -> None:
    class DataFrame:  # as that of pandas
        columns = ("document", "summary")

        def __iter__(self) -> Iterator[str]:
            return iter(self.columns)

    frame: Any = DataFrame()
    lead = catchline.Summarizer.from_pretrained("lead-1")
    with pytest.raises(DataError, match="type DataFrame; a document is a text"):
        lead.summarize(frame)
    with pytest.raises(DataError, match="Document 2 is of type float"):
        lead.summarize([TEXT, float("nan")])  # as a column that lacks a text
    with pytest.raises(ConfigError, match="several documents"):
        list(lead.stream(frame))


def test_an_upload_carries_the_model_folder_with_its_decoding(
    summarizer: catchline.Summarizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: dict[str, Any] = {}

    def push(self: Any, repo_id: str, **options: Any) -> str:
        sent.update(options, repo_id=repo_id, beam_size=self.search.beam_size)
        return "url"

    monkeypatch.setattr(folder, "get_token", lambda: None)
    with pytest.raises(ModelError, match=r"owner/name was not uploaded.*there is no token"):
        summarizer.push_to_hub("owner/name")
    monkeypatch.setattr(folder, "get_token", lambda: "t")
    monkeypatch.setattr(type(summarizer.system.loaded), "push_to_hub", push)  # type: ignore[attr-defined]
    assert summarizer.push_to_hub("owner/name", token="t", private=True) == "url"
    assert sent == {"repo_id": "owner/name", "token": "t", "private": True, "beam_size": 3}


WRONG_PAIRS: list[tuple[Any, str]] = [
    ([{"document": "a", "summary": "b"}, ("a", "b")], "record 2: tuple instead of an object"),
    ([{0: "a", 1: "b"}], r"no column name is known for the document.*Columns: '0', '1'"),
    ([{"text": "a", "title": 1j}], "the field 'title' is complex instead of text"),  # pandas' NA
    (None, "Pairs are a file, a table, or a list of dictionaries"),
]
WRONG_TRAININGS: list[tuple[dict[str, Any], str]] = [
    ({"recipe": "headline_wirter"}, "headline_wirter.*headline_writer"),
    ({"settings": ["a=1"]}, "settings is a mapping"),
    ({"data": {"text": ["a"], "title": ["b"]}}, "train, validation, test"),
]


def test_mistakes_are_one_sentence(data: Path, tmp_path: Path) -> None:
    for pairs, said in WRONG_PAIRS:
        with pytest.raises(DataError, match=said):
            catchline.evaluate("lead-1", pairs)
    for changes, said in WRONG_TRAININGS:
        with pytest.raises(ConfigError, match=said):
            catchline.train(**{"recipe": "headline_writer", "data": data, "out": tmp_path / "run", **changes})
    method: Any = catchline.Summarizer.from_pretrained("lexrank-1")
    for mistake, said in (
        (lambda: catchline.evaluate("lead-1", data, max_records=-1), "max_records"),
        (lambda: catchline.evaluate(method, data), "method by name"),
        (lambda: method.save_pretrained(tmp_path / "saved"), "has no weights"),
        (lambda: method.push_to_hub("owner/name"), "has no weights"),
    ):
        with pytest.raises(ConfigError, match=said):
            mistake()


DECLINED = """Good morning, my train is cancelled and I will be late. Could you begin without me? The files are in the
folder."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("models") / "tiny")


def test_a_line_of_json_is_one_line_for_every_reader(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    marks = "\x85\u2028\u2029\n"
    assert json.loads(json_line({"ä": marks})) == {"ä": marks}
    write_lines(tmp_path / "a.jsonl", [{"document": f"One{marks[:3]}two. Three."}] * 2)
    assert len(run(capsys, "summarize", "lead-1", tmp_path / "a.jsonl").splitlines()) == 2


def test_no_hypothesis_is_shown_twice(model: Path) -> None:
    summarizer = Summarizer.from_pretrained(model)
    for document in DOCUMENTS:
        for length in (1, 2):
            made = summarizer.summarize(document, beam_size=8, num_return=8, min_length=1, max_length=length)
            texts = [made.text, *(other.text for other in made.alternatives)]
            assert len(texts) == len(set(texts))


@pytest.mark.parametrize(
    ("summary", "said"),
    [
        (Summary(""), "wrote an empty line"),
        (Summary("<unk> <unk>"), "knows none of the words"),
        (Summary("a <unk>", truncated=True, tokens_read=2, tokens_given=3000), "read 2 of 3,000 tokens"),
        (Summary("a b"), ""),
    ],
)
def test_a_summary_that_says_nothing_is_remarked_on(summary: Summary, said: str) -> None:
    told = list(remarks(summary))
    assert len(told) == bool(said)
    assert said in "".join(told)


def test_of_an_extract_no_table_repeats_each_word(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text.txt").write_text(DECLINED)
    assert main(["explain", str(tmp_path / "text.txt")]) == 0
    shown = capsys.readouterr().out
    assert "extracted from the document" in shown
    assert "from where" not in shown


def test_the_models_line_is_drawn_where_the_answer_is_extracted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text.txt").write_text(DECLINED)
    assert main(["explain", str(tmp_path / "text.txt"), "--heatmap", str(tmp_path / "map.png")]) == 0
    assert "the picture shows the model's line" in capsys.readouterr().err
    assert (tmp_path / "map.png").is_file()
