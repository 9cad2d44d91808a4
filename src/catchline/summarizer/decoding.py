"""What a decoding system is, of whatever its model is made: tokenize, decode, say where the words came from.

`catchline.summarizer.torch_backend` runs torch models, `catchline.summarizer.onnx_backend` graphs; nothing here needs a
tensor library.
"""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from numbers import Integral
from pkgutil import resolve_name
from typing import Any, ClassVar

import numpy as np

from catchline.config.base import merge, validate
from catchline.config.schema import LONGEST, LengthConfig, SearchConfig, TextConfig
from catchline.data.dataset import Collator, EncodedDataset, Example, encode_documents, examples_of
from catchline.errors import ConfigError, DataError
from catchline.explain.provenance import build_summary, extractive_summary
from catchline.jobs import batches, threads_each
from catchline.metrics.confidence import Calibration, facts_of, unknown_words
from catchline.search.beam import StepFunction
from catchline.search.decode import decode
from catchline.search.scorers import Length
from catchline.summarizer.extractive import OnText, Progress, System
from catchline.summarizer.long import parts, selected
from catchline.text.base import Tokenizer
from catchline.types import Hypothesis, Record, StepOutput, Summary, TokenizedText

_BYTES_A_WORD, _FEWEST, _MOST = 6, 8, 64  # of documents decoded together
MOST_THREADS = 4  # a quarter of the search around a small model is Python, of which one runs at a time
LENGTHS = LengthConfig.model_fields.keys()
_TOKENS_A_WORD = 4  # at most, in a usual text
FIRST_FAULTLESS = "catchline.metrics.faithfulness:first_faultless"  # to import it takes a tenth of a short command
_TOLD_SINGLY = 32  # tokens of a summary that is watched
WRITES = "A trained model: writes its own line, word by word."
WRITES_AND_COPIES = "A trained model: writes its own line, word by word, and can copy words from the text."


class DecodingSystem(System):
    """Settings, decoding and explanation.

    Args:
        model: what `catchline.search.decode.decode` drives; its ``max_source_tokens`` and ``max_target_tokens`` are the
            most that it can read and write, none for any.
        opened: has its ``name``, ``tokenizer``, ``text`` (limits of documents and summaries), ``search`` (the decoding
            defaults) and ``calibration`` (how confident it may be, where that has been found out).
        start_id: what the decoder reads first.
    """

    words_at_once: ClassVar[int] = 6400  # of documents decoded together where nobody says how many
    attended_tokens: int | None = None  # a batch with a longer document has no attention over the whole of any

    def __init__(self, model: Any, opened: Any, start_id: int) -> None:
        self.decoded_by, self.start_id = model, start_id
        self.name: str = opened.name
        self.tokenizer: Tokenizer = opened.tokenizer
        self.search: SearchConfig = opened.search
        self.calibration: Calibration | None = opened.calibration
        self.text: TextConfig = opened.text
        if model.max_source_tokens is not None and self.text.max_source_tokens > model.max_source_tokens:
            self.text = self.text.model_copy(update={"max_source_tokens": model.max_source_tokens})
        self.unk_text = self.tokenizer.token(self.tokenizer.unk_id)
        self._collator = Collator(self.tokenizer)

    # ---------------------------------------------------------------------------------- what differs

    @abstractmethod
    def _log_likelihoods(self, batch: Any) -> list[float]:
        """log P(summary | document) of each pair of a batch."""

    @abstractmethod
    def _kind(self) -> tuple[str, bool, int]:
        """The family of the model, whether it copies, and how many parameters it has."""

    def _batch(self, examples: Sequence[Example]) -> Any:
        """A batch where the model is, with the summaries if all examples have one."""
        return self._collator(examples)

    @abstractmethod
    def _opponent_log_probs(self, batch: Any) -> np.ndarray | None:
        """log P_o (B, T) of the summaries of a batch, where the model can say; asked only of models that have one."""

    # ----------------------------------------------------------------------------------- what is common

    def about(self) -> dict[str, Any]:
        family, copies, parameters = self._kind()
        return {
            "family": family,
            "in_short": WRITES_AND_COPIES if copies else WRITES,
            "copies": copies,
            "parameters": parameters,
            "max_source_tokens": self.text.max_source_tokens,
            "max_summary_tokens": self.decoded_by.max_target_tokens,
        }

    def _add_opponent(self, examples: Sequence[Example], best: Sequence[Hypothesis]) -> None:
        """``opponent_log_prob`` (T,), log P_o of each token written: one teacher-forced pass, so that no step of the
        search keeps a second (N, V) for it."""
        if not all("opponent_attention" in hypothesis.details for hypothesis in best):
            return
        eos = self.tokenizer.eos_id
        written = [
            replace(example, target_extended_ids=np.array([*hypothesis.ids, eos], dtype=np.int32))
            for example, hypothesis in zip(examples, best, strict=True)
        ]
        log_probs = self._opponent_log_probs(self._batch(written))
        for row, hypothesis in zip(log_probs, best, strict=True) if log_probs is not None else ():
            hypothesis.details["opponent_log_prob"] = row[: len(hypothesis.details["opponent_attention"])]

    def set_defaults(self, overrides: Mapping[str, Any]) -> None:
        self.search = self.options(overrides)

    def options(self, overrides: Mapping[str, Any]) -> SearchConfig:
        """The decoding defaults changed by ``overrides``.

        A beam grows to hold ``num_return``, and the least length follows a smaller ``max_length``, unless they are
        given too. Raises ConfigError: an unknown key, a value that does not fit, or a summary longer than can be
        written.
        """
        if not overrides:
            return self.search
        values = merge(self.search.model_dump(), overrides, revive=True)
        if "beam_size" not in overrides:
            values["beam_size"] = max(values["beam_size"], _number(overrides.get("num_return")))
        elif "num_return" not in overrides:
            values["num_return"] = min(values["num_return"], max(1, _number(overrides["beam_size"])))
        if LENGTHS & overrides.keys():  # words, characters and sentences are what counts then
            values |= {"min_length": 0} if "min_length" not in overrides else {}
            most = str(overrides.get("words") or 0).rpartition("-")[2]
            if "max_length" not in overrides and most.isdecimal():
                room = min(_TOKENS_A_WORD * int(most) + _BYTES_A_WORD, self.decoded_by.max_target_tokens or LONGEST)
                values["max_length"] = max(values["max_length"], room)
        if "min_length" not in overrides and (longest := _number(overrides.get("max_length"))):
            values["min_length"] = min(values["min_length"], longest)
        config = validate(SearchConfig, values, where="")
        limit = self.decoded_by.max_target_tokens
        if limit is not None and config.num_steps > limit:
            most = limit - config.num_steps + config.max_length
            raise ConfigError(
                f"search.max_length {config.max_length} is more than the {most} tokens this model can write."
            )
        return config

    def describe(self, options: SearchConfig) -> dict[str, Any]:
        """The settings that differ from the schema's defaults, always beam and lengths, and a prefix."""
        always = ("beam_size", "min_length", "max_length")
        values, usual = options.model_dump(mode="json"), SearchConfig().model_dump(mode="json")
        prefix = getattr(self.tokenizer.config, "prefix", "")
        described = {key: value for key, value in values.items() if key in always or value != usual[key]}
        return described | ({"prefix": prefix} if prefix else {})

    def batches_at_once(self, documents: int, options: SearchConfig) -> int:
        """How many parts of this many documents are best searched `in_threads`."""
        return min(documents, threads_each(1), MOST_THREADS)

    def summarize_batch(
        self,
        records: Sequence[Record],
        *,
        explain: bool | None,
        options: SearchConfig,
        on_step: Callable[[], object] | None = None,
        on_text: OnText | None = None,
    ) -> list[Summary]:
        """Decode the documents together.

        ``on_step()`` is called before each step; what it raises ends the work. ``on_text(i, text)`` is given the
        summary of document i so far, as it grows (greedy decoding only). Raises DataError: a document without any
        token; ConfigError: ``on_text`` with a beam, whose best summary is not known before its end.
        """
        if on_text and (options.beam_size > 1 or options.long == "parts"):
            raise ConfigError("Streaming word by word needs beam_size 1, and not long=parts.")
        labels, tokenizer = [f"'{record.id}'" if record.id else record.origin for record in records], self.tokenizer
        examples, encodings = encode_documents(records, tokenizer, self.text, labels)
        owners, own = list[int](), len(records)  # behind the documents stand parts of some
        if options.long != "truncate":
            long = [at for at, encoding in enumerate(encodings) if encoding.truncated]
            for at in long:
                encodings[at] = selected(records[at], tokenizer, self.text)
            if options.long == "parts":
                more = [(at, part) for at in long for part in parts(records[at], tokenizer, self.text)]
                owners = [at for at, _ in more]
                records = [*records, *(records[at] for at in owners)]
                encodings += [part for _, part in more]
            examples = examples_of(encodings, tokenizer, self.text, [record.id for record in records])
        documents = [DecodedDocument(self, options, *one) for one in zip(records, encodings, examples, strict=True)]
        # replaced in `build_summary`, which knows the source's own strings, also outside the vocabulary
        length = Length.of(options)
        every = {"num_return": options.beam_size} if options.faultless or length else {}
        config = options.model_copy(update={"replace_unk": False, **every})
        groups = batches(documents, max(own, _MOST))  # parts are many
        found = [one for group in groups for one in self._found(group, config, on_step, on_text)]
        if every:  # else the search has ordered them
            found = [one.in_order(hypotheses) for one, hypotheses in zip(documents, found, strict=True)]
        if explain:
            self._add_opponent(examples, [hypotheses[0] for hypotheses in found])
        made = [
            one.summary(best, options.num_return, bool(explain)) for one, best in zip(documents, found, strict=True)
        ]
        for at, summary in zip(owners, made[own:], strict=True):
            made[at] = replace(made[at], parts=(*made[at].parts, summary))
        return made[:own]

    def _found(
        self,
        documents: Sequence[DecodedDocument],
        config: SearchConfig,
        on_step: Callable[[], object] | None = None,
        on_text: OnText | None = None,
    ) -> list[list[Hypothesis]]:
        """What the search finds for each document. Raises DataError: a document so long that the model has not the
        attention over it that ``config`` asks for."""
        most = self.attended_tokens or sys.maxsize
        long = [place for place, one in enumerate(documents) if len(one.encoding.ids) > most]
        if long and len(long) < len(documents):  # apart, or the others would have no attention either
            found: dict[int, list[Hypothesis]] = {}
            for places in (sorted({*range(len(documents))} - {*long}), long):
                told = on_text and partial(_told, on_text, places)
                found |= zip(places, self._found([documents[i] for i in places], config, on_step, told), strict=True)
            return [found[place] for place in range(len(documents))]
        if long and config.distraction and config.distraction.attention:
            raise DataError(
                f"Document {documents[0].example.record_id} has more than {most:,} tokens, and above that this model "
                "shows no attention: set distraction.attention to 0."
            )
        batch, ids = self._batch([one.example for one in documents]), self.tokenizer.search_ids(self.start_id)
        step = self.decoded_by.step
        if on_step or on_text:
            writers = [Writer(one, ids["eos_id"]) for one in documents] if on_text else []
            step = Watched(step, on_step, on_text, writers)
        return self._search(batch, config, step, **ids)

    def _search(self, batch: Any, config: SearchConfig, step: StepFunction, **ids: Any) -> list[list[Hypothesis]]:
        return decode(self.decoded_by, batch, config, step, **ids)

    def documents_at_once(self, longest: str) -> int:
        words = min(len(longest.encode(errors="replace")) // _BYTES_A_WORD + 1, self.text.max_source_tokens)
        return min(max(self.words_at_once // words, _FEWEST), _MOST)

    def score(self, records: Sequence[Record], batch_size: int, progress: Progress | None) -> list[float]:
        """Teacher-forced log-probabilities, batched by length, in the given order."""
        data = EncodedDataset.build(records, self.tokenizer, self.text)
        for place in np.flatnonzero(data.targets_cut)[:1].tolist():
            name, most = records[place].id or place + 1, self.text.max_target_tokens
            raise DataError(f"The summary of record {name} is longer than the {most} tokens that this model scores.")
        lengths = data.source_lengths.tolist()
        order = sorted(range(len(data)), key=lambda index: -lengths[index])
        scores = [0.0] * len(data)
        for chosen in batches(order, batch_size):
            sums = self._log_likelihoods(self._batch([data[index] for index in chosen]))
            for index, value in zip(chosen, sums, strict=True):
                scores[index] = value
            if progress:
                progress(len(chosen))
        return scores


class DecodedDocument:
    """A document of a batch, and what becomes of the hypotheses that a search finds for it."""

    def __init__(
        self, system: DecodingSystem, options: SearchConfig, record: Record, encoding: TokenizedText, example: Example
    ) -> None:
        self.record, self.encoding, self.example, self.options = record, encoding, example, options
        self._tokenizer, self._calibration = system.tokenizer, system.calibration
        self._length = Length.of(options)
        self._whole = partial(
            build_summary,
            document=record,
            source_encoding=encoding,
            tokenizer=system.tokenizer,
            oov_words=example.oov_words,
            model_name=system.name,
            search=options,
        )

    def _build(self, hypothesis: Hypothesis, **options: Any) -> Summary:
        """Its summary within the bounds; one that would have too few words keeps those that are usually dropped."""
        summary, length = self._whole(hypothesis, **options), self._length
        if length is not None and length.missing(summary.text):
            search = options.get("search", self.options)
            summary = self._whole(hypothesis, **options | {"search": search.model_copy(update={"surface": "cased"})})
        return length.cut(summary) if length else summary

    def text(self, hypothesis: Hypothesis, **changed: Any) -> str:
        """What a reader gets to see of it."""
        return self._build(hypothesis, explain=False, **changed).text

    def in_order(self, hypotheses: list[Hypothesis]) -> list[Hypothesis]:
        """Those in front whose text is long enough and needs no cut. With ``faultless`` the first of all is one that
        does not repeat itself, and of whose names, numbers and dates, as the model wrote them, the document has all."""
        if self.options.faultless:
            place = resolve_name(FIRST_FAULTLESS)(map(self._plain, hypotheses), self.record.document)
            hypotheses = [hypotheses[place], *hypotheses[:place], *hypotheses[place + 1 :]]
        if (length := self._length) is None:
            return hypotheses
        texts = [self._whole(one, explain=False).text for one in hypotheses]
        fit = [(length.missing(text), length.end(text) < len(text)) for text in texts]
        return [hypotheses[at] for at in sorted(range(len(hypotheses)), key=fit.__getitem__)]

    def summary(self, hypotheses: Sequence[Hypothesis], most: int, explain: bool) -> Summary:
        """The first with at most ``most - 1`` of other texts as alternatives; of a calibrated model with the facts of
        confidence. To any other model only a text most of whose words are unknown is out of domain."""
        distinct: dict[str, tuple[Summary, Hypothesis]] = {}
        for hypothesis in hypotheses:
            summary = self._build(hypothesis, explain=explain)
            distinct.setdefault(summary.text, (summary, hypothesis))
            if len(distinct) == most:
                break
        made, hypotheses = (list(each) for each in zip(*distinct.values(), strict=True))
        calibration, extended_ids = self._calibration, self.example.source_extended_ids.tolist()
        ratios, unk_id = calibration.word_ratios if calibration else "", self._tokenizer.unk_id
        facts = [facts_of(hypothesis, extended_ids, self.encoding, unk_id, ratios) for hypothesis in hypotheses]
        if calibration is None:
            made[0] = replace(made[0], out_of_domain=unknown_words(facts[0]["source_unknown"]))
        else:
            made = [replace(summary, facts=known) for summary, known in zip(made, facts, strict=True)]
            confidence, domain = calibration.confidence(facts[0]), calibration.out_of_domain(facts[0])
            made[0] = replace(made[0], confidence=confidence, out_of_domain=domain)
        missing = self._length.missing(made[0].text) if self._length else 0
        first = self._from_document(made[0]) if missing else made[0]
        return replace(first, alternatives=tuple(made[first is made[0] :]))

    def _from_document(self, made: Summary) -> Summary:
        """The first words of the document for a summary that has too few, if the document has them."""
        assert self._length is not None, "no summary without bounds is too short"
        document, name = self.record.document, made.model
        start = len(document) - len(document.lstrip())
        span = self._length.within(document, start, start)
        found = self._length.cut(extractive_summary(document, [span], model_name=name, record_id=made.id))
        if self._length.missing(found.text):
            return made
        reason = f"the model wrote fewer than {self._length.least} words"
        return replace(found, confidence=made.confidence, out_of_domain=made.out_of_domain, extracted=reason)

    def _plain(self, hypothesis: Hypothesis) -> str:
        """Its text as the model wrote it."""
        tokenizer, words = self._tokenizer, self.example.oov_words
        ids = [id_ for id_ in hypothesis.ids if id_ not in tokenizer.special_ids or id_ == tokenizer.unk_id]
        return str(tokenizer.detokenize([tokenizer.token(id_, words) for id_ in ids])[0])


def _number(value: Any) -> int:
    return int(value) if isinstance(value, Integral) else 0


def _told(on_text: OnText, places: Sequence[int], index: int, text: str) -> None:
    on_text(places[index], text)


# ------------------------------------------------------------------------------------------------- while it is written


class Writer:
    """The summary of one document while greedy decoding makes it."""

    def __init__(self, document: DecodedDocument, eos_id: int) -> None:
        self.hypothesis = Hypothesis([], 0.0, 0.0, [], finished=False)
        self.open, self._told = True, 0
        self._rows: list[np.ndarray] = []
        self._document, self._eos_id, self._options = document, eos_id, document.options
        if self._options.surface == "clean":  # what is dropped is known at the end only
            self._options = self._options.model_copy(update={"surface": "cased"})

    def add(self, token_id: int, attention: np.ndarray | None) -> str | None:
        """The text with one token more, of a long one with several, for all of it is written anew each time; ``None``
        when there is nothing to tell yet."""
        ids, self.open = self.hypothesis.ids, token_id != self._eos_id
        if self.open:
            ids.append(token_id)
            self.hypothesis.token_log_probs.append(0.0)
            if self._options.replace_unk and attention is not None:
                self._rows.append(attention)
        unfinished = self.open and len(ids) < self._options.max_length
        if len(ids) - self._told <= (len(ids) // _TOLD_SINGLY if unfinished else 0):
            return None
        self._told = len(ids)
        if self._rows:
            self.hypothesis.attention = np.stack(self._rows)
        return self._document.text(self.hypothesis, search=self._options)


class Watched:
    """The step of a model, which tells of each, and of the texts so far."""

    def __init__(
        self,
        step: StepFunction,
        on_step: Callable[[], object] | None,
        on_text: OnText | None,
        writers: Sequence[Writer],
    ) -> None:
        self._step, self._on_step, self._on_text, self._writers = step, on_step, on_text, writers
        self._attention: np.ndarray | None = None
        self._steps = 0

    def __call__(self, last_ids: np.ndarray, state: Any) -> tuple[StepOutput, Any]:
        """The model's step; ``last_ids`` are what greedy decoding chose in the one before."""
        if self._on_step:
            self._on_step()
        if self._steps and self._on_text:
            attention = [None] * len(self._writers) if self._attention is None else list(self._attention)
            for row, (writer, token_id) in enumerate(zip(self._writers, last_ids.tolist(), strict=True)):
                if writer.open and (text := writer.add(token_id, attention[row])) is not None:
                    self._on_text(row, text)
        self._steps += 1
        output, state = self._step(last_ids, state)
        self._attention = output.attention
        return output, state
