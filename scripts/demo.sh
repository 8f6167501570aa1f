#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Trains LeNet on Fashion-MNIST with four workers, into demo/ of the checkout, and says what it takes three images of the test for. The
# converted images stay there, so a second run goes straight to training.
#
#   scripts/demo.sh [FLAG...]     flags are handed to `poseidon train`
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

poseidon=build/release/bin/poseidon
images=demo/fashion-mnist

# Where the four files may be: Debian's dataset-fashion-mnist, or the user's own copy.
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

convert() { # convert train|t10k DATABASE: the database appears complete or not at all
  local originals
  [ -d "$2" ] && return
  originals=$(find_originals)
  mkdir -p "$images"
  rm -rf "$2".tmp.* # of a conversion that was cut off
  "$poseidon" convert-mnist "$originals/$1-images-idx3-ubyte.gz" "$originals/$1-labels-idx1-ubyte.gz" "$2"
}

convert train "$images/train_lmdb"
convert t10k "$images/test_lmdb"
mkdir -p demo/run
# The bytes policy, because on one machine the network is free and nothing would be broadcast.
"$poseidon" train --solver examples/lenet/lenet_solver.prototxt --workers 4 --policy bytes \
  --run-dir demo/run "$@"

if [ ! -e "$images/test-2.png" ]; then
  python3 examples/lenet/pictures.py "$(find_originals)/t10k-images-idx3-ubyte.gz" 3 "$images"
fi
weights=$(ls -t demo/run/lenet_iter_*.caffemodel 2>/dev/null | head -n 1)
[ -n "$weights" ] || exit 0 # ended before its first snapshot
"$poseidon" classify --model models/lenet/deploy.prototxt --weights "$weights" --labels examples/lenet/labels.txt \
  --input_scale 0.00390625 --top 3 --picture demo/run/classes.svg "$images"/test-[0-2].png
echo "drawn in demo/run/classes.svg"
