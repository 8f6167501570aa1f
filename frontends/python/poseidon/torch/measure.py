# SPDX-License-Identifier: Apache-2.0
"""What the first steps took per layer: the planner's food, on one running account of time.

Between two marks time belongs to one layer: forward from its module's call to the next one's, backward
from one layer's gradient to the next. It is the training thread's own time on a core: waiting belongs to
nobody, and neither does what the network's threads take of the cores in these steps, whose gradients go whole.
The first steps, in which memory is touched for the first time, do not count.
"""
import time

WARM_UP = 2


class Account:
    def __init__(self, layers, last_step):
        self.layers = layers
        self.first_step = min(WARM_UP, last_step)
        self.last_step = last_step
        self.forward = dict.fromkeys(layers, 0.0)
        self.backward = dict.fromkeys(layers, 0.0)
        self.to = None  # (forward or backward, layer) that time runs for
        self.since = time.thread_time()

    def begin_step(self, step):
        self.counts = step >= self.first_step

    counts = False

    def charge(self, book=None, layer=None):
        """Time since the last mark goes to `layer`, or where it ran for already."""
        now = time.thread_time()
        if book is not None:
            self.to = (book, layer)
        if self.counts and self.to is not None:
            self.to[0][self.to[1]] += now - self.since
        self.since = now

    def restart(self, book=None, layer=None):
        """Time since the last mark goes to nobody; from here it runs for `layer`."""
        self.to = (book, layer) if book is not None else None
        self.since = time.thread_time()

    def share(self):
        """Time since the last mark goes to all layers by their size: the optimizer's."""
        now = time.thread_time()
        if self.counts:
            elements = sum(layer.elements for layer in self.layers)
            for layer in self.layers:
                self.forward[layer] += (now - self.since) * layer.elements / elements
        self.restart()

    def per_step(self, layer):
        steps = self.last_step - self.first_step + 1
        return self.forward[layer] / steps, self.backward[layer] / steps
