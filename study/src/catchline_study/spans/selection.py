"""A whole selection: candidates of every shard, the best K of all, their texts, shuffled files.

What is made on the way is in ``OUT/.selection`` until the end: a file of each shard, complete when it is there. So a
killed job does again only what was not complete, and the bytes are the same for any number of processes.
"""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from catchline.data.checks import WORD
from catchline.errors import ConfigError, DataError
from catchline.files import LOCK, digest_of, only_here, part_of, sha256
from catchline.jobs import parallel
from catchline_study.spans import tokens
from catchline_study.spans.candidates import CANDIDATE, COUNTED, best_candidates, find_candidates
from catchline_study.spans.corpus import Shard, documents, find_shards
from catchline_study.spans.settings import SpanSettings

OnProgress = Callable[[int, int, str], object]  # what is done, of how much, the stage

WORK, MANIFEST = ".selection", "manifest.json"
DIGITS = 20  # of an order, which is below 2^64
TRAIN, VALIDATION = "train", "validation.jsonl"
_ADVICE = "choose another folder, or start anew with --overwrite."


def select_spans(
    inputs: Sequence[str],
    out: Path,
    settings: SpanSettings,
    *,
    workers: int = 1,
    overwrite: bool = False,
    progress: OnProgress = lambda done, total, stage: None,
) -> tuple[dict[str, Any], bool]:
    """Select the best spans of a corpus and write them to a folder that trainings read. Returns the manifest and
    whether it was there before.

    The output depends neither on ``workers``, the number of processes, nor on interruptions. Raises ConfigError:
    settings, folder or tokenizer do not fit; DataError: the corpus cannot be read, or holds nothing to select;
    FolderInUseError: another selection is being written there.
    """
    tokenizer = tokens.find_tokenizer(settings.tokenizer)
    if out.exists() and not out.is_dir():
        raise ConfigError(f"{out} is not a folder; choose another one.")
    with only_here(out):
        if overwrite and ((out / MANIFEST).is_file() or (out / WORK).is_dir()):  # what a selection wrote, and no more
            for name in (WORK, TRAIN):
                shutil.rmtree(out / name, ignore_errors=True)
            for name in (MANIFEST, VALIDATION):
                (out / name).unlink(missing_ok=True)
        shards = find_shards(inputs, out)
        mark = sha256(WORD.pattern.encode()) if tokenizer is None else digest_of(tokenizer)
        files = [[shard.name, shard.size] for shard in shards]
        asked = {"settings": asdict(settings), "tokenizer": mark, "files": files}
        if (out / MANIFEST).is_file():
            manifest = _read_json(out / MANIFEST)
            if not isinstance(manifest, dict) or "asked" not in manifest:
                raise ConfigError(f"{out / MANIFEST} is not of a selection of spans; choose another folder.")
            _refuse_other(out, manifest["asked"], asked)
            shutil.rmtree(out / WORK, ignore_errors=True)
            return manifest, True
        if (out / WORK / "plan.json").is_file():
            _refuse_other(out, _read_json(out / WORK / "plan.json"), asked)
        elif any(path.name not in {WORK, LOCK} for path in out.iterdir()):
            raise ConfigError(f"{out} is not an empty folder; choose another one.")
        _write_json(out / WORK / "plan.json", asked)
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # `workers` says how many cores are used
        return _Job(out, settings, tokenizer, shards, workers, progress).finish(asked), False


def _refuse_other(out: Path, there: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
    """Raises: ConfigError: what the folder holds is of other settings, files or tokens."""
    old, new = there["settings"], asked["settings"]
    settings = ", ".join(f"{name} {old.get(name)} instead of {new[name]}" for name in new if old.get(name) != new[name])
    differs = [f"other settings ({settings})"] if settings else []
    differs += [f"other {name}" for name in ("tokenizer", "files") if there[name] != asked[name]]
    if differs:
        raise ConfigError(f"{out} holds a selection with {differs[0]}; {_ADVICE}")


class _Job:
    def __init__(
        self,
        out: Path,
        settings: SpanSettings,
        tokenizer: Path | None,
        shards: Sequence[Shard],
        workers: int,
        progress: OnProgress,
    ) -> None:
        self.out, self.settings, self.shards = out, settings, shards
        self._tokenizer_file, self.workers, self.progress = tokenizer, workers, progress

    @cached_property
    def tokenizer(self) -> tokens.SpanTokenizer:
        """Opened in each process that uses it."""
        if self._tokenizer_file is None:
            return tokens.WordSpanTokenizer(self.settings.lowercase)
        return tokens.VocabularySpanTokenizer(self._tokenizer_file)

    def finish(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Do what is not done; returns the manifest."""
        everything = range(len(self.shards))
        self._each("Scoring spans", self._scan, everything, ".json")
        scans = [_read_json(self._file(number, ".json")) for number in everything]
        _refuse_none(self.settings, scans)
        candidates = [self._candidates(number) for number in everything]
        best, threshold = best_candidates(self.settings, candidates)
        chosen = {n: np.array(candidates[n][places]) for n, places in enumerate(best) if len(places)}
        self._each("Reading chosen spans", lambda number: self._emit(number, chosen[number]), chosen, ".jsonl")
        files = self._shuffle([self._file(number, ".jsonl") for number in chosen])
        outputs = np.concatenate([some["output"] for some in chosen.values()])
        subsequences = np.concatenate([some["ml"] for some in chosen.values()])
        reports = {  # what high scores attract: output spans that occur again, and subsequences in full
            "duplicate_outputs": len(outputs) - len(np.unique(outputs, axis=0)),
            "longest_subsequence_at_ceiling": int((subsequences == self.settings.shape.ceiling).sum()),
        }
        manifest = describe(self.settings, scans, files, threshold | {"reports": reports, "asked": asked})
        _write_json(self.out / MANIFEST, manifest)
        shutil.rmtree(self.out / WORK, ignore_errors=True)
        return manifest

    def _file(self, number: int, suffix: str) -> Path:
        return self.out / WORK / f"{number:05d}{suffix}"

    def _each(self, stage: str, step: Callable[[int], None], numbers: Iterable[int], suffix: str) -> None:
        """Do ``step`` for the shards whose file is not there, large ones first."""
        sizes = {number: max(1, self.shards[number].size) for number in numbers}
        pieces = sorted((one for one in sizes if not self._file(one, suffix).is_file()), key=lambda one: -sizes[one])
        done, total = 0, sum(sizes[piece] for piece in pieces)
        for piece, _ in zip(pieces, parallel(step, pieces, self.workers, option="--workers"), strict=True):
            done += sizes[piece]
            self.progress(done, total, stage)

    def _scan(self, number: int) -> None:
        """The first pass over a shard."""
        counts = find_candidates(self.settings, self.tokenizer, self.shards[number], self._file(number, ".bin"))
        _write_json(self._file(number, ".json"), counts)  # says that the candidates are complete

    def _emit(self, number: int, chosen: NDArray[np.void]) -> None:
        """The second pass over a shard."""
        write_chosen(self.settings, self.shards[number], chosen, self._file(number, ".jsonl"))

    def _candidates(self, number: int) -> NDArray[np.void]:
        """What `find_candidates` wrote of a shard, left on the disk until it is used."""
        path = self._file(number, ".bin")
        return np.memmap(path, dtype=CANDIDATE, mode="r") if path.stat().st_size else np.zeros(0, dtype=CANDIDATE)

    def _shuffle(self, emitted: Sequence[Path]) -> list[dict[str, Any]]:
        """Write the records of all shards in their order: those held out, then the training files; their names and
        numbers of records."""
        lines = sorted(line for path in emitted for line in path.read_bytes().splitlines(keepends=True))
        held, size, files = self.settings.validation, self.settings.shard_records, list[dict[str, Any]]()
        if len(lines) <= held:
            raise DataError(f"Only {len(lines):,} spans were found; --validation {held} leaves none to train on.")
        parts = {VALIDATION: lines[:held]} if held else {}
        for number, start in enumerate(range(held, len(lines), size)):
            parts[f"{TRAIN}/{TRAIN}-{number:05d}.jsonl"] = lines[start : start + size]
        (self.out / TRAIN).mkdir(exist_ok=True)
        for name, part in parts.items():
            with part_of(self.out / name) as target:
                target.writelines(line[DIGITS:] for line in part)
            files.append({"name": name, "records": len(part)})
            self.progress(len(files), len(parts), "Shuffling")
        return files


def _refuse_none(settings: SpanSettings, scans: Sequence[Mapping[str, Any]]) -> None:
    """Say why there is nothing to select from."""
    count, longest = sum(scan["documents"] for scan in scans), max(scan["longest"] for scan in scans)
    if not count:
        raise DataError("The input holds no text.")
    if not any(scan["chunks"] for scan in scans):
        raise DataError(
            f"No document has {settings.shape.window:,} tokens ({settings.input_length} + {settings.output_length}): "
            f"of {count:,} the longest has {longest:,}; take shorter spans (--input-length, --output-length)."
        )
    if not any(scan["candidates"] for scan in scans):
        raise DataError(f"No window scores above {settings.over or 'nothing'}: there is no span to choose.")


# ----------------------------------------------------------------------------------------- what is written


def write_chosen(settings: SpanSettings, shard: Shard, chosen: NDArray[np.void], path: Path) -> None:
    """Write the chosen candidates of a shard as lines: the order in `DIGITS` digits, then the record. Raises DataError:
    the shard cannot be read."""
    with part_of(path) as file:
        count = 0
        for count, (order, line) in enumerate(_lines(settings, shard, chosen), 1):  # noqa: B007
            file.write(f"{order:0{DIGITS}d}{line}\n".encode())
        if count < len(chosen):
            raise DataError(f"{shard.path} no longer holds what it held; run the command again with --overwrite.")


def _lines(settings: SpanSettings, shard: Shard, chosen: NDArray[np.void]) -> Iterator[tuple[int, str]]:
    """Order and JSON of each of the chosen, of which there is one at least, in the order of the shard."""
    skipped = Counter[str]() if settings.skip_bad else None  # they were counted in the first pass
    numbers, firsts = np.unique(chosen["document"], return_index=True)
    ends = [*firsts[1:], len(chosen)]
    wanted = {int(number): range(first, end) for number, first, end in zip(numbers, firsts, ends, strict=True)}
    for number, text in documents(Path(shard.path), text=settings.text, column=settings.column, skipped=skipped):
        rows = wanted.get(number)
        if rows is not None:
            for row in rows:
                yield int(chosen[row]["order"]), _line(settings, shard, chosen[row], text)
            if number == numbers[-1]:
                return


def _line(settings: SpanSettings, shard: Shard, row: Any, text: str) -> str:
    m1, m2, ml = (int(row[name]) for name in ("m1", "m2", "ml"))
    first, middle, second, end = row["characters"].tolist()
    fields = {
        "document": text[first:middle],
        "summary": text[second:end],
        "id": f"{shard.name}:{row['document']}:{row['start']}",
        "score": float(settings.key.score(m1, m2, ml)),
        "unigrams": m1,
        "bigrams": m2,
        "longest_subsequence": ml,
    }
    return json.dumps(fields, ensure_ascii=False)


def describe(
    settings: SpanSettings, scans: Sequence[Mapping[str, Any]], files: list[dict[str, Any]], found: dict[str, Any]
) -> dict[str, Any]:
    """The manifest: counts, threshold and what was asked. Nothing in it depends on when, where or by how many it was
    made. ``found`` has the threshold, the ``reports`` and what was ``asked``."""
    reports, asked = found.pop("reports"), found.pop("asked")
    skipped = sum((Counter(scan["skipped"]) for scan in scans), Counter[str]())
    records = sum(file["records"] for file in files)
    warnings = []
    if records < settings.k:
        warnings.append(f"There are only {records:,} spans to choose from; {settings.k:,} were asked for.")
    if skipped:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in sorted(skipped.items()))
        warnings.append(f"{skipped.total():,} record{'s' if skipped.total() > 1 else ''} skipped: {reasons}.")
    return {
        "format": "catchline spans 2",
        "records": records,
        "files": files,
        "warnings": warnings,
        "threshold": found,
        "corpus": {
            "shards": len(scans),
            **{name: sum(scan[name] for scan in scans) for name in COUNTED},
            "skipped_records": dict(sorted(skipped.items())),
        },
        "reports": reports,
        "ties": "by BLAKE2b of seed, file name below the input folder, document number and token offset",
        "asked": asked,
    }


def _write_json(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with part_of(path) as file:
        file.write((json.dumps(value, ensure_ascii=False, indent=1) + "\n").encode("utf-8", "surrogateescape"))


def _read_json(path: Path) -> Any:
    return json.loads(path.read_bytes().decode("utf-8", "surrogateescape"))
