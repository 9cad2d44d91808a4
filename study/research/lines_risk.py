"""Train a model on its own hypotheses by expected risk (Shen et al. 2016; Edunov et al. 2018).

    catchline summarize MODEL PAIRS --always-write --raw --num-return 8 --beam-size 8 --output CANDIDATES
    python study/research/lines_risk.py MODEL PAIRS CANDIDATES OUT [--minutes 42]

PAIRS and CANDIDATES are JSON lines with the same ids. R_k of hypothesis y_k is the mean of ROUGE-1, 2 and L (F1), in
which the last sign is one more word (else lines grow by full stops and question marks), less 0.1 for each name or
number that the text lacks (else *Act* ends the lines of laws that are none). Where a row of CANDIDATES has ``ratings``
of its lines, from 0 to 3 (``lines_judged.jsonl.xz``), R_k is 0.4 of that and 0.6 of the rating / 3. With it

    risk = sum_k q_k (max_j R_j - R_k),   q = softmax_k(T log P(y_k | x) / lp(y_k)),   lp(y) = ((5 + |y|) / 6)^1.5
    loss = 10 risk + 0.3 (nll + coverage loss of the person's line)

over the best, the worst, the first and one other hypothesis of each text. OUT is the mean of the last weights.
"""

from __future__ import annotations

import argparse
import json
import lzma
import random
import re
import shutil
import time
from collections.abc import Collection, Sequence
from dataclasses import fields, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch

from catchline import rouge
from catchline.data.dataset import Collator, encode
from catchline.models.folder import load_model_folder
from catchline.training.optim import WeightAverage
from catchline.types import Record, TrainingBatch

TEXTS, TAKEN, TEMPERATURE, ALPHA, RISK, LIKELIHOOD, RATE, WARMUP, AVERAGED = 8, 4, 2.0, 1.5, 10.0, 0.3, 2e-4, 20, 150
END = {".": "stopped", "?": "asked"}
INVENTED, JUDGED = 0.1, 0.6
WORD = re.compile(r"\w+")
Text = tuple[list[Record], list[float]]  # the hypotheses and, last, the person's line; R of the hypotheses


def main() -> None:
    """Read, train for some minutes of one core, save."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("model")
    for name in ("pairs", "candidates", "out"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--minutes", type=float, default=42)
    options = parser.parse_args()
    torch.manual_seed(1)
    names = json.loads(Path(options.model, "casing.json").read_text("utf-8"))["forms"]
    texts, loaded = read(options.pairs, options.candidates, names), load_model_folder(options.model)
    model: Any = loaded.model.float().train()
    optimizer, average = torch.optim.Adam(model.parameters(), lr=RATE), WeightAverage(model, AVERAGED)
    begin, rng, update, left = time.time(), random.Random(1), 0, list[list[Text]]()
    while (part := (time.time() - begin) / (60 * options.minutes)) < 1:
        if not left:
            left = groups(texts, rng)
        batch, rewards = batch_of([some(text, rng) for text in left.pop()], loaded)
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1, (update + 1) / WARMUP) * max(0.1, 1 - part)
        risk, likelihood = losses(model, batch, rewards)
        optimizer.zero_grad()
        (RISK * risk + LIKELIHOOD * likelihood).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 2.0)
        optimizer.step()
        average.update()
        update += 1
        if update % 20 == 0:
            print(f"update {update}: risk {risk.item():.3f}, nll and coverage {likelihood.item():.3f}", flush=True)
    with average.applied():
        loaded.save_pretrained(options.out)
    shutil.copy(Path(options.model, "generation_config.json"), options.out)


def read(pairs: Path, candidates: Path, names: Collection[str]) -> list[Text]:
    """The texts of which hypotheses differ in R; names are the words that are written with capitals."""
    rows = {row["id"]: row for row in map(json.loads, pairs.open(encoding="utf-8"))}
    opened = lzma.open if candidates.suffix == ".xz" else open
    with opened(candidates, "rt", encoding="utf-8") as file:
        answers = [answer for answer in map(json.loads, file) if answer["id"] in rows]
    made = [list(dict.fromkeys(one["summary"] for one in (a, *a.get("alternatives", ())))) for a in answers]
    pairs_of = [(line, rows[a["id"]]["summary"]) for a, lines in zip(answers, made, strict=True) for line in lines]
    flat = [[f"{line} {END.get(line.rstrip()[-1:], 'endless')}" for line in pair] for pair in pairs_of]
    scores = rouge([a for a, _ in flat], [[b] for _, b in flat], kinds=("1", "2", "L"), stem=True).per_document
    every = iter([fmean(scores[kind][number].f for kind in scores) for number in range(len(flat))])
    texts = list[Text]()
    for answer, lines in zip(answers, made, strict=True):
        row = rows[answer["id"]]
        said = {*WORD.findall(row["document"].lower())}
        rewards = [next(every) - INVENTED * len(named(line, names) - said) for line in lines]
        if ratings := answer.get("ratings"):
            both = zip(ratings, rewards, strict=True)
            rewards = [JUDGED * rating / 3 + (1 - JUDGED) * reward for rating, reward in both]
        if len(lines) >= TAKEN and max(rewards) - min(rewards) >= 0.02:
            texts.append(([Record(row["document"], line) for line in (*lines, row["summary"])], rewards))
    return texts


def named(line: str, names: Collection[str]) -> set[str]:
    """The names and numbers of a line."""
    return {word for word in WORD.findall(line) if word in names or not word.isalpha()}


def groups(texts: Sequence[Text], rng: random.Random) -> list[list[Text]]:
    """An epoch's groups of texts of like length."""
    order, size = rng.sample(texts, len(texts)), 50 * TEXTS
    pools = [sorted(order[n : n + size], key=lambda t: len(t[0][0].document)) for n in range(0, len(order), size)]
    cut = [pool[n : n + TEXTS] for pool in pools for n in range(0, len(pool), TEXTS)]
    return rng.sample(cut, len(cut))


def some(text: Text, rng: random.Random) -> Text:
    """The best, the worst, the first, others; and the person's line."""
    records, rewards = text
    order = sorted(range(len(rewards)), key=rewards.__getitem__)
    kept = list(dict.fromkeys([order[-1], order[0], 0, *rng.sample(order, len(order))]))[:TAKEN]
    return [*(records[k] for k in kept), records[-1]], [rewards[k] for k in kept]


def batch_of(texts: Sequence[Text], loaded: Any) -> tuple[TrainingBatch, torch.Tensor]:
    """TAKEN + 1 rows a text, and R (texts, TAKEN)."""
    made = encode([record for records, _ in texts for record in records], loaded.tokenizer, loaded.run.text)
    batch: Any = Collator(loaded.tokenizer)([example for example, _, _ in made])
    arrays = {f.name: value for f in fields(batch) if isinstance(value := getattr(batch, f.name), np.ndarray)}
    batch = replace(batch, **{name: torch.from_numpy(value) for name, value in arrays.items()})
    return batch, torch.tensor([rewards for _, rewards in texts])


def losses(model: Any, batch: TrainingBatch, rewards: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The risk; nll and coverage loss of people's lines. Each text is encoded once."""
    rows, first = TAKEN + 1, slice(None, None, TAKEN + 1)
    names = ("source_ids", "source_mask", "source_extended_ids")
    with torch.autocast("cpu", torch.bfloat16):
        memory = type(model).encode(model, replace(batch, **{name: getattr(batch, name)[first] for name in names}))
        states, mask, *final = (part.repeat_interleave(rows, 0) for part in (memory.states, memory.mask, *memory.final))
        memory = replace(memory, states=states, mask=mask, final=tuple(final), extended_ids=batch.source_extended_ids)
        model.encode = lambda _: memory  # the pass below decodes only
        output = model(batch)
        del model.encode
    likelihoods = output.gold_log_probs.float().sum(1).view(-1, rows)
    lengths = batch.target_mask.sum(1).view(-1, rows)
    shares = (TEMPERATURE * likelihoods / ((5 + lengths) / 6) ** ALPHA)[:, :-1].softmax(1)
    risk = (shares * (rewards.amax(1, keepdim=True) - rewards)).sum(1).mean()
    counted = output.counted(batch).sum(1).view(-1, rows)[:, -1].clamp_min(1)
    nll = -(likelihoods[:, -1] / counted).mean()
    return risk, nll + output.coverage_losses.sum() / batch.target_mask.sum()


if __name__ == "__main__":
    main()
