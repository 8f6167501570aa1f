# SPDX-License-Identifier: Apache-2.0
"""The trainer's program, bin/poseidon, which `poseidon train` of the package poseidon becomes."""
