# SPDX-License-Identifier: Apache-2.0
"""Whatever the commit is, some case runs, also of those that -k chooses."""
import contextlib
import io
import os
import pathlib
import tempfile
import unittest
import unittest.mock

import pytest

CONFTEST = f"""
import sys
sys.path.append({str(pathlib.Path(__file__).resolve().parent)!r})
from some_cases import pytest_collection_modifyitems, pytest_configure
"""
TESTS = """
import pytest

def test_first(): pass

def test_second(): pass

@pytest.mark.always
def test_that_takes_no_time(): pass

@pytest.mark.long
def test_that_is_long(): pass

@pytest.mark.parametrize("case", range(24))
def test_of_many(case): pass
"""

COMMITS = [f"commit {number}" for number in range(20)]


class Collected:
    """A plugin of pytest that keeps the names of the tests that would run."""
    names: tuple[str, ...] = ()

    def pytest_collection_finish(self, session):
        self.names = tuple(item.name for item in session.items)


class SomeCases(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = cls.enterClassContext(tempfile.TemporaryDirectory())
        cls.folder = pathlib.Path(folder)
        (cls.folder / "conftest.py").write_text(CONFTEST)
        (cls.folder / "test_cases.py").write_text(TESTS)

    def chosen(self, commit, words=""):
        """The names of the tests that run at the commit, of those that -k leaves."""
        collected, said = Collected(), io.StringIO()
        with unittest.mock.patch.dict(os.environ, POSEIDON_CASES=commit), contextlib.redirect_stdout(said):
            status = pytest.main(["-q", "-p", "no:cacheprovider", "--collect-only", "-k", words, str(self.folder)], plugins=[collected])
        self.assertEqual(status, 0, f"{commit}: {said.getvalue()}")
        return collected.names

    def test_one_runs_of_those_that_k_chooses(self):
        for commit in COMMITS:
            with self.subTest(commit):
                self.assertTrue(self.chosen(commit, "first or second or is_long"))

    def test_what_takes_no_time_runs_at_each_commit_and_of_many_cases_some(self):
        seen = set()
        for commit in COMMITS:
            names = self.chosen(commit)
            self.assertIn("test_that_takes_no_time", names)
            of_many = {name for name in names if name.startswith("test_of_many")}
            self.assertTrue(0 < len(of_many) < 24, names)
            seen |= of_many
        self.assertGreater(len(seen), 12)

    def test_all_run_where_all_are_asked_for(self):
        self.assertEqual(len(self.chosen("all")), 28)


if __name__ == "__main__":
    unittest.main()
