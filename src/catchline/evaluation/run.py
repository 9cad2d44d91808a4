"""Decode a data set with a system, score it, and keep what was decoded::

scores = catchline.evaluate(["lead-1", "runs/mine"], "my_pairs/")
scores["runs/mine"].rouge["L"].f, scores["runs/mine"].signature
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any

from catchline.config.loading import read_run
from catchline.config.names import place_of, sources_of, trusting
from catchline.config.schema import EvaluationConfig, RunConfig
from catchline.data.records import Pairs, read_records, split_of
from catchline.errors import ConfigError, DataError
from catchline.evaluation.measures import measure, reading_measures
from catchline.files import digest_of, write_text
from catchline.metrics.scoring import Shown, check_scoring, score_as, scoring, suited
from catchline.summarizer.extractive import ExtractiveSystem, Progress, is_method
from catchline.summarizer.summarize import WINDOW_BATCHES, Summarizer
from catchline.text.base import restore_numbers
from catchline.text.control import json_line
from catchline.types import Record, Summary, references_of

KINDS = ("1", "2", "L")  # of ROUGE
USUAL = EvaluationConfig()
_NOT_IDENTITY = frozenset({"metrics.json", "environment.json", "card.json"})


def open_system(place: str, settings: Mapping[str, Any] | None = None, device: str = "cpu") -> Summarizer:
    """A run or model folder, a hub id or an extractive method, the oracle too.

    ``settings`` are decoding settings, or the whole spec of a method. Of a model the text is scored that its run asks
    for in ``evaluation.surface``, unless ``settings`` say ``surface`` themselves. Raises ModelError: there is no such
    model, or it is damaged; ConfigError: settings that the system does not have.
    """
    if is_method(place) or "type" in (settings or {}):
        return Summarizer(ExtractiveSystem(place, settings))
    run, folder = _run_of(place), model_folder(place)
    surface = run and run.evaluation.surface
    search = ({} if surface is None else {"surface": surface}) | dict(settings or {})
    return Summarizer.from_pretrained(str(folder) if folder.is_dir() else place, device, **search)


def identity(system: Summarizer, place: str) -> str:
    """Everything that decides the summaries of ``system``, opened from ``place``: the files of a local model, the
    settings, and code from outside."""
    folder, run, decoding = model_folder(place), _run_of(place), system.decoding()
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*")):
        if path.suffix in {".json", ".safetensors"} and path.name not in _NOT_IDENTITY:
            digest.update(path.name.encode() + bytes.fromhex(digest_of(path)))
    model = digest.hexdigest() if folder.is_dir() else place
    code = map(digest_of, sources_of([run and run.model_dump(), decoding, {"type": decoding.get("method")}]))
    return json.dumps([model, decoding, *code], sort_keys=True)


def model_folder(place: str) -> Path:
    """The model's own folder, where ``place`` is a run's folder or a model of the package; else ``place``."""
    folder = place_of(place)
    return folder / "model" if (folder / "model").is_dir() else folder


def _run_of(place: str) -> RunConfig | None:
    recipe = model_folder(place) / "recipe.yaml"
    return read_run(recipe) if recipe.is_file() else None


@dataclass(frozen=True, slots=True)
class RougeScore:
    """Means over documents, and the 95% bootstrap interval of the figure that is shown."""

    precision: float
    recall: float
    f: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    """The scores of one system on one data set.

    ``measures`` are means over documents (see `catchline.evaluation.measures`); ``shown`` is the figure of ROUGE that
    tables print (``f`` or ``recall``) and ``per_document`` has it for each document by kind, in the order of the
    records, for significance tests; ``flags`` says how the numbers are quoted; ``seconds`` is the time spent decoding.
    """

    system: str
    records: int
    rouge: dict[str, RougeScore]
    measures: dict[str, float]
    signature: str
    seconds: float
    per_document: dict[str, tuple[float, ...]] = field(repr=False)
    shown: Shown = "f"
    flags: str = ""
    bleu_signature: str = ""

    def value(self, kind: str) -> float:
        """The mean of the figure that is shown."""
        return float(getattr(self.rouge[kind], self.shown))

    @property
    def counting(self) -> str:
        return f"How ROUGE counts: {self.flags.rstrip('.')}." if self.flags else ""

    @property
    def signatures(self) -> tuple[str, ...]:
        """What the scorers counted, a line each."""
        bleu = f"BLEU {self.bleu_signature}" if self.bleu_signature else ""
        return tuple(filter(None, (self.flags, self.signature, bleu)))

    def as_dict(self) -> dict[str, Any]:
        """A JSON-ready summary, documents left out."""
        return {name: value for name, value in asdict(self).items() if name not in ("per_document", "bleu_signature")}


def evaluate(
    systems: str | Path | Sequence[str | Path],
    data: Pairs,
    *,
    split: str = "test",
    max_records: int | None = None,
    profile: str | None = None,
    decoding: Mapping[str, Any] | None = None,
    device: str = "cpu",
    trust_code: bool = False,
) -> dict[str, EvaluationResult]:
    """Score systems on a data set, as ``catchline evaluate`` does.

    ``systems`` are run or model folders, hub ids, extractive methods; ``data`` a folder with splits, or pairs in a file
    or in memory (`catchline.read_records`); ``profile`` says how ROUGE is computed (`catchline evaluate --help`);
    ``decoding`` are settings of the models' search, such as ``{"beam_size": 8}``; with ``trust_code`` Python classes
    that the folders name are run, which can do anything. Returns the result of each system by its name. Raises
    DataError: the data cannot be read, is empty, or has records without a summary; ModelError: there is no such model
    or method, or one names code that is not trusted; ConfigError: ``max_records`` or ``profile`` does not fit.
    """
    if max_records is not None and max_records < 1:
        raise ConfigError(f"max_records is at least 1 (given: {max_records}).")
    config = EvaluationConfig(profile=profile)
    names = [systems] if isinstance(systems, str) or not isinstance(systems, Iterable) else list(systems)
    for other in (one for one in names if not isinstance(one, str | Path)):
        raise ConfigError(f"A system is a folder, hub id or extractive method by name, not {type(other).__name__}.")
    source = split_of(data, split) if isinstance(data, str | Path) else data
    records = list(islice(read_records(source), max_records))
    found = {}
    with trusting(trust_code):
        for name in map(str, names):
            system = open_system(name, None if is_method(name) else decoding, device)
            found[name] = evaluate_system(system, records, name=name, config=config)
    return found


def evaluate_system(
    system: Summarizer, records: Sequence[Record], *, name: str = "", config: EvaluationConfig = USUAL, **how: Any
) -> EvaluationResult:
    """Summarize every record and compare with its references (all of them count); ``how`` as in `predict`. Raises
    ConfigError: there is no such profile or option of ROUGE."""
    check_scoring(config.profile, config.rouge)
    lines, seconds = predict(system, records, **how)
    unk = system.system.unk_text
    return score(name or system.name, records, lines, config=config, unk_text=unk, seconds=seconds)


def predict(
    system: Summarizer,
    records: Sequence[Record],
    *,
    batch_size: int | None = None,
    out: Path | None = None,
    about: str = "",
    progress: Progress | None = None,
    keep: Callable[[Path], object] = Path.unlink,
) -> tuple[list[dict[str, Any]], float]:
    """The predictions, and the seconds it took; 0 where an earlier call had made some.

    ``batch_size`` is the number of records decoded at once (None: by their length). ``out`` is where they go; they are
    written beside it, renamed when complete, and an interrupted call with the same ``about`` (the system's `identity`)
    and records continues. Then ``keep`` is called with the file of the partial predictions, which a caller with more
    systems to come keeps, so that this one is not decoded again. ``progress`` is called with the number of records just
    done. Raises DataError: no records, or a record without a summary to compare with.
    """
    refuse_unscorable(records, "evaluate")
    start = time.perf_counter()
    partial = None if out is None else out.with_name(out.name + ".partial")
    header = {"predictions_of": fingerprint(about, records)}
    first, *lines = read_lines(partial) if partial and partial.is_file() else [header]
    lines = lines if first == header else []
    done = len(lines)
    if progress is not None and done:
        progress(done)
    explain = None if isinstance(system.system, ExtractiveSystem) else True
    how: dict[str, Any] = {"batch_size": batch_size, "progress": progress, "always_write": True}
    window = WINDOW_BATCHES * (batch_size or system.system.batch)
    for start_at in range(done, len(records), window):
        chunk = records[start_at : start_at + window]
        summaries = system.summarize(chunk, explain=explain, **how)
        lines += [prediction_of(summary, record) for summary, record in zip(summaries, chunk, strict=True)]
        if partial is not None:
            write_lines(partial, [header, *lines])
    if out is not None and partial is not None:
        write_lines(out, lines)  # only a finished file gets its name
        keep(partial)
    return lines, 0.0 if done else time.perf_counter() - start


def score(
    name: str,
    records: Sequence[Record],
    predictions: Sequence[Mapping[str, Any]],
    *,
    config: EvaluationConfig = USUAL,
    unk_text: str | None = None,
    seconds: float = 0.0,
) -> EvaluationResult:
    """Score predictions that exist already, line by line against ``records``."""
    if len(predictions) != len(records):
        raise DataError(f"There are {len(predictions)} predictions for {len(records)} records.")
    hypotheses = [str(line["summary"]) for line in predictions]
    if config.restore_numbers:
        hypotheses = [restore_numbers(text, r.document) for text, r in zip(hypotheses, records, strict=True)]
    references = [tuple(references_of(record)) for record in records]
    way = suited(scoring(config.profile, config.rouge), references)
    found = score_as(way, hypotheses, references, KINDS, interval=True)
    documents = [record.document for record in records]
    measures = measure(documents, hypotheses, references, unk_text)
    measures |= reading_measures([line.get("reading") or {} for line in predictions])
    if p_gens := [float(line["p_gen"]) for line in predictions if line.get("p_gen") is not None]:
        measures["p_gen"] = fmean(p_gens)
    per_document = {kind: tuple(getattr(s, way.shown) for s in scores) for kind, scores in found.per_document.items()}
    rouge = {}
    for kind, mean in found.mean.items():
        interval = found.interval.get(kind)
        ends = (interval.low, interval.high) if interval else (mean, mean)
        low, high = (float(getattr(end, way.shown)) for end in ends)
        rouge[kind] = RougeScore(mean.precision, mean.recall, mean.f, low, high)
    flags = "; ".join(filter(None, [way.flags, found.counts.uncounted]))
    about: dict[str, Any] = {"signature": found.signature, "shown": way.shown, "flags": flags, "seconds": seconds}
    return EvaluationResult(name, len(records), rouge, measures, per_document=per_document, **about)


def by_document(results: Sequence[EvaluationResult], kind: str) -> list[float]:
    """Each document's figure as the mean over seeds; ``kind`` is one of ROUGE, or `REPEATED`'s for 2-grams."""
    return [fmean(each) for each in zip(*(result.per_document[kind] for result in results), strict=True)]


def refuse_unscorable(records: Sequence[Record], to: str) -> None:
    """Raise DataError where there are no records ``to`` do something with, or one has no summary."""
    if not records:
        raise DataError(f"There is nothing to {to}: the data set has no records.")
    for record in records:
        if not any(text.strip() for text in references_of(record)):
            where = record.origin or record.id or "a record"
            raise DataError(f"{where} has no summary to compare with; every document needs one.")


def fingerprint(identity: str, records: Sequence[Record]) -> str:
    """A digest of what decides the predictions: the system with its settings, and the records."""
    digest = hashlib.sha256(identity.encode())
    for record in records:
        sentences = [list(record.sentences)] if record.sentences else []
        digest.update(json.dumps([record.id, record.document, *references_of(record), *sentences]).encode())
    return digest.hexdigest()


def prediction_of(summary: Summary, record: Record) -> dict[str, Any]:
    """What is kept of a decoded summary: enough to score, compare and read it again."""
    line: dict[str, Any] = {
        "id": record.id,
        "summary": summary.text,
        "references": list(references_of(record)),
        "score": summary.score,
        "log_prob": summary.log_prob,
        "finished": summary.finished,
        "tokens_read": summary.tokens_read,
        "tokens_given": summary.tokens_given,
    }
    if summary.reading:
        line["reading"] = summary.reading
    if p_gens := [word.p_gen for word in summary.words if word.p_gen is not None]:
        line["p_gen"] = fmean(p_gens)
    return line


def file_name(system: str) -> str:
    """What the files of a system are called; those of others may look the same."""
    kept = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in system).strip("-.")
    return kept.encode()[-80:].decode(errors="ignore") or "system"


def write_lines(path: Path, values: Iterable[Mapping[str, Any]]) -> None:
    """Write a whole file of JSON lines."""
    write_text(path, "".join(json_line(value) + "\n" for value in values))


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a file of JSON lines that is complete."""
    with path.open(encoding="utf-8") as file:
        return [json.loads(line) for line in file]
