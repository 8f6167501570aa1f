# SPDX-License-Identifier: Apache-2.0
"""`python -m poseidon`: the command, where no console script is installed."""
import sys

from .cli import main

sys.exit(main())
