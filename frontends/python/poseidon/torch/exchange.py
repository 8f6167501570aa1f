# SPDX-License-Identifier: Apache-2.0
"""One module of a program whose gradients are exchanged: the rooms of an exchange, assembled.

Backward hands every layer over as soon as its gradient exists (sending.py). When the backward pass ends, what no gradient reached
is handed over as absent; then either everything is waited for (landing.py: `.grad` is the mean when `backward()` returns), or, with
overlap, nothing is: every layer is waited for, and updated by the user's own optimizer, right before its module runs in the next
forward pass (late.py). passes.py has the moments of a step in their order, states.py what a step and a layer may do next,
refusals.py what is refused, and renewal.py what happens when layers are thawed or added.
"""
from __future__ import annotations

import contextlib
import dataclasses
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from ..report import Scalars
from . import batch_norm, others, refusals, renewal, transforms, unseen
from .hooks import Hook, keep_hooks_out_of_pickles
from .landing import Lander
from .late import LateUpdates
from .model import Model
from .partition import Wishes
from .passes import Passes
from .replicas import broadcast, compare, compare_optimizers, settings_of, states_of
from .sending import Sender
from .states import Phase, Step
from .tensors import parameters_of

if TYPE_CHECKING:
    from torch.utils.hooks import RemovableHandle

    from ..session import Session
    from .checks import Checker
    from .layer import Layer


class Exchange:
    """The object that `poseidon.torch.wrap` returns. Belongs to the thread that trains. Every call that waits raises PoseidonError
    once the job has failed."""

    all: ClassVar[weakref.WeakSet[Exchange]] = weakref.WeakSet()  # of this process

    def __init__(self, session: Session, model: torch.nn.Module, optimizer: torch.optim.Optimizer | None = None,
                 overlap: bool = False, factors: bool = True, buffers: bool = True, check_every: int | None = None,
                 tf32: bool = False) -> None:
        """All workers make it in the same order, of models that are alike; blocks until they have."""
        if overlap:
            refusals.check_optimizer(optimizer)
        others.check_inside(model)
        self.session, self.root, self.optimizer, self.overlap = session, model, optimizer, overlap
        self.wishes, self.share_buffers = Wishes(factors, tf32), buffers
        self.now, self.scalars = Step(), Scalars(session)
        self.strangers = refusals.Strangers()
        self.checker: Checker | None = None
        if check_every is not None:
            from .checks import Checker  # which loads torch's compiler
            self.checker = Checker(self, check_every)
        self.passes = Passes(self.now, self.checker)
        compare(session, model)
        compare_optimizers(session, self.optimizer_lines())
        broadcast(session, model)
        self.declare()

    # ---- from one declaration to the next

    def declare(self) -> None:
        """Makes a model of the session of what requires a gradient or did before, on all workers in the same step."""
        refusals.check_shared(self.root, self.wishes.known, [(one.root, one.known) for one in self.all])
        self.model = model = Model(self.session, self.root, self.wishes, self.share_buffers, self.now.number)
        self.changes = renewal.Changes(model)
        self.unseen = unseen.Unseen(model, self.now, self.known, late=self.overlap)
        lander = LateUpdates if self.overlap else Lander
        self.lander: Lander = lander(model, self.now, lambda: renewal.refuse_parted(self.session, self.root, self.known))
        self.sender = Sender(model, self.now, self.passes.enter, keeps_factors=self.overlap, watching=self.checker)
        self.attach()

    def attach(self) -> None:
        """Puts hooks on the module, its parts and parameters, and on optimizers."""
        self.all.add(self)
        self.permit_others = others.forbid(self.root)
        self.norms = batch_norm.take(self.root, self.session, self.now)
        self.model.take_modules()
        self.passes.attach(self.model, self.sender, self.lander, self.changes, keeps_modules=self.overlap)
        keep_hooks_out_of_pickles(self.root)
        self.hooks: list[RemovableHandle] = [
            self.root.register_forward_pre_hook(Hook(self.before_forward), prepend=True),
            self.root.register_forward_hook(Hook(self.passes.after_forward)),
            register_optimizer_step_pre_hook(self.before_any_step)]
        if self.checker is not None:
            self.hooks += self.checker.attach(self.root)
        if self.optimizer is not None:
            self.hooks.append(self.optimizer.register_step_pre_hook(self.check_optimized))
            self.hooks += self.lander.attach(self.optimizer)

    def detach(self) -> None:
        """Waits for what is under way and leaves the model to itself, with its last weights."""
        self.all.discard(self)
        try:
            for layer in self.layers:
                self.lander.finish(layer)
            self.lander.land_shared()
        except BaseException:
            self.stop()  # whoever closes the session next finds this exchange in no list
            raise
        self.passes.detach()
        for hook in self.hooks:
            hook.remove()
        if self.checker is not None:
            self.checker.unwatch()
        self.permit_others()
        self.stop()
        self.model.give_modules_back()
        for module in self.norms:
            batch_norm.make_plain(module)
        self.lander.detach()

    def stop(self) -> None:
        """Nothing is handed over to the core any more."""
        self.model.core.stop()

    def abandon(self) -> None:
        """As detach, once the session is closed: what was under way will not come, and nobody reads what was lent."""
        for layer in self.layers:
            layer.abandon()
        for shared in self.model.shared:
            shared.flying = False
        for buffers in self.model.buffers:
            buffers.show()
        self.detach()

    def renew(self) -> None:
        """Layers were thawed or added, or send no factors any more, on all workers in the same step: they and the others are a
        new model of the session. It is measured and planned anew; what is new begins with rank 0's numbers."""
        if self.now.joining is not None:
            raise refusals.changed_in_join()
        self.synchronize()
        new, local = self.changes.new(), any(layer.local for layer in self.layers)
        if self.session.workers > 1:
            self.announce()
        self.detach()
        for layer in self.model.products:
            layer.retired = True
        self.wishes = dataclasses.replace(self.wishes, known=self.known, whole=self.wishes.whole | self.changes.turned)
        broadcast(self.session, torch.nn.ParameterList(new))
        self.declare()
        for one in self.layers:
            one.local = local

    def announce(self) -> None:
        """Takes part in a step with nothing but the mark of who declares anew. A worker that does not is in that step with its
        gradients, finds the mark, and both end in a sentence."""
        held = [(p, p.grad) for p in self.known]
        self.lander.forget_step()
        for parameter in self.known:
            parameter.grad = None
        self.now.renewing = True
        self.passes.sit_out()
        self.synchronize()
        self.now.renewing = False
        self.now.number -= 1  # it was none of the script's
        renewal.compare_trained(self.session, self.root, self.known)
        for parameter, gradient in held:
            parameter.grad = gradient

    # ---- hooks of the whole

    def before_forward(self, model: torch.nn.Module, arguments: object) -> None:
        # Else a checkpoint computes it again, in the backward pass, or torch.export has put other tensors in the place of the model's.
        if torch._C._current_graph_task_id() >= 0 or transforms.is_exporting():
            return
        if transforms.is_inside():
            with transforms.outside():
                self.passes.before_forward(model, self.renew)
        else:
            self.passes.before_forward(model, self.renew)

    def before_any_step(self, optimizer: torch.optim.Optimizer, *_: object) -> None:
        """Of every optimizer of the process."""
        if self.unseen.of(optimizer):
            refusals.check_outside_backward(optimizer)
            self.unseen.refuse(optimizer)
            if self.checker is not None:
                self.checker.before_update(optimizer)

    def check_optimized(self, optimizer: torch.optim.Optimizer, *_: object) -> None:
        self.strangers.refuse(optimizer, lambda: {p for exchange in self.all for p in parameters_of(exchange.root)})

    # ---- what a program and its packages call

    @property
    def layers(self) -> list[Layer]:
        return self.model.layers

    @property
    def known(self) -> set[torch.nn.Parameter]:
        """The parameters that travel."""
        return self.changes.known

    @property
    def step(self) -> int:
        """How many steps have ended: backward passes that exchanged."""
        return self.now.number

    @property
    def has_begun(self) -> bool:
        """Whether a forward pass has begun a step, in which the other workers count on this one."""
        return self.now.phase is not Phase.IDLE

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward passes inside leave their gradients to add up here; the first one behind it exchanges what there is."""
        before = self.now.paused
        self.pause(True)
        try:
            yield
        finally:
            self.pause(before)

    def pause(self, paused: bool) -> None:
        """As at the beginning or the end of no_sync."""
        if self.now.paused and not paused:
            for layer in self.layers:
                layer.local = True
        self.now.pauses += self.now.paused != paused
        self.now.paused = paused

    def sit_out(self) -> None:
        """One step in which this worker has no batch: it contributes nothing, and has no gradients afterwards."""
        self.passes.sit_out()

    def synchronize(self) -> None:
        """Waits, with overlap, for all gradients under way and for the updates that step() has asked for."""
        self.lander.synchronize()

    def take_buffers_from(self, leader: int) -> None:
        """From now on buffers are those of rank `leader` on all ranks after every backward pass; at first rank 0's."""
        for shared in self.model.buffers:
            shared.take_from(leader, self.session.rank)

    def optimizer_lines(self) -> list[str]:
        """What of the optimizer that was given here has to be the same on all workers."""
        names: dict[torch.Tensor, str] = {parameter: name for name, parameter in self.root.named_parameters()}
        return [] if self.optimizer is None else [*settings_of(self.optimizer, names), *states_of(self.optimizer, names)]

    def plan(self) -> dict[str, tuple[str, str]]:
        """name -> (the scheme, the reason in words), of the newest plan."""
        return {layer.name: self.session.plan_of(self.model.core.model, layer.id) for layer in self.layers}

    def plan_text(self) -> str:
        """The newest plan as lines of name=scheme, for init(plan_pin=...)."""
        return self.model.core.plan_text()
