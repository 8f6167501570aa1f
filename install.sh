#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Brings a Debian 12 to a built `poseidon` command, and then to whatever else is asked for.
#
#   ./install.sh [--prefix DIR] [MAKE_TARGET...]
#
# Installs make and python3 where they are missing, builds, and links the command into DIR/bin
# (default: /usr/local as root, else ~/.local). Then runs `make` with the targets: `./install.sh demo`.
# The checkout stays in use: the command runs from it.
set -euo pipefail
called_from=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")"

if [ "$(id -u)" = 0 ]; then prefix=/usr/local; else prefix=$HOME/.local; fi
case "${1:-}" in
  --prefix)
    [ $# -ge 2 ] || { echo "install: --prefix needs a folder" >&2; exit 2; }
    prefix=$2
    shift 2
    ;;
  --prefix=*)
    prefix=${1#--prefix=}
    shift
    ;;
  -*) echo "install: unknown option '$1', expected --prefix DIR" >&2; exit 2 ;;
esac
[[ $prefix == /* ]] || prefix=$called_from/$prefix

if ! command -v make >/dev/null || ! command -v python3 >/dev/null; then
  as_root=()
  [ "$(id -u)" = 0 ] || as_root=(sudo)
  "${as_root[@]}" apt-get update -qq
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends make python3
fi

make build
mkdir -p "$prefix/bin"
ln -sf "$PWD/build/release/bin/poseidon" "$prefix/bin/poseidon"
echo "install: $prefix/bin/poseidon is ready"
[ $# -eq 0 ] || make "$@"
