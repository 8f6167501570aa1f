#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs all tests of the TensorFlow front end with other versions of TensorFlow, each with the newest Keras, in an environment
# of its own. `make test` runs a few of them with the oldest of both.
#
#   scripts/tensorflow_versions.sh [VERSION...] [-- PYTEST ARGUMENTS]      all that are served where none is named
#   scripts/tensorflow_versions.sh tensorflow==2.21.0                      another package: here the CUDA build
#
# The environments are made in build/tensorflow/VERSION, about 1.5 GB each, and are kept.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

versions=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do versions+=("$1"); shift; done
[ $# -eq 0 ] || shift
[ ${#versions[@]} -gt 0 ] || versions=(2.16.2 2.17.1 2.18.1 2.19.1 2.20.0 2.21.0)

scripts/build.sh release poseidon_shared poseidon_tensorflow poseidon
export POSEIDON_LIBRARY=$PWD/build/release/poseidon/c/libposeidon.so
export POSEIDON_TENSORFLOW_LIBRARY=$PWD/build/release/frontends/tensorflow/libposeidon_tensorflow.so
export POSEIDON_PROGRAM=$PWD/build/release/bin/poseidon
failed=()
for version in "${versions[@]}"; do
  environment=$PWD/build/tensorflow/$version
  if ! "$environment/bin/python3" -c "import tensorflow" 2>/dev/null; then
    "${POSEIDON_BASE_PYTHON:-/usr/bin/python3}" -m venv --clear "$environment"
    case $version in *==*) package=$version ;; *) package=tensorflow-cpu==$version ;; esac
    "$environment/bin/pip" install --quiet --no-cache-dir "$package"
  fi
  "$environment/bin/pip" list 2>/dev/null | grep -E "^(tensorflow([_-]cpu)?|keras) " || true
  POSEIDON_TENSORFLOW_PYTHON=$environment/bin/python3 .venv/bin/python3 -B -m pytest -q -p no:cacheprovider tests/tensorflow "$@" ||
    failed+=("$version")
done
[ ${#failed[@]} -eq 0 ] || { echo "tensorflow_versions: failed with ${failed[*]}" >&2; exit 1; }
