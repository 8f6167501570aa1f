# SPDX-License-Identifier: Apache-2.0
"""The memory of one layer's gradient: one piece, of which `.grad` of the layer's tensors are views.

Gradients of a layer of one tensor stay in the memory that autograd made, which is lent as it is (`own`). A gradient on a device is
staged in memory of the host, which is what the core is lent (Core.host_memory).
"""
from __future__ import annotations

from collections.abc import Sequence
from sys import getrefcount
from typing import TYPE_CHECKING

import torch
from torch._C import _storage_Use_Count as storage_use_count

if TYPE_CHECKING:
    from .. import library as c


class Memory:
    """`view`: the struct that names to the core the memory it is lent. Belongs to the thread that trains."""

    def __init__(self, parameters: Sequence[torch.nn.Parameter], dtype: torch.dtype, device: torch.device, view: c.View) -> None:
        self.parameters, self.dtype, self.device, self.view = parameters, dtype, device, view
        self.staged = device.type != "cpu"
        self.sizes = [p.numel() for p in parameters]
        self.elements = sum(self.sizes)
        self.flat: torch.Tensor | None = None  # made when first needed
        self.views: list[torch.Tensor] = []    # of `flat`, one per parameter
        self.own: torch.Tensor | None = None   # of one tensor: the memory that autograd made
        self.host: torch.Tensor | None = None     # where the gradient is staged
        self.landing: torch.Tensor | None = None  # where its mean lands then

    def ready(self, stays: bool = False) -> torch.Tensor:
        """The memory, to be written to; new where there is none, or where somebody keeps what it holds. `stays`: it holds what
        will be added to."""
        if self.flat is None or not stays and self.is_kept():
            flat = self.flat = torch.empty(self.elements, dtype=self.dtype, device=self.device)
            self.views = [piece.view(p.shape) for piece, p in zip(flat.split(self.sizes), self.parameters)]
            storage = flat.untyped_storage()
            self.storage, self.address = storage, storage._cdata
            self.alone = storage_use_count(self.address)
            self.holders = self.held()
            if not self.staged:
                self.view.memory = flat.data_ptr()
        return self.flat

    def is_kept(self) -> bool:
        """Whether somebody else has gradients of before, as after zero_grad(), which says that they are not to change: a slice
        or another tensor of the memory, or a view itself. Where they are still the parameters' gradients, backward adds to
        them, as it does alone."""
        kept, held = storage_use_count(self.address) != self.alone, self.held()
        if not kept and held == self.holders:
            return False
        shown = [p.grad is view for p, view in zip(self.parameters, self.views)]
        return not all(shown) and (kept or held != [holders + here for holders, here in zip(self.holders, shown)])

    def held(self) -> list[int]:
        """How often each view is held, in Python and in torch."""
        return [getrefcount(view) + view._use_count() for view in self.views]  # type: ignore[attr-defined]  # torch's own

    def adopt(self, gradient: torch.Tensor) -> None:
        """Lends the memory that autograd made of a gradient."""
        self.own, self.flat, self.views = gradient.detach() if gradient.requires_grad else gradient, None, []
        if not self.staged:
            self.view.memory = gradient.data_ptr()

    def whole(self) -> torch.Tensor:
        """The gradient that is sent, and in whose memory the mean lands; flat."""
        whole = self.flat if self.own is None else self.own.view(-1)
        assert whole is not None  # it has been gathered
        return whole

    def stage(self, host: torch.Tensor, landing: torch.Tensor) -> None:
        """Lends memory of the host in the gradient's place, from here on."""
        self.host, self.landing = host, landing
        self.view.memory = host.data_ptr()

    def free(self) -> None:
        """The gradient's memory goes when the gradient goes, as autograd's does."""
        self.flat, self.views = None, []
