#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Builds and runs test suites, goes on after a failure, and closes with one line per suite and the
# sum of all.
#
#   scripts/test.sh [SUITE...]        default: release asan tsan
#
#   release  everything, as users run it
#   asan     everything built by clang; core and trainer under AddressSanitizer and UBSan, and a short run of the fuzz targets
#   tsan     the core, and the trainer on a device of the tests, under ThreadSanitizer
#   fuzz     of asan the fuzz targets alone
#   check    the quick tests of the dev preset, for daily work
#
# Tests read how often to repeat themselves from POSEIDON_DRILLS, POSEIDON_MUTATIONS, POSEIDON_SEEDS,
# POSEIDON_FUZZ_RUNS, POSEIDON_FEATURE_WORKERS, POSEIDON_FEATURE_STEPS and POSEIDON_CASES; POSEIDON_TIMEOUT_FACTOR
# gives them more time for it (see `make soak`). Of tests of the front ends with many cases a twelfth runs, another one at each
# commit (tests/shared/some_cases.py).
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# The first would colour the line that is looked for below; the others bring another Python's packages.
unset CLICOLOR_FORCE PYTHONPATH PYTHONHOME

export POSEIDON_CASES=${POSEIDON_CASES:-$(git rev-parse HEAD 2>/dev/null || echo none)}
jobs=${JOBS:-$(scripts/jobs.sh)}
suites=("$@")
[ $# -gt 0 ] || suites=(release asan tsan)
for suite in "${suites[@]}"; do
  case $suite in
    release | asan | tsan | fuzz | check) ;;
    *) echo "test: unknown suite '$suite', expected release, asan, tsan, fuzz or check" >&2; exit 2 ;;
  esac
done

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

counted=
record() { # record SUITE PASSED FAILED LINE
  counted+=$(printf 'suite\t%s\t%s\t%s\t%s' "$@")$'\n'
  passed=$((passed + $2))
  failed=$((failed + $3))
  summary+=$(printf '\n  %-8s %s' "$1" "$4")
}

# What scripts/build.sh is given for a suite.
build_of() {
  case $1 in
    release) echo release -DPOSEIDON_TESTS=ON -DPOSEIDON_BENCHMARKS=ON "$patience" ;;
    check) echo dev ;;
    asan | fuzz) echo asan "-DPOSEIDON_TIMEOUT_FACTOR=${POSEIDON_TIMEOUT_FACTOR:-4}" $([ "$1" = asan ] || echo fuzz_targets) ;;
    *) echo "$1" ;;
  esac
}

has_compiler() {
  case $1 in asan | fuzz) command -v clang++-14 >/dev/null ;; esac
}

# begin_ahead LOG SUITE...: has another of this script build them, one after another, on the processor time that the tests of the
# first suite leave, and run their tests once those that load the machine are over: what is left of the first suite mostly
# waits. LOG is what ctest says of the first suite. A session of its own has a priority of its own (autogroup), beside which
# nice counts for nothing.
ahead=
begin_ahead() {
  rm -f build/ahead.*
  POSEIDON_TEST_AHEAD=$1 setsid nice -n 19 bash -c 'echo 19 >/proc/self/autogroup; exec "$@"' ahead \
    "$PWD/scripts/test.sh" "${@:2}" </dev/null &>build/ahead.log &
  ahead=$!
}

stop_ahead() {
  [ -z "$ahead" ] || kill -- "-$ahead" 2>/dev/null
}
trap stop_ahead EXIT  # also where a signal ends this script

# Shows what it says until it ends, and adds what it has counted.
end_ahead() {
  touch build/ahead.alone
  echo 0 2>/dev/null >"/proc/$ahead/autogroup"  # nothing else is left to run
  tail -n +1 --follow --pid="$ahead" build/ahead.log | sed -u '/^=== summary ===$/,$d'
  wait "$ahead"
  ahead=
  local kind line
  while IFS=$'\t' read -r kind line; do
    if [ "$kind" = why ]; then why+=$'\n'$line; else IFS=$'\t' read -ra line <<<"$line"; record "${line[@]}"; fi
  done <build/ahead.records || record ahead 0 1 'ended early'
}

# Waits until the tests of the first suite that load the machine are over: the first of those that begin then
# (poseidon_when_quiet) is in its log, or the suite has ended.
wait_until_quiet() {
  until [ -e build/ahead.alone ] || grep -qaE 'Start +[0-9]+: (c_api_stuck|process_(command|forming|run|ssh|stuck))$' "$1" 2>/dev/null; do
    sleep 1
  done
}

# run_suite NAME LEFT_OUT_LABELS [CTEST_ARGUMENT...]
run_suite() {
  local name=$1 without=$2 build preset log started=$SECONDS closing
  shift 2
  read -ra build < <(build_of "$name")
  preset=${build[0]} log=build/${build[0]}/test.log
  if ! has_compiler "$name"; then
    why+=$'\n'"  $name: needs clang-14"
    return
  fi
  printf '\n=== %s ===\n' "$name"
  if ! scripts/build.sh "${build[@]}"; then
    record "$name" 0 1 'does not build'
    return
  fi
  [ $is_ahead = 1 ] || [ ${#later[@]} = 0 ] || begin_ahead "$PWD/$log" "${later[@]}"
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
  record "$name" $((all - bad)) "$bad" "$closing ($((SECONDS - started)) s)"
  # What pytest left out is only in the output of tests that pass.
  while read -r skipped; do why+=$'\n'"  $name: $skipped"; done < <(
    sed -nE 's|^SKIPPED \[[0-9]+\] (\.\./)*(.*)|\2|p' "build/$preset/Testing/Temporary/LastTest.log" | sort -u)
}

both() { # joins two lists of labels
  [ -z "$1" ] && echo "$2" || echo "$1|$2"
}

is_ahead=0
if [ -n "${POSEIDON_TEST_AHEAD:-}" ]; then
  is_ahead=1
  # What fails here is built again, and said, when its turn comes.
  for suite in "${suites[@]}"; do has_compiler "$suite" && scripts/build.sh $(build_of "$suite") &>/dev/null; done
  wait_until_quiet "$POSEIDON_TEST_AHEAD"
  unset POSEIDON_TEST_AHEAD
fi

later=("${suites[@]}")
for suite in "${suites[@]}"; do
  later=("${later[@]:1}")
  case $suite in
    release) run_suite release "$left_out" ;;
    asan | tsan) run_suite "$suite" "$(both "$left_out" 'slow|net|python')" ;;
    check) run_suite check "$left_out" -L "$quick" ;;
    fuzz) run_suite fuzz '' -L '^fuzz$' ;;
  esac
  if [ -n "$ahead" ]; then
    end_ahead
    break
  fi
done

if [ $is_ahead = 1 ]; then
  { printf '%s' "$counted"; printf '%s\n' "$why" | sed -n 's/^ /why\t&/p'; } >build/ahead.records
fi
printf '\n=== summary ==='
[ -z "$why" ] || printf '\nLeft out on this machine:%s' "$why"
printf '%s\n\n%d passed, %d failed\n' "$summary" "$passed" "$failed"
[ "$failed" -eq 0 ]
