"""The opponent branch: one head's attention, its opponent, and the word probability that grows on it.

The equations are in `catchline.papers.contrastive`; this module holds the parameters. One branch serves the whole
model: it reads the queries, keys and values that one decoder layer has projected anyway, and adds a small feed-forward
network and its own vocabulary matrix. The subclasses, `catchline.config.names.OPPONENTS`, say what becomes of the
largest weight (section 3.2.1, Table 3 and footnote 2).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from catchline.config.base import ConfigBase, validate
from catchline.errors import ConfigError
from catchline.layers.attention.additive import Switchable
from catchline.layers.copying.pointer import GoldTokens, VocabularyProjection, generated
from catchline.layers.transformer import head_attention, initialise
from catchline.papers import contrastive

DecodeScore = Literal["joint", "pc", "po"]
AVERAGE = "average"


class OpponentConfig(ConfigBase):
    """Options that all opponents share; numbers are those of the options in docs/contrastive.md. ``layer`` counts
    decoder layers from the bottom and ``head`` the layer's heads, both from 0; the head may be ``average``, all heads
    of the layer (17), whose values are then put side by side or averaged."""

    layer: int = Field(2, ge=0, le=1000)
    head: int | Literal["average"] = 4
    averaged_values: Literal["concat", "mean"] = "concat"  # (17)
    normalizer: contrastive.Normalizer = "softmax"  # (10)
    empty: Literal["zero", "alpha"] = "zero"  # (16)
    detach_alpha: bool = False  # (18)
    detach_values: bool = False
    out_proj: bool = False  # (4)
    dropout: float | None = Field(None, ge=0, lt=1)  # (5); none: the model's
    output: Literal["softmin", "softmax"] = "softmin"  # (9)
    lambda_decode: float = Field(0.2, strict=True)  # (21) below 0: footnote 3's variant
    decode_score: DecodeScore = "joint"  # (30)
    feeds: ClassVar[tuple[str, ...]] = ("opponent",)  # what objectives find in the pass of a model with this part

    @model_validator(mode="after")
    def _fits(self) -> OpponentConfig:
        if self.lambda_decode < 0 and self.output == "softmin":
            raise ValueError(
                f"lambda_decode {self.lambda_decode} is negative; only the variant of footnote 3 (output: softmax with "
                "the objective minus_softmax) takes log P_o away, so give 0 or more"
            )
        return self


@dataclass(slots=True)
class OpponentOutput:
    """What the opponent makes of Q queries a document."""

    weights: Tensor  # (B, Q, S) alpha_c
    allowed: Tensor  # (B, Q, S) where alpha_o may be positive
    opponent: Tensor  # (B, Q, S) alpha_o
    context: Tensor  # (B, Q, F) alpha_o v


@dataclass(frozen=True, slots=True)
class DecoderShape:
    """The decoder that the branch sits on."""

    num_layers: int
    num_heads: int
    head_width: int
    dropout: float = 0.0


class Opponent(Switchable):
    """Equations (2) to (8); subclasses say what takes the place of the largest weight. ``Class(config,
    shape=DecoderShape(...), vocab_size=V, unk_id=...)``. Build it after everything else: it takes its first numbers
    from the global generator and puts the generator back, so that a model with it and one without it start, from equal
    seeds, with equal weights and go on with equal dropout masks."""

    Config: type[OpponentConfig] = OpponentConfig
    config: Any

    def __init__(self, config: OpponentConfig, *, shape: DecoderShape, vocab_size: int, unk_id: int) -> None:
        super().__init__()
        self.config, self.unk_id = config, unk_id
        for name, count in (("layer", shape.num_layers), ("head", shape.num_heads)):
            if (place := getattr(config, name)) != AVERAGE and not 0 <= place < count:
                raise ConfigError(f"model.opponent.{name} {place} does not exist: there are {count}, counted from 0.")
        self.heads = slice(None) if config.head == AVERAGE else slice(int(config.head), int(config.head) + 1)
        side_by_side = config.head == AVERAGE and config.averaged_values == "concat"
        width = shape.head_width * (shape.num_heads if side_by_side else 1)
        self.dropout = shape.dropout if config.dropout is None else config.dropout
        self.sign = -1.0 if config.output == "softmin" else 1.0
        self.decode_score, self.lambda_decode = config.decode_score, config.lambda_decode
        with torch.random.fork_rng(devices=[]):
            self.out_proj = nn.Linear(width, width) if config.out_proj else None
            self.first_norm, self.second_norm = nn.LayerNorm(width), nn.LayerNorm(width)
            self.expand, self.contract = nn.Linear(width, width), nn.Linear(width, width)
            self.projection = VocabularyProjection(width, vocab_size, bias=False)
            initialise(*([] if self.out_proj is None else [self.out_proj]), self.expand, self.contract)
            nn.init.normal_(self.projection.weight, std=width**-0.5)

    def scored(self, weights: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """alpha_c (B, Q, S) and the mask (B, 1, S) -> what equation (3) normalises, and the positions it keeps."""
        return weights, mask.expand_as(weights)

    def read(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> OpponentOutput:
        """Equations (2) and (3) and alpha_o v, from all heads of the chosen layer. ``queries`` (B, Q, H, d), ``keys``
        and ``values`` (B, S, H, d), as projected with their biases and not scaled; ``mask`` (B, S). Q is T in training,
        K in search."""
        c = self.config
        chosen = queries[:, :, self.heads].transpose(1, 2), keys[:, :, self.heads].transpose(1, 2)  # (B, h, ...)
        weights = head_attention(*chosen, mask.unsqueeze(1)).mean(dim=1)
        weights = weights.detach() if c.detach_alpha else weights
        scores, allowed = self.scored(weights, mask.unsqueeze(1))
        opponent = contrastive.opponent_weights(scores, allowed, c.normalizer)
        if c.empty == "alpha":
            opponent = torch.where(allowed.any(dim=-1, keepdim=True), opponent, weights)
        values = values[:, :, self.heads]  # (B, S, h, d)
        values = values.mean(dim=2) if c.averaged_values == "mean" else values.flatten(2)
        values = values.detach() if c.detach_values else values
        with torch.autocast(values.device.type, enabled=False):
            return OpponentOutput(weights, allowed, opponent, contrastive.opponent_context(opponent, values))

    def features(self, context: Tensor, noise_seed: int | None = None) -> Tensor:
        """Equations (4) to (6), and the minus of (7): (..., F) -> -z3 (z3 for ``output: softmax``). The minus is put
        here, on the few numbers. In training the dropout draws from its own generator, seeded with ``noise_seed``, so
        that the rest of the model sees the masks it would see without the branch."""
        generator = None if noise_seed is None else torch.Generator(context.device).manual_seed(noise_seed)

        def drop(values: Tensor) -> Tensor:
            if not (self.training and self.dropout):
                return values
            kept = torch.empty_like(values).bernoulli_(1 - self.dropout, generator=generator)
            return values * kept / (1 - self.dropout)

        projected = context if self.out_proj is None else self.out_proj(context)
        first, second = self.first_norm, self.second_norm
        z1 = contrastive.first_norm(drop(projected.to(first.weight.dtype)), (first.weight, first.bias))
        expand, contract = (self.expand.weight, self.expand.bias), (self.contract.weight, self.contract.bias)
        z2 = drop(contrastive.feed_forward(z1, expand, contract))
        return self.sign * contrastive.last_norm(z1, z2, (second.weight, second.bias))

    def gold_log_probs(self, context: Tensor, gold: GoldTokens, noise_seed: int | None = None) -> dict[str, Tensor]:
        """log P_o of M gold words from their contexts (M, F): ``opponent_log_probs`` (M,) and, with label smoothing,
        ``opponent_smoothed``. Words outside V count as UNK."""
        log_probs, smoothed = generated(self.projection, self.features(context, noise_seed), gold, self.unk_id)
        found = {"opponent_log_probs": log_probs}
        return found if smoothed is None else found | {"opponent_smoothed": smoothed}

    @property
    def decodes(self) -> bool:
        """Does decoding need the branch at all?"""
        return self.decode_score != "pc"

    def scores(
        self, output: OpponentOutput, log_conventional: Tensor, project: Callable[[Tensor], Tensor] | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """What a decoding step is worth: J, or log P_o with ``decode_score: po``. log P_c (N, X) -> (N, X), and the two
        attentions (N, S) for those who explain. ``project`` is `VocabularyProjection.for_decoding` of the branch, made
        once a search."""
        logits = (project or self.projection)(self.features(output.context)).flatten(0, 1).to(log_conventional.dtype)
        details = {"opponent_attention": output.opponent, "conventional_attention": output.weights}
        details = {name: weights.flatten(0, 1) for name, weights in details.items()}
        if self.decode_score == "po":
            nothing = torch.zeros_like(log_conventional)
            nothing = nothing.masked_fill(log_conventional == -torch.inf, -torch.inf)  # words of other documents
            return contrastive.joint_score(nothing, logits, 1.0, self.unk_id), details
        return contrastive.joint_score(log_conventional, logits, self.lambda_decode, self.unk_id), details

    def switches(self) -> dict[str, Any]:
        return {"decode_score": self.decode_score, "lambda_decode": self.lambda_decode}

    def switch(self, options: Mapping[str, Any]) -> None:
        """Set ``decode_score`` or ``lambda_decode``, which are checked as the options are."""
        checked = validate(
            type(self.config), self.config.model_dump() | self.switches() | dict(options), where="model.opponent"
        )
        self.decode_score, self.lambda_decode = checked.decode_score, checked.lambda_decode


# -------------------------------------------------------------------------- the opponents


class MaskMaximum(Opponent):
    """The position of the largest weight goes; the rest keep their weights. The paper's choice."""

    class Config(OpponentConfig):
        ties: contrastive.Ties = "all"  # (11), (12)

    def scored(self, weights: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        return weights, contrastive.without_largest(weights, mask, getattr(self.config, "k", 1), self.config.ties)


class MaskTopK(MaskMaximum):
    """The k largest weights go."""

    class Config(MaskMaximum.Config):
        k: int = Field(2, ge=1, le=65_536)


class MaskDynamic(Opponent):
    """The largest weight goes, and its followers for as long as neighbours are (or are not) nearly equal (13)."""

    class Config(OpponentConfig):
        ratio: float = Field(1.02, ge=1)
        rule: contrastive.Rule = "until_over"

    def scored(self, weights: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        return weights, contrastive.without_run(weights, mask, self.config.ratio, self.config.rule)


class OneMinus(Opponent):
    """``softmax(1 - alpha_c)``: no position goes; the largest weight becomes the smallest."""

    def scored(self, weights: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        return contrastive.one_minus(weights), mask.expand_as(weights)


class Inverse(Opponent):
    """``softmax(1 / alpha_c)``, alpha_c at least ``eps``: of a peaked head close to one-hot at its *least* attended
    position (14)."""

    class Config(OpponentConfig):
        eps: float = Field(1e-6, gt=0)

    def scored(self, weights: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        return contrastive.inverse(weights, mask, self.config.eps), mask.expand_as(weights)
