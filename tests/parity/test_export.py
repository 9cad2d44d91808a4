"""An exported folder writes what the model writes, word for word, and says the same of where the words came from."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import own_process
from catchline.cli.main import main
from catchline.errors import CatchlineError, ConfigError, DataError, ModelError
from catchline.export.folder import export_apart
from catchline.models.folder import LoadedModel, load_model_folder
from catchline.runtime import sessions
from catchline.runtime.folder import digest_of
from catchline.runtime.manifest import is_exported
from catchline.summarizer import Summarizer
from catchline.summarizer.onnx_backend import ExportedSystem
from catchline.summarizer.torch_backend import NeuralSystem
from catchline.types import Record, Summary
from exports import CASES, save_case
from tiny_models import DOCUMENTS

FAST = [
    "writer-gru",
    "writer-see",
    "distraction-paper",
    "writer-bert",
    "transformer-pointer",
    "contrastive-dynamic",
    "guided",
    "correlational",
    "bart-correlational",
]
TEXTS = [*DOCUMENTS, "cat", "Zebratown Ellinghaus Zebratown sat"]
GOLD = [text[:30] for text in TEXTS]
Pair = tuple[Path, Path]  # a model's folder and its exported one
NEAR = 1e-4


def exported(folder: Path, names: list[str]) -> dict[str, Pair]:
    """Each model's folder and its exported one, made in one process."""
    pairs = {name: (save_case(folder / name, name), folder / f"{name}-exported") for name in names}
    places = [str(place) for pair in pairs.values() for place in pair]
    environment = os.environ | {"CATCHLINE_KERNELS": "graph"}
    command = [sys.executable, "-X", "importtime", "-m", "catchline.export.folder", *places]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr[-3000:]
    assert "| torch._dynamo\n" not in done.stderr, "torch's compiler takes two seconds to import and is not needed"
    return pairs


@pytest.fixture(scope="module")
def fast(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Pair]:
    return exported(tmp_path_factory.mktemp("export"), FAST)


def opened(pair: Pair) -> tuple[Summarizer, Summarizer]:
    return Summarizer(NeuralSystem.from_pretrained(pair[0], "cpu")), Summarizer.from_pretrained(pair[1])


def assert_equal(ours: Summary, theirs: Summary) -> None:
    assert ours.text == theirs.text
    assert ours.score == pytest.approx(theirs.score, abs=NEAR)
    for word, other in zip(ours.words, theirs.words, strict=True):
        assert (word.text, word.copied, set(word.maps)) == (other.text, other.copied, set(other.maps))
        assert word.figures == pytest.approx(other.figures, abs=NEAR)
        for one, two in [(word.attention, other.attention), *((word.maps[k], other.maps[k]) for k in word.maps)]:
            np.testing.assert_allclose(one, two, atol=NEAR)
        assert word.copy_share == pytest.approx(other.copy_share, abs=NEAR)
        assert word.probability == pytest.approx(other.probability, abs=NEAR)


def check(pair: Pair) -> None:
    """Together and alone, with a beam and without, explained and scored."""
    torch_model, graphs = opened(pair)
    assert isinstance(graphs.system, ExportedSystem)
    for texts, options in ((TEXTS, {"num_return": 3}), (TEXTS, {"beam_size": 1}), (TEXTS[1:4], {"batch_size": 1})):
        ours = torch_model.summarize(texts, explain=True, **options)
        for one, other in zip(ours, graphs.summarize(texts, explain=True, **options), strict=True):
            assert_equal(one, other)
            for first, second in zip(one.alternatives, other.alternatives, strict=True):
                assert_equal(first, second)
    np.testing.assert_allclose(torch_model.score(TEXTS, GOLD), graphs.score(TEXTS, GOLD), atol=NEAR)
    assert torch_model.system.about() == graphs.system.about()


@pytest.mark.parametrize("name", FAST)
def test_equal_to_torch(name: str, fast: dict[str, Pair]) -> None:
    check(fast[name])


@pytest.mark.slow
def test_every_family_equal_to_torch(tmp_path: Path) -> None:
    for pair in exported(tmp_path, list(CASES)).values():
        check(pair)


def test_no_torch_is_imported(fast: dict[str, Pair]) -> None:
    """From the command line, with what the extras of training bring out of reach."""
    code = (
        "import sys\n"
        "class Refuse:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in ('torch', 'transformers', 'accelerate', 'huggingface_hub'):\n"
        "            raise ModuleNotFoundError(f'No module named {name}', name=name)\n"
        "sys.meta_path.insert(0, Refuse())\n"
        "from catchline.cli.main import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    command = [sys.executable, "-c", code, "summarize", str(fast["correlational"][1]), "-"]
    done = subprocess.run(command, input=DOCUMENTS[0], capture_output=True, text=True, check=False)
    expected = Summarizer.from_pretrained(fast["correlational"][1]).summarize(DOCUMENTS[0]).text
    assert (done.returncode, done.stdout.strip()) == (0, expected), done.stderr


def test_streams(fast: dict[str, Pair]) -> None:
    """Word by word, as torch's."""
    found: list[list[str]] = []
    for summarizer in opened(fast["writer-see"]):
        options, texts = summarizer.system.options({"beam_size": 1}), list[str]()
        told = partial(lambda texts, _, text: texts.append(text), texts)
        summarizer.system.summarize_batch([Record(DOCUMENTS[2])], explain=False, options=options, on_text=told)
        found.append(texts)
    assert found[0] == found[1]
    assert len(found[0]) > 1


# ------------------------------------------------------------------------------------- eight bits


@pytest.fixture(scope="module")
def eight_bits(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, str]:
    """A model large enough for it, the folder that the command wrote, and what it said."""
    home = tmp_path_factory.mktemp("eight")
    source = save_case(home / "wide", "wide", spread=0.12)
    lines = [json.dumps({"document": text, "summary": text[:20]}) for text in DOCUMENTS]
    (home / "pairs.jsonl").write_text("\n".join(lines))
    arguments = ["export", str(source), "--out", str(home / "out"), "--int8", "--check", str(home / "pairs.jsonl")]
    said = io.StringIO()
    with contextlib.redirect_stdout(said), pytest.MonkeyPatch.context() as patch:
        patch.setattr("catchline.export.folder.subprocess", SimpleNamespace(run=own_process._run_forked))
        assert main(arguments) == 0
    return source, home / "out", said.getvalue()


def test_eight_bits_are_near(eight_bits: tuple[Path, Path, str]) -> None:
    """Smaller, near to torch, and the same alone as together."""
    source, folder, said = eight_bits
    torch_model, graphs = opened((source, folder))
    ours, theirs = torch_model.score(TEXTS, GOLD), graphs.score(TEXTS, GOLD)
    np.testing.assert_allclose(ours, theirs, atol=0.05)
    assert np.abs(np.subtract(ours, theirs)).max() > NEAR
    assert theirs == pytest.approx([graphs.score([text], [one])[0] for text, one in zip(TEXTS, GOLD, strict=True)])
    sizes = [(place / "model.safetensors").stat().st_size for place in (source, folder)]
    assert sizes[1] < 0.37 * sizes[0]  # a width of 144 is three blocks of 64
    header = (folder / "model.safetensors").read_bytes()[:20_000].decode("latin-1")
    assert "embedding.weight.int8" in header  # of the vocabulary's product and of the look-up
    assert '"embedding.weight"' not in header
    assert f"of {len(DOCUMENTS)} summaries" in said
    assert f"Over {len(DOCUMENTS)} with summaries, torch -> graphs: ROUGE-1 " in said


@pytest.mark.usefixtures("exports_forked")
@pytest.mark.slow
def test_torch_reads_eight_bits_as_rounded_weights(eight_bits: tuple[Path, Path, str], tmp_path: Path) -> None:
    source, folder, _ = eight_bits
    assert_rounded(load_model_folder(folder), load_model_folder(source))
    export_apart(folder, tmp_path / "again", int8=True)
    again, before = (opened((source, place))[1] for place in (tmp_path / "again", folder))
    assert again.score(TEXTS, GOLD) == pytest.approx(before.score(TEXTS, GOLD), abs=NEAR)


def assert_rounded(model: LoadedModel, original: LoadedModel) -> None:
    for (name, one), other in zip(model.model.named_parameters(), original.model.parameters(), strict=True):
        one, other = one.detach(), other.detach()
        limit = float(other.abs().max()) / 127  # no block has a coarser scale
        assert float((one - other).abs().max()) <= 0.51 * limit, name


@pytest.mark.usefixtures("exports_forked")
@pytest.mark.parametrize("name", [pytest.param("writer-see", marks=pytest.mark.slow), "writer-wide"])
def test_weights_stored_in_eight_bits_are_computed_with_in_float32(name: str, tmp_path: Path) -> None:
    """Torch and the graphs read the same rounded numbers."""
    source = save_case(tmp_path / "source", name, spread=0.12)
    original, loaded = load_model_folder(source), load_model_folder(source)
    loaded.in_eight_bits = True
    loaded.save_pretrained(tmp_path / "stored")
    header = (tmp_path / "stored" / "model.safetensors").read_bytes()[:20_000].decode("latin-1")
    stored = load_model_folder(tmp_path / "stored")
    assert_rounded(stored, original)
    export_apart(tmp_path / "stored", tmp_path / "graphs")
    assert ("weight.int8" in header) == (name == "writer-wide"), "the other has no matrix of whole blocks"
    for graph in ("encoder.onnx", "step.onnx"):  # which read the eight bits themselves
        content = (tmp_path / "graphs" / graph).read_bytes()
        parts = (b"weight.int8", b"DequantizeLinear")
        assert [part in content for part in parts] == [name == "writer-wide"] * 2
    ours, theirs = opened((tmp_path / "stored", tmp_path / "graphs"))
    np.testing.assert_allclose(ours.score(TEXTS, GOLD), theirs.score(TEXTS, GOLD), atol=NEAR)


# ----------------------------------------------------------------------------------------- damage


def changed(pair: Pair, target: Path, name: str, content: bytes | None) -> Path:
    """A copy of the exported folder with another file, whose digest is right."""
    target.mkdir()
    for path in pair[1].iterdir():
        (target / path.name).write_bytes(path.read_bytes())
    if content is None:
        (target / name).unlink()
        return target
    (target / name).write_bytes(content)
    if name != "export.json":
        manifest = json.loads((target / "export.json").read_text())
        manifest["sha256"][name] = digest_of(target / name)
        (target / "export.json").write_text(json.dumps(manifest))
    return target


def test_damage_is_one_sentence(fast: dict[str, Pair], tmp_path: Path) -> None:
    pair = fast["writer-gru"]
    step, weights = (pair[1] / "step.onnx").read_bytes(), (pair[1] / "model.safetensors").read_bytes()
    manifest = json.loads((pair[1] / "export.json").read_text())
    outside = b"../secrets.json__"
    silent, long = manifest["layout"] | {"outputs": []}, manifest["sha256"] | {"x" * 3000: ""}
    cases = [
        ("step.onnx", None, "has no step.onnx"),
        ("step.onnx", step[: len(step) // 2], "truncated"),
        ("step.onnx", b"not a graph", "no graph"),
        ("step.onnx", step.replace(b"model.safetensors", outside, 1), "outside of its folder"),
        ("step.onnx", step.replace(b"\x08\x09", b"\x08\x0d", 1), "another version"),
        ("model.safetensors", weights[:200], "truncated"),
        ("model.safetensors", None, "has no model.safetensors"),
        ("export.json", json.dumps(manifest | {"format": 99}).encode(), "export format 99"),
        ("export.json", b"{}", "export format"),
        ("export.json", json.dumps(manifest | {"sha256": long}).encode(), "has no xx"),
        ("export.json", json.dumps(manifest).replace("recurrent", "recurring").encode(), "does not fit its graphs"),
        ("export.json", json.dumps(manifest | {"layout": silent}).encode(), "does not fit its graphs (log_probs)"),
        ("export.json", json.dumps(manifest | {"start_id": 10**6}).encode(), "does not fit its graphs (id 1000000)"),
        ("export.json", json.dumps(manifest | {"vocab_size": 30}).encode(), "does not fit its graphs (vocab_size 30)"),
        ("export.json", json.dumps(manifest | {"vocab_size": 28}).encode(), "is not that of its graphs"),
    ]
    assert len(outside) == len(b"model.safetensors")
    copying = json.loads((fast["writer-see"][1] / "export.json").read_text()) | {"vocab_size": 30}
    cases.append(("export.json", json.dumps(copying).encode(), "graphs (vocab_size 30); export the model again"))
    for number, (name, content, words) in enumerate(cases):
        of = fast["writer-see"] if number + 1 == len(cases) else pair
        with pytest.raises(ModelError) as raised:
            Summarizer.from_pretrained(changed(of, tmp_path / str(number), name, content))
        assert words in str(raised.value), (name, str(raised.value))
        assert len(str(raised.value).splitlines()) == 1
        assert len(str(raised.value)) < 1000


def test_another_file_is_noticed(fast: dict[str, Pair], tmp_path: Path) -> None:
    folder = changed(
        fast["writer-gru"], tmp_path / "copy", "export.json", (fast["writer-gru"][1] / "export.json").read_bytes()
    )
    (folder / "tokenizer.json").write_bytes((folder / "tokenizer.json").read_bytes() + b" ")
    with pytest.raises(ModelError, match="is not the file that was exported"):
        Summarizer.from_pretrained(folder)
    (folder / "export.json").unlink()
    (folder / "export.json").mkdir()
    with pytest.raises(ModelError, match=r"export\.json cannot be read \(Is a directory\); copy the folder again"):
        ExportedSystem.from_pretrained(folder)


def test_what_graphs_cannot(fast: dict[str, Pair]) -> None:
    graphs = Summarizer.from_pretrained(fast["contrastive-dynamic"][1])
    with pytest.raises(ConfigError, match="runs on the cpu"):
        graphs.to("cuda")
    with pytest.raises(CatchlineError, match="export it again"):
        graphs.summarize(DOCUMENTS[0], model={"lambda_decode": 0.9})


@pytest.mark.usefixtures("exports_forked")
def test_switches_have_another_value_in_an_export_of_a_copy_that_has_it(fast: dict[str, Pair], tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    Summarizer.from_pretrained(fast["contrastive-dynamic"][0], model={"lambda_decode": 0.9}).save_pretrained(copy)
    export_apart(copy, tmp_path / "out")
    assert Summarizer.from_pretrained(tmp_path / "out").system.decoded_by.switches()["lambda_decode"] == 0.9


@pytest.mark.usefixtures("exports_forked")
def test_what_is_there_is_not_lost(fast: dict[str, Pair], tmp_path: Path) -> None:
    source = str(next(iter(fast.values()))[0])
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(ConfigError, match="is no exported model: name another"):
        export_apart(source, tmp_path)
    with pytest.raises(ConfigError, match="is no model folder: name another"):
        Summarizer.from_pretrained(source).save_pretrained(tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "precious"
    shutil.copytree(next(iter(fast.values()))[1], tmp_path / "new")
    (tmp_path / "new" / "manifest.tmp").write_text("")
    export_apart(source, tmp_path / "new")  # its own is replaced
    assert is_exported(tmp_path / "new")
    assert not (tmp_path / "new" / "manifest.tmp").exists()


@pytest.mark.slow
def test_from_a_folder_with_python_files_into_the_home_folder_and_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing of the working directory is run."""
    source = save_case(tmp_path / "source", "writer-gru", {"max_length": 8})
    (tmp_path / "random.py").write_text("raise SystemExit(9)")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert main(["export", str(source), "--out", "~/out"]) == 0
    assert capsys.readouterr().out.startswith(f"Wrote {tmp_path}/out (")
    assert Summarizer.from_pretrained(tmp_path / "out").summarize(DOCUMENTS[0]).text
    monkeypatch.chdir(tmp_path / "out")
    assert main(["export", str(source), "--out", "."]) == 0
    assert capsys.readouterr().out.startswith(f"Wrote {tmp_path}/out (")


@pytest.mark.usefixtures("exports_forked")
def test_models_that_no_graph_can_follow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CASES, "transformer", CASES["transformer"] | {"max_positions": 30})
    for folder, said in (
        (
            save_case(tmp_path / "model", "transformer"),
            "it has 30 positions, and graphs are made from",
        ),
    ):
        with pytest.raises(ModelError, match=said):
            export_apart(folder, tmp_path / "out")
        assert not (tmp_path / "out").exists()


def test_places_that_cannot_be_written(
    fast: dict[str, Pair],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The other process's error is that of the command: one sentence, and the code of its kind."""
    full = "def copyfile(*_): raise RuntimeError('I/O error: No space left on device (os error 28)')"
    (tmp_path / "sitecustomize.py").write_text(f"import shutil\n{full}\nshutil.copyfile = copyfile\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    assert main(["export", str(fast["writer-gru"][0]), "--out", str(tmp_path / "out")]) == 7
    assert capsys.readouterr().err.startswith(f"catchline: The disk is full while writing {tmp_path}/out. What was")


@pytest.mark.usefixtures("exports_forked")
def test_a_place_below_a_file_cannot_be_written(
    fast: dict[str, Pair], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert main(["export", str(fast["writer-gru"][0]), "--out", str(tmp_path / "file/in/it")]) == 1
    assert capsys.readouterr().err == f"catchline: Cannot use {tmp_path}/file/in: not a directory.\n"


def test_the_threads_of_the_service(fast: dict[str, Pair], monkeypatch: pytest.MonkeyPatch) -> None:
    given, options = [], sessions._options
    monkeypatch.setattr(sessions, "_options", lambda *each: (given.append(found := options(*each)), found)[1])
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setattr("catchline.server.run.serve", lambda *_: True)
    for more in ([], ["--threads", "2"], ["--threads", "8"]):
        assert main(["serve", str(fast["writer-gru"][1]), *more]) == 0
    assert [each.intra_op_num_threads for each in given] == [1, 1, 2, 2, 2, 2]
    assert os.environ["OMP_NUM_THREADS"] == "8"


def test_threads_change_no_bit(fast: dict[str, Pair], monkeypatch: pytest.MonkeyPatch) -> None:
    """Documents decoded by several threads at once, each in batches of its own, and graphs that run in two."""
    texts, names, found = [text + " " + more for text in TEXTS for more in TEXTS], set[str](), list[list[Summary]]()
    for threads in ("1", "2", "16"):
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
        summarizer = Summarizer.from_pretrained(fast["writer-gru"][1])
        batch = ExportedSystem.summarize_batch
        watched = lambda *each, **more: (names.add(threading.current_thread().name), batch(*each, **more))[1]  # noqa: B023, E731
        monkeypatch.setattr(ExportedSystem, "summarize_batch", watched)
        found.append(summarizer.summarize(texts, explain=True, batch_size=4))
        monkeypatch.setattr(ExportedSystem, "summarize_batch", batch)
    assert {"catchline_0", "catchline_1"} < names
    for one, *others in zip(*found, strict=True):
        for other in others:
            assert (other.text, other.score) == (one.text, one.score)
            assert [word.probability for word in other.words] == [word.probability for word in one.words]


@pytest.mark.parametrize("name", FAST)
def test_torch_models_are_searched_side_by_side(
    fast: dict[str, Pair], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """By threads that take turns as often as they can; nothing of a model may belong to one search."""
    summarizer = Summarizer(NeuralSystem.from_pretrained(fast[name][0], "cpu"))
    texts, usual, often = [f"{text} {more}" for text in TEXTS for more in TEXTS[:3]], sys.getswitchinterval(), 1e-6
    found = []
    for threads in (1, 4):
        monkeypatch.setattr(NeuralSystem, "batches_at_once", lambda *_, threads=threads: threads)
        sys.setswitchinterval(often)
        try:
            found.append(summarizer.summarize(texts, explain=True, batch_size=4))
        finally:
            sys.setswitchinterval(usual)
    for one, other in zip(*found, strict=True):
        assert_equal(one, other)


@pytest.mark.parametrize("on_error", ["skip", "raise"])
def test_several_threads_tell_of_documents_in_their_order(
    fast: dict[str, Pair], monkeypatch: pytest.MonkeyPatch, on_error: str
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    batch = ExportedSystem.summarize_batch

    def refusing(self: ExportedSystem, records: list[Record], **options: Any) -> list[Summary]:
        if bad := [record for record in records if "dog" in record.document]:
            time.sleep(0.01 * (5 - int(bad[0].id)))  # the first is told last
            raise DataError(f"{bad[0].id} is bad")
        return batch(self, records, **options)

    monkeypatch.setattr(ExportedSystem, "summarize_batch", refusing)
    summarizer, told = Summarizer.from_pretrained(fast["writer-gru"][1]), list[str]()
    records = [Record(f"the {'dog' if number % 2 else 'cat'} sat", id=str(number)) for number in range(6)]
    if on_error == "raise":
        with pytest.raises(DataError, match=r"^1 is bad$"):
            summarizer.summarize(records, batch_size=1)
        return
    skip: Any = {"on_error": "skip", "on_skip": lambda record, error: told.append(f"{record.id}: {error}")}
    made = list(summarizer.stream(records, batch_size=2, **skip))
    assert told == ["1: 1 is bad", "3: 3 is bad", "5: 5 is bad"]
    assert [one and one.id for one in made] == ["0", None, "2", None, "4", None]
