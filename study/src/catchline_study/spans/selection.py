"""A whole selection: plan, first pass, choice, second pass, shuffled files; gone on with after an interruption.

Everything on the way lies in ``OUT/.selection`` until the end, in files that appear when they are complete. So a job
that was killed does again only what was not, and the bytes are the same. Each step reads the plan and writes files, and
gives nothing back but an error, so it is all the same which process does it.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from catchline.errors import DISK_FULL, CatchlineError, ConfigError, DataError, DiskFullError
from catchline.files import LOCK, digest_of, only_here, part_of
from catchline.jobs import Pool, Processes, RayCluster, as_finished, import_ray
from catchline_study.spans import tokens
from catchline_study.spans.candidates import CANDIDATE, best_candidates, find_candidates
from catchline_study.spans.corpus import Shard, find_shards
from catchline_study.spans.records import MANIFEST, describe, write_chosen, write_shuffled
from catchline_study.spans.settings import SpanSettings

Step = Callable[[Path, int], None]  # what is done with a shard or an output file, by its number, in the folder WORK
Work = Callable[[int], CatchlineError | None]  # writes files, so that it is all the same who does it
Run = Callable[[Work, Sequence[int]], Iterator[tuple[int, CatchlineError | None]]]
OnProgress = Callable[[int, int, str], object]  # what is done, of how much, the stage

WORK = ".selection"
TRAIN, VALIDATION = "train", "validation.jsonl"
DIGESTS = ".digests.json"  # of the files that were read; the manifest, which keys of comparisons are made of, stays
_LAST = 2**64 - 1
_OPTION = "--workers"
_ADVICE = "choose another folder, or start anew with --overwrite."


@dataclass(frozen=True)
class SelectionResult:
    """``complete_before``: there was nothing left to do."""

    manifest: dict[str, Any]
    complete_before: bool = False


def select_spans(
    inputs: Sequence[str],
    out: Path,
    settings: SpanSettings,
    *,
    workers: int | None = None,
    ray: bool = False,
    overwrite: bool = False,
    progress: OnProgress = lambda done, total, stage: None,
) -> SelectionResult:
    """Select the best spans of a corpus and write them to a folder that trainings read.

    The output does not depend on ``workers`` (processes, or Ray's workers with ``ray``) nor on interruptions.

    Raises:
        ConfigError: settings, folder or tokenizer do not fit.
        DataError: the corpus cannot be read, or holds nothing to select.
        FolderInUseError: another selection is being written there.
    """
    if ray:
        import_ray(_OPTION)
    tokenizer = tokens.find_tokenizer(settings.tokenizer)
    mark = tokens.fingerprint(tokenizer)
    if out.exists() and not out.is_dir():
        raise ConfigError(f"{out} is not a folder; choose another one.")
    with only_here(out):
        if overwrite and ((out / MANIFEST).is_file() or (out / WORK).is_dir()):  # what a selection wrote, and no more
            for name in (WORK, TRAIN):
                shutil.rmtree(out / name, ignore_errors=True)
            for name in (MANIFEST, VALIDATION, DIGESTS):
                (out / name).unlink(missing_ok=True)
        finished = _finished(out, settings, mark, inputs)
        if finished is not None:
            return finished
        plan = _plan(out, settings, list(inputs), mark, tokenizer)
        if not ray and (workers or 1) == 1:
            return _Job(out, plan, run_here, progress).finish()
        start: Callable[..., Pool] = RayCluster if ray else Processes
        with closing(start(workers, option=_OPTION, threads=1)) as pool:
            return _Job(out, plan, partial(as_finished, pool), progress).finish()


def run_here(work: Work, pieces: Sequence[int]) -> Iterator[tuple[int, CatchlineError | None]]:
    """One after the other, in this process. The number of workers says how many cores are used, here too: the tokenizer
    takes no threads of its own."""
    before = os.environ.get("TOKENIZERS_PARALLELISM")
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    try:
        for piece in pieces:
            yield piece, work(piece)
    finally:
        if before is None:
            os.environ.pop("TOKENIZERS_PARALLELISM", None)
        else:
            os.environ["TOKENIZERS_PARALLELISM"] = before


# ------------------------------------------------------------------------------------------ beginning


def _finished(out: Path, settings: SpanSettings, mark: str, inputs: Sequence[str]) -> SelectionResult | None:
    """The result that is there already, if it is of the same settings and files."""
    if not (out / MANIFEST).is_file():
        return None
    manifest = read_json(out / MANIFEST)
    if not isinstance(manifest, dict) or "settings" not in manifest:
        raise ConfigError(f"{out / MANIFEST} is not of a selection of spans; choose another folder.")
    _compare(out, manifest["settings"], settings)
    now, before = find_shards(inputs, out), manifest["shards"]
    same = [(shard.name, shard.size) for shard in now] == [(old["name"], old["bytes"]) for old in before]
    if same and (out / DIGESTS).is_file():
        digests = zip(now, read_json(out / DIGESTS), strict=True)
        same = all(digest in (None, digest_of(Path(shard.path))) for shard, digest in digests)
    if not same or mark != manifest["tokenizer"]["sha256"]:
        what = "files" if not same else "tokens: the tokenizer changed"
        raise ConfigError(f"{out} holds a selection from other {what}; {_ADVICE}")
    shutil.rmtree(out / WORK, ignore_errors=True)
    return SelectionResult(manifest, complete_before=True)


def _compare(out: Path, there: dict[str, Any], settings: SpanSettings) -> None:
    asked = settings.as_dict()
    differs = [name for name in asked if there.get(name) != asked[name]]
    if differs:
        shown = ", ".join(f"{name} {there.get(name)} instead of {asked[name]}" for name in differs[:3])
        raise ConfigError(f"{out} holds a selection with other settings ({shown}); {_ADVICE}")


def _plan(out: Path, settings: SpanSettings, inputs: list[str], mark: str, tokenizer: Path | None) -> SelectionPlan:
    """The plan of an unfinished selection in the folder, or a new one."""
    work = out / WORK
    if (work / "plan.json").is_file():
        plan = SelectionPlan.read(work / "plan.json")
        _compare(out, plan.settings.as_dict(), settings)
        if (plan.inputs, plan.tokenizer) != (inputs, mark):
            what = "inputs" if plan.inputs != inputs else "tokens"
            raise ConfigError(f"{out} holds an unfinished selection from other {what}; {_ADVICE}")
        _refuse_new(plan, inputs, out)
        return plan
    shards = find_shards(inputs, out)
    if any(path.name not in {WORK, LOCK} for path in out.iterdir()):
        raise ConfigError(f"{out} is not an empty folder; choose another one.")
    for name in ("scan", "chosen", "emit"):
        (work / name).mkdir(parents=True, exist_ok=True)
    if tokenizer is not None:  # so that every worker reads the same, and a later run too
        with part_of(work / "tokenizer.json") as file:
            file.write(tokenizer.read_bytes())
    plan = SelectionPlan(settings, inputs, mark, shards)
    write_json(work / "plan.json", asdict(plan))
    return plan


def _refuse_new(plan: SelectionPlan, inputs: list[str], out: Path) -> None:
    """A file that is missing is told when it is wanted; one that is new would be passed over."""
    try:
        now = {shard.name for shard in find_shards(inputs, out)}
    except DataError:
        return
    new = sorted(now - {shard.name for shard in plan.shards})
    if new:
        raise ConfigError(
            f"The input has files that were not there when the selection began ({', '.join(new[:3])}); start anew with "
            "--overwrite."
        )


# --------------------------------------------------------------------------------------------- the job


class _Job:
    def __init__(self, out: Path, plan: SelectionPlan, run: Run, progress: OnProgress) -> None:
        self.out, self.plan, self.run, self.progress = out, plan, run, progress
        self.work = out / WORK
        self.sizes = [max(1, shard.size) for shard in plan.shards]

    def finish(self) -> SelectionResult:
        everything = range(len(self.plan.shards))
        while True:
            found = {number: place_of(self.work, "scan", number, ".json") for number in everything}
            self._do("Scoring spans", candidates_of_shard, found, self.sizes)
            choice = self._choice()
            texts = {number: place_of(self.work, "emit", number, ".index") for number in choice["shards"]}
            self._do("Reading chosen spans", records_of_shard, texts, self.sizes)
            if (self.work / "choice.json").is_file():
                break
        (self.out / TRAIN).mkdir(exist_ok=True)
        files = choice["files"]
        targets = {number: self.out / file["name"] for number, file in enumerate(files)}
        self._do("Shuffling", output_file, targets, [file["records"] for file in files])
        scans = self._scans()
        write_json(self.out / DIGESTS, [scan.get("sha256") for scan in scans])
        manifest = describe(self.plan.settings, self.plan.tokenizer, self.plan.shards, scans, choice)
        write_json(self.out / MANIFEST, manifest)
        shutil.rmtree(self.work, ignore_errors=True)
        return SelectionResult(manifest)

    def _do(self, stage: str, step: Step, files: dict[int, Path], sizes: list[int]) -> None:
        """Have the pieces done whose files are not there, large ones first; an error stops when those on their way are
        known."""
        pieces = sorted((number for number, file in files.items() if not file.is_file()), key=lambda one: -sizes[one])
        if not pieces:
            return
        done, total = 0, sum(sizes[piece] for piece in pieces)
        self.progress(0, total, stage)
        for piece, error in self.run(partial(perform, step, self.work), pieces):
            if error is not None:
                raise error
            done += sizes[piece]
            self.progress(done, total, stage)

    def _scans(self) -> list[dict[str, Any]]:
        return [read_json(place_of(self.work, "scan", number, ".json")) for number in range(len(self.plan.shards))]

    def _choice(self) -> dict[str, Any]:
        """What was chosen, with the bounds of the output files; ``choice.json``."""
        path = self.work / "choice.json"
        if path.is_file():
            return read_json(path)
        for old in (self.work / "emit").iterdir():
            old.unlink()
        shutil.rmtree(self.out / TRAIN, ignore_errors=True)
        (self.out / VALIDATION).unlink(missing_ok=True)
        settings, scans = self.plan.settings, self._scans()
        good = [number for number, scan in enumerate(scans) if "problem" not in scan]
        _refuse_none(settings, [scans[number] for number in good], len(scans))
        histogram = [counted for number in good for counted in scans[number]["histogram"]]
        best, threshold = best_candidates(settings, histogram, good, partial(_candidates, self.work))
        shards, orders, outputs, ceiling = [], [], [], 0
        for number, rows in zip(good, best, strict=True):
            with part_of(place_of(self.work, "chosen", number, ".npy")) as file:
                np.save(file, rows)
            if len(rows):
                chosen = _candidates(self.work, number)[rows]
                shards.append(number)
                orders.append(chosen["order"].copy())
                outputs.append(chosen["output"].copy())
                ceiling += int((chosen["ml"] == settings.shape.ceiling).sum())
        files = _files(settings, orders)
        repeated = sum(map(len, outputs)) - len(np.unique(np.concatenate(outputs), axis=0))
        choice = {
            "shards": shards,
            "files": files,
            "threshold": threshold,
            # what high scores attract: output spans that occur again, and subsequences in full
            "reports": {"duplicate_outputs": repeated, "longest_subsequence_at_ceiling": ceiling},
        }
        write_json(path, choice)
        return choice


def _files(settings: SpanSettings, orders: list[NDArray[np.uint64]]) -> list[dict[str, Any]]:
    """The output files, each with the bounds of the orders that go there."""
    order = np.sort(np.concatenate(orders))
    if len(order) <= settings.validation:
        raise DataError(
            f"Only {len(order):,} spans were found; --validation {settings.validation} leaves none to train on."
        )
    bounds = list(range(settings.validation, len(order), settings.shard_records))
    names = [f"{TRAIN}/{TRAIN}-{number:05d}.jsonl" for number in range(len(bounds))]
    if settings.validation:
        bounds, names = [0, *bounds], [VALIDATION, *names]
    # equal orders stay together, so that a bound lies between different ones
    starts = [int(np.searchsorted(order, order[bound])) for bound in bounds]
    files = []
    for name, start, end in zip(names, starts, [*starts[1:], len(order)], strict=True):
        low, high = int(order[start]), int(order[end]) - 1 if end < len(order) else _LAST
        files.append({"name": name, "records": end - start, "low": low, "high": high})
    return files


def _refuse_none(settings: SpanSettings, scans: list[dict[str, Any]], shards: int) -> None:
    """Say why there is nothing to select from."""
    if not scans:
        raise DataError(f"None of the {shards:,} files could be read; leave out --skip-bad to see why.")
    window = settings.shape.window
    count, longest = sum(scan["documents"] for scan in scans), max(scan["longest"] for scan in scans)
    if not count:
        raise DataError("The input holds no text.")
    if not any(scan["chunks"] for scan in scans):
        whole = ", or whole files as documents (--text file)" if settings.text == "line" else ""
        raise DataError(
            f"No document has {window:,} tokens ({settings.input_length} + {settings.output_length}): of "
            f"{count:,} the longest has {longest:,}; take shorter spans (--input-length, --output-length){whole}."
        )
    if not any(scan["candidates"] for scan in scans):
        over = f" scores above {settings.over}" if settings.over is not None else " holds text in both spans"
        raise DataError(f"No window{over}.")


# ----------------------------------------------------------------------------------- one step, in any process


@dataclass(frozen=True)
class SelectionPlan:
    """What an unfinished selection is of; ``plan.json``."""

    settings: SpanSettings
    inputs: list[str]
    tokenizer: str
    shards: list[Shard]

    @classmethod
    def read(cls, path: Path) -> SelectionPlan:
        """What was written of its fields."""
        values = read_json(path)
        asked = values["settings"]
        settings = SpanSettings(**asked | {"weights": tuple(asked["weights"])})
        return cls(settings, values["inputs"], values["tokenizer"], [Shard(**shard) for shard in values["shards"]])


@lru_cache(maxsize=1)
def _opened(path: Path, written: int) -> tuple[SelectionPlan, tokens.SpanTokenizer]:
    plan, file = SelectionPlan.read(path), path.with_name("tokenizer.json")
    if file.is_file():
        return plan, tokens.VocabularySpanTokenizer(file)
    return plan, tokens.WordSpanTokenizer(plan.settings.lowercase)


def _open(work: Path) -> tuple[SelectionPlan, tokens.SpanTokenizer]:
    path = work / "plan.json"
    return _opened(path, path.stat().st_mtime_ns)


def place_of(work: Path, step: str, number: int, suffix: str = "") -> Path:
    """Where a step puts what it makes of a shard."""
    return work / step / f"{number:05d}{suffix}"


def _candidates(work: Path, number: int) -> NDArray[np.void]:
    """What `find_candidates` wrote of a shard, left on the disk until it is used."""
    path = place_of(work, "scan", number, ".bin")
    return np.memmap(path, dtype=CANDIDATE, mode="r") if path.stat().st_size else np.zeros(0, dtype=CANDIDATE)


def perform(step: Step, work: Path, number: int) -> CatchlineError | None:
    """An error comes back as a plain value that every process can read."""
    try:
        step(work, number)
    except CatchlineError as error:
        return error
    except OSError as error:
        sentence = f"{error.filename or work}: {error.strerror or error}. What was complete is kept."
        return DiskFullError(sentence) if error.errno in DISK_FULL else CatchlineError(sentence)
    return None


def candidates_of_shard(work: Path, number: int) -> None:
    """The first pass over a shard."""
    plan, tokenizer = _open(work)
    try:
        counts = find_candidates(plan.settings, tokenizer, plan.shards[number], place_of(work, "scan", number, ".bin"))
        write_json(place_of(work, "scan", number, ".json"), counts)  # says that the candidates are complete
    except DataError as error:
        _give_up(plan, work, number, error)


def records_of_shard(work: Path, number: int) -> None:
    """The second pass over a shard."""
    plan, tokenizer = _open(work)
    chosen = _candidates(work, number)[np.load(place_of(work, "chosen", number, ".npy"))]
    try:
        write_chosen(plan.settings, tokenizer, plan.shards[number], chosen, place_of(work, "emit", number))
    except DataError as error:
        _give_up(plan, work, number, error)
        (work / "choice.json").unlink(missing_ok=True)


def _give_up(plan: SelectionPlan, work: Path, number: int, error: DataError) -> None:
    """A shard that cannot be read is left out altogether, if that is allowed."""
    if not plan.settings.skip_bad:
        raise error
    write_json(place_of(work, "scan", number, ".json"), {"problem": str(error)})


def output_file(work: Path, number: int) -> None:
    """One of the files that trainings read."""
    choice = read_json(work / "choice.json")
    file = choice["files"][number]
    sources = [place_of(work, "emit", shard) for shard in choice["shards"]]
    written = write_shuffled(sources, file["low"], file["high"], work.parent / file["name"])
    if written != file["records"]:
        raise AssertionError(f"{file['name']}: {written} records instead of {file['records']}")


def write_json(path: Path, value: Any) -> None:
    """JSON with an end of line."""
    with part_of(path) as file:
        file.write((json.dumps(value, ensure_ascii=False, indent=1) + "\n").encode("utf-8", "surrogateescape"))


def read_json(path: Path) -> Any:
    """What `write_json` wrote."""
    return json.loads(path.read_bytes().decode("utf-8", "surrogateescape"))
