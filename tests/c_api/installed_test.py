# SPDX-License-Identifier: Apache-2.0
"""The library as it is installed: programs of C find it with pkg-config, and with CMake's find_package.

  installed_test.py CMAKE BUILD_FOLDER
"""
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
CMAKE, BUILD = sys.argv[1:3]
del sys.argv[1:3]
PROJECT = """
cmake_minimum_required(VERSION 3.16)
project(foreign C)
find_package(Poseidon 0.1 REQUIRED)
add_executable(program {source})
target_link_libraries(program PRIVATE Poseidon::poseidon)
"""


def run(*command, **options):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=100, **options)
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout


class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        first, cls.folder = pathlib.Path(cls.temporary.name, "first"), pathlib.Path(cls.temporary.name, "moved")
        run(CMAKE, "--install", BUILD, "--prefix", first)
        first.rename(cls.folder)  # what was installed finds itself

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    @unittest.skipUnless(shutil.which("pkg-config"), "pkg-config is not installed")
    def test_pkg_config_finds_it(self):
        environment = {"PKG_CONFIG_PATH": str(self.folder / "lib" / "pkgconfig"), "PATH": "/usr/bin:/bin"}
        words = run("pkg-config", "--cflags", "--libs", "poseidon", env=environment).split()
        program = self.folder / "by-pkg-config"
        run("cc", HERE / "meeting_test.c", "-o", program, *words)
        run(program)

    def test_cmake_finds_it(self):
        source, build = self.folder / "source", self.folder / "build"
        source.mkdir()
        (source / "CMakeLists.txt").write_text(PROJECT.format(source=HERE / "meeting_test.c"))
        run(CMAKE, "-S", source, "-B", build, f"-DCMAKE_PREFIX_PATH={self.folder}")
        run(CMAKE, "--build", build)
        run(build / "program")


if __name__ == "__main__":
    unittest.main()
