# SPDX-License-Identifier: Apache-2.0
"""A worker's side of the turns (conduct.py): an order is a line on standard input, its answer a JSON object on
standard output. Everything else that the process or TensorFlow prints goes to standard error."""
import json
import os
import sys

ANSWERS = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)


def answer(**told):
    print(json.dumps(told), file=ANSWERS, flush=True)


def order():
    """The next one; None at the end of them."""
    return sys.stdin.readline().strip() or None
