#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One worker of a real training under Keras 3, of one system; it trains by turns, as orders.py has it.

  train_bench.py --net mlp --system poseidon --steps 10 --workers 2 --rank 0 --addresses 10.77.0.1,10.77.0.2 \\
      --token-file FILE

  poseidon  model.fit with poseidon.keras.distribute and shard
  stock     MultiWorkerMirroredStrategy in a loop of one's own: strategy.run, apply_gradients, loss / workers
  local     model.fit; nothing is synchronised, and with one worker it is plain Keras

A turn is an epoch of --steps steps. It is answered with its seconds and the mean loss of this worker's batches, the
last order, "end", with a hash of the weights.
"""
import argparse
import hashlib
import json
import os
import pathlib
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ["CUDA_VISIBLE_DEVICES"] = ""
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "frontends" / "python"))

import orders  # noqa: E402  (before TensorFlow prints)
import keras  # noqa: E402
import tensorflow as tf  # noqa: E402

import nets  # noqa: E402

BATCHES = 8  # of each worker, again and again


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--net", choices=nets.NETS, required=True)
    parser.add_argument("--system", choices=SYSTEMS, required=True)
    parser.add_argument("--steps", type=int, required=True, help="of a turn")
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--addresses", default="127.0.0.1", help="of all workers, with commas")
    parser.add_argument("--port", type=int, default=29500, help="of rank 0 for Poseidon; the next one is the strategy's")
    parser.add_argument("--token-file", help="of the job, for Poseidon")
    parser.add_argument("--wire", default="plain", help="plain: not protected, as gRPC; auth, tls, auto")
    parser.add_argument("--threads", type=int, default=1, help="within an op, and one more for ops side by side")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    options.addresses = options.addresses.split(",")
    return options


def loss(**words):
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True, **words)


def made(options):
    """The net and its optimizer; the same numbers in every process."""
    keras.utils.set_random_seed(options.seed)
    make, _, rate = nets.NETS[options.net]
    return make(), keras.optimizers.SGD(rate, momentum=0.9)


def data_of(options, model):
    """All workers' batches in turn, without an end."""
    samples = nets.batches(options.seed, BATCHES * options.workers, nets.NETS[options.net][1], model.input_shape[1:])
    return tf.data.Dataset.from_tensor_slices(samples).repeat()


def hash_of(model):
    digest = hashlib.sha256()
    for variable in model.trainable_variables:
        digest.update(keras.ops.convert_to_numpy(variable).tobytes())
    return digest.hexdigest()[:16]


class Turns(keras.callbacks.Callback):
    """An epoch is a turn. Nothing is done between its steps."""

    def __init__(self, steps):
        super().__init__()
        self.steps = steps

    def on_train_begin(self, logs=None):
        orders.answer(ready=True)
        self.listen()

    def on_epoch_end(self, epoch, logs=None):
        orders.answer(seconds=(time.monotonic() - self.began) / self.steps, loss=float(logs["loss"]))
        self.listen()

    def listen(self):
        self.model.stop_training = orders.order() in (None, "end")
        self.began = time.monotonic()


def fit(options, distribute=lambda model: model, shard=None):
    model, optimizer = made(options)
    model.compile(optimizer=optimizer, loss=loss())
    model = distribute(model)
    data = data_of(options, model)
    data = data.shard(options.workers, options.rank) if shard is None else shard(data)
    model.fit(data.prefetch(2), epochs=sys.maxsize, steps_per_epoch=options.steps, verbose=0,
              callbacks=[Turns(options.steps)])
    return model


def local(options):
    orders.answer(weights=hash_of(fit(options)))


def poseidon(options):
    import poseidon.keras as poseidon
    address = options.addresses[options.rank]
    poseidon.init(rank=options.rank, workers=options.workers, coordinator=options.addresses[0], port=options.port, listen=address,
                  token_file=options.token_file, wire=options.wire, cores=max(1, os.cpu_count() // options.workers))
    model = fit(options, poseidon.distribute, poseidon.shard)
    orders.answer(weights=hash_of(model), plan=plan_of())
    poseidon.shutdown()


def plan_of():
    """How each layer goes at the end."""
    from poseidon.tensorflow import exchanges
    return {name: scheme for exchange in exchanges() for name, (scheme, _) in exchange.plan().items()}


def stock(options):
    os.environ["TF_CONFIG"] = json.dumps({
        "cluster": {"worker": [f"{address}:{options.port + 1}" for address in options.addresses]},
        "task": {"type": "worker", "index": options.rank}})
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model, optimizer = made(options)
        optimizer.build(model.trainable_variables)
        criterion = loss(reduction="none")  # of a mean, some versions of Keras take the P-th part themselves
    data = strategy.distribute_datasets_from_function(
        lambda context: data_of(options, model).shard(options.workers, options.rank).prefetch(2))

    def replica(samples, labels):
        with tf.GradientTape() as tape:
            values = criterion(labels, model(samples, training=True))
            part = tf.reduce_sum(values) / (options.workers * len(values))
        optimizer.apply_gradients(zip(tape.gradient(part, model.trainable_variables), model.trainable_variables))
        return part * options.workers

    @tf.function
    def step(batches):
        return strategy.run(replica, args=next(batches))

    batches = iter(data)
    orders.answer(ready=True)
    while orders.order() not in (None, "end"):
        began = time.monotonic()
        losses = [step(batches) for _ in range(options.steps)]
        seconds = (time.monotonic() - began) / options.steps
        orders.answer(seconds=seconds, loss=sum(map(float, losses)) / len(losses))
    orders.answer(weights=hash_of(model))


SYSTEMS = {"poseidon": poseidon, "stock": stock, "local": local}


def main(arguments):
    options = parse(arguments)
    tf.config.threading.set_intra_op_parallelism_threads(options.threads)
    tf.config.threading.set_inter_op_parallelism_threads(options.threads + 1)
    SYSTEMS[options.system](options)


if __name__ == "__main__":
    main(sys.argv[1:])
