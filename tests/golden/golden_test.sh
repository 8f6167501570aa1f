#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Unpacks the packed reference cases (computed with BVLC Caffe 1.0) and runs them all. None may be unsupported.
#
#   tests/golden/golden_test.sh POSEIDON_GOLDEN WORK_FOLDER [--gpu | --device LIBRARY]
set -euo pipefail
runner=$1
work=$2
where=("${@:3}")
archives=$(dirname "${BASH_SOURCE[0]}")

rm -rf "$work"
mkdir -p "$work"
trap 'rm -rf "$work"' EXIT
for archive in "$archives"/*.tar.xz; do tar -xJf "$archive" -C "$work"; done
export OMP_WAIT_POLICY=passive

status=0
"$runner" "${where[@]}" "$work/golden" >"$work/output" || status=$?
cat "$work/output"
found=$(awk '$2 == "unsupported" { print $1 }' "$work/output" | sort | tr '\n' ' ')
if [ -n "$found" ]; then
  echo "unsupported are: ${found}; expected: none" >&2
  exit 1
fi
exit "$status"
