#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Installs as README says, on a bare Debian, and prints the seconds of each line, by the wall and by the processor. The lines are those of
# README's block below "Install"; train.py is examples/torch/quickstart.py. Downloads come first and are counted apart: what follows them
# is a virtual environment, torch, the wheel, and two workers that train. Then the wheels are served as a package index serves them, and
# `pip install` takes them from there.
#
#   scripts/try_install.sh ROOT WHEEL_FOLDER
#   scripts/try_install.sh ROOT --sources         ./install.sh of this commit instead, on a Debian that has git, make and python3
#
# ROOT is what `debootstrap --variant=minbase --include=ca-certificates bookworm ROOT` makes, with the settings of apt and pip that its
# network needs; it stays as it is. Needs root and 3 GB below TMPDIR (/var/tmp), which are removed, with all processes and mounts, however
# the script ends. Where PyTorch's index is out of reach, torch comes from what pip is configured with, in the version of
# scripts/dependencies.txt, and the output says so.
set -euo pipefail
if [ $# -lt 2 ] || [ ! -x "$1/usr/bin/apt-get" ]; then
  echo "usage: scripts/try_install.sh ROOT WHEEL_FOLDER|--sources, with a Debian in ROOT" >&2
  exit 2
fi
lower=$(realpath "$1") wheels=$2
[ "$wheels" = --sources ] || wheels=$(realpath "$wheels")
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/bare.sh
if [ $# = 2 ]; then
  scratch=$(mktemp -d -p "${TMPDIR:-/var/tmp}" install-XXXXXX)
  trap 'rm -rf --one-file-system "$scratch"' EXIT
  apart scripts/try_install.sh "$lower" "$wheels" "$scratch"
  exit
fi
layers "$3" "$lower"
root=$3/root
mounted "$root"

if [ "$wheels" = --sources ]; then
  mkdir "$root/root/poseidon"
  git archive HEAD | tar -x -C "$root/root/poseidon"
  there "$root" sh -c 'apt-get update -qq && apt-get install -y -qq --no-install-recommends git make python3' >"$3/log" 2>&1
  begun=$(now)
  there "$root" sh -c 'cd /root/poseidon && ./install.sh' >"$3/log" 2>&1 || { tail -n 20 "$3/log"; exit 1; }
  echo "$(took "$begun")  ./install.sh, with its downloads"
  there "$root" poseidon --version
  exit
fi

lines=$(awk '/^## /{inside = $2 == "Install"} inside && /^```$/{exit} block{print} inside && /^```sh$/{block = 1}' README.md | sed 's/ *#.*//')
index=$(grep -oP -- '--index-url \K\S+' <<<"$lines")
if ! reached "$index"; then
  echo "                 $index is out of reach: $(pinned_torch) comes from what pip is configured with"
  lines=$(sed "s#^pip install torch\( .*\)--index-url.*#pip install $(pinned_torch)\1#" <<<"$lines")
fi

here=$root/root/try
mkdir -p "$here/build/dist"
cp "$wheels"/poseidon_train{,_caffe}-*.whl "$here/build/dist"
cp examples/torch/quickstart.py "$here/train.py"
[ -x "$root/usr/bin/sudo" ] || { mkdir -p "$root/root/bin"; printf '#!/bin/sh\nexec "$@"\n' >"$root/root/bin/sudo"; chmod +x "$root/root/bin/sudo"; }
printf 'APT::Get::Assume-Yes "true";\nquiet "2";\nDpkg::Use-Pty "0";\n' >"$here/apt.conf"
printf '%s\n' "$lines" >"$here/lines"

cat >"$here/inside" <<'INSIDE'
set -e
cd ~/try
now() { date +%s.%N; }
took() { awk -v a="$1" -v b="$(now)" 'BEGIN{printf "%7.1f", b - a}'; }
say() { printf '%s s         %s\n' "$@"; }
quietly() { "$@" >log 2>&1 || { tail -n 20 log; echo "try_install: failed: $*"; exit 1; }; }

begun=$(now)
quietly apt-get update
quietly apt-get install --download-only python3-venv
say "$(took $begun)" "apt's packages are downloaded"
quietly apt-get install python3-venv  # for pip, which downloads; removed again before README's lines install it
quietly python3 -m venv asks
begun=$(now)
quietly asks/bin/pip --disable-pip-version-check download --dest packages $(grep -oP '^pip install \Ktorch.*' lines | sed 's/--no-compile//')
say "$(took $begun)" "torch and what it needs are downloaded, $(du -sm packages | cut -f 1) MB"
rm -r asks
quietly apt-get purge --auto-remove python3-venv  # it stays in apt's cache

export PIP_NO_INDEX=1 PIP_FIND_LINKS=~/try/packages PIP_DISABLE_PIP_VERSION_CHECK=1
echo "   wall  processor  (seconds, $(nproc) cores)"
downloaded=$(now)
while read -r line; do
  echo 0 >trained
  case $line in
    poseidon*) words="$line | while IFS= read -r said; do case \$said in *'hash of the weights'* | *'epoch 2'*) now >trained ;; esac; done" ;;
    *) words=$line ;;
  esac
  set -o pipefail
  TIMEFORMAT='%R %U %S'
  { time eval "$words" >log 2>&1 </dev/null; } 2>timed || { tail -n 20 log; echo "try_install: failed: $line"; exit 1; }
  awk -v line="$line" '{printf "%7.1f s  %5.1f  %s\n", $1, $2 + $3, line}' timed
  read -r at <trained
  [ "$at" = 0 ] || awk -v a="$downloaded" -v b="$at" 'BEGIN{printf "                 two workers have trained a model: %.1f s after the downloads\n", b - a}'
done <lines
say "$(took $downloaded)" "       in all, without downloads; $(python3 --version), torch $(pip show torch | sed -n 's/^Version: //p')"
deactivate

# The wheels as an index serves them: a folder for each name (PEP 503). torch is there too, in the version that the trainer asks for.
mkdir -p served/simple/{poseidon-train,poseidon-train-caffe}
for wheel in build/dist/*.whl; do
  case $wheel in */poseidon_train_caffe-*) cp "$wheel" served/simple/poseidon-train-caffe ;; *) cp "$wheel" served/simple/poseidon-train ;; esac
done
python3 -u -m http.server --bind 127.0.0.1 --directory served 0 >server 2>&1 &
until port=$(grep -oP ' port \K\d+' server); do sleep 0.1; done
unset PIP_NO_INDEX PIP_FIND_LINKS
export PIP_CONFIG_FILE=/dev/null PIP_INDEX_URL=http://127.0.0.1:$port/simple
quietly python3 -m venv fresh
begun=$(now)
quietly fresh/bin/pip install poseidon-train
[ "$(fresh/bin/poseidon --version)" = "poseidon $(fresh/bin/pip show poseidon-train | sed -n 's/^Version: //p')" ]
say "$(took $begun)" "pip install poseidon-train, from an index on loopback that has nothing else"
quietly ~/poseidon/bin/pip install "poseidon-train[caffe]"
quietly ~/poseidon/bin/poseidon help train
say "$(took $begun)" "pip install 'poseidon-train[caffe]', beside torch"
INSIDE

there "$root" env APT_CONFIG=/root/try/apt.conf bash /root/try/inside </dev/null
