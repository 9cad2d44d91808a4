"""An exported folder writes what the model writes, word for word, and says the same of where the words came from."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from catchline.errors import CatchlineError, ConfigError, ModelError
from catchline.export.apart import export_apart
from catchline.files import digest_of
from catchline.models.folder import load_model_folder
from catchline.runtime.folder import MANIFEST
from catchline.summarizer import Summarizer
from catchline.summarizer.onnx_backend import ExportedSystem
from catchline.summarizer.torch_backend import NeuralSystem
from catchline.types import Summary
from tiny_models import CASES, DOCUMENTS, save_case

FAST = ["writer-see", "contrastive-dynamic", "bart-correlational", "wide"]  # one takes 10 seconds
TEXTS = [*DOCUMENTS, "cat", "Zebratown Ellinghaus Zebratown sat"]
GOLD = [text[:30] for text in TEXTS]
Pair = tuple[Path, Path]  # a model's folder and its exported one
NEAR, TIE = 1e-4, 2e-6


def exported(folder: Path, names: list[str], *options: str, spread: float = 0.7) -> dict[str, Pair]:
    """Each model's folder and its exported one, made in one process."""
    pairs = {name: (save_case(folder / name, name, spread=spread), folder / f"{name}-exported") for name in names}
    places = [str(place) for pair in pairs.values() for place in pair]
    command = [sys.executable, "-m", "catchline.export.folder", *options, *places]
    environment = os.environ | {"CATCHLINE_KERNELS": "graph"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, errors="replace")
    assert not done.returncode, (done.stdout + done.stderr)[-3000:]
    return pairs


@pytest.fixture(scope="module")
def fast(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Pair]:
    return exported(tmp_path_factory.mktemp("export"), FAST)


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """A model large enough for eight bits."""
    return exported(tmp_path_factory.mktemp("eight"), ["wide"], "--int8", spread=0.12)["wide"]


def opened(pair: Pair) -> tuple[Summarizer, Summarizer]:
    return Summarizer(NeuralSystem.from_pretrained(pair[0], "cpu")), Summarizer.from_pretrained(pair[1])


def assert_equal(ours: Summary, theirs: Summary) -> None:
    assert ours.score == pytest.approx(theirs.score, abs=NEAR)
    if ours.text != theirs.text:
        assert ours.score == pytest.approx(theirs.score, abs=TIE), (ours.text, theirs.text)
        return
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
        every = [summarizer.summarize(texts, explain=True, **options) for summarizer in (torch_model, graphs)]
        for one, other in zip(*every, strict=True):
            for first, second in zip([one, *one.alternatives], [other, *other.alternatives], strict=True):
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


def test_threads_change_no_bit(fast: dict[str, Pair], monkeypatch: pytest.MonkeyPatch) -> None:
    """Documents decoded by several threads at once, each in batches of its own, and graphs that run in two."""
    texts, names, found = [text + " " + more for text in TEXTS for more in TEXTS], set[str](), list[list[Summary]]()
    batch = ExportedSystem.summarize_batch

    def watched(*given: object, **named: object) -> list[Summary]:
        names.add(threading.current_thread().name)
        return batch(*given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(ExportedSystem, "summarize_batch", watched)
    for threads in ("1", "2", "16"):
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
        found.append(Summarizer.from_pretrained(fast["writer-see"][1]).summarize(texts, explain=True, batch_size=4))
    assert len(names) > 2
    for one, *others in zip(*found, strict=True):
        for other in others:
            assert (other.text, other.score) == (one.text, one.score)
            assert [word.probability for word in other.words] == [word.probability for word in one.words]


def test_eight_bits(wide: Pair) -> None:
    """Smaller, near to torch, the same alone as together; torch reads the numbers that the graphs read."""
    source, folder = wide
    torch_model, graphs = opened(wide)
    ours, theirs = torch_model.score(TEXTS, GOLD), graphs.score(TEXTS, GOLD)
    np.testing.assert_allclose(ours, theirs, atol=0.1)
    assert np.abs(np.subtract(ours, theirs)).max() > NEAR
    assert theirs == pytest.approx([graphs.score([text], [one])[0] for text, one in zip(TEXTS, GOLD, strict=True)])
    sizes = [(place / "model.safetensors").stat().st_size for place in wide]
    assert sizes[1] < 0.32 * sizes[0]
    header = (folder / "model.safetensors").read_bytes()[:20_000].decode("latin-1")
    assert '"embedding.weight.int8"' in header  # of the vocabulary's product and of the look-up
    assert '"embedding.weight"' not in header
    rounded, exact = load_model_folder(folder).model, load_model_folder(source).model
    for (name, one), two in zip(rounded.named_parameters(), exact.parameters(), strict=True):
        step = two.detach().abs().amax(dim=-1, keepdim=True) / 127
        assert bool(((one - two).abs() <= 0.51 * step).all()), name


# ----------------------------------------------------------------------------------------- damage


def changed(pair: Pair, target: Path, name: str, change: Callable[[bytes], bytes] | None) -> Path:
    """A copy of the exported folder with another file, whose digest is right."""
    target.mkdir()
    for path in pair[1].iterdir():
        (target / path.name).write_bytes(path.read_bytes())
    if change is None:
        (target / name).unlink()
        return target
    (target / name).write_bytes(change((target / name).read_bytes()))
    if name != "export.json":
        manifest = json.loads((target / "export.json").read_text())
        manifest["sha256"][name] = digest_of(target / name)
        (target / "export.json").write_text(json.dumps(manifest))
    return target


def manifest(**values: object) -> Callable[[bytes], bytes]:
    return lambda content: json.dumps(json.loads(content) | values).encode()


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("step.onnx", None, "has no step.onnx"),
        ("step.onnx", lambda content: content[: len(content) // 2], "cannot be opened"),
        ("step.onnx", lambda content: content.replace(b"model.safetensors", b"../secrets.json__"), "escapes model dir"),
        ("model.safetensors", lambda content: content[:200], "cannot be opened"),
        ("export.json", manifest(format=99), "export format 99"),
        ("export.json", manifest(sha256={"x" * 3000: ""}), "has no digest of"),
        ("export.json", lambda content: content.replace(b"recurrent", b"recurring"), "does not fit its models"),
        ("export.json", manifest(start_id=10**6), "does not fit its models (id 1000000)"),
        ("export.json", manifest(vocab_size=28), "does not fit its ONNX models"),
        ("tokenizer.json", lambda content: content + b" ", "does not fit"),
    ],
)
def test_damage_is_one_sentence(
    name: str, change: Callable[[bytes], bytes] | None, words: str, fast: dict[str, Pair], tmp_path: Path
) -> None:
    folder = changed(fast["writer-see"], tmp_path / "copy", name, change)
    if name == "tokenizer.json":
        (folder / name).write_bytes((folder / name).read_bytes() + b" ")
        words = "has changed since the export"
    with pytest.raises(ModelError) as raised:
        Summarizer.from_pretrained(folder)
    assert words in str(raised.value)
    assert len(str(raised.value).splitlines()) == 1
    assert len(str(raised.value)) < 1000


def test_what_graphs_cannot(fast: dict[str, Pair]) -> None:
    graphs = Summarizer.from_pretrained(fast["contrastive-dynamic"][1])
    with pytest.raises(ConfigError, match="runs on the cpu"):
        graphs.to("cuda")
    with pytest.raises(CatchlineError, match="export it again"):
        graphs.summarize(DOCUMENTS[0], model={"lambda_decode": 0.9})


def test_what_is_there_is_not_lost(fast: dict[str, Pair], tmp_path: Path) -> None:
    source = str(fast["writer-see"][0])
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(ConfigError, match="has no exported model: name another"):
        export_apart(source, tmp_path)
    with pytest.raises(ConfigError, match="no model folder: name another"):
        Summarizer.from_pretrained(source).save_pretrained(tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "precious"


def test_models_that_no_graph_can_follow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other process's error is that of the command; what is there is replaced by a whole folder only."""
    monkeypatch.setitem(CASES, "transformer", CASES["transformer"] | {"max_positions": 30})
    with pytest.raises(ModelError, match="it has 30 positions, and graphs are made from"):
        export_apart(save_case(tmp_path / "model", "transformer"), tmp_path / "out")
    assert not (tmp_path / "out" / MANIFEST).exists()
