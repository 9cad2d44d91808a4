"""What every model promises: every row of every recipe (size tiny), and entries of the table that no recipe names."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
import yaml
from torch import Tensor

from catchline.config import names
from catchline.config.base import validate
from catchline.config.loading import load_recipe, recipe_names, resolve_run
from catchline.config.names import MODELS, OBJECTIVES, build, parse
from catchline.errors import ConfigError
from catchline.models.base import SummarizationModel
from catchline.models.stored import FAMILY
from catchline.search.hypotheses import select, select_documents
from catchline.types import Batch, ModelOutput, StepOutput, UpdateContext
from samples import BART, IDS, SEE, TRANSFORMER, UNK, VOCAB, gradients, one_example, random_batch, randomise
from trees import Unmodified, tensors_in, tensors_on

TINY_BART = BART | {"vocab_size": VOCAB}
RECURRENT = {"embedding_size": 6, "hidden_size": 5}
WRITER = RECURRENT | {"encoder_hidden": 5}
# Models that need more than a type, and forms of a model that no row has.
FURTHER: dict[str, list[dict[str, Any]]] = {
    "bart": [
        {"architecture": TINY_BART},
        *({"architecture": TINY_BART, "head": {"type": head}} for head in ("pointer", "attentional", "guided")),
        *({"architecture": {**TINY_BART, "model_type": kind}, "head": {"type": "correlational"}} for kind in FAMILY),
    ],
    "distraction": [
        RECURRENT | {"attention": {"type": "distraction", "size": 7}},
        RECURRENT
        | {"bidirectional": False, "decoder": "one-level", "gru": "paper", "readout_size": 4}
        | {"attention": {"type": "additive", "coverage": True, "size": 7}, "head": {"type": "pointer"}},
        RECURRENT | {"gru": "paper", "bias": False, "head": {"type": "pointer"}},
    ],
    "seq2seq": [
        WRITER | {"attention": {"type": "distraction"}},
        WRITER | SEE | {"bridge_activation": ("tanh", "tanh")},
        WRITER
        | {"cell": "gru", "attention": {"type": "additive", "coverage": True}, "attention_timing": "before"}
        | {"input_feeding": "concat", "output_uses_input": True, "see_decode_parity": False},
    ],
    "transformer": [
        TRANSFORMER,
        *(TRANSFORMER | {"head": {"type": head}} for head in ("pointer", "guided", "correlational")),
        TRANSFORMER | {"head": {"type": "attentional", "lambda_input": "decoder_state"}},
        TRANSFORMER | {"share_embeddings": False, "attention_layer": 0, "head": {"type": "pointer"}},
    ],
}


def cases() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for name in recipe_names():
        recipe = load_recipe(name)
        for row in () if recipe.extractive else recipe.rows:
            found[f"{name}:{row}"] = resolve_run(recipe, row, "tiny").model
    for kind, specs in FURTHER.items():
        found |= {f"{kind}-{number}": {"type": kind, **spec} for number, spec in enumerate(specs)}
    return found


CASES = cases()
# Rows are mostly one flag apart: all are built, stepped and trained, these keep every promise, with all of `FURTHER`.
REPRESENTATIVES = [
    *(f"coarse_to_fine:{row}" for row in ("standard", "standard-chunked", "hier-pos", "hier-sparsemax")),
    *(f"coarse_to_fine:{row}" for row in ("c2f-pos-multi2", "c2f-bow")),
    "coconet:coconet",
    *(f"contrastive:{row}" for row in ("contrastive-pointer", "averaged", "bart+contrastive")),
    *(f"distraction:{row}" for row in ("uni-gru", "m1-m2")),
    *(f"headline_writer:{row}" for row in ("lstm", "bilstm-attention", "pointer-generator-coverage")),
    "oneline:pointer-generator-coverage",
]
TRIED = [*REPRESENTATIVES, *(name for name in CASES if ":" not in name)]
# Rows that are trained or searched otherwise have one model: it is tried under the name of its first row.
ROWS = {json.dumps(CASES[name], sort_keys=True): name for name in reversed([*TRIED, *CASES])}
every_row = pytest.mark.parametrize("name", sorted(ROWS.values(), key=list(CASES).index))
every_model = pytest.mark.parametrize("name", TRIED)
# Families of transformers differ in positions and norms, which only what reads a whole batch could mind.
FAMILIES = [name for name in TRIED if CASES[name].get("architecture", {}).get("model_type", "bart") != "bart"]
every_head = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in FAMILIES)) for name in TRIED]
)
EXACT = {"atol": 1e-11, "rtol": 0}


def built(name: str) -> SummarizationModel:
    return build("model", MODELS, CASES[name], vocab_size=VOCAB, **IDS)


def model_of(name: str) -> SummarizationModel:
    return randomise(built(name).double().eval(), scale=0.5)


@cache
def shared(name: str) -> SummarizationModel:
    """The same for tests that only read it; `test_inputs_stay_as_they_are` sees that reading changes nothing."""
    return model_of(name).requires_grad_(False)


def loss_of(output: ModelOutput, batch: Batch) -> Tensor:
    kinds = ["nll", "coverage"] + ["opponent"] * ("opponent_log_probs" in output.details)
    kinds += ["reinforce"] * ("policy_log_prob" in output.details)
    kinds += ["guidance"] * ("centrality" in output.details)
    terms = [build("objective", OBJECTIVES, {"type": kind})(output, batch) for kind in kinds]
    return sum(term.sum / term.count for term in terms)


def stepped(model: SummarizationModel, batch: Batch, steps: int) -> tuple[list[Any], Any]:
    """The outputs of ``steps`` teacher-forced steps of decoding, and the state after them."""
    outputs, state = [], model.start(model.encode(batch))
    for t in range(steps):
        output, state = model.step(batch.target_input_ids[:, t], state)
        outputs.append(output)
    return outputs, state


def test_every_model_of_the_table_is_tried() -> None:
    assert set(REPRESENTATIVES) <= set(CASES)
    assert {spec["type"] for spec in CASES.values()} >= set(MODELS) - {"plain"}  # parity/test_generate.py


@every_row
@torch.no_grad()
def test_steps_equal_the_teacher_forced_pass(name: str) -> None:
    model, batch = shared(name), random_batch()
    output = model(batch)
    outputs, _ = stepped(model, batch, batch.target_ids.shape[1])
    assert outputs[0].scores.shape == (3, model.encode(batch).extended_vocab_size)
    for t, step in enumerate(outputs):
        real, size = batch.target_mask[:, t], step.log_probs.shape[1]
        torch.testing.assert_close(step.log_probs.exp().sum(-1), torch.ones(3).double(), **EXACT)
        gold = torch.where(batch.target_ids[:, t] < size, batch.target_ids[:, t], UNK)
        entries = step.log_probs.gather(1, gold[:, None])[:, 0]
        torch.testing.assert_close(output.gold_log_probs[real, t], entries[real], **EXACT)
        if output.attention is not None:
            torch.testing.assert_close(output.attention[real, t], step.attention[real], **EXACT)
        if step.attention_scores is not None:
            torch.testing.assert_close(step.attention_scores.softmax(-1), step.attention, **EXACT)
    assert output.gold_log_probs[~batch.target_mask].eq(0).all()


@every_model
@torch.no_grad()
def test_attention_is_a_distribution_over_real_tokens(name: str) -> None:
    model, batch = shared(name), random_batch(extra_source=2)
    weights = model(batch).attention
    steps, _ = stepped(model, batch, 2)
    if weights is None:
        assert all(step.attention is None for step in steps)
        return
    readings = [weights, *(step.attention.unsqueeze(1) for step in steps)]
    for reading in readings:
        assert reading.ge(0).all()
        sums = reading.sum(-1)
        if getattr(model.config, "mask_padding", True):
            torch.testing.assert_close(sums, torch.ones(reading.shape[:2]).double(), **EXACT)
        else:  # the padding of a grid takes its share
            assert sums.le(1 + 1e-12).all()
        assert reading.masked_select(~batch.source_mask.unsqueeze(1)).eq(0).all()


@every_model
@torch.no_grad()
def test_padding_content_and_length_do_not_matter(name: str) -> None:
    model = shared(name)
    batch = random_batch()
    variants = [random_batch(extra_source=3), random_batch(extra_source=2, extra_target=2, padding="gold")]
    junk = random_batch(extra_target=1)
    filled = {"target_ids": 7, "target_input_ids": 9}
    holes = {name: getattr(junk, name).masked_fill(~junk.target_mask, value) for name, value in filled.items()}
    variants.append(replace(junk, **holes))
    expected, expected_steps = model(batch), stepped(model, batch, 3)[0]
    for other in variants:
        alike(model(other), expected)
        read = replace(other, target_input_ids=batch.target_input_ids)
        for step, wanted in zip(stepped(model, read, 3)[0], expected_steps, strict=True):
            same_step(step, wanted)
            torch.testing.assert_close(step.scores, wanted.scores, **EXACT)


@every_model
@torch.no_grad()
def test_companions_do_not_matter(name: str) -> None:
    model, batch = shared(name), random_batch()
    output, steps = model(batch), stepped(model, batch, 2)[0]
    parts = {key: getattr(output, key) for key in ("gold_log_probs", "coverage_losses", "attention")}
    for b in range(3):
        alone, row = one_example(batch, b), slice(b, b + 1)
        alike(model(alone), ModelOutput(**{key: part if part is None else part[row] for key, part in parts.items()}))
        for step, wanted in zip(stepped(model, alone, min(2, alone.target_ids.shape[1]))[0], steps, strict=False):
            same_step(step, wanted, row)


def alike(output: ModelOutput, expected: ModelOutput) -> None:
    """What both have is the same, and nothing is worth anything where only one of them has a target."""
    steps = min(output.gold_log_probs.shape[1], expected.gold_log_probs.shape[1])
    for part in ("gold_log_probs", "coverage_losses"):
        mine, wanted = getattr(output, part), getattr(expected, part)
        if wanted is not None:
            torch.testing.assert_close(mine[:, :steps], wanted[:, :steps], **EXACT)
            assert not mine[:, steps:].any()
            assert not wanted[:, steps:].any()
    if expected.attention is not None:
        sources = min(output.attention.shape[2], expected.attention.shape[2])
        mine, wanted = (each.attention[:, :steps, :sources] for each in (output, expected))
        real = expected.gold_log_probs[:, :steps] != 0
        torch.testing.assert_close(mine[real], wanted[real], **EXACT)


def same_step(step: StepOutput, wanted: StepOutput, row: slice = slice(None)) -> None:
    """A step, and what it was among the rows of another batch."""
    size = step.log_probs.shape[1]  # an example alone has no more extended words than its own
    torch.testing.assert_close(step.log_probs, wanted.log_probs[row, :size], **EXACT)
    assert wanted.log_probs[row, size:].eq(-torch.inf).all()
    if wanted.attention is not None:
        sources = min(step.attention.shape[1], wanted.attention.shape[1])
        torch.testing.assert_close(step.attention[:, :sources], wanted.attention[row, :sources], **EXACT)


@every_head
@torch.no_grad()
def test_reordering_beams_commutes_with_stepping(name: str) -> None:
    """Also dropping documents, and choosing one beam twice."""
    model, batch, beams = shared(name), random_batch(), 2
    _, state = stepped(model, batch, 2)
    state = select(state, torch.arange(3).repeat_interleave(beams))
    words = torch.tensor([5, 6, 7, 8, 9, 10])
    output, state = model.step(words, state)  # the beams differ from here on
    following = torch.tensor([11, 12, 4, 5, UNK, VOCAB])
    expected, _ = model.step(following, state)
    index = torch.tensor([1, 0, 2, 2, 5, 4])
    turned, _ = model.step(following[index], select(state, index))
    torch.testing.assert_close(turned.log_probs, expected.log_probs[index], **EXACT)
    torch.testing.assert_close(turned.scores, expected.scores[index], **EXACT)
    if expected.attention is not None:
        torch.testing.assert_close(turned.attention, expected.attention[index], **EXACT)
    for key, value in expected.details.items():
        torch.testing.assert_close(turned.details[key], value[index], **EXACT)
    kept = torch.tensor([0, 2])
    rows = torch.tensor([0, 1, 4, 5])
    cut, _ = model.step(following[rows], select_documents(state, kept, beams))
    torch.testing.assert_close(cut.log_probs, expected.log_probs[rows], **EXACT)
    assert output.log_probs.shape[0] == 6


@every_head
@torch.no_grad()
def test_beams_equal_documents_of_their_own(name: str) -> None:
    """K beams of one document, folded, give what K copies of the document give."""
    model, beams = shared(name), 3
    single = one_example(random_batch(), 0)
    sources = (single.source_ids, single.source_extended_ids, single.source_mask)
    copies = Batch(*(part.expand(beams, -1) for part in sources), single.extended_vocab_size)
    folded = select(model.start(model.encode(single)), torch.zeros(beams, dtype=torch.int64))
    apart = model.start(model.encode(copies))
    for words in (torch.tensor([2, 2, 2]), torch.tensor([4, 5, VOCAB]), torch.tensor([6, UNK, 8])):
        output, folded = model.step(words, folded)
        expected, apart = model.step(words, apart)
        torch.testing.assert_close(output.log_probs, expected.log_probs, **EXACT)


def graded(model: SummarizationModel, batch: Batch, context: UpdateContext) -> tuple[Tensor, dict[str, Tensor]]:
    model.zero_grad()
    values = model(batch, context=context).gold_log_probs
    values.sum().backward()
    return values.detach(), gradients(model)


@every_head
def test_own_words_are_read_as_a_search_reads_them(name: str) -> None:
    """Free running is greedy decoding, and has the gradients of a pass that is given these words."""
    model, batch = model_of(name), random_batch((7, 5), (4, 4), seed=3)
    unforced = UpdateContext(forced_mask=torch.zeros_like(batch.target_mask))
    values, found = graded(model, batch, unforced)
    inputs = batch.target_input_ids.clone()
    with torch.no_grad():
        state = model.start(model.encode(batch))
        for t in range(4):
            output, state = model.step(inputs[:, t], state)
            size = output.log_probs.shape[1]
            gold = torch.where(batch.target_ids[:, t] < size, batch.target_ids[:, t], UNK)
            torch.testing.assert_close(values[:, t], output.log_probs.gather(1, gold[:, None])[:, 0], **EXACT)
            if t < 3:
                inputs[:, t + 1] = output.log_probs.argmax(-1)
    assert inputs.ne(batch.target_input_ids).any()
    if CASES[name]["type"] != "bart":  # which reads no inputs, but the target shifted
        expected = graded(model, replace(batch, target_input_ids=inputs), UpdateContext())
        torch.testing.assert_close((values, found), expected, atol=1e-10, rtol=1e-10)


@every_head
@torch.no_grad()
def test_memory_is_not_copied_per_beam(name: str) -> None:
    """Widening to K beams leaves everything of the document alone; a beam carries no memory of S x D."""
    model, batch = shared(name), random_batch((60, 50, 40))
    memory = model.encode(batch)
    state = model.start(memory)
    wide = select(state, torch.arange(3).repeat_interleave(8))
    before = [tensor.data_ptr() for tensor in tensors_in(state, shared=True)]
    assert before
    assert before == [tensor.data_ptr() for tensor in tensors_in(wide, shared=True)]
    _, after = model.step(torch.full((24,), 5), wide)
    assert before == [tensor.data_ptr() for tensor in tensors_in(after, shared=True)]
    carried = sum(tensor[0].numel() for tensor in tensors_in(after, shared=False) if tensor.dim())
    states = memory.states[0].numel() or memory.mask.shape[1] * model.config.hidden_size  # read chunk by chunk
    assert carried < states / 2


@every_head
@pytest.mark.parametrize("grad", [True, False])
def test_inputs_stay_as_they_are(name: str, grad: bool) -> None:
    """And nothing of a batch stays on the modules."""
    model, batch = model_of(name), random_batch()
    before, buffers = tensors_on(model), [key for key, _ in model.named_buffers()]
    with torch.set_grad_enabled(grad), Unmodified(batch, model.state_dict()):
        memory = model.encode(batch)
        with Unmodified(memory):
            state = model.start(memory)
            with Unmodified(state):
                first, next_state = model.step(batch.target_input_ids[:, 0], state)
            with Unmodified(next_state):
                second, _ = model.step(batch.target_input_ids[:, 1], next_state)
                again, _ = model.step(batch.target_input_ids[:, 1], next_state)
        loss = loss_of(model(batch), batch)
        if grad:
            loss.backward()
    torch.testing.assert_close(second.log_probs, again.log_probs, atol=0, rtol=0)
    assert first.log_probs.isfinite().any()
    assert tensors_on(model) == before
    assert [key for key, _ in model.named_buffers()] == buffers


@every_row
def test_every_parameter_is_trained(name: str) -> None:
    """Finite gradients everywhere, and no dead parameters."""
    # the noise of models that draw what they read must not depend on the tests before this one
    model, batch = model_of(name).train(), random_batch((9, 7, 5))
    loss = loss_of(model(batch, context=UpdateContext(noise_seed=1)), batch)
    loss.backward()
    frozen = [key for key, parameter in model.named_parameters() if not parameter.requires_grad]
    grads = {key: gradient for key, gradient in gradients(model).items() if key not in frozen}
    assert all(gradient.isfinite().all() for gradient in grads.values())
    # the softmax of scaled dot products does not see what is added to all keys
    dead = [key for key, gradient in grads.items() if gradient.abs().max() == 0 and "k_proj.bias" not in key]
    assert not dead


@every_head
@torch.no_grad()
def test_a_model_in_half_precision_speaks_in_float32(name: str) -> None:
    """Log-probabilities and attention, whatever type the parameters have."""
    model, batch = model_of(name).bfloat16(), random_batch()
    output, (steps, _) = model(batch), stepped(model, batch, 2)
    assert output.gold_log_probs.dtype == torch.float32
    assert {step.log_probs.dtype for step in steps} == {torch.float32}
    assert all(step.attention is None or step.attention.dtype == torch.float32 for step in steps)
    for step in steps:
        torch.testing.assert_close(step.log_probs.exp().sum(-1), torch.ones(3), atol=1e-5, rtol=0)
        assert step.scores.isfinite().any()


@pytest.mark.parametrize("name", [name for name in TRIED if CASES[name]["type"] in ("transformer", "bart")])
def test_under_autocast_a_transformer_is_close_and_trains(name: str) -> None:
    """Products in bfloat16: finite values and gradients, log-probabilities in float32. (torch has no LSTM for it here;
    what such a model reads in is in tests/unit/layers/test_blocks.py.)"""
    model, batch = model_of(name).float(), random_batch(extra_source=1)
    with torch.no_grad():
        exact = model(batch).gold_log_probs
    with torch.autocast("cpu", torch.bfloat16):
        output = model.train()(batch, context=UpdateContext(noise_seed=1))
        near = model.eval()(batch).gold_log_probs
        step = stepped(model, batch, 1)[0][0]
    assert {output.gold_log_probs.dtype, near.dtype, step.log_probs.dtype} == {torch.float32}
    torch.testing.assert_close(near, exact, atol=0.3, rtol=0.05)
    assert step.log_probs[:, :VOCAB].isfinite().any()
    loss_of(output, batch).backward()
    assert all(gradient.isfinite().all() for gradient in gradients(model).values())


@every_head
def test_one_real_token(name: str) -> None:
    model = model_of(name)
    for options in ({}, {"extra_source": 2, "extra_target": 1}):
        batch = random_batch((1,), (1,), **options)
        output = model(batch)
        loss_of(output, batch).backward()
        assert output.gold_log_probs.isfinite().all()
        assert all(gradient.isfinite().all() for gradient in gradients(model).values())
        with torch.no_grad():
            steps, _ = stepped(model, batch, 1)
        torch.testing.assert_close(steps[0].log_probs.exp().sum(-1), torch.ones(1).double(), **EXACT)


@every_head
@torch.no_grad()
def test_round_trips(name: str) -> None:
    """A model that its configuration's YAML describes takes the weights, and then says the same."""
    model, batch = model_of(name), random_batch()
    cls, config = parse("model", MODELS, CASES[name])
    text = yaml.safe_dump(config.model_dump(mode="json"))
    again = validate(cls.Config, yaml.safe_load(text), where="model")
    assert again == config
    described = {"type": CASES[name]["type"], **again.model_dump(mode="json")}
    other = build("model", MODELS, described, vocab_size=VOCAB, **IDS).double().eval()
    assert (other(batch).gold_log_probs - model(batch).gold_log_probs).abs().max() > 1e-3
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(batch).gold_log_probs, model(batch).gold_log_probs)


# ------------------------------------------------------------------------------------ switches

OTHER = {"prediction_feed": "sample", "decode_score": "pc", "encode": "lazy"}


def untruths(model: SummarizationModel) -> list[str]:
    """The switches that change the memory although the model says that they do not: memories are reused."""
    batch, found = random_batch(), []
    with torch.inference_mode():
        for name, value in model.switches().items():
            other = OTHER.get(name) if isinstance(value, str) else not value if isinstance(value, bool) else value / 2
            if name in (model.encoder_switches or ()) or other is None:
                continue
            before = model.encode(batch)
            model.switch({name: other})
            after = model.encode(batch)
            model.switch({name: value})
            if not torch.equal(before.states, after.states) or not torch.equal(before.mask, after.mask):
                found.append(name)
    return found


@every_row
def test_switches_that_are_not_the_encoders_leave_it_alone(name: str) -> None:
    model = model_of(name)
    present = model.switches()
    model.switch(present)
    assert model.switches() == present
    feeds = {"prediction_feed": "not by 'beam'"} if "prediction_feed" in present else {}
    for wrong, said in ({"no_such_switch": "no_such_switch"} | feeds).items():
        with pytest.raises(ConfigError, match=said):
            model.switch({wrong: "beam"})
    assert model.encoder_switches is None or not untruths(model)


TABLES = {name: table for name, table in vars(names).items() if name.isupper() and isinstance(table, dict)}


@pytest.mark.parametrize(("table", "name"), [(table, name) for table in TABLES for name in TABLES[table]])
def test_unknown_options_are_refused(table: str, name: str) -> None:
    """By every entry of every table."""
    with pytest.raises(ConfigError, match="no_such_option"):
        parse(table.lower(), TABLES[table], {"type": name, "no_such_option": 1})
