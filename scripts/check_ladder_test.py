#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each rule of check_ladder.py finds its breach and lets the lawful twin pass."""

import pathlib
import re
import unittest

from check_ladder import LICENCE, RUNGS, check_source, guard_of


def breaches(path, body):
    if path.endswith(".h"):
        guard = guard_of(path)
        body = f"#ifndef {guard}\n#define {guard}\n{body}\n#endif\n"
    return [wrong for _, wrong in check_source(path, f"{LICENCE}\n{body}\n")]


class CheckLadderTest(unittest.TestCase):
    def test_lower_rungs_may_be_included(self):
        self.assertEqual(breaches("poseidon/kv/shard.h", '#include "poseidon/base/status.h"'), [])
        self.assertEqual(breaches("tools/a.cc", '#include "frontends/caffe/net/net.h"'), [])

    def test_own_folder_may_be_included(self):
        self.assertEqual(breaches("poseidon/transport/tcp/a.cc",
                                  '#include "poseidon/transport/transport.h"'), [])

    def test_neighbour_and_higher_rung_may_not(self):
        for path, included in [("poseidon/kv/a.cc", "poseidon/sfb/b.h"),
                               ("poseidon/base/a.cc", "poseidon/session/b.h"),
                               ("frontends/caffe/net/a.cc", "frontends/python/b.h"),
                               ("frontends/caffe/net/a.cc", "tools/b.h")]:
            self.assertEqual(len(breaches(path, f'#include "{included}"')), 1, (path, included))

    def test_own_headers_are_named_from_the_root(self):
        for included in ["../kv/b.h", "b.h", "./poseidon/base/b.h", "poseidon/base/../kv/b.h"]:
            self.assertEqual(len(breaches("poseidon/base/a.cc", f'#include "{included}"')), 1, included)
        self.assertEqual(breaches("tools/a.cc", "#include <b.h>"), [])

    def test_core_includes_no_framework(self):
        self.assertEqual(len(breaches("poseidon/sfb/a.cc", "#include <ATen/ops/mm.h>")), 1)
        self.assertEqual(len(breaches("poseidon/sfb/a.cc", '#include "caffe.pb.h"')), 1)
        self.assertEqual(breaches("frontends/caffe/net/a.cc", "#include <ATen/ops/mm.h>"), [])

    def test_environment_is_read_only_at_the_rim(self):
        line = 'const char* home = std::getenv("HOME");'
        self.assertEqual(len(breaches("poseidon/session/a.cc", line)), 1)
        self.assertEqual(breaches("poseidon/session/a_test.cc", line), [])
        self.assertEqual(breaches("tools/a.cc", line), [])
        self.assertEqual(breaches("poseidon/session/a.cc", "// never getenv() here"), [])

    def test_comments_do_not_include(self):
        self.assertEqual(breaches("poseidon/base/a.cc", '/*\n#include "poseidon/kv/b.h"\n*/'), [])

    def test_licence_and_guard_are_required(self):
        self.assertEqual(len(list(check_source("poseidon/base/a.cc", "int a;\n"))), 1)
        self.assertEqual(len(list(check_source("poseidon/base/a.h", f"{LICENCE}\n"))), 1)

    def test_folder_must_be_on_the_ladder(self):
        self.assertEqual(len(breaches("poseidon/misc/a.cc", "")), 1)

    def test_the_map_shows_the_same_rungs(self):
        page = (pathlib.Path(__file__).parent.parent / "ARCHITECTURE.md").read_text(encoding="utf-8")
        shown = {int(line[1]): line[2].split() for line in re.finditer(r"^ ?(\d+) {2,}(\S.*)$", page, re.M)}
        self.assertEqual(shown, {rung: [folder.removeprefix("poseidon/") for folder in folders]
                                 for rung, folders in enumerate(RUNGS)})


if __name__ == "__main__":
    unittest.main()
