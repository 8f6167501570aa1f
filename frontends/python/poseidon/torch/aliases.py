# SPDX-License-Identifier: Apache-2.0
"""Whether a program has tensors or arrays that share the memory of parameters and buffers: with overlap these would lag behind."""
from __future__ import annotations

from collections.abc import Sequence

import torch
from torch._C import _storage_Use_Count as storage_use_count


class Owned:
    """The memory of some tensors. What shares it is found by its count of users: what detach(), `.data`, a view and numpy() give, and
    the saved tensors of a graph. Memory that is not torch's own (of an array of numpy, a file, another process) counts as shared."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self.tensors = list(tensors)
        self.look()
        # Only now: numpy() leaves a mark that stays when the array has gone.
        self.foreign = any(not storage.resizable() or storage.device.type == "cpu" and storage.is_shared() for storage in self.held)

    def look(self) -> None:
        """Finds the memory that the tensors have now."""
        storages = {storage._cdata: storage for storage in (tensor.untyped_storage() for tensor in self.tensors)}
        self.held = list(storages.values())  # so that their addresses stay theirs
        owners = dict.fromkeys(storages, 1)  # the list above
        for tensor in self.tensors:
            owners[tensor.untyped_storage()._cdata] += 1
        self.owners = list(owners.items())

    def is_shared(self) -> bool:
        """Whether somebody else has memory of the tensors."""
        if not self.foreign and all(storage_use_count(address) == users for address, users in self.owners):
            return False
        self.look()  # a tensor may have got other memory
        return self.foreign or any(storage_use_count(address) != users for address, users in self.owners)
