#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""libposeidon.so exports the functions that poseidon.h declares, all of them and nothing else.

usage: exports_test.py NM LIBRARY HEADER...
"""

import re
import subprocess
import sys


def main():
    nm, library, *headers = sys.argv[1:]
    listing = subprocess.run([nm, "-D", "--defined-only", library], check=True, text=True,
                             stdout=subprocess.PIPE).stdout
    exported = {line.split()[-1].split("@")[0] for line in listing.splitlines()}
    declared = set()
    for header in headers:
        with open(header, encoding="utf-8") as text:
            declared |= set(re.findall(r"POSEIDON_API[^;(]*?\b(poseidon_\w+)\(", text.read()))
    for name in sorted(exported - declared):
        print(f"{library}: exports {name}, which poseidon.h does not declare")
    for name in sorted(declared - exported):
        print(f"{library}: lacks {name}, which poseidon.h declares")
    print(f"{len(declared)} functions declared, {len(exported)} exported")
    return 0 if declared and declared == exported else 1


if __name__ == "__main__":
    sys.exit(main())
