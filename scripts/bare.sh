# SPDX-License-Identifier: Apache-2.0
# Read by try_install.sh, try_image.sh and try_two_hosts.sh, which do on a bare Debian what the pages say.

# Runs a command with mounts and processes of its own. None outlives it, also where it fails or this script is interrupted.
apart() {
  local child status=0
  unshare --mount --propagation private --pid --fork --kill-child --mount-proc "$@" &
  child=$!
  trap 'kill -KILL "$child" 2>/dev/null; wait "$child" 2>/dev/null || true; exit 130' INT TERM HUP
  wait "$child" || status=$?
  trap - INT TERM HUP
  return "$status"
}

# layers FOLDER LOWER: FOLDER/root is LOWER, which stays as it is, with what is written above it.
layers() {
  mkdir -p "$1"/{above,work,root}
  mount -t overlay "${1##*/}" -o "lowerdir=$2,upperdir=$1/above,workdir=$1/work" "$1/root"
}

# mounted ROOT: with the kernel's folders, and the folders of wheels that pip is given.
mounted() {
  local one
  mount -t proc proc "$1/proc"
  for one in sys dev; do mount --rbind "/$one" "$1/$one"; done
  for one in ${PIP_FIND_LINKS:-}; do
    [ ! -d "$one" ] || { mkdir -p "$1$one" && mount --bind "$one" "$1$one"; }
  done
}

# A login's environment, and of this one what says how a network is reached.
clean=(HOME=/root PATH=/root/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive)
while IFS='=' read -r name value; do
  case $name in PIP_* | SSL_CERT_FILE | REQUESTS_CA_BUNDLE | *_proxy | *_PROXY) clean+=("$name=$value") ;; esac
done < <(env)
there() { env -i "${clean[@]}" chroot "$@"; }  # there ROOT COMMAND...

# A network of its own: `holder` is a process that has it and ends with the script.
network() {
  unshare --net sleep infinity &
  holder=$!
  until [ "$(readlink "/proc/$holder/ns/net")" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.05; done
  of_network "$holder" ip link set lo up
}
of_network() { nsenter "--net=/proc/$1/ns/net" "${@:2}"; }
# bridge: `hub` is the network of a bridge; plugged NUMBER PROCESS: the process's network gets a cable to it, and the address 10.209.0.NUMBER.
bridge() {
  network
  hub=$holder
  of_network "$hub" ip link add bridge type bridge
  of_network "$hub" ip link set bridge up
}
plugged() {
  of_network "$hub" ip link add "port$1" type veth peer name eth0 netns "$2"
  of_network "$hub" ip link set "port$1" master bridge up
  of_network "$2" ip address add "10.209.0.$1/24" dev eth0
  of_network "$2" ip link set eth0 up
}

# Whether an index of Python packages has torch and can be reached.
reached() { python3 -c 'import sys, urllib.request as r; r.urlopen(sys.argv[1] + "/torch/", timeout=20)' "$1" 2>/dev/null; }
pinned_torch() { awk '$3 ~ /^torch==/ {print $3}' scripts/dependencies.txt; }

now() { date +%s.%N; }
took() { awk -v a="$1" -v b="$(now)" 'BEGIN{printf "%7.1f s", b - a}'; }
