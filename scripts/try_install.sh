#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Installs as README says, on a bare Debian, and prints the seconds of each line, by the wall and by the processor. The lines are those of README's block below
# "Install"; train.py is examples/torch/quickstart.py. Downloads come first and are counted apart: what follows them
# is a virtual environment, torch, the wheel, and two workers that train.
#
#   scripts/try_install.sh ROOT WHEEL_FOLDER
#
# ROOT is what `debootstrap --variant=minbase bookworm ROOT` makes, with the settings of apt and pip that its network needs. Needs
# root. Mounts are the script's own and end with it. Where PyTorch's index is out of reach, torch comes from what pip is configured with,
# in the version of scripts/dependencies.txt, and the output says so.
set -euo pipefail
if [ $# -ne 2 ] || [ ! -x "$1/usr/bin/apt-get" ]; then
  echo "usage: scripts/try_install.sh ROOT WHEEL_FOLDER, with a Debian in ROOT" >&2
  exit 2
fi
if [ -z "${TRY_INSTALL_INSIDE:-}" ]; then  # a mount namespace: nothing stays mounted
  exec env TRY_INSTALL_INSIDE=1 unshare --mount --propagation private "${BASH_SOURCE[0]}" "$(realpath "$1")" "$(realpath "$2")"
fi
root=$1 wheels=$2
cd "$(dirname "${BASH_SOURCE[0]}")/.."
for folder in proc sys dev; do mountpoint -q "$root/$folder" || mount --rbind "/$folder" "$root/$folder"; done

lines=$(awk '/^## /{inside = $2 == "Install"} inside && /^```$/{exit} block{print} inside && /^```sh$/{block = 1}' README.md | sed 's/ *#.*//')
index=$(grep -oP -- '--index-url \K\S+' <<<"$lines")
torch=$(grep -oP '^demo +python +\Ktorch==\S+' scripts/dependencies.txt)

here=$root/root/try
rm -rf "$here" "$root/root/poseidon"
mkdir -p "$here/build/dist"
cp "$wheels"/poseidon_train-*.whl "$here/build/dist"
cp examples/torch/quickstart.py "$here/train.py"
[ -x "$root/usr/bin/sudo" ] || { mkdir "$here/bin"; printf '#!/bin/sh\nexec "$@"\n' >"$here/bin/sudo"; chmod +x "$here/bin/sudo"; }
printf 'APT::Get::Assume-Yes "true";\nquiet "2";\nDpkg::Use-Pty "0";\n' >"$here/apt.conf"
printf '%s\n' "$lines" >"$here/lines"

cat >"$here/inside" <<'INSIDE'
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
if ! python3 -c 'import sys, urllib.request as r; r.urlopen(sys.argv[1] + "/torch/", timeout=20)' "$INDEX" 2>/dev/null; then
  echo "                 $INDEX is out of reach: $TORCH comes from what pip is configured with"
  sed -i "s#^pip install torch\( .*\)--index-url.*#pip install $TORCH\1#" lines
fi
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
INSIDE

clean=(HOME=/root "PATH=/root/try/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive
       APT_CONFIG=/root/try/apt.conf "INDEX=$index" "TORCH=$torch")
while IFS='=' read -r name value; do  # what says how a network is reached
  case $name in PIP_* | SSL_CERT_FILE | REQUESTS_CA_BUNDLE | *_proxy | *_PROXY) clean+=("$name=$value") ;; esac
done < <(env)
env -i "${clean[@]}" chroot "$root" bash /root/try/inside </dev/null
