#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Builds the wheel of the core into a folder and brings in what a user's machine lacks; fails where the wheel would need
# a newer glibc than 2.34 or more than 5 MB. The same sources give the same bytes.
#
#   scripts/wheel.sh [FOLDER]      default: build/dist
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
unset PYTHONPATH PYTHONHOME
folder=$(realpath -m "${1:-build/dist}")
raw=$(mktemp -d)
trap 'rm -rf "$raw"' EXIT
# The time that files in the wheel get: the earliest that a zip file can hold.
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-315532800}
umask 022  # auditwheel leaves the folders' modes in the wheel
# What ccache knows from one folder serves the same sources in another.
export CCACHE_BASEDIR=$PWD
export PATH="$PWD/.venv/bin:$PATH"

pip wheel --quiet --disable-pip-version-check --no-index --no-deps --no-build-isolation --wheel-dir "$raw" .
mkdir -p "$folder"
rm -f "$folder"/poseidon_train-*.whl
auditwheel repair --plat manylinux_2_34_x86_64 --wheel-dir "$folder" "$raw"/*.whl >"$raw/log" 2>&1 || {
  tail -n 20 "$raw/log" >&2
  echo "wheel: it cannot be made for manylinux_2_34; auditwheel's words are above" >&2
  exit 1
}
wheel=$(echo "$folder"/poseidon_train-*.whl)
bytes=$(stat -c %s "$wheel")
if [ "$bytes" -gt 5000000 ]; then
  echo "wheel: $wheel has $bytes bytes, expected at most 5000000" >&2
  exit 1
fi
echo "$wheel"
