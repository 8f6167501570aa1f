# SPDX-License-Identifier: Apache-2.0
"""What `poseidon demo` becomes; POSEIDON_PROGRAM is that program."""
import os
import sys

from . import main

sys.exit(main(os.environ["POSEIDON_PROGRAM"]))
