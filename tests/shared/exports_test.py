#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A library exports the functions that its sources mark with POSEIDON_API, all of them and nothing else.

usage: exports_test.py NM LIBRARY SOURCE...
"""

import re
import subprocess
import sys


def main():
    nm, library, *sources = sys.argv[1:]
    listing = subprocess.run([nm, "-D", "--defined-only", library], check=True, text=True,
                             stdout=subprocess.PIPE).stdout
    exported = {line.split()[-1].split("@")[0] for line in listing.splitlines()}
    marked = set()
    for source in sources:
        with open(source, encoding="utf-8") as text:
            marked |= set(re.findall(r"POSEIDON_API[^;(]*?\b(poseidon_\w+)\(", text.read()))
    for name in sorted(exported - marked):
        print(f"{library}: exports {name}, which no source marks with POSEIDON_API")
    for name in sorted(marked - exported):
        print(f"{library}: lacks {name}, which a source marks with POSEIDON_API")
    print(f"{len(marked)} functions marked, {len(exported)} exported")
    return 0 if marked and marked == exported else 1


if __name__ == "__main__":
    sys.exit(main())
