# SPDX-License-Identifier: Apache-2.0
"""Exchanges with one thing wrong in them, for test_checks.py: each function breaks one, on a rank, and raises nothing."""
import features
import products
import torch

LAYER = "2"  # the middle one of Feature's model


def layer_of(exchange):
    return next(layer for layer in exchange.layers if layer.name == LAYER)


def from_step(exchange, step, broken, plain):
    """`broken` in that step and later, else `plain`."""
    return lambda *arguments, **words: (broken if exchange.step >= step else plain)(*arguments, **words)


def a_push_is_skipped(exchange, step):
    push = exchange.sender.push_dense
    absent = lambda layer, absent=False: push(layer, absent=absent or layer.name == LAYER)
    exchange.sender.push_dense = from_step(exchange, step, absent, push)


def factors_are_dropped(exchange, step):
    emit = exchange.sender.emit
    exchange.sender.emit = from_step(exchange, step, lambda layer, dy, x: None if layer.name == LAYER else emit(layer, dy, x), emit)


def a_node_is_lost(exchange, step):
    """The output of a Linear has no way back to its weight."""
    from poseidon.torch import linear
    plain = linear.WeightGradient.apply
    linear.WeightGradient.apply = from_step(
        exchange, step, lambda y, x, weight, bias, layer: y if layer.name == LAYER else plain(y, x, weight, bias, layer), plain)


def factors_are_others(exchange, step):
    emit = exchange.sender.emit
    others = lambda layer, dy, x: emit(layer, 1.01 * dy if layer.name == LAYER else dy, x)
    exchange.sender.emit = from_step(exchange, step, others, emit)


def input_gradients_are_others(exchange, step):
    """The layer below it gets what is not its own."""
    from poseidon.torch import linear
    plain = linear.WeightGradient.apply

    def broken(y, x, weight, bias, layer):
        if layer.name == LAYER:
            y.register_hook(lambda dy: 1.01 * dy)
        return plain(y, x, weight, bias, layer)
    linear.WeightGradient.apply = from_step(exchange, step, broken, plain)


def a_mean_is_written_over(exchange, step):
    core = exchange.model.core
    wait = core.wait

    def broken(model, number):
        wait(model, number)
        layer = layer_of(exchange)
        if number == layer.id:
            layer.memory.flat[0] *= 1.001
    core.wait = from_step(exchange, step + 1, broken, wait)  # the step has been counted when it is waited for


def a_gradient_is_taken_away(exchange, step):
    layer = layer_of(exchange)
    give = layer.give

    def broken():
        give()
        layer.forget()
    layer.give = from_step(exchange, step + 1, broken, give)


def a_parameter_is_nudged(exchange, step):
    """After its update of that step."""
    def nudge(*_):
        if exchange.step == step + 1:
            with torch.no_grad():
                exchange.root[2].weight[0, 0] += 1e-6
    exchange.optimizer.register_step_post_hook(nudge)


def a_schedule_is_stepped(exchange, step):
    """On this rank alone; as small as to leave the bits of most updates."""
    def change(*_):
        if exchange.step == step + 1:
            exchange.optimizer.param_groups[0]["lr"] *= 0.5
    exchange.optimizer.register_step_post_hook(change)


def a_state_is_loaded(exchange, step):
    """After the update of that step, so late that it has moved no parameter when it is looked for."""
    def change(*_):
        if exchange.step == step + 1:
            exchange.optimizer.state[exchange.root[2].bias]["momentum_buffer"].mul_(2)
    exchange.optimizer.register_step_post_hook(change)


def a_step_is_left_out(exchange, step):
    """This worker's optimizer finds no gradient, as where a script leaves a batch out by its own loss."""
    optimizer = exchange.optimizer
    plain = optimizer.step
    optimizer.step = lambda: None if exchange.step == step + 1 else plain()


def work(rank, options, fault, at, step, words, answer):
    """A worker of a job whose exchange has that fault from `step` on, on rank `at`: answers what ended it, or None."""
    torch.set_num_threads(1)
    import poseidon.torch
    products.stay_alone()
    poseidon.torch.init(rank=rank, threads=1, **options)
    torch.manual_seed(1)

    def wrap(model, optimizer):
        exchange = poseidon.torch.wrap(model, optimizer, **words)
        if rank == at:
            globals()[fault](exchange, step)
        return model, exchange
    try:
        feature = features.Feature()
        feature.steps = 8
        features.train(feature, (rank,), wrap)
        answer.send(None)
        poseidon.torch.shutdown()
    except poseidon.torch.PoseidonError as error:
        answer.send(str(error))
