"""REINFORCE for the chunks that coarse-to-fine attention draws (Ling and Rush 2017, section 4.3).

The loss and its symbols are those of `catchline.papers.coarse_to_fine`: r_t is `ModelOutput.gold_log_probs` without
gradient, log p(a_t) ``details["policy_log_prob"]``, both (B, T). A_t is a constant: the gradient goes through
log alpha^s to the coarse query, the chunk vectors and the decoder's state.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from catchline.objectives.base import Objective
from catchline.papers.coarse_to_fine import discounted_sums, reinforce_advantages, updated_baseline
from catchline.types import ModelOutput, TrainingBatch, UpdateContext

BASELINE_RATE = 0.1
MAX_STEPS = 512  # later steps share the last baseline


class Reinforce(Objective):
    """The policy's surrogate loss. Zero for minibatches whose attention was soft. Remembers the baseline. Numbers are
    rows of the table "Options" of the page on coarse-to-fine attention."""

    class Config(Objective.Config):
        needs = "policy"
        remedy = "attention that draws chunks: set model.type and model.attention.type to coarse_to_fine"

        # (35) summed over steps, averaged over documents
        reduction: Literal["sentence"] = "sentence"
        discount: float = Field(0.5, ge=0, le=1)  # (27)
        scale: float = Field(0.3, gt=0)  # (22)
        baseline_of: Literal["step", "return"] = "step"  # (23)
        baseline_order: Literal["update_first", "subtract_first"] = "update_first"  # (24)
        baseline_mean: Literal["alive", "all"] = "alive"  # (25)
        baseline_init: Literal["zero", "first_batch"] = "zero"  # (26)
        baseline_update: Literal["always", "hard_only"] = "always"  # (31)
        policy_norm: Literal["joint", "mean", "code"] = "joint"  # (28) counts n, n / k or n / k^2

    config: Config
    name = "reinforce"
    looks_ahead = True

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._rewards: list[tuple[Tensor, int]] = []  # of the coming update's micro-batches
        self._before: Tensor | None = None  # the baseline before this update
        self.register_buffer("baseline", torch.zeros(MAX_STEPS))
        self.register_buffer("updates", torch.zeros((), dtype=torch.int64))
        self.baseline: Tensor
        self.updates: Tensor

    def values(self, output: ModelOutput, batch: TrainingBatch, context: UpdateContext) -> Tensor:
        policy = output.details.get("policy_log_prob")
        rewards = output.gold_log_probs.detach()
        if policy is None:
            return torch.zeros_like(rewards)
        late = self.config.baseline_order == "subtract_first" and torch.is_grad_enabled()
        baseline = self._before if late and self._before is not None else self.baseline
        advantages = self._advantages(rewards, baseline, output.counted(batch))
        draws = float(output.details["draws"]) if "draws" in output.details else 1.0
        norm = {"joint": 1.0, "mean": draws, "code": draws**2}[self.config.policy_norm]
        return -advantages * policy / norm

    def figures(self, output: ModelOutput, batch: TrainingBatch) -> dict[str, Tensor]:
        """Mean and spread of the advantages, and the first baseline."""
        mask = batch.target_mask
        figures = {"baseline_1": self.baseline[0].clone()}
        if "policy_log_prob" in output.details:
            rewards = output.gold_log_probs.detach()
            values = self._advantages(rewards, self.baseline, mask)[mask]
            figures |= {"advantage_mean": values.mean(), "advantage_std": values.std(correction=0)}
        return figures

    def _advantages(self, rewards: Tensor, baseline: Tensor, mask: Tensor) -> Tensor:
        config = self.config
        return reinforce_advantages(
            rewards,
            baseline[self._places(rewards)].to(rewards.dtype),
            mask,
            discount=config.discount,
            scale=config.scale,
            of_return=config.baseline_of == "return",
        )

    def _places(self, rewards: Tensor) -> Tensor:
        """The entry of the baseline for each step of (..., T) rewards."""
        return torch.arange(rewards.shape[-1], device=rewards.device).clamp_max(len(self.baseline) - 1)

    @torch.no_grad()
    def see(self, output: ModelOutput, batch: TrainingBatch) -> None:
        """Remember the rewards of a micro-batch: sums and numbers (2, T) over its targets, and how many targets."""
        mask = output.counted(batch)
        values = output.gold_log_probs.detach()
        if "policy_log_prob" not in output.details and self.config.baseline_update == "hard_only":
            return
        if self.config.baseline_of == "return":
            values = discounted_sums(values * mask, self.config.discount)
        self._rewards.append((torch.stack([(values * mask).sum(dim=0), mask.sum(dim=0)]).float(), len(mask)))

    @torch.no_grad()
    def seen(self) -> None:
        """Move the baseline towards the minibatch's mean, over all micro-batches and processes."""
        parts, self._rewards, self._before = self._rewards, [], self.baseline.clone()
        several = torch.distributed.is_available() and torch.distributed.is_initialized()
        steps = torch.tensor(max((sums.shape[1] for sums, _ in parts), default=0), device=self.baseline.device)
        if several:
            torch.distributed.all_reduce(steps, op=torch.distributed.ReduceOp.MAX)
        rewards = self.baseline.new_zeros(2, int(steps))
        for sums, targets in parts:
            rewards[:, : sums.shape[1]] += sums
            if self.config.baseline_mean == "all":
                rewards[1] += targets
                rewards[1, : sums.shape[1]] -= sums[1]
        if several:
            torch.distributed.all_reduce(rewards)
        figures = rewards.new_zeros(2, len(self.baseline)).index_add_(1, self._places(rewards), rewards)
        first = self.config.baseline_init == "first_batch" and not bool(self.updates)
        rate = 1.0 if first else BASELINE_RATE
        self.baseline.copy_(updated_baseline(self.baseline, figures[0], figures[1], rate))
        self.updates += figures[1].any()
