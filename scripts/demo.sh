#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Trains LeNet on Fashion-MNIST with four workers, into demo/ of the checkout. The converted images
# stay there, so a second run goes straight to training.
#
#   scripts/demo.sh [FLAG...]     flags are handed to `poseidon train`
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

poseidon=build/release/bin/poseidon
images=demo/fashion-mnist

# Where the four files may lie: Debian's dataset-fashion-mnist, or the user's own copy.
find_originals() {
  local folder
  for folder in demo/original /usr/share/datasets/fashion-mnist; do
    if [ -e "$folder/train-images-idx3-ubyte.gz" ] && [ -e "$folder/train-labels-idx1-ubyte.gz" ] &&
       [ -e "$folder/t10k-images-idx3-ubyte.gz" ] && [ -e "$folder/t10k-labels-idx1-ubyte.gz" ]; then
      echo "$folder"
      return
    fi
  done
  cat >&2 <<'END'
demo: Fashion-MNIST is not on this machine. Put the four files
  train-images-idx3-ubyte.gz train-labels-idx1-ubyte.gz t10k-images-idx3-ubyte.gz t10k-labels-idx1-ubyte.gz
into demo/original, or install Debian's package dataset-fashion-mnist, and try again.
END
  exit 1
}

# Converts into a folder of another name first: what carries the final name is complete.
convert() {
  local originals part
  originals=$(find_originals)
  rm -rf "$images.partial"
  mkdir -p "$images.partial"
  for part in train t10k; do
    gzip -dc "$originals/$part-images-idx3-ubyte.gz" >"$images.partial/images"
    gzip -dc "$originals/$part-labels-idx1-ubyte.gz" >"$images.partial/labels"
    "$poseidon" convert-mnist "$images.partial/images" "$images.partial/labels" \
      "$images.partial/${part/t10k/test}_lmdb"
  done
  rm "$images.partial/images" "$images.partial/labels"
  mv "$images.partial" "$images"
}

[ -d "$images" ] || convert
mkdir -p demo/run
"$poseidon" train --solver examples/lenet/lenet_solver.prototxt --workers 4 --run-dir demo/run "$@"
