# SPDX-License-Identifier: Apache-2.0
"""What the first steps take per layer, told to the session, whose clocks the final plan is made of.

Between two marks time belongs to one layer: forward from its module's call to the next one's, with the layer's update;
backward from one layer's gradient to the next. Waiting belongs to nobody.
"""
from .. import library as c


class Stopwatch:
    def __init__(self, exchange):
        self.library, self.session, self.model = exchange.c, exchange.session.handle, exchange.model
        self.layers = exchange.layers
        self.step = 0
        self.to = None  # (pass, layer) that time runs for
        self.restart()

    def charge(self, which=None, layer=None):
        """Time since the last mark goes to `layer`, or where it ran for already."""
        now = self.library.now(self.session)
        if layer is not None:
            self.to = which, layer
        if self.to is not None:
            which, layer = self.to
            self.library.timed(self.model, layer.id, self.step, which, self.since, now)
        self.since = now

    def restart(self, which=None, layer=None):
        """Time since the last mark goes to nobody; from here it runs for `layer`."""
        self.to = None if layer is None else (which, layer)
        self.since = self.library.now(self.session)

    def share(self):
        """Time since the last mark goes to all layers by their size: the optimizer's."""
        time = self.library.now(self.session) - self.since
        elements = sum(layer.elements for layer in self.layers)
        for layer in self.layers:
            end = self.since + time * layer.elements // elements
            self.library.timed(self.model, layer.id, self.step, c.FORWARD, self.since, end)
            self.since = end
        self.restart()
