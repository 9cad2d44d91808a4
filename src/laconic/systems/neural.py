"""A trained model behind the interface of `Summarizer`: tokenize, decode, say where the words came from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from huggingface_hub import get_token

from laconic.config.base import validate
from laconic.config.loading import merge
from laconic.config.schema import SearchConfig, TextConfig
from laconic.data.collate import Collator
from laconic.data.dataset import EncodedDataset, Example, encode_documents
from laconic.decoding import TorchModel
from laconic.errors import ConfigError, LaconicError, ModelError
from laconic.explain.provenance import build_summary
from laconic.metrics.confidence import Calibration, facts_of
from laconic.metrics.consensus import by_consensus
from laconic.models.folder import LoadedModel, load_model_folder
from laconic.models.stored import first_line
from laconic.search.decode import decode
from laconic.search.scorers import with_word_blocking
from laconic.systems.extractive import OnText, Progress
from laconic.systems.streaming import Watched, Writer
from laconic.types import Hypothesis, Record, Summary, TokenizedText

WRITES = "A trained model: writes a line of its own, word by word."
WRITES_AND_COPIES = "A trained model: writes a line of its own, word by word, and can copy words from the text."


class NeuralSystem:
    """A `LoadedModel` ready to decode."""

    def __init__(self, loaded: LoadedModel) -> None:
        self.loaded = loaded
        self.model = loaded.model.eval()
        self.tokenizer = loaded.tokenizer
        self.text = _within(loaded.text, loaded.model.max_source_tokens)
        self.search: SearchConfig = loaded.search
        self.name = loaded.name
        self._collator = Collator(self.tokenizer)

    @classmethod
    def from_pretrained(cls, folder_or_id: str | Path, device: Any) -> NeuralSystem:
        """Open a folder or hub id.

        Raises:
            ModelError: nothing there, or damaged.
            ConfigError: there is no such device.
        """
        return cls(load_model_folder(folder_or_id, device=as_device(device)))

    def set_defaults(self, overrides: Mapping[str, Any]) -> None:
        """Change the decoding that is used when nothing else is asked for."""
        self.search = self.options(overrides)

    def options(self, overrides: Mapping[str, Any]) -> SearchConfig:
        """The decoding defaults changed by ``overrides``.

        A beam grows to hold ``num_return``, and the least length follows a smaller ``max_length``, unless
        they are given too.

        Raises:
            ConfigError: an unknown key, a value that does not fit, or a summary longer than the model can write.
        """
        if not overrides:
            return self.search
        values = merge(self.search.model_dump(), overrides, revive=True)
        if "beam_size" not in overrides:
            values["beam_size"] = max(values["beam_size"], _number(overrides.get("num_return")))
        elif "num_return" not in overrides:
            values["num_return"] = min(values["num_return"], _number(overrides["beam_size"]) or 1)
        if "min_length" not in overrides and (longest := _number(overrides.get("max_length"))):
            values["min_length"] = min(values["min_length"], longest)
        config = validate(SearchConfig, values, where="search")
        limit = self.model.max_target_tokens
        if limit is not None and config.num_steps > limit:
            most = limit - config.num_steps + config.max_length
            raise ConfigError(
                f"search.max_length {config.max_length} is more than the {most} tokens this model can write."
            )
        return config

    def describe(self, options: SearchConfig) -> dict[str, Any]:
        """The settings that differ from the schema's defaults, and always beam and lengths."""
        always = ("beam_size", "min_length", "max_length")
        values, usual = options.model_dump(mode="json"), SearchConfig().model_dump(mode="json")
        return {key: value for key, value in values.items() if key in always or value != usual[key]}

    def summarize_batch(
        self,
        records: Sequence[Record],
        *,
        explain: bool,
        options: SearchConfig,
        on_step: Callable[[], object] | None = None,
        on_text: OnText | None = None,
    ) -> list[Summary]:
        """Decode the documents together.

        ``on_step()`` is called before each step; what it raises ends the work. ``on_text(i, text)`` is given the
        summary of document i so far, each time it has grown (greedy decoding only).

        Raises:
            DataError: a document without any token.
            ConfigError: ``on_text`` with a beam, whose best summary is not known before its end.
        """
        if on_text and options.beam_size > 1:
            raise ConfigError("A summary can be given word by word with beam_size 1 only.")
        labels = [record.id or record.origin for record in records]
        examples, encodings = encode_documents(records, self.tokenizer, self.text, labels)
        batch = self._collator(examples).to(self.device)
        tokenizer = self.tokenizer
        # replaced in `build_summary`, which knows the source's own strings, also outside the vocabulary
        every = {"num_return": options.beam_size} if options.choose == "mbr" else {}
        config = with_word_blocking(options.model_copy(update={"replace_unk": False, **every}), tokenizer)
        model: Any = TorchModel(self.model)
        if on_step or on_text:
            writers = [
                Writer(record, encoding, example.oov_words, tokenizer, options)
                for record, example, encoding in zip(records, examples, encodings, strict=True)
            ]
            model = Watched(model, on_step, on_text, writers if on_text else [])
        found = decode(
            model,
            batch,
            config,
            unk_id=tokenizer.unk_id,
            bos_id=self.loaded.start_id,
            eos_id=tokenizer.eos_id,
            pad_id=tokenizer.pad_id,
        )
        builders = [
            partial(
                build_summary,
                document=record,
                source_encoding=encoding,
                tokenizer=tokenizer,
                oov_words=example.oov_words,
                model_name=self.name,
                search=options,
            )
            for record, encoding, example in zip(records, encodings, examples, strict=True)
        ]
        if options.choose == "mbr":
            pairs = zip(builders, found, strict=True)
            found = [_by_consensus(build, hypotheses)[: options.num_return] for build, hypotheses in pairs]
        if explain:
            self._add_opponent(examples, [hypotheses[0] for hypotheses in found])
        results = []
        for build, example, encoding, hypotheses in zip(builders, examples, encodings, found, strict=True):
            made = [build(hypothesis, explain=explain) for hypothesis in hypotheses]
            best = self._judged(made[0], hypotheses[0], example, encoding)
            results.append(replace(best, alternatives=tuple(made[1:])))
        return results

    @property
    def unk_text(self) -> str | None:
        """The token for words outside the vocabulary."""
        return self.tokenizer.token(self.tokenizer.unk_id)

    @property
    def calibration(self) -> Calibration | None:
        """How confident the model may be, where that has been found out."""
        return self.loaded.calibration

    def _judged(self, summary: Summary, hypothesis: Hypothesis, example: Example, encoding: TokenizedText) -> Summary:
        """The summary with its confidence and with what is strange about its document."""
        if self.calibration is None:
            return summary
        facts = facts_of(
            hypothesis,
            example.source_extended_ids.tolist(),
            encoding,
            unk_id=self.tokenizer.unk_id,
            reserved=len(self.tokenizer.special_ids),
        )
        confidence, unlike = self.calibration.confidence(facts), self.calibration.ranges.unlike(facts)
        return replace(summary, confidence=confidence, unlike=unlike, facts=facts)

    @torch.inference_mode()
    def _add_opponent(self, examples: Sequence[Example], best: Sequence[Hypothesis]) -> None:
        """Put ``opponent_log_prob`` (T,), log P_o of each token written, into the details of hypotheses whose words an
        opponent had a say in: one teacher-forced pass, so that no step of the search keeps a second (N, V) for it."""
        if not all("opponent_attention" in hypothesis.details for hypothesis in best):
            return
        eos_id = self.tokenizer.eos_id
        forced = [
            replace(example, target_extended_ids=np.array([*hypothesis.ids, eos_id], dtype=np.int32))
            for example, hypothesis in zip(examples, best, strict=True)
        ]
        output = self.model(self._collator.pairs(forced).to(self.device))
        log_probs = output.details["opponent_log_probs"].float().cpu().numpy()
        for row, hypothesis in zip(log_probs, best, strict=True):
            hypothesis.details["opponent_log_prob"] = row[: len(hypothesis.details["opponent_attention"])]

    @torch.inference_mode()
    def score(self, records: Sequence[Record], batch_size: int, progress: Progress | None) -> list[float]:
        """Teacher-forced log-probabilities, batched by length, in the given order."""
        data = EncodedDataset.build(records, self.tokenizer, self.text)
        lengths = data.source_lengths
        order = sorted(range(len(data)), key=lambda index: -lengths[index])
        scores = [0.0] * len(data)
        for start in range(0, len(order), batch_size):
            chosen = order[start : start + batch_size]
            batch = self._collator.pairs([data[index] for index in chosen]).to(self.device)
            sums = self.model(batch).gold_log_probs.double().sum(-1).tolist()
            for index, value in zip(chosen, sums, strict=True):
                scores[index] = value
            if progress:
                progress(len(chosen))
        return scores

    @torch.inference_mode()
    def about(self) -> dict[str, Any]:
        """What kind of model this is, for those who choose one: family, whether it copies, its size and limits."""
        example = encode_documents(["a"], self.tokenizer, self.text)[0]
        memory = self.model.encode(self._collator(example).to(self.device))
        start = torch.full((1,), self.loaded.start_id, device=self.device)
        output, _ = self.model.step(start, self.model.start(memory))
        copies = not {"p_gen", "copy_probs"}.isdisjoint(output.details)
        return {
            "family": self.loaded.run.model["type"] if self.loaded.run else type(self.model).__name__.lower(),
            "in_short": WRITES_AND_COPIES if copies else WRITES,
            "copies": copies,
            "parameters": sum(parameter.numel() for parameter in self.model.parameters()),
            "max_source_tokens": self.text.max_source_tokens,
            "max_summary_tokens": self.model.max_target_tokens,
        }

    def save_pretrained(self, folder: str | Path) -> None:
        """Write the model folder, with the decoding defaults in force here."""
        self.loaded.search = self.search
        self.loaded.save_pretrained(folder)

    def push_to_hub(self, repo_id: str, *, token: str | None = None, **options: Any) -> str:
        """Upload the model folder; gives back the address.

        Raises:
            ModelError: no token, or the hub refuses.
        """
        token = token or get_token()
        if not token:
            raise ModelError(
                f"{repo_id} was not uploaded: there is no token for the Hugging Face hub. Make one with write access"
                " at https://huggingface.co/settings/tokens, then run `hf auth login` or set HF_TOKEN."
            )
        self.loaded.search = self.search
        try:
            return str(self.loaded.push_to_hub(repo_id, token=token, **options))
        except LaconicError:
            raise
        except Exception as error:  # the hub client's errors, httpx's and OSError have no common base
            raise ModelError(f"{repo_id} was not uploaded to the hub: {first_line(error)}.") from error

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return next(self.model.parameters()).device

    def to(self, device: Any) -> None:
        """Move the parameters.

        Raises:
            ConfigError: there is no such device.
        """
        self.model.to(as_device(device))


def _by_consensus(build: Callable[..., Summary], hypotheses: Sequence[Hypothesis]) -> list[Hypothesis]:
    """The hypotheses, the one first whose text has most in common with the others'."""
    texts = [build(hypothesis, explain=False).text for hypothesis in hypotheses]
    return [hypotheses[place] for place in by_consensus(texts, [hypothesis.score for hypothesis in hypotheses])]


def as_device(device: Any) -> torch.device:
    """``"cpu"``, ``"cuda"``, ``"cuda:1"``, ``"mps"``, or ``"auto"``: the best there is.

    Raises:
        ConfigError: no such device on this machine.
    """
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        chosen = torch.device(device)
        torch.empty(0, device=chosen)
    except (RuntimeError, AssertionError, ValueError):
        raise ConfigError(f"There is no device '{device}' here; use cpu, or auto for the best there is.") from None
    return chosen


def _within(text: TextConfig, limit: int | None) -> TextConfig:
    if limit is None or text.max_source_tokens <= limit:
        return text
    return text.model_copy(update={"max_source_tokens": limit})


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0
