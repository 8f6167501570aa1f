# SPDX-License-Identifier: Apache-2.0
"""Transforms of torch.func, traces of torch.jit and torch.export, which see what a forward pass does as their own."""
from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import torch
from torch._C._functorch import peek_interpreter_stack

# Before torch 2.7 nobody says it.
is_exporting: Callable[[], bool] = getattr(torch.compiler, "is_exporting", lambda: False)


def is_inside() -> bool:
    """Whether a transform or a trace is around the caller. A compiler does not know these questions, and answers them wrongly."""
    return not torch.compiler.is_compiling() and (peek_interpreter_stack() is not None or torch._C._get_tracing_state() is not None)


@contextlib.contextmanager
def outside() -> Iterator[None]:
    """What is done inside is none of theirs."""
    from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack  # which loads torch's compiler
    tracing = torch._C._get_tracing_state()
    torch._C._set_tracing_state(None)  # type: ignore[attr-defined]  # which torch does not declare
    try:
        with temporarily_clear_interpreter_stack():
            yield
    finally:
        torch._C._set_tracing_state(tracing)  # type: ignore[attr-defined]  # see above
