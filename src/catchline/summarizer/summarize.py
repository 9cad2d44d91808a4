"""`Summarizer`: the same few methods for a trained model and for an extractive method.

No tensor library is imported until a model is opened, so ``Summarizer.from_pretrained("lexrank")`` is quick.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from numbers import Integral
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Literal, overload

from catchline.config.names import DEFAULT, place_of, resolve, trusting
from catchline.config.schema import LengthConfig
from catchline.errors import CatchlineError, ConfigError, DataError, ModelError
from catchline.explain.provenance import extractive_summary
from catchline.files import put_back
from catchline.jobs import Threaded, batches
from catchline.metrics.confidence import Calibration, prose_sentence
from catchline.runtime.folder import MANIFEST
from catchline.search.scorers import Length
from catchline.summarizer.extractive import ExtractiveSystem, Progress, System, is_method
from catchline.types import Record, Summary

SYSTEMS = {  # imported when a model is opened
    "exported": "catchline.summarizer.onnx_backend:ExportedSystem",
    "neural": "catchline.summarizer.torch_backend:NeuralSystem",
    "llm": "catchline.summarizer.llm:LanguageModelSystem",
}
LANGUAGE_MODEL = "openai:"  # before the name of a server's model
WINDOW_BATCHES = 8  # this many batches of documents are read ahead and sorted by length

_Batch = list[tuple[int, Record]]  # each with its place in the window
OnError = Literal["raise", "skip"]
OnSkip = Callable[[CatchlineError], object]
Document = str | Record


def _repr_html_(summary: Summary) -> str:
    """The view of a summary in a notebook; see `catchline.explain.html.notebook_view`."""
    return str(resolve_name("catchline.explain.html:notebook_view")(summary))


Summary._repr_html_ = _repr_html_  # type: ignore[attr-defined]


class Summarizer:
    """Summarize, explain and score.

    ::

        summarizer = Summarizer()  # the bundled model; or .from_pretrained("runs/demo"), a hub id, "lexrank-2"
        summary = summarizer.explain("Your text ...")
        for word in summary.words:
            print(word.text, word.copied, [span.text for span in word.sources])
    """

    def __init__(self, system: System | None = None) -> None:
        if isinstance(system, str | os.PathLike):
            raise ConfigError(f"A model is opened with Summarizer.from_pretrained({os.fspath(system)!r}).")
        self.system: System = system or Summarizer.from_pretrained(DEFAULT).system

    @classmethod
    def from_pretrained(
        cls, folder_or_id: str | Path, device: Any = "cpu", *, trust_code: bool = False, **options: Any
    ) -> Summarizer:
        """Open a model or run folder, a BART-family checkpoint, a hub id, ``"oneline"`` (the bundled model) or an
        extractive method (``"lead-1"``, ``"concept_ilp:max_words=50"``: see `catchline.summarizer.extractive`).

        ``options`` are settings of the method (``sentences=2``) or new decoding defaults (``beam_size=8``); ``prefix``
        are words that a checkpoint of transformers reads in front of every document.
        ``trust_code``: run Python classes that the folder names, which can do anything.

        Raises:
            ModelError: no such model, a damaged one, or one that names code that is not trusted.
            ConfigError: an option that does not exist or does not fit.
        """
        name, prefix = os.fspath(folder_or_id), options.pop("prefix", None)
        if prefix is not None and (is_method(name) or name.startswith(LANGUAGE_MODEL)):
            raise ConfigError(f"'{name}' takes no prefix: only checkpoints of transformers do.")
        if is_method(name):
            method = ExtractiveSystem(name, options)
            if method.needs_reference:
                raise ConfigError(f"'{name}' picks by the reference summary: it can be evaluated, not used.")
            return cls(method)
        if name.startswith(LANGUAGE_MODEL):
            return cls(resolve("system", SYSTEMS, "llm")(name, options))
        exported = with_graphs(name) if str(device) in ("cpu", "auto") else None
        with trusting(trust_code):
            kind = resolve("system", SYSTEMS, "exported" if exported else "neural")
            system = kind.from_pretrained(exported or folder_or_id, device)
        if prefix is not None:
            system.tokenizer.use_prefix(prefix)
        if options:
            system.options(options)  # refuses more than the next line: what must be learnt before
            system.set_defaults(options)
        return cls(system)

    def __repr__(self) -> str:
        return f"Summarizer({self.name!r})"

    @property
    def name(self) -> str:
        return self.system.name

    @overload
    def summarize(self, texts: Document, **options: Any) -> Summary: ...
    @overload
    def summarize(
        self, texts: Iterable[Document], *, on_error: Literal["skip"], **options: Any
    ) -> list[Summary | None]: ...
    @overload
    def summarize(self, texts: Iterable[Document], **options: Any) -> list[Summary]: ...
    def summarize(self, texts: Document | Iterable[Document], **options: Any) -> Any:
        """Summarize one text (gives a `Summary`) or many (gives a list in the same order).

        Options:
            explain: fill ``Summary.words``, where each word came from.
            batch_size: documents decoded together; by their length, 8 to 64, if not given.
            progress: called with the number of newly finished documents.
            always_write: give what the model wrote also where it is not sure (see below).
            on_error: ``"raise"``, or ``"skip"``: a document that cannot be summarized gives ``None``.
            anything else: ``words="5-12"``, ``characters``, ``sentences``; the decoding (``beam_size``, ``max_length``,
                ``num_return``, ...) or, for extractive methods, the method's settings.

        A long document is cut at the model's limit; ``tokens_read``, ``tokens_given`` and ``truncated`` say so.

        A calibrated model that is not sure of its line (``Summary.confidence``), or that is given a text out of its
        domain, answers with the first prose sentence of the document, at most 20 words of it; ``extracted`` says why,
        and what the model wrote is in ``alternatives``.

        Raises:
            DataError: a document is empty or not a text (the message says which).
            ConfigError: an unknown option or a value that does not fit.
        """
        if _is_one(texts):
            return next(self.stream([texts], **options))  # type: ignore[list-item]
        return list(self.stream(texts, **options))  # type: ignore[arg-type]

    __call__ = summarize  # for those who call a model like a function

    def explain(self, text: Document, **options: Any) -> Summary:
        """Summarize one text and say of each word where it came from."""
        return self.summarize(text, **{**options, "explain": True})

    def stream(
        self,
        texts: Iterable[Document],
        *,
        explain: bool = False,
        batch_size: int | None = None,
        progress: Progress | None = None,
        on_error: OnError = "raise",
        on_skip: Callable[[Record, CatchlineError], object] | None = None,
        always_write: bool = False,
        first: int = 1,
        **overrides: Any,
    ) -> Iterator[Summary]:
        """Like `summarize` over an iterable of any length: read ahead, batched by length, given back in order.
        ``on_skip(record, error)`` is called for each document that ``on_error="skip"`` passes over; messages number the
        documents from ``first``."""
        if on_error not in ("raise", "skip"):
            raise ConfigError(f"on_error is 'raise' or 'skip', not '{on_error}'.")
        if _is_one(texts):
            raise ConfigError("stream takes several documents: stream([document]).")
        if batch_size is not None:
            _check_batch_size(batch_size)
        if not (progress is None or callable(progress)):
            raise ConfigError("progress is called with numbers of documents, as tqdm(total=len(texts)).update can be.")
        options = self.system.options(overrides)

        def skipped(record: Record, error: CatchlineError) -> None:
            if on_error == "raise":
                raise error
            if on_skip:
                on_skip(record, error)

        def decoded(batch: _Batch, go_on: Callable[[], None] | None) -> Sequence[Summary | CatchlineError]:
            records = [record for _, record in batch]
            try:
                return self.system.summarize_batch(records, explain=explain, options=options, on_step=go_on)
            except (ConfigError, ModelError):  # no document's fault
                raise
            except CatchlineError as error:
                if on_error == "raise":
                    raise
                if len(batch) == 1:
                    return [error]
            return [one for alone in batch for one in decoded([alone], go_on)]

        calibration = None if always_write else self.system.calibration
        length = Length.of(options) if isinstance(options, LengthConfig) else None
        at_once = self.system.documents_at_once if batch_size is None else lambda _: batch_size
        windows = _windows(texts, WINDOW_BATCHES * (batch_size or self.system.batch), first, skipped)
        return (  # None, which `summarize` types, instead of what is skipped
            summary and or_extract(summary, calibration, length)  # type: ignore[misc]
            for window in windows
            for summary in _by_length(window, self.system, options, at_once, decoded, skipped, progress)
        )

    def score(
        self,
        documents: Sequence[str],
        summaries: Sequence[str],
        *,
        batch_size: int = 16,
        progress: Progress | None = None,
    ) -> list[float]:
        """log P(summary | document) of each pair, end token included. Raises DataError: not as many documents as
        summaries, or an empty one; ConfigError: an extractive method has no probabilities."""
        if _is_one(documents) or _is_one(summaries):
            raise ConfigError("score takes lists: score([document], [summary]).")
        _check_batch_size(batch_size)
        documents, summaries = list(documents), list(summaries)
        if len(documents) != len(summaries):
            raise DataError(f"There are {len(documents)} documents and {len(summaries)} summaries.")
        records = []
        for number, (document, summary) in enumerate(zip(documents, summaries, strict=True), 1):
            record = as_record(document, number)
            if not isinstance(summary, str):
                raise DataError(f"Summary {number} is of type {type(summary).__name__}; a summary is a text.")
            if not summary.strip():
                raise DataError(f"Summary {number} is empty; there is nothing to score.")
            records.append(Record(record.document, summary, origin=f"pair {number}"))
        return self.system.score(records, batch_size, progress) if records else []

    def decoding(self, **overrides: Any) -> dict[str, Any]:
        """The decoding (or the method's settings) that these overrides lead to, for records of results."""
        return self.system.describe(self.system.options(overrides))

    def save_pretrained(self, folder: str | Path) -> None:
        """Write the model folder (replaced as a whole if it exists), with the decoding defaults this summarizer has.
        Raises ConfigError: an extractive method, an exported model, or ``folder`` holds something else than a model."""
        self.system.save_pretrained(folder)

    def push_to_hub(self, repo_id: str, **options: Any) -> str:
        """Upload the model folder to the Hugging Face hub as ``owner/name``; gives back the address of the upload.

        ``options``: ``private``, ``token``, ``branch``, ``commit_message``, ``create_pr``. Raises ModelError: there is
        no token, or the hub refuses; ConfigError: an extractive method, which has nothing to upload, or an exported
        model.
        """
        return self.system.push_to_hub(repo_id, **options)

    def to(self, device: Any) -> Summarizer:
        """Move the model to a device; gives back the summarizer itself."""
        self.system.to(device)
        return self


@dataclass(frozen=True)
class Request:
    """The model, its options, and what to do with each record."""

    model: str
    device: str = "cpu"
    overrides: Mapping[str, Any] = field(default_factory=dict)
    explain: bool = False
    batch_size: int | None = None
    skip_bad: bool = False
    always_write: bool = False
    trust_code: bool = False
    prefix: str | None = None

    def open(self) -> Summarizer:
        """Open the model. Raises CatchlineError: it cannot be opened, or refuses the ``overrides``."""
        opened = Summarizer.from_pretrained(
            self.model, device=self.device, trust_code=self.trust_code, prefix=self.prefix
        )
        opened.system.options(self.overrides)
        return opened

    def summaries(
        self,
        summarizer: Summarizer,
        records: Iterable[Record],
        advance: Progress | None,
        on_skip: OnSkip | None,
        first: int = 1,
    ) -> Iterator[Any]:
        """Summaries in order, ``None`` for a record that was skipped. Messages number the records from ``first``."""

        def skipped(record: Record, error: CatchlineError) -> None:
            where = "" if not record.origin or record.origin in str(error) else f"{record.origin}: "
            if on_skip is not None:
                on_skip(DataError(f"{where}{error}"))

        return summarizer.stream(
            records,
            explain=self.explain,
            batch_size=self.batch_size,
            progress=advance,
            on_error="skip" if self.skip_bad else "raise",
            on_skip=skipped,
            always_write=self.always_write,
            first=first,
            **self.overrides,
        )


def with_graphs(name: str) -> Path | None:
    """The folder of a model that was exported, if it was: its graphs run here without torch.

    Where onnxruntime is not installed and torch is, torch opens the folder's weights instead.
    """
    if not find_spec("onnxruntime") and find_spec("torch"):
        return None
    folder = place_of(name).expanduser()
    for place in (folder, folder / "model"):
        put_back(place)
        if (place / MANIFEST).is_file():
            return place
    return None


def _is_one(texts: Any) -> bool:
    """Is this a document, or what is refused as one, rather than several?"""
    one = isinstance(texts, (str, bytes, Record, Mapping)) or hasattr(texts, "columns")  # a table gives their names
    return one or not (isinstance(texts, Iterable) or hasattr(texts, "__getitem__"))


def _check_batch_size(given: Any) -> None:
    if not isinstance(given, Integral) or given < 1:
        raise ConfigError(f"batch_size must be at least 1, a whole number (given: {given!r}).")


def _windows(
    texts: Iterable[Document], size: int, first: int, skipped: Callable[[Record, CatchlineError], object]
) -> Iterator[list[Record | None]]:
    """The documents in windows, checked; ``None`` for one that was skipped."""
    for window in batches(texts, size):
        records: list[Record | None] = []
        for number, given in enumerate(window, first):
            try:
                records.append(as_record(given, number))
            except CatchlineError as error:
                skipped(given if isinstance(given, Record) else Record("", id=str(number)), error)
                records.append(None)
        first += len(window)
        yield records


def _by_length(
    window: Sequence[Record | None],
    system: System,
    options: Any,
    at_once: Callable[[str], int],
    decoded: Threaded[_Batch, Sequence[Summary | CatchlineError]],
    skipped: Callable[[Record, CatchlineError], None],
    progress: Progress | None,
) -> Iterator[Summary | None]:
    """The summaries of a window in order, decoded in batches of documents of similar length, at least as many as can
    be worked on at once."""
    records = sorted(((i, one) for i, one in enumerate(window) if one), key=lambda pair: -len(pair[1].document))
    results: list[Summary | None] = [None] * len(window)
    workers = system.batches_at_once(len(records), options)
    groups, start = list[_Batch](), 0
    while start < len(records):
        most = -(-len(records) // workers)
        groups.append(records[start : start + min(at_once(records[start][1].document), most)])
        start += len(groups[-1])
    with closing(system.in_threads(decoded, groups, workers)) as found:
        for group, made in zip(groups, found, strict=True):
            for (place, record), summary in zip(group, made, strict=True):
                if isinstance(summary, CatchlineError):
                    skipped(record, summary)
                else:
                    results[place] = summary
            if progress:
                progress(len(group))
    if progress and len(window) > len(records):
        progress(len(window) - len(records))
    yield from results


def or_extract(summary: Summary, calibration: Calibration | None, length: Length | None = None) -> Summary:
    """``summary``, or the first prose sentence of its document, within ``length``, where the model is not sure of its
    line or the document is out of domain; the line is then the first of the alternatives."""
    if calibration is None or summary.confidence is None:
        return summary
    if not summary.out_of_domain and summary.confidence >= calibration.threshold:
        return summary
    reason = f"the model is not sure of its words (confidence {summary.confidence:.2f})"
    if summary.out_of_domain:
        reason = f"the text is out of domain: {summary.out_of_domain}"
    span = prose_sentence(summary.document)
    span = length.within(summary.document, *span) if length else span
    found = extractive_summary(summary.document, [span], model_name=summary.model, record_id=summary.id)
    return replace(
        found,
        confidence=summary.confidence,
        out_of_domain=summary.out_of_domain,
        extracted=reason,
        alternatives=(replace(summary, alternatives=(), parts=()), *summary.alternatives),
        parts=summary.parts,
    )


def as_record(given: Any, number: int) -> Record:
    """Check one document; its ``number`` names it in messages. Raises DataError: not a text, or nothing but white
    space."""
    record = given if isinstance(given, Record) else Record(given)
    if not isinstance(record.document, str):
        table = hasattr(record.document, "columns")
        how = "give a column of it, table['text']" if table else "on_error='skip' passes over what is none"
        kind = type(record.document).__name__
        raise DataError(f"Document {number} is of type {kind}; a document is a text: {how}.")
    if not record.document.strip():
        label = f"Document {number}" + (f" (id '{record.id}')" if record.id else "")
        where = f"{record.origin}: " if record.origin else ""
        raise DataError(f"{where}{label} is empty; there is nothing to summarize.")
    return record if record.id or record.origin else replace(record, origin=str(number))
