#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Builds and runs test suites, goes on after a failure, and closes with one line per suite and the
# sum of all.
#
#   scripts/test.sh [SUITE...]        default: release asan tsan clang fuzz
#
#   release  everything, as users run it
#   asan     core and trainer under AddressSanitizer and UBSan
#   tsan     the core under ThreadSanitizer
#   clang    everything built by clang, and the quick tests
#   fuzz     a short run of the fuzz targets, built by clang
#   check    the quick tests of the dev preset, for daily work
#
# Tests read how often to repeat themselves from POSEIDON_DRILLS, POSEIDON_MUTATIONS, POSEIDON_SEEDS,
# POSEIDON_FUZZ_RUNS and POSEIDON_EXAMPLES; POSEIDON_TIMEOUT_FACTOR gives them more time for it (see `make soak`).
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# The first would colour the line that is looked for below; the others bring another Python's packages.
unset CLICOLOR_FORCE PYTHONPATH PYTHONHOME

jobs=${JOBS:-$(scripts/jobs.sh)}
suites=("$@")
[ $# -gt 0 ] || suites=(release asan tsan clang fuzz)

# Labels that cannot run on this machine; ctest leaves them out and the summary says so.
left_out=gpu
why=
if ! unshare --net true 2>/dev/null; then
  left_out+='|net'
  why+=$'\n  net: needs root and network namespaces'
fi
if ls /dev/nvidia0 >/dev/null 2>&1; then left_out=${left_out#gpu}; left_out=${left_out#|}; fi

quick='^(unit|conformance)$'  # labels
patience=-DPOSEIDON_TIMEOUT_FACTOR=${POSEIDON_TIMEOUT_FACTOR:-1}
passed=0
failed=0
summary=

record() { # record SUITE PASSED FAILED LINE
  passed=$((passed + $2))
  failed=$((failed + $3))
  summary+=$(printf '\n  %-8s %s' "$1" "$4")
}

# run_suite NAME PRESET LEFT_OUT_LABELS [-DNAME=VALUE...] [-- CTEST_ARGUMENT...]
run_suite() {
  local name=$1 preset=$2 without=$3 log=build/$2/test.log started=$SECONDS settings=() closing
  shift 3
  while [ $# -gt 0 ] && [ "$1" != -- ]; do settings+=("$1"); shift; done
  [ $# -eq 0 ] || shift
  printf '\n=== %s ===\n' "$name"
  if ! scripts/build.sh "$preset" "${settings[@]}"; then
    record "$name" 0 1 'does not build'
    return
  fi
  # ThreadSanitizer of GCC 12 does not know the address layouts of newer kernels.
  local fixed_layout=()
  [ "$preset" = tsan ] && setarch -R true 2>/dev/null && fixed_layout=(setarch -R)
  [ -z "$without" ] || set -- -LE "^($without)\$" "$@"
  "${fixed_layout[@]}" ctest --preset "$preset" --output-on-failure --no-tests=error -j "$jobs" "$@" |
    tee "$log"
  closing=$(grep -aE '^[0-9]+% tests passed, [0-9]+ tests failed out of [0-9]+' "$log" | tail -n 1)
  if [ -z "$closing" ]; then
    record "$name" 0 1 'ran no tests'
    return
  fi
  local bad all
  read -r bad all < <(echo "$closing" | sed -E 's/.*passed, ([0-9]+) tests failed out of ([0-9]+).*/\1 \2/')
  record "$name" $((all - bad)) "$bad" "$closing ($((SECONDS - started)) s with its build)"
  # What pytest left out is only in the output of tests that pass.
  while read -r skipped; do why+=$'\n'"  $name: $skipped"; done < <(
    sed -nE 's|^SKIPPED \[[0-9]+\] (\.\./)*(.*)|\2|p' "build/$preset/Testing/Temporary/LastTest.log" | sort -u)
}

with_clang() { # run_suite, where there is a clang
  if command -v clang++-14 >/dev/null; then run_suite "$@"; else why+=$'\n'"  $1: needs clang-14"; fi
}

both() { # joins two lists of labels
  [ -z "$1" ] && echo "$2" || echo "$1|$2"
}

for suite in "${suites[@]}"; do
  case $suite in
    release) run_suite release release "$left_out" -DPOSEIDON_TESTS=ON -DPOSEIDON_BENCHMARKS=ON "$patience" ;;
    asan | tsan) run_suite "$suite" "$suite" "$(both "$left_out" 'slow|net|python')" ;;
    check) run_suite check dev "$left_out" -- -L "$quick" ;;
    clang) with_clang clang clang "$(both "$left_out" slow)" -- -L "$quick" ;;
    fuzz) with_clang fuzz fuzz '' "$patience" ;;
    *) echo "test: unknown suite '$suite', expected release, asan, tsan, clang, fuzz or check" >&2; exit 2 ;;
  esac
done

printf '\n=== summary ==='
[ -z "$why" ] || printf '\nLeft out on this machine:%s' "$why"
printf '%s\n\n%d passed, %d failed\n' "$summary" "$passed" "$failed"
[ "$failed" -eq 0 ]
