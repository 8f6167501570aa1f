#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each rule of check_ladder.py finds its breach and lets the lawful twin pass."""

import pathlib
import re
import unittest

from check_ladder import LICENCE, RUNGS, check_module, check_source, guard_of


def breaches(path, body):
    if path.endswith(".h"):
        guard = guard_of(path)
        body = f"#ifndef {guard}\n#define {guard}\n{body}\n#endif\n"
    return [wrong for _, wrong in check_source(path, f"{LICENCE}\n{body}\n")]


def imports(module, statement):
    return [wrong for _, wrong in check_module(f"frontends/python/poseidon/{module}.py", statement)]


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

    def test_rooms_of_a_folder_are_a_ladder(self):
        for path, lower, higher in [("frontends/caffe/net/a.cc", "frontends/caffe/data/b.h", "frontends/caffe/layers/b.h"),
                                    ("frontends/caffe/train/a.h", "frontends/caffe/solver/b.h", None),
                                    ("frontends/caffe/proto/a.cc", "frontends/caffe/proto/b.h", "frontends/caffe/data/b.h"),
                                    ("tools/a.cc", "tools/train/b.h", None),
                                    ("tools/console/a.cc", "tools/console/b.h", "tools/launch/b.h"),
                                    ("tools/launch/a.cc", "tools/console/b.h", "tools/b.h"),
                                    ("tools/run/a.cc", "tools/launch/b.h", "tools/train/b.h"),
                                    ("tools/train/a.cc", "tools/profile/b.h", "tools/b.h"),
                                    ("tools/profile/a.cc", "poseidon/plan/b.h", "tools/launch/b.h")]:
            self.assertEqual(breaches(path, f'#include "{lower}"'), [], (path, lower))
            if higher is not None:
                self.assertEqual(len(breaches(path, f'#include "{higher}"')), 1, (path, higher))
        self.assertEqual(breaches("frontends/caffe/net/a_test.cc", '#include "frontends/caffe/layers/b.h"'), [])

    def test_what_tests_share_is_for_tests(self):
        line = '#include "tests/shared/gradient_checker.h"'
        self.assertEqual(len(breaches("frontends/caffe/net/a.cc", line)), 1)
        self.assertEqual(breaches("frontends/caffe/net/a_test.cc", line), [])

    def test_packages_are_a_ladder(self):
        for module, lower, higher in [("session", "from . import errors", "from . import torch"),
                                      ("session", "from .library import Options", "from .torch.layer import Layer"),
                                      ("session", "import pathlib", "import poseidon.torch"),
                                      ("session", "from poseidon import errors", "from poseidon import torch"),
                                      ("torch/ddp", "from ..session import Session", "from ..tensorflow import ops"),
                                      ("torch/ddp", "from . import layer", "from .. import lightning"),
                                      ("torch/ddp", "from .layer import Layer", "def f():\n    from ..keras import late"),
                                      ("torch/layer", "from .core import Pushed", "from .exchange import Exchange"),
                                      ("torch/layer", "from . import states", "from . import sending"),
                                      ("torch/sending", "from .model import Model",
                                       "if TYPE_CHECKING:\n    from .landing import Lander"),
                                      ("keras/late", "from .. import tensorflow", "import poseidon.cli"),
                                      ("cli", "from .doctor import main", None)]:
            self.assertEqual(imports(module, lower), [], (module, lower))
            if higher is not None:
                self.assertEqual(len(imports(module, higher)), 1, (module, higher))

    def test_modules_of_torch_are_on_its_ladder_and_short(self):
        self.assertEqual(len(imports("torch/anything", "import pathlib")), 1)
        short, long = "    x = 1\n" * 249, "    x = 1\n" * 250
        self.assertEqual(imports("torch/layer", f"class Layer:\n{short}"), [])
        self.assertEqual(len(imports("torch/layer", f"class Layer:\n{long}")), 1)
        self.assertEqual(len(imports("torch/layer", "x = 1\n" * 401)), 1)

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

    def test_mutexes_are_those_that_clang_checks(self):
        for line in ["std::mutex mutex_;", "std::condition_variable changed_;"]:
            self.assertEqual(len(breaches("poseidon/session/a.cc", line)), 1)
            self.assertEqual(len(breaches("frontends/tensorflow/a.h", line)), 1)
            self.assertEqual(breaches("poseidon/session/a_test.cc", line), [])
            self.assertEqual(breaches("frontends/caffe/solver/test_a.h", line), [])
            self.assertEqual(breaches("poseidon/base/mutex.h", line), [])

    def test_comments_do_not_include(self):
        self.assertEqual(breaches("poseidon/base/a.cc", '/*\n#include "poseidon/kv/b.h"\n*/'), [])

    def test_licence_and_guard_are_required(self):
        self.assertEqual(len(list(check_source("poseidon/base/a.cc", "int a;\n"))), 1)
        self.assertEqual(len(list(check_source("poseidon/base/a.h", f"{LICENCE}\n"))), 1)

    def test_folder_must_be_on_the_ladder(self):
        self.assertEqual(len(breaches("poseidon/misc/a.cc", "")), 1)
        self.assertEqual(len(breaches("frontends/caffe/misc/a.cc", "")), 1)
        self.assertEqual(len(breaches("tools/misc/a.cc", "")), 1)
        self.assertEqual(len(imports("misc/a", "")), 1)

    def test_the_map_shows_the_same_rungs(self):
        page = (pathlib.Path(__file__).parent.parent / "ARCHITECTURE.md").read_text(encoding="utf-8")
        shown = {int(line[1]): line[2].split() for line in re.finditer(r"^ ?(\d+) {2,}(\S.*)$", page, re.M)}
        self.assertEqual(shown, {rung: [folder.removeprefix("poseidon/") for folder in folders]
                                 for rung, folders in enumerate(RUNGS)})


if __name__ == "__main__":
    unittest.main()
