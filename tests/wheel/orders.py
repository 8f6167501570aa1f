# SPDX-License-Identifier: Apache-2.0
"""Jobs of two encrypted workers beside other libraries that bring an OpenSSL, or a BoringSSL, of their own.

  python3 tests/wheel/orders.py [--all] PYTHON MODULE...

imports the modules in so many orders that every three of them come in each of their six, or in all orders there are, in
processes of PYTHON, a virtual environment's. A worker joins a job with TLS, sums, and leaves; Python's own ssl then begins a
handshake, and cryptography encrypts where it is among the modules. With TensorFlow, which is too large for the test run:

  python3 -m venv /tmp/beside
  /tmp/beside/bin/pip install build/dist/poseidon_train-*.whl torch tensorflow-cpu==2.21.* cryptography
  python3 tests/wheel/orders.py --all /tmp/beside/bin/python3 ssl torch tensorflow cryptography poseidon
"""
import argparse
import itertools
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "shared"))

from ports import free_port  # noqa: E402

PATIENCE = 120 * float(os.environ.get("POSEIDON_TIMEOUT_FACTOR", "1"))  # seconds
JOB = """
import array, importlib, sys
modules = sys.argv[4:]
for name in modules:
    # These two load their library late.
    module = importlib.import_module({"cryptography": "cryptography.fernet"}.get(name, name))
    if name == "poseidon":
        module.session.library()
import ssl
import poseidon
rank, port, token = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
session = poseidon.join(rank=rank, workers=2, coordinator="127.0.0.1", port=port, token_file=token, wire="tls")
numbers = array.array("d", [1 + rank])
session.sum(numbers)
session.leave()
if "cryptography" in modules:
    from cryptography.fernet import Fernet
    box = Fernet(Fernet.generate_key())
    assert box.decrypt(box.encrypt(b"poseidon")) == b"poseidon"
incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
try:
    ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="a").do_handshake()
except ssl.SSLWantReadError:
    print(numbers[0], outgoing.pending > 100, poseidon.__file__)
"""


def clean():
    """This environment without what shows the checkout."""
    return {name: value for name, value in os.environ.items()
            if not name.startswith(("PYTHON", "POSEIDON_", "LD_", "VIRTUAL_ENV"))}


def covering(modules):
    """Orders of the modules in which any three come in each of their orders, few of them and an even number."""
    several = min(3, len(modules))
    missing = set(itertools.permutations(modules, several))
    orders = []
    while missing or len(orders) % 2:
        best = max(itertools.permutations(modules),
                   key=lambda order: len(missing & set(itertools.combinations(order, several))))
        orders.append(best)
        missing -= set(itertools.combinations(best, several))
    return orders


def train(python, folder, *orders):
    """A job of two workers, each with its order of imports. Returns the files of the package that they had."""
    port = free_port()
    token = pathlib.Path(folder) / "job.token"
    if not token.exists():
        subprocess.run([python, "-I", "-c", "import poseidon, sys; poseidon.make_token_file(sys.argv[1])", token],
                       check=True, env=clean(), cwd=folder)
    workers = [subprocess.Popen([python, "-I", "-c", JOB, str(rank), str(port), token, *order], cwd=folder, env=clean(),
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
               for rank, order in enumerate(orders)]
    try:
        files = []
        for worker, order in zip(workers, orders):
            output, errors = worker.communicate(timeout=PATIENCE)
            assert worker.returncode == 0, f"{'-'.join(order)}: {errors}"
            total, shook_hands, file = output.split()[-3:]
            assert (total, shook_hands) == ("3.0", "True"), output
            files.append(pathlib.Path(file))
        return files
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()


def main():
    parser = argparse.ArgumentParser(description="Trains two workers under orders of imports.")
    parser.add_argument("--all", action="store_true", help="every order there is")
    parser.add_argument("python", metavar="PYTHON")
    parser.add_argument("modules", nargs="+", metavar="MODULE")
    words = parser.parse_args()
    if len(words.modules) < 2:
        parser.error("one module has no order, expected two or more")
    orders = list(itertools.permutations(words.modules)) if words.all else covering(words.modules)
    with tempfile.TemporaryDirectory() as folder:
        for pair in zip(orders[::2], orders[1::2]):
            train(words.python, folder, *pair)
            print(*map("-".join, pair), "good", flush=True)
    print(f"{len(orders)} orders, all good")


if __name__ == "__main__":
    sys.exit(main())
