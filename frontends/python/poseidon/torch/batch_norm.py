# SPDX-License-Identifier: Apache-2.0
"""torch.nn.SyncBatchNorm over the workers of the job, on any device: torch's own needs a process group and refuses the CPU.

Forward: every worker's count, mean and sum of squares per channel, in a row of its own, reach all workers in one sum; each
worker merges the rows in the order of ranks, so that all have the same bits. Backward: the two sums over the batch that the
gradient of the input needs are made over all workers, in one more sum.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.function import once_differentiable
from torch.nn import functional

from ..errors import PoseidonError
from .tensors import view_of

if TYPE_CHECKING:
    from ..session import Session
    from .states import Step


class Owner:
    """Of a module: the job, and the step in which it runs. Copies and pickles of the module leave it behind: it is None there."""

    def __init__(self, session: Session, now: Step) -> None:
        self.session, self.now = session, now

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()


def of_channels(numbers: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """One number per channel, in the precision and on the device of `like`, as what it is computed with."""
    return numbers.to(like.device, like.dtype).view(-1, *[1] * (like.dim() - 2))


def precise(tensor: torch.Tensor) -> torch.Tensor:
    """Halves in single precision."""
    return tensor if tensor.dtype == torch.float64 else tensor.float()


class Normalization(torch.autograd.Function):
    """Returns what is normalized, and the mean and the unbiased variance over all workers."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, eps: float,
                owner: Owner) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        session, numbers, channels = owner.session, precise(x), x.shape[1]
        rows = torch.zeros(session.workers, 1 + 2 * channels, dtype=torch.float64, device="cpu")
        count = x.numel() // channels
        if count:
            variance, mean = torch.var_mean(numbers, [at for at in range(x.dim()) if at != 1], correction=0)
            rows[session.rank, 0] = count
            rows[session.rank, 1:] = torch.cat([mean.double(), variance.double() * count]).cpu()
        session.sum(view_of(rows))
        counts, means, squares = rows.split((1, channels, channels), 1)
        total = float(counts.sum())
        if total < 2:
            raise PoseidonError(f"SyncBatchNorm was given {int(total)} values per channel over all workers, expected more than "
                                "one in training", "INVALID_ARGUMENT")
        mean = (counts * means).sum(0) / total
        square = (squares + counts * (means - mean).square()).sum(0)
        ctx.owner, ctx.total = owner, total
        ctx.save_for_backward(x, weight, mean, (square / total + eps).rsqrt())
        y = functional.batch_norm(numbers, mean.to(numbers), (square / total).to(numbers), None if weight is None else
                                  weight.to(numbers), None if bias is None else bias.to(numbers), eps=eps).to(x.dtype)
        unbiased = square / (total - 1)
        ctx.mark_non_differentiable(mean, unbiased)
        return y, mean, unbiased

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: torch.Tensor, *_: object) -> tuple[torch.Tensor | None, ...]:
        x, weight, mean, scale = ctx.saved_tensors
        numbers, dy = precise(x), precise(dy)
        over = [at for at in range(x.dim()) if at != 1]
        scale = of_channels(scale, numbers)
        normal = (numbers - of_channels(mean, numbers)) * scale
        db, dw = dy.sum(over), (dy * normal).sum(over)
        # Each worker's gradients are those of its own mean loss, which counts by `counts` in the mean over all workers: so do
        # its sums here.
        counts = ctx.owner.now.samples or 1
        sums = counts * torch.stack([db, dw]).to("cpu", torch.float64)
        ctx.owner.session.sum(view_of(sums))
        of_db, of_dw = (of_channels(each, numbers) for each in sums / (counts * ctx.total))
        dx = (dy - of_db - normal * of_dw) * scale
        if weight is not None:
            dx = dx * of_channels(weight, numbers)
        return (dx.to(x.dtype), *(None if weight is None else each.to(weight.dtype) for each in (dw, db)), None, None)


class SyncBatchNorm(torch.nn.SyncBatchNorm):
    """The class that wrap gives a torch.nn.SyncBatchNorm: the same object, with the statistics of all workers' batches."""

    @torch.compiler.disable  # type: ignore[untyped-decorator]  # torch's own
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        owner = vars(self).get("poseidon_owner")
        if owner is None or not self.training:
            return torch.nn.SyncBatchNorm.forward(self, x)
        self._check_input_dim(x)
        self._check_non_zero_input_channels(x)
        if owner.now.joining is not None:
            raise PoseidonError("SyncBatchNorm ran inside join, expected BatchNorm: a worker without batches has no statistics "
                                "to share", "UNIMPLEMENTED")
        y: torch.Tensor
        y, *means = Normalization.apply(x, self.weight, self.bias, self.eps, owner)  # type: ignore[no-untyped-call]
        if self.track_running_stats and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            share = 1 / self.num_batches_tracked.item() if self.momentum is None else self.momentum
            for running, mean in zip((self.running_mean, self.running_var), means):
                if running is not None:
                    running.lerp_(mean.to(running), share)
        return y


def take(model: torch.nn.Module, session: Session, now: Step) -> list[torch.nn.Module]:
    """Makes every torch.nn.SyncBatchNorm of the model one of the job's workers, and returns them."""
    ours: list[torch.nn.Module] = []
    for name, module in model.named_modules():
        if type(module) is not torch.nn.SyncBatchNorm:
            continue
        group = module.process_group
        if group is not None and group.size() != session.workers:
            raise PoseidonError(f"the SyncBatchNorm '{name}' has a process group of {group.size()}, expected all "
                                f"{session.workers} workers of the job", "UNIMPLEMENTED")
        module.__class__ = SyncBatchNorm
        vars(module)["poseidon_owner"] = Owner(session, now)
        ours.append(module)
    return ours


def make_plain(module: torch.nn.Module) -> None:
    """It is torch's again."""
    module.__class__ = torch.nn.SyncBatchNorm
    vars(module).pop("poseidon_owner", None)
