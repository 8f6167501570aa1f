#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs tests of the PyTorch front end with other versions of torch. `make test` runs all of them with the pinned one.
#
#   scripts/torch_versions.sh [VERSION...] [-- PYTEST ARGUMENTS]      all that are served where none is named
#
# The package index has CUDA builds, of 3 to 6 GB with their libraries: every environment is made in a folder of its own and
# removed behind its tests.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

versions=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do versions+=("$1"); shift; done
[ $# -eq 0 ] || shift
[ ${#versions[@]} -gt 0 ] || versions=(2.4.1 2.5.1 2.6.0 2.7.1 2.8.0 2.9.1 2.10.0 2.11.0 2.12.1 2.13.0 2.14.1)

scripts/build.sh release poseidon_shared
export POSEIDON_LIBRARY=$PWD/build/release/poseidon/c/libposeidon.so
export POSEIDON_LATE_DEVICE=/nonexistent  # it fits the version that it was built with
folder=$(mktemp -d "${TMPDIR:-/tmp}/poseidon-torch.XXXXXX")
trap 'rm -rf "$folder"' EXIT
failed=()
for version in "${versions[@]}"; do
  environment=$folder/$version
  "${POSEIDON_BASE_PYTHON:-/usr/bin/python3}" -m venv "$environment"
  "$environment/bin/pip" install --quiet --no-cache-dir "torch==$version" numpy pytest setuptools
  "$environment/bin/python3" -c 'import torch; print(f"torch {torch.__version__}")'
  "$environment/bin/python3" -B -m pytest -q -p no:cacheprovider tests/torch "$@" || failed+=("$version")
  rm -rf "$environment"
done
[ ${#failed[@]} -eq 0 ] || { echo "torch_versions: failed with ${failed[*]}" >&2; exit 1; }
