# SPDX-License-Identifier: Apache-2.0
"""Which tests run under `make test` where all of them would take too long: of the cases of a test with many parameters a twelfth,
of the tests that are marked `long` a sixth, of the others a third; others at each commit. A conftest.py imports both hooks.

POSEIDON_CASES is the commit, from which the choice follows, or `all`, as where it is not set."""
import os
import zlib

import pytest

MANY = 4  # cases; of a test with fewer all or none run
PARTS = 12
PARTS_OF_LONG = 6
PARTS_OF_OTHERS = 3


def pytest_configure(config):
    config.addinivalue_line("markers", "long: takes more than ten seconds; under `make test` a sixth of these run")
    config.addinivalue_line("markers", "always: takes no second, and always runs")
    config.addinivalue_line("markers", "counted: how many cases there are is a setting of its own, and all of them run")


@pytest.hookimpl(trylast=True)  # after -k, which would leave out what was chosen of all
def pytest_collection_modifyitems(config, items):
    chosen = os.environ.get("POSEIDON_CASES", "all")
    if chosen == "all":
        return
    turn = zlib.crc32(chosen.encode())
    cases = {}
    for item in items:
        if all(item.get_closest_marker(name) is None for name in ("long", "counted", "always")):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    left_out = [item for item in items
                if item.get_closest_marker("long") is not None and (zlib.crc32(item.name.encode()) - turn) % PARTS_OF_LONG != 0]
    for of_one in cases.values():
        if len(of_one) < MANY:
            if (zlib.crc32(of_one[0].nodeid.partition("[")[0].encode()) - turn) % PARTS_OF_OTHERS != 0:
                left_out += of_one
            continue
        # By the case alone: several tests may look at what one job has trained.
        others = [item for item in of_one if (zlib.crc32(item.callspec.id.encode()) - turn) % PARTS != 0]
        left_out += others if len(others) < len(of_one) else others[1:]
    gone = set(left_out)
    kept = [item for item in items if item not in gone]
    if not kept and items:  # pytest takes none for a failure
        kept = [items[turn % len(items)]]
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = kept


def names(request):
    """For a fixture that trains what several tests look at: the parameters `name` of those that run and use it."""
    return list(dict.fromkeys(item.callspec.params["name"] for item in request.session.items if request.fixturename in item.fixturenames and
                              "name" in getattr(getattr(item, "callspec", None), "params", ())))
