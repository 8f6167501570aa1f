# SPDX-License-Identifier: Apache-2.0
"""Collectives that a program issues without waiting for them, in the order in which it does.

A session's collectives belong to one thread at a time and have one order, the same on all workers. What is issued here runs
on a thread of its own; the session's other calls wait until all of it has (Session.settle), so that the order stays the
program's.
"""
from __future__ import annotations

import queue
import threading
from collections.abc import Callable

# Hears that a task is over: None, or why it failed. On the thread that ran it.
Told = Callable[["BaseException | None"], None]


class Order:
    """Belongs to one session. The thread is a daemon: a program that ends leaves its session first (atexit), which ends
    it."""

    def __init__(self) -> None:
        self.coming: queue.Queue[tuple[Callable[[], None], Told] | None] = queue.Queue()
        self.thread = threading.Thread(target=self.run, name="poseidon-collectives", daemon=True)
        self.thread.start()

    def add(self, task: Callable[[], None], told: Told) -> None:
        """Thread: any; where several add, they agree on an order that is the same on all workers."""
        self.coming.put((task, told))

    def settle(self) -> None:
        """Returns when everything added before is over."""
        # A child that was forked has the order without its thread.
        if threading.current_thread() is not self.thread and self.thread.is_alive():
            self.coming.join()

    def end(self) -> None:
        """As settle; nothing is added afterwards."""
        self.coming.put(None)
        self.thread.join()

    def run(self) -> None:
        while (added := self.coming.get()) is not None:
            task, told = added
            try:
                task()
            except BaseException as failure:  # whoever waits for the task raises it
                told(failure)
            else:
                told(None)
            del added, task, told  # and what they hold, while the next one is waited for
            self.coming.task_done()
        self.coming.task_done()
