"""Minimum risk and self-critical training against an enumeration of all summaries; what a summary is worth."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from catchline import rouge
from catchline.config.names import MODELS, OBJECTIVES, build
from catchline.config.schema import RunConfig, SearchConfig
from catchline.errors import ConfigError
from catchline.kernels import vocabulary
from catchline.objectives.risk import (
    RewardConfig,
    SummaryReward,
    beam_config,
    draw_candidates,
    expected_risk,
    repeated_words,
    score_candidates,
    search_candidates,
    self_critical_loss,
    unsupported_words,
)
from catchline.types import Batch, Hypothesis, UpdateContext
from samples import BOS, COVERAGE, EOS, IDS, PAD, UNK, random_batch, randomise

WORDS, LONGEST = 7, 2  # words 4, 5, 6; two words at most

TRANSFORMER = {"encoder_layers": 1, "decoder_layers": 1, "hidden_size": 8, "num_heads": 2, "feed_forward_size": 8}
MODELS_TRIED: dict[str, dict[str, Any]] = {
    "pointer": {"type": "seq2seq", "head": {"type": "pointer"}, **COVERAGE},
    "vocabulary": {"type": "seq2seq", "head": {"type": "vocabulary"}, **COVERAGE},
    "see": {"type": "seq2seq", "input_feeding": "linear", "unk_loss": "ignore", **COVERAGE},
    "transformer": {"type": "transformer", **TRANSFORMER},
    "transformer-pointer": {"type": "transformer", "head": {"type": "pointer"}, **TRANSFORMER},
    "opponent": {
        "type": "transformer",
        "opponent": {"type": "max", "layer": 0, "head": 1, "lambda_decode": 2},
        **TRANSFORMER,
    },
    "attentional": {"type": "transformer", "head": {"type": "attentional"}, **TRANSFORMER},
    "correlational": {"type": "transformer", "head": {"type": "correlational"}, **TRANSFORMER},
    "guided": {"type": "transformer", "head": {"type": "guided"}, **TRANSFORMER},
    "distraction": {"type": "distraction", "embedding_size": 6, "hidden_size": 4},
}


class Words:
    """A tokenizer whose words are their own numbers."""

    def decode(self, ids: Any, oov_words: Any = ()) -> str:
        return " ".join(f"w{index}" for index in ids if index not in (PAD, UNK, BOS, EOS))


def model_of(name: str, *, vocab_size: int = WORDS, seed: int = 0, unk: float = -60.0) -> Any:
    """A small float64 model that (unless ``unk`` says otherwise) never writes PAD, UNK or BOS."""
    spec = dict(MODELS_TRIED[name])
    if spec["type"] == "seq2seq":
        spec = {"embedding_size": 5, "encoder_hidden": 4, "hidden_size": 4, **spec}
    model = build("model", MODELS, spec, vocab_size=vocab_size, **IDS).double()
    randomise(model, seed=seed, scale=0.9)
    bias = model.head.projection.bias
    with torch.no_grad():
        bias[[PAD, UNK, BOS]] = unk
    return model.eval()


def run_of(**text: Any) -> RunConfig:
    changes = {"max_target_tokens": LONGEST, **text}
    return RunConfig(name="tiny", model={"type": "seq2seq"}, training={"max_updates": 1}, text=changes)


def objective_of(kind: str, model: Any, **options: Any) -> Any:
    objective = build("objective", OBJECTIVES, {"type": kind, **options})
    objective.attach(model, Words(), run_of())
    return objective


NOISE = UpdateContext(noise_seed=7)


def tiny_batch(vocab_size: int = WORDS) -> Batch:
    """Two documents; neither holds a special token, so that nothing but words is ever copied."""
    batch = random_batch((4, 3), (3, 2), vocab_size=vocab_size, with_oov=False)
    words = torch.tensor([[4, 5, 4, 6], [6, 5, 6, PAD]])
    return replace(batch, source_ids=words, source_extended_ids=words, indices=[3, 8])


def every_summary() -> list[Hypothesis]:
    """All texts that can be written; those of full length are cut, whether EOS would follow or not."""
    words = [list(ids) for length in range(LONGEST + 1) for ids in product(range(4, WORDS), repeat=length)]
    return [Hypothesis(ids, 0.0, 0.0, [], finished=len(ids) < LONGEST) for ids in words]


def log_probs_of_all(model: Any, batch: Batch) -> tuple[Tensor, list[list[Hypothesis]]]:
    """(B, n): log P of every text that can be written."""
    every = [every_summary() for _ in batch.source_ids]
    return score_candidates(model, model(batch).memory, batch, NOISE, every, ()).view(len(every), -1), every


def losses_of(objective: Any, model: Any, batch: Batch, candidates: list[list[Hypothesis]]) -> Tensor:
    """What the objective makes of these candidates: (B,)."""
    output, rewards = model(batch), objective.rewards(batch, candidates)
    score = partial(score_candidates, model, output.memory, batch, NOISE)
    return objective._losses(candidates, rewards, output.gold_log_probs, score)


def grads_of(loss: Tensor, model: Any) -> dict[str, Tensor]:
    model.zero_grad(set_to_none=True)
    loss.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def close(got: dict[str, Tensor], wanted: dict[str, Tensor]) -> None:
    for name, gradient in wanted.items():
        torch.testing.assert_close(got.get(name, torch.zeros_like(gradient)), gradient, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", MODELS_TRIED)
def test_the_probabilities_of_all_summaries_sum_to_one(name: str) -> None:
    batch = tiny_batch()
    log_probs, _ = log_probs_of_all(model_of(name), batch)
    torch.testing.assert_close(log_probs.exp().sum(dim=1), torch.ones(2).double(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", MODELS_TRIED)
def test_scores_are_those_of_search(name: str) -> None:
    model, batch = model_of(name, vocab_size=20, unk=0.0), random_batch((7, 4, 1), (5, 3, 2))
    objective = objective_of("minimum_risk", model, candidates=3)
    output = model(batch)
    found = objective._candidates(output.memory, batch, NOISE)
    wanted = torch.tensor([hypothesis.log_prob for own in found for hypothesis in own]).double()
    ignored = model.config.unk_loss == "ignore" if hasattr(model.config, "unk_loss") else False
    known = torch.tensor([not ignored or UNK not in h.ids for own in found for h in own])
    got = score_candidates(model, output.memory, batch, NOISE, found, ())
    assert known.sum() > 3
    torch.testing.assert_close(got[known], wanted[known], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["pointer", "distraction"])
def test_what_was_cut_before_its_first_word_is_certain(name: str) -> None:
    model, batch = model_of(name), tiny_batch()
    nothing = [[Hypothesis([], 0.0, 0.0, [], finished=False)]] * 2
    assert score_candidates(model, model(batch).memory, batch, NOISE, nothing, ()).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("name", ["pointer", "attentional"])
def test_minimum_risk_over_everything_is_the_expected_reward(name: str) -> None:
    model, batch = model_of(name), tiny_batch()
    objective = objective_of("minimum_risk", model, candidates=30, alpha=1.0)
    log_probs, every = log_probs_of_all(model, batch)
    rewards = torch.tensor(objective.rewards(batch, every)).double()
    assert rewards.unique().numel() > 3
    wanted = grads_of(-(log_probs.exp() * rewards).sum(), model)
    found = [
        [replace(h, log_prob=value) for h, value in zip(own, row, strict=True)]
        for own, row in zip(every, log_probs.tolist(), strict=True)
    ]  # as a search would find them
    losses = losses_of(objective, model, batch, found)
    torch.testing.assert_close(losses, (log_probs.exp() * (1 - rewards)).sum(dim=1), rtol=1e-6, atol=1e-9)
    close(grads_of(losses.sum(), model), wanted)


@pytest.mark.parametrize("name", ["pointer", "transformer-pointer"])
def test_the_self_critical_gradient_is_on_average_that_of_the_expected_reward(name: str) -> None:
    model, batch = model_of(name), tiny_batch()
    objective = objective_of("self_critical", model)
    log_probs, every = log_probs_of_all(model, batch)
    probs = log_probs.detach().exp()
    rewards = torch.tensor(objective.rewards(batch, every)).double()
    wanted = grads_of(-(log_probs.exp() * rewards).sum(), model)
    greedy = draw_candidates(model, model(batch).memory, batch, NOISE, samples=1, max_length=LONGEST)
    baseline = torch.tensor(objective.rewards(batch, greedy)).double()[:, 0]
    mean: dict[str, Tensor] = {}
    for place in range(len(every[0])):  # each summary in the sample's stead, as often as it is drawn
        drawn = [[own[0], every[0][place]] for own in greedy]
        losses = losses_of(objective, model, batch, drawn)
        own = log_probs.detach()[:, place : place + 1], rewards[:, place : place + 1], baseline
        torch.testing.assert_close(losses.detach(), self_critical_loss(*own), rtol=1e-6, atol=1e-9)
        for name_of, gradient in grads_of((losses * probs[:, place]).sum(), model).items():
            mean[name_of] = mean.get(name_of, 0) + gradient
    close(mean, wanted)


@pytest.mark.parametrize("name", ["pointer", "opponent"])
def test_samples_are_drawn_as_the_model_says(name: str) -> None:
    model, batch = model_of(name, seed=3), tiny_batch()
    output, count = model(batch), 1500
    drawn = draw_candidates(model, output.memory, batch, NOISE, samples=count, max_length=LONGEST)
    log_probs, every = log_probs_of_all(model, batch)
    for document, own in enumerate(drawn):
        texts = [tuple(h.ids) for h in own[1:]]
        for place, text in enumerate(every[document]):
            probability = float(log_probs[document, place].detach().exp())
            share = texts.count(tuple(text.ids)) / count
            assert share == pytest.approx(probability, abs=4 * (probability * (1 - probability) / count) ** 0.5 + 1e-9)


def test_samples_do_not_depend_on_the_batch_or_on_any_generator() -> None:
    model, batch = model_of("pointer", unk=0.0), tiny_batch()

    def texts(batch: Batch, context: UpdateContext = NOISE) -> list[list[list[int]]]:
        state = torch.get_rng_state()
        found = draw_candidates(model, model(batch).memory, batch, context, samples=6, max_length=6)
        assert torch.equal(torch.get_rng_state(), state)
        return [[hypothesis.ids for hypothesis in own] for own in found]

    both = texts(batch)
    swapped = torch.tensor([1, 0])
    tensors = ("source_ids", "source_extended_ids", "source_mask", "target_ids", "target_mask", "target_input_ids")
    turned = {name: getattr(batch, name)[swapped] for name in tensors}
    assert texts(replace(batch, **turned, indices=[8, 3])) == both[::-1]
    assert all(UNK not in ids for own in both for ids in own)
    assert texts(batch, UpdateContext(noise_seed=8)) != both
    greedy = search_candidates(model, model(batch).memory, SearchConfig(max_length=6))
    assert [own[0] for own in both] == [hypothesis.ids for (hypothesis,) in greedy]


@pytest.mark.parametrize("alpha", [0.05, 1.0])
def test_risk_by_hand(alpha: float) -> None:
    log_probs, rewards = torch.tensor([[-1.0, -2.0, 5.0]]), torch.tensor([[0.2, 0.6, 9.0]])
    shares = torch.tensor([-1.0, -2.0]).mul(alpha).exp()
    wanted = (shares / shares.sum() * torch.tensor([0.8, 0.4])).sum()
    mask = torch.tensor([[True, True, False]])
    assert float(expected_risk(log_probs, rewards, mask, alpha)) == pytest.approx(float(wanted))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("pointer", "minimum_risk"),
        ("correlational", "self_critical"),
        pytest.param("pointer", "self_critical", marks=pytest.mark.slow),
        pytest.param("correlational", "minimum_risk", marks=pytest.mark.slow),
    ],
)
def test_the_expected_reward_rises(kind: str, name: str) -> None:
    model, batch = model_of(name, seed=1), tiny_batch()
    options = {"candidates": 6} if kind == "minimum_risk" else {"samples": 4}
    objective = objective_of(kind, model, **options)

    def expected() -> float:
        log_probs, every = log_probs_of_all(model, batch)
        rewards = torch.tensor(objective.rewards(batch, every)).double()
        return float((log_probs.detach().exp() * rewards).sum(dim=1).mean())

    before = expected()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for update in range(25):
        optimizer.zero_grad()
        term = objective(model(batch), batch, UpdateContext(noise_seed=update))
        (term.sum / term.count).backward()
        optimizer.step()
    assert expected() > before + 0.2


def test_validation_reports_what_the_greedy_summary_lacks() -> None:
    model, batch = model_of("pointer"), tiny_batch()
    values = []
    for kind in ("minimum_risk", "self_critical"):
        objective = objective_of(kind, model)
        with torch.no_grad():
            term = objective(model(batch), batch, NOISE)
        written = search_candidates(model, model(batch).memory, beam_config(run_of(), model, 1))
        assert float(term.sum) == pytest.approx(2 - sum(map(sum, objective.rewards(batch, written))))
        values.append(float(term.sum))
    assert values[0] == values[1]


@pytest.mark.parametrize("kind", ["minimum_risk", "self_critical"])
def test_the_log_says_what_the_first_candidates_are_worth(kind: str) -> None:
    model, batch = model_of("pointer"), tiny_batch()
    objective, output = objective_of(kind, model), model(batch)
    objective(output, batch, NOISE)
    found = objective.rewards(batch, objective._candidates(output.memory, batch, NOISE))
    assert any(own[0] != own[1] for own in found)
    figures = objective.figures(output, batch)
    assert float(figures[f"{kind}_reward"]) == pytest.approx(sum(own[0] for own in found) / len(found))


def test_candidates_are_found_in_full_precision() -> None:
    """And as long as the model has positions, by a search without groups."""
    spec = MODELS_TRIED["distraction"] | {"attention": {"type": "distraction", "size": 4}}
    model, batch = build("model", MODELS, spec, vocab_size=WORDS, **IDS), tiny_batch()
    config = beam_config(run_of(), model, 2)
    memory = model.encode(batch)
    exact = search_candidates(model, memory, config)
    with torch.autocast("cpu", torch.bfloat16):
        again = search_candidates(model, memory, config)
        assert [[h.score for h in own] for own in again] == [[h.score for h in own] for own in exact]
        objective = objective_of("self_critical", model)
        assert objective(model(batch), batch, NOISE).sum.isfinite()
    model.max_target_tokens = LONGEST
    assert beam_config(run_of(), model, 2).max_length == LONGEST - 1
    search = {
        "scorers": [{"type": "diverse_groups", "groups": 8}, {"type": "ngram_blocking", "size": 3}],
        **{"beam_size": 8, "diverse_groups": 4, "min_length": 5, "no_repeat_ngram": 3},
    }
    config = beam_config(run_of().model_copy(update={"search": SearchConfig(**search)}), model, 2)
    assert [scorer["type"] for scorer in config.scorers] == ["ngram_blocking"]
    assert (config.num_return, config.diverse_groups, config.min_length, config.no_repeat_ngram) == (2, 1, 1, 0)


def test_what_cannot_act_is_refused() -> None:
    spec = {"type": "coarse_to_fine", "hidden_size": 4, "embedding_size": 4}
    model = build("model", MODELS, spec, vocab_size=WORDS)
    with pytest.raises(ConfigError, match=r"set model\.type to seq2seq"):
        objective_of("self_critical", model)
    objective, able = build("objective", OBJECTIVES, {"type": "self_critical"}), model_of("pointer")
    objective.attach(able, Words(), run_of(max_target_tokens=100_000))
    with pytest.raises(ConfigError, match=r"text\.max_target_tokens, 100,001, and search writes 100,000 at most"):
        objective.attach(able, Words(), run_of(max_target_tokens=100_001))


@pytest.mark.parametrize("kind", ["minimum_risk", "self_critical"])
@pytest.mark.parametrize("name", ["pointer", "attentional"])
def test_no_second_projection(kind: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What each candidate weighs is known before it is scored, and the vocabulary's projection is told."""

    def refuse(*_: Any) -> None:
        raise AssertionError("projected again")

    monkeypatch.setattr(vocabulary, "_again", refuse)
    model, batch = model_of(name).float(), tiny_batch()
    term = objective_of(kind, model)(model(batch), batch, NOISE)
    (0.3 * term.sum / term.count).backward()
    assert any(p.grad is not None and float(p.grad.abs().max()) > 1e-5 for p in model.parameters())


# --------------------------------------------------------------------------- what a summary is worth

GOLD = "library for reading audio files"
DOCUMENT = "This package holds a library that reads 12 kinds of audio files from disks."


def worth(summary: str, **weights: float) -> float:
    return SummaryReward(RewardConfig(**weights))(summary, GOLD, DOCUMENT)


def test_without_penalties_it_is_the_mean_of_the_three_scores() -> None:
    summary = "library that reads zebra audio audio files"
    found = rouge([summary], [GOLD], kinds=("1", "2", "L"), profile="unicode").mean
    expected = sum(score.f for score in found.values()) / 3
    assert worth(summary, repetition=0, support=0) == pytest.approx(expected)
    assert 0 < expected < 1
    assert worth(GOLD) == 1
    assert worth("") == 0


@pytest.mark.parametrize(
    ("words", "count"),
    [
        ("tool for the audio of the files", 0),  # function words may come again
        ("tool for the the audio", 1),  # but not one after the other
        ("audio tool for audio", 1),
        ("audio audio audio", 2),
        ("files for files of files", 1),  # as often as the gold summary says it: twice
    ],
)
def test_words_said_again(words: str, count: int) -> None:
    assert repeated_words(words.split(), ["files", "and", "files"]) == count


def test_words_that_nobody_gave() -> None:
    given = ["a", "library", "that", "reads", "12", "kinds", "of", "audio", "files"]
    assert unsupported_words(["reading", "the", "audio", "file"], given) == 0  # other forms of the same words
    assert unsupported_words(["reading", "13", "video", "files", "with", "a", "library"], given) == 2


def test_each_penalty_is_a_share_of_the_words() -> None:
    plain = worth("library of audio files files", repetition=0, support=0)
    assert worth("library of audio files files", repetition=0.7, support=9) == pytest.approx(plain - 0.7 / 5)
    plain = worth("zebra audio 14 files", repetition=0, support=0)
    assert worth("zebra audio 14 files", repetition=9, support=0.6) == pytest.approx(plain - 0.6 * 2 / 4)
