# SPDX-License-Identifier: Apache-2.0
"""A process' place in a job, as a front end has it: joined once, and left once, at the latest at the end of the process."""
from __future__ import annotations

import atexit
import contextlib
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from . import failures
from . import session as _session
from .errors import PoseidonError

if TYPE_CHECKING:
    from .session import Session


class Membership:
    """`front_end` names it in messages. `detach` gives models back while the session works; `abandon` does so once the job has
    been ended by this process, and closes the session that it is given."""

    def __init__(self, front_end: str, detach: Callable[[], None], abandon: Callable[[Session], None]) -> None:
        self.front_end, self.detach, self.abandon = front_end, detach, abandon
        self.session: Session | None = None

    def join(self, *arguments: Any, **words: Any) -> None:
        """Arguments: those of session.join."""
        self.session = _session.join(*arguments, **words)
        if self.session.workers > 1:
            failures.install(self.session.rank)
        atexit.register(self.end)

    def joined(self) -> Session:
        if self.session is None:
            raise PoseidonError(f"{self.front_end}.init has not been called")
        return self.session

    def busy(self, what: str) -> contextlib.AbstractContextManager[None]:
        """As Session.busy has it. Nobody waits for a process that has not joined."""
        return contextlib.nullcontext() if self.session is None else self.session.busy(what)

    def record(self, noted: Mapping[str, Any], step: int | None, test: bool) -> None:
        """As Session.record has it. A process that has not joined has no run directory."""
        if self.session is not None:
            self.session.record(noted, step, test)

    def shutdown(self) -> None:
        """In order, or with the exception that is under way, which the others get: they wait for gradients that will not
        come."""
        self.leave(sys.exc_info()[1])

    def end(self) -> None:
        """The process ends. A failure is printed in a line, unless the script has had it as an exception."""
        known = PoseidonError.latest
        try:
            self.leave(getattr(sys, "last_value", None))
        except PoseidonError as error:
            if error.message != known:
                print(f"poseidon: {error}", file=sys.stderr)

    def leave(self, failure: BaseException | None) -> None:
        if self.session is None:
            return
        leaving = self.session
        if failure is not None and failures.has_failed(failure):
            leaving.abort(failures.reason_of(failure))
            self.abandon(leaving)
            self.forget()
        else:
            self.detach()
            self.forget()
            leaving.leave()

    def forget(self) -> None:
        self.session = None
        atexit.unregister(self.end)
