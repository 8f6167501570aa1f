# SPDX-License-Identifier: Apache-2.0
"""Which cases of a test with many parameters run under `make test`: a sixth, another one at each commit. A conftest.py imports the hook.

POSEIDON_CASES is the commit, from which the choice follows, or `all`, as where it is not set."""
import os
import zlib

MANY = 4  # cases; a test with fewer runs them all
PARTS = 6


def pytest_collection_modifyitems(config, items):
    chosen = os.environ.get("POSEIDON_CASES", "all")
    if chosen == "all":
        return
    turn = zlib.crc32(chosen.encode()) % PARTS
    cases = {}
    for item in items:
        cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    left_out = []
    for of_one in cases.values():
        if len(of_one) < MANY:
            continue
        # By the case alone: several tests may look at what one job has trained.
        others = [item for item in of_one if zlib.crc32(item.callspec.id.encode()) % PARTS != turn]
        left_out += others if len(others) < len(of_one) else others[1:]
    config.hook.pytest_deselected(items=left_out)
    gone = set(left_out)
    items[:] = [item for item in items if item not in gone]


def names(request):
    """For a fixture that trains what several tests look at: the parameters `name` of those that run and use it."""
    return list(dict.fromkeys(item.callspec.params["name"] for item in request.session.items if request.fixturename in item.fixturenames and
                              "name" in getattr(getattr(item, "callspec", None), "params", ())))
