#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One process of a training whose computing is slept, by TensorFlow's own parameter servers, by its strategy or through
Poseidon; it runs by turns, as orders.py has it.

  server_bench.py --role ps --rank 0 --addresses 10.77.0.1,10.77.0.2 --model FILE --scale 100
  server_bench.py --role worker ...                     # of the parameter servers; --split: variables in P parts
  server_bench.py --role mirrored ...                   # of MultiWorkerMirroredStrategy
  server_bench.py --role poseidon --token-file FILE ... # and of nothing: order "local"

Sizes and times are those of a profile (benchmarks/profiles), sizes divided by --scale as benchmarks/replay does. In
forward order each layer's parameters are read and its time is slept; in backward order its time is slept, and then there
is a gradient: of a fully connected layer the product of two matrices with the rows of a batch, of all others a
tensor that is filled. So both systems get real gradients at the times at which an accelerator would deliver them, and
TensorFlow itself decides what moves when. SGD with momentum; the weights are compared with what they have to be.
"""
import argparse
import json
import math
import os
import pathlib
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ["CUDA_VISIBLE_DEVICES"] = ""
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "frontends" / "python"), str(ROOT / "benchmarks" / "cluster")]

import orders  # noqa: E402  (before TensorFlow prints)
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

import replay  # noqa: E402

RATE, MOMENTUM = 0.01, 0.9
THREADS = 4  # for ops side by side: one sleeps


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--role", choices=ROLES, required=True)
    parser.add_argument("--model", required=True, help="a profile")
    parser.add_argument("--scale", type=float, default=1.0, help="by which sizes are divided")
    parser.add_argument("--steps", type=int, default=3, help="of a turn")
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--addresses", default="127.0.0.1", help="of all workers, with commas")
    parser.add_argument("--token-file", help="of the job, for Poseidon")
    parser.add_argument("--split", action="store_true", help="every variable over all parameter servers")
    parser.add_argument("--port", type=int, default=29500, help="the first of three")
    options = parser.parse_args(arguments)
    options.addresses = options.addresses.split(",")
    options.workers = len(options.addresses)
    return options


class Layer:
    """A layer of the scaled profile: its parameters' shapes, kernels as [inputs, outputs], and its times."""

    def __init__(self, described, scale):
        scaled = replay.Layer(described, scale)
        self.name, self.forward, self.backward = scaled.name, scaled.forward_seconds, scaled.backward_seconds
        self.shapes = [tensor[::-1] for tensor in scaled.tensors]
        self.rows = replay.divided(described["rows"], math.sqrt(scale)) if described.get("factors") else None

    def gradients(self, value):
        """`value` everywhere, which is known when the backward pass has come here."""
        filled = [tf.fill(shape, value) for shape in self.shapes[1 if self.rows else 0:]]
        if self.rows is None:
            return filled
        inputs, outputs = self.shapes[0]
        return [tf.matmul(tf.fill([self.rows, inputs], value), tf.fill([self.rows, outputs], 1 / self.rows),
                          transpose_a=True), *filled]


class Model:
    def __init__(self, options):
        layers = json.loads(pathlib.Path(options.model).read_text())["layers"]
        self.layers = [layer for layer in (Layer(described, options.scale) for described in layers)]
        self.value = np.float32(options.rank + 1)
        self.stream = replay.Stream()
        self.steps = 0  # that were run

    def variables(self, make):
        """A list per layer of what make(name, shape) returns."""
        return [[make(f"{layer.name}_{number}", shape) for number, shape in enumerate(layer.shapes)]
                for layer in self.layers]

    def slept(self, seconds, needs=(), idle=False):
        """The value of this rank's gradients, once the stream has run for so long. It begins when the tensors that it
        `needs` are here: numbers of them go in, since TensorFlow moves nothing that only has to be waited for."""
        def sleep(*_):
            self.stream.run(seconds, idle)
            return self.value
        value = tf.numpy_function(sleep, [tf.reshape(tensor, [-1])[0] for tensor in needs], tf.float32)
        value.set_shape([])
        return value

    def gradients(self, weights):
        """Those of `weights`, tensors by layer, in the same order; a step."""
        after = []
        for number, (layer, read) in enumerate(zip(self.layers, weights)):
            with tf.control_dependencies(after):
                after = [self.slept(layer.forward, read, idle=number == 0)]
        found = []
        for layer in reversed(self.layers):
            with tf.control_dependencies(after):
                after = [self.slept(layer.backward)]
            found[:0] = layer.gradients(after[0])
        return found

    def turn(self, run, steps):
        began = time.monotonic()
        for _ in range(steps):
            run()
        self.steps += steps
        orders.answer(seconds=(time.monotonic() - began) / steps)

    def expected(self, workers):
        """Every weight after all steps with the mean of the ranks' gradients."""
        weight = velocity = 0.0
        for _ in range(self.steps):
            velocity = MOMENTUM * velocity + (workers + 1) / 2
            weight -= RATE * velocity
        return weight

    def check(self, weights, expected):
        """Ends the process where a weight is not what it has to be."""
        for weight in weights:
            if not np.allclose(weight, expected, rtol=1e-4):
                sys.exit(f"server_bench: a weight of shape {list(weight.shape)} is {weight.flat[0]}, expected "
                         f"{expected} after {self.steps} steps")
        orders.answer(parameters=int(sum(weight.size for weight in weights)), tensors=len(weights))


def cluster_of(options):
    """The servers' and workers' addresses, one of each per node."""
    return {"ps": [f"{address}:{options.port + 1}" for address in options.addresses],
            "worker": [f"{address}:{options.port + 2}" for address in options.addresses]}


def config_of(*devices):
    """Without filters a session waits for everybody at its start, and jobs hang."""
    return tf.compat.v1.ConfigProto(device_filters=devices, intra_op_parallelism_threads=1,
                                    inter_op_parallelism_threads=THREADS)


def ps(options):
    config = config_of(f"/job:ps/task:{options.rank}")
    server = tf.distribute.Server(cluster_of(options), "ps", options.rank, config=config)
    orders.answer(ready=bool(server.target))
    orders.order()  # the end of all orders
    os._exit(0)  # a server has no other end


def parts_of(name, shape, servers):
    """A variable as the list of its parts."""
    v1 = tf.compat.v1
    partitioner = v1.fixed_size_partitioner(min(servers, shape[0])) if servers > 1 else None
    made = v1.get_variable(name, shape, initializer=v1.zeros_initializer(), partitioner=partitioner)
    return list(made) if partitioner else [made]


def worker(options):
    """As it was done in 2016, by names that TensorFlow 2 still has. The first order makes the session: the chief's
    first, for the others look for it only every half a minute. Without tokens at the start all steps are synchronous."""
    v1 = tf.compat.v1
    v1.disable_v2_behavior()
    cluster, chief, place = cluster_of(options), options.rank == 0, f"/job:worker/task:{options.rank}"
    config = config_of("/job:ps", place)
    server = tf.distribute.Server(cluster, "worker", options.rank, config=config)
    model = Model(options)
    with v1.device(v1.train.replica_device_setter(worker_device=place, cluster=cluster)):
        parts = model.variables(lambda name, shape: parts_of(name, shape, options.workers if options.split else 1))
        step = v1.train.get_or_create_global_step()
        optimizer = v1.train.SyncReplicasOptimizer(v1.train.MomentumOptimizer(RATE, MOMENTUM), options.workers,
                                                   total_num_replicas=options.workers)
        flat = [part for layer in parts for weight in layer for part in weight]
        with v1.device(place):
            weights = [[tf.concat(weight, 0) if len(weight) > 1 else tf.identity(weight[0]) for weight in layer]
                       for layer in parts]
            whole = zip(model.gradients(weights), (weight for layer in parts for weight in layer))
            gradients = [part for gradient, weight in whole
                         for part in tf.split(gradient, [int(part.shape[0]) for part in weight])]
        train = optimizer.apply_gradients(list(zip(gradients, flat)), global_step=step)
        hook = optimizer.make_session_run_hook(chief, num_tokens=0)
    orders.answer(ready=True)
    orders.order()
    session = v1.train.MonitoredTrainingSession(master=server.target, is_chief=chief, hooks=[hook], config=config)
    orders.answer(ready=True)
    run = session.make_callable(train) if hasattr(session, "make_callable") else lambda: session.run(train)
    while orders.order() == "go":
        model.turn(run, options.steps)
    model.check(session.run(flat), model.expected(options.workers))
    orders.order()
    os._exit(0)  # the chief's thread waits for gradients


def step_of(model, reduce):
    """A step of SGD with momentum on what `reduce` makes of a list of gradients and their variables, and these variables."""
    weights = model.variables(lambda name, shape: tf.Variable(tf.zeros(shape), name=name))
    flat = [weight for layer in weights for weight in layer]
    velocities = [tf.Variable(tf.zeros(weight.shape)) for weight in flat]

    def step():
        gradients = reduce(model.gradients([[weight.read_value() for weight in layer] for layer in weights]), flat)
        for weight, velocity, gradient in zip(flat, velocities, gradients):
            tf.raw_ops.ResourceApplyMomentum(var=weight.handle, accum=velocity.handle, lr=RATE, grad=gradient,
                                             momentum=MOMENTUM)
    return step, flat


def use_threads():
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(THREADS)


def mirrored(options):
    """MultiWorkerMirroredStrategy in a loop of one's own; on processors it takes a ring over gRPC."""
    use_threads()
    os.environ["TF_CONFIG"] = json.dumps({
        "cluster": {"worker": [f"{address}:{options.port}" for address in options.addresses]},
        "task": {"type": "worker", "index": options.rank}})
    strategy, model = tf.distribute.MultiWorkerMirroredStrategy(), Model(options)

    def reduce(gradients, _):
        return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.MEAN, gradients)

    with strategy.scope():
        replica, flat = step_of(model, reduce)
    step = tf.function(lambda: strategy.run(replica))
    orders.answer(ready=True)
    while orders.order() == "go":
        model.turn(step, options.steps)
    model.check([strategy.experimental_local_results(weight)[0].numpy() for weight in flat], model.expected(options.workers))
    orders.order()
    os._exit(0)  # at its end the strategy waits for workers that have ended


def poseidon(options):
    """Poseidon's steps, and those that synchronise nothing, each with variables of their own."""
    import poseidon.tensorflow as poseidon
    use_threads()
    poseidon.init(rank=options.rank, workers=options.workers, coordinator=options.addresses[0], port=options.port,
                  listen=options.addresses[options.rank], token_file=options.token_file, wire="plain",
                  cores=max(1, os.cpu_count() // options.workers))
    models = {"go": Model(options), "local": Model(options)}
    made = {"go": step_of(models["go"], poseidon.reduce),
            "local": step_of(models["local"], lambda gradients, variables: gradients)}
    steps = {word: tf.function(step) for word, (step, _) in made.items()}
    orders.answer(ready=True)
    while (word := orders.order()) in steps:
        models[word].turn(steps[word], options.steps)
    models["go"].check([weight.numpy() for weight in made["go"][1]], models["go"].expected(options.workers))
    orders.order()
    poseidon.shutdown()


ROLES = {"ps": ps, "worker": worker, "mirrored": mirrored, "poseidon": poseidon}


def main(arguments):
    options = parse(arguments)
    ROLES[options.role](options)


if __name__ == "__main__":
    main(sys.argv[1:])
