#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Builds a wheel into a folder and brings in what a user's machine lacks; fails where it would need a newer glibc or be
# larger than it says. The same sources give the same bytes.
#
#   scripts/wheel.sh [FOLDER]              the core (glibc 2.34, 7 MB); default: build/dist
#   scripts/wheel.sh --trainer [FOLDER]    the trainer (glibc 2.35, 19 MB), which loads torch's libraries
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
unset PYTHONPATH PYTHONHOME
if [ "${1:-}" = --trainer ]; then
  shift
  sources=frontends/caffe/wheel name=poseidon_train_caffe glibc=2_35 most=19000000
  torchs=(--exclude libtorch_cpu.so --exclude libc10.so --exclude libgomp.so.1)
else
  sources=. name=poseidon_train glibc=2_34 most=7000000
  torchs=()
fi
folder=$(realpath -m "${1:-build/dist}")
raw=$(mktemp -d)
trap 'rm -rf "$raw"' EXIT
# The time that files in the wheel get: the earliest that a zip file can hold.
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-315532800}
umask 022  # auditwheel leaves the folders' modes in the wheel
# With this, objects that ccache has from one folder serve the same sources in another. It tells compilers apart by name,
# and Python's build systems take the name that Python was built by.
export CCACHE_BASEDIR=$PWD CC=${CC:-cc} CXX=${CXX:-c++}
export PATH="$PWD/.venv/bin:$PATH"

pip wheel --quiet --disable-pip-version-check --no-index --no-deps --no-build-isolation --wheel-dir "$raw" "./$sources"
mkdir -p "$folder"
rm -f "$folder/$name"-[0-9]*.whl
auditwheel repair --plat "manylinux_${glibc}_x86_64" "${torchs[@]}" --wheel-dir "$folder" "$raw"/*.whl >"$raw/log" 2>&1 || {
  tail -n 20 "$raw/log" >&2
  echo "wheel: it cannot be made for manylinux_$glibc; auditwheel's words are above" >&2
  exit 1
}
wheel=$(echo "$folder/$name"-[0-9]*.whl)
bytes=$(stat -c %s "$wheel")
if [ "$bytes" -gt "$most" ]; then
  echo "wheel: $wheel has $bytes bytes, expected at most $most" >&2
  exit 1
fi
echo "$wheel"
