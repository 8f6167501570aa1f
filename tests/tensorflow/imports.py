# SPDX-License-Identifier: Apache-2.0
"""One worker of an encrypted job, in a process that imports four libraries in its own order.

  imports.py FOLDER ORDER...          an order for each rank: ssl-torch-tensorflow-poseidon

FOLDER holds packages that TensorFlow's environment lacks; its own come first. The worker takes the mean of a gradient by
TensorFlow, a sum by its session and a product by torch, and Python's own ssl begins a handshake.
"""
import array
import importlib
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ["CUDA_VISIBLE_DEVICES"] = ""

sys.path.append(sys.argv[1])
for name in sys.argv[2 + int(os.environ["RANK"])].split("-"):
    module = importlib.import_module(name)
    if name == "poseidon":
        module.session.library()  # an import alone does not load it

import ssl  # noqa: E402

import tensorflow as tf  # noqa: E402

import poseidon.tensorflow as poseidon  # noqa: E402

poseidon.init(wire="tls", join_timeout=60)
variable = tf.Variable([1.0 + poseidon.rank()] * 1000)  # rank 0's are everybody's


@tf.function
def step():
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(variable * variable) * (1.0 + poseidon.rank())
    return poseidon.reduce(tape.gradient(loss, [variable]), [variable])


mean = step()[0].numpy()
assert mean.min() == mean.max() == (2 + 4) / 2, mean
numbers = array.array("d", [1 + poseidon.rank()])
poseidon.joined().sum(numbers)
assert numbers[0] == 3, numbers
if "torch" in sys.modules:
    ones = sys.modules["torch"].ones(2, 2)
    assert ones.mm(ones).sum() == 8
outgoing = ssl.MemoryBIO()
try:
    ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="a").do_handshake()
except ssl.SSLWantReadError:
    assert outgoing.pending > 100
else:
    sys.exit("a handshake ended without an answer")
poseidon.shutdown()
