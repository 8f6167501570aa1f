# SPDX-License-Identifier: Apache-2.0
"""What a step of a job takes, in a line that `poseidon compare` reads from rank 0's output.

A thread looks at the core's own counts, so that any script of any framework has the line. POSEIDON_ACCOUNT_STEPS asks for it: so many
steps are measured once the final plan holds.
"""
from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from .errors import PoseidonError

if TYPE_CHECKING:
    from .session import Session

MARK = "poseidon-account "  # before the JSON object
LOOKS = 0.02   # seconds between two of them
SETTLING = 2   # steps under the final plan that do not count
MOST_WAITED = 10  # steps at most until a plan counts as final, where a script asks for a later one or none


def asked() -> int:
    """How many steps; 0: no account is asked for."""
    words = os.environ.get("POSEIDON_ACCOUNT_STEPS", "")
    return int(words) if words.isdecimal() else 0


class StepAccount:
    """Of one session, whose owner calls finish before it leaves."""

    def __init__(self, session: Session, steps: int) -> None:
        self.session, self.steps = session, steps
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.watch, name="poseidon account", daemon=True)
        self.thread.start()

    def finish(self) -> None:
        """Nothing is looked at afterwards."""
        self.ended.set()
        self.thread.join()

    def watch(self) -> None:
        try:
            if self.reached(self.settled):
                before = self.sent()
                self.session.reset_timings()
                self.reached(lambda: self.session.statistics().measured_steps >= self.steps)
                self.say(before)
        except PoseidonError:  # the job has ended, and says why itself
            pass

    def reached(self, condition: Callable[[], bool]) -> bool:
        while not condition():
            if self.ended.wait(LOOKS):
                return False
        return True

    def settled(self) -> bool:
        """Every model that is there has made some steps under its final plan."""
        enough = min(self.session.final_plan_step, MOST_WAITED) + SETTLING
        return bool(self.session.declared) and all(self.session.layer_statistics(one.model, 0).steps >= enough
                                                   for one in self.session.declared)

    def sent(self) -> int:
        """Bytes of gradients that this worker has sent."""
        known = [self.session.layer_statistics(one.model, layer) for one in self.session.declared for layer in range(one.layers)]
        return sum(one.key_value.sent + one.factors.sent for one in known)

    def say(self, before: int) -> None:
        known = self.session.statistics()
        if known.measured_steps == 0:
            return
        plans = [self.session.model_plan(one.model) for one in self.session.declared]
        account = {"steps": known.measured_steps, "step_seconds": known.measured_seconds / known.measured_steps,
                   "predicted_seconds": sum(plan.step_seconds for plan in plans) / len(plans),
                   "sent_bytes": (self.sent() - before) / known.measured_steps, "hidden_share": known.hidden_share}
        sys.stderr.write(MARK + json.dumps(account) + "\n")
        sys.stderr.flush()
