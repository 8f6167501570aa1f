#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Prints how many compilers may run at once: one per processor this process may use, and no more
# than the memory bears, since a source that includes ATen takes about 1 GiB to compile.
set -euo pipefail
gib=1048576 # in KiB
memory=$(awk '$1 == "MemAvailable:" { print $2 }' /proc/meminfo)
for limit in /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes; do
  bytes=$(cat "$limit" 2>/dev/null || echo max)
  if [ "$bytes" != max ] && [ $((bytes / 1024)) -lt "$memory" ]; then memory=$((bytes / 1024)); fi
done
by_memory=$((memory / gib))
jobs=$(nproc)
[ "$by_memory" -ge "$jobs" ] || jobs=$by_memory
[ "$jobs" -ge 1 ] || jobs=1
echo "$jobs"
