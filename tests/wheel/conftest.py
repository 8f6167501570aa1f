# SPDX-License-Identifier: Apache-2.0


def pytest_addoption(parser):
    parser.addoption("--wheel", help="the wheel under test; without it one is built")
