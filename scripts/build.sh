#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Configures a preset of CMakePresets.json where that is still to be done and builds it.
#
#   scripts/build.sh PRESET [-DNAME=VALUE...] [TARGET...]
#
# Values given are set again only where the cache holds others, so that a build with nothing to do
# starts at once. Without targets everything is built. Where the preset is being built already, this waits for the end of that.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

preset=$1
shift
cache=build/$preset/CMakeCache.txt
settings=()
targets=()
for word in "$@"; do
  case $word in
    -D*) settings+=("$word") ;;
    *) targets+=("$word") ;;
  esac
done

# A copy of another checkout's build tree would go on building that one.
made_elsewhere() {
  [ -e "$cache" ] && ! grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$PWD" "$cache"
}

configured() {
  [ -e "build/$preset/build.ninja" ] || return 1
  # Neither is among what ninja looks at: other settings, another Python.
  local input
  for input in CMakePresets.json .venv/.installed; do
    [ ! -e "$input" ] || [ "$log" -nt "$input" ] || return 1
  done
  local setting name
  for setting in "${settings[@]}"; do
    name=${setting#-D}
    name=${name%%=*}
    grep -q "^$name:[A-Z]*=${setting#*=}\$" "$cache" || return 1
  done
}

# ccache finds object files again by their content, whatever folder the checkout is in.
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1
[ -w "${HOME:-/}" ] || export CCACHE_DIR=${CCACHE_DIR:-$PWD/build/.ccache}

mkdir -p build
exec {lock}>"build/$preset.lock"  # until ninja, which inherits it, and all that it started have ended
flock --nonblock "$lock" || {
  echo "build: '$preset' is being built already; waiting for that"
  flock "$lock"
}

log=build/$preset/configure.log
! made_elsewhere || rm -rf "build/$preset"
configure() {
  mkdir -p "build/$preset"
  cmake --preset "$preset" "${settings[@]}" >"$log" 2>&1
}
if ! configured; then
  # Again from nothing where the preset has got another compiler since, which a build tree does not take.
  configure || { grep -q 'require your cache to be deleted' "$log" && rm -rf "build/$preset" && configure; } || {
    cat "$log" >&2
    echo "build: CMake could not configure the preset '$preset'; see its message above" >&2
    exit 1
  }
fi
exec ninja -C "build/$preset" -j "${JOBS:-$(scripts/jobs.sh)}" "${targets[@]}"
