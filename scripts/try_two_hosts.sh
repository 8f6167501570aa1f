#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A newcomer's first job on two machines, and the seconds of each line: docs/torch.md, "Your three machines", line by line, on hosts a and b.
#
#   scripts/try_two_hosts.sh ROOT WHEEL_FOLDER
#
# Each host is a bare Debian with processes, a network, a name, and an sshd of its own; the user's password is typed by a program. ROOT is
# what try_install.sh takes, and stays as it is. Downloads come first and are counted apart. Needs root, iproute2 and 4 GB below TMPDIR
# (/var/tmp), which are removed with all processes, networks and mounts, however the script ends. Where PyTorch's index is out of
# reach, torch comes from what pip is configured with, in the version of scripts/dependencies.txt, and the output says so.
set -euo pipefail
if [ $# -lt 2 ] || [ ! -x "$1/usr/bin/apt-get" ]; then
  echo "usage: scripts/try_two_hosts.sh ROOT WHEEL_FOLDER, with a Debian in ROOT" >&2
  exit 2
fi
root=$(realpath "$1") wheels=$(realpath "$2")
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/bare.sh
if [ $# = 2 ]; then
  scratch=$(mktemp -d -p "${TMPDIR:-/var/tmp}" two-hosts-XXXXXX)
  trap 'rm -rf --one-file-system "$scratch"' EXIT
  apart scripts/try_two_hosts.sh "$root" "$wheels" "$scratch"
  exit
fi
scratch=$3

lines=$(awk '/^## /{inside = $0 == "## Your three machines"} inside && /^```$/{block = 0} block{print} inside && /^```sh$/{block = 1}' docs/torch.md |
        sed 's/  *#.*//; s/\ba b c\b/a b/; s/\ba,b,c\b/a,b/')
packages=$(sed -n '/^## Your three machines/,/^```/p' docs/torch.md | grep -o 'apt install [^`]*' | cut -d ' ' -f 3-)
install=$(grep -oP 'pip install \Ktorch [^'"'"']*' <<<"$lines")
index=$(grep -oP -- '--index-url \K\S+' <<<"$install")

quietly() { "$@" >"$scratch/log" 2>&1 </dev/null || { tail -n 20 "$scratch/log"; echo "try_two_hosts: failed: $*"; exit 1; }; }

# What both hosts have before the newcomer comes, and the downloads.
layers "$scratch/both" "$root"
both=$scratch/both/root
mounted "$both"
begun=$(now)
printf '#!/bin/sh\nexit 101\n' >"$both/usr/sbin/policy-rc.d"  # the image of a host is made here: no sshd starts
chmod +x "$both/usr/sbin/policy-rc.d"
quietly there "$both" apt-get update
quietly there "$both" apt-get install -y $packages
rm "$both/usr/sbin/policy-rc.d"
echo "$(took "$begun")  apt install $packages, with its downloads"
if ! reached "$index"; then
  echo "           $index is out of reach: $(pinned_torch) comes from what pip is configured with"
  install=$(sed "s#^torch\( .*\)--index-url.*#$(pinned_torch)\1#" <<<"$install")
  lines=$(sed "s#pip install torch [^']*#pip install $install#" <<<"$lines")
fi
begun=$(now)
quietly there "$both" python3 -m venv /root/asks
quietly there "$both" /root/asks/bin/pip --disable-pip-version-check download --dest /packages ${install/--no-compile/}
rm -r "$both/root/asks"
echo "$(took "$begun")  torch and what it needs are downloaded, $(du -sm "$both/packages" | cut -f 1) MB"
printf '[global]\nno-index = true\nfind-links = /packages\ndisable-pip-version-check = true\n' >"$both/etc/pip.conf"
there "$both" useradd --create-home --shell /bin/bash ann
echo ann:swordfish | there "$both" chpasswd
rm -f "$both"/etc/ssh/ssh_host_*
umount --recursive "$both"

# The network: a bridge and a cable to each host.
child_of() {
  local child
  until child=$(cat "/proc/$1/task/$1/children") && [ -n "$child" ]; do sleep 0.05; done
  echo $child
}
bridge

cat >"$scratch/start" <<'START'
set -e
mount -t proc proc "$1/proc"
mount --rbind /sys "$1/sys"
mount --rbind /dev "$1/dev"
mount -t tmpfs tmpfs "$1/dev/shm"
hostname "$2"
mkdir -p "$1/run/sshd"
exec chroot "$1" sh -c 'ssh-keygen -q -A >/dev/null && exec /usr/sbin/sshd -D -e'
START
declare -A inits
number=0
for host in a b; do
  number=$((number + 1))
  layers "$scratch/$host" "$scratch/both/above:$root"
  # As Debian's installer writes it: the host's own name leads to loopback.
  printf '127.0.0.1 localhost\n127.0.1.1 %s\n' "$host" >"$scratch/$host/root/etc/hosts"
  for other in a b; do [ "$other" = "$host" ] || echo "10.209.0.$((3 - number)) $other"; done >>"$scratch/$host/root/etc/hosts"
  echo "$host" >"$scratch/$host/root/etc/hostname"
  unshare --mount --net --uts --ipc --pid --fork --kill-child bash "$scratch/start" "$scratch/$host/root" "$host" 2>"$scratch/$host/sshd.log" &
  inits[$host]=$(child_of $!)
  of_network "${inits[$host]}" ip link set lo up
  plugged "$number" "${inits[$host]}"
done
for host in a b; do
  for _ in $(seq 200); do grep -q 'Server listening' "$scratch/$host/sshd.log" && break; sleep 0.1; done
  grep -q 'Server listening' "$scratch/$host/sshd.log" || { cat "$scratch/$host/sshd.log"; echo "try_two_hosts: no sshd listens on $host"; exit 1; }
done

# The newcomer, on a.
download=$scratch/a/root/home/ann/download
mkdir "$download"
cp "$wheels"/poseidon_train-*.whl examples/torch/quickstart.py "$download"
printf '%s\n' "$lines" >"$download/lines"
cat >"$download/typist" <<'TYPIST'
#!/bin/sh
case $1 in *yes/no*) echo yes ;; *) echo swordfish ;; esac
TYPIST
chmod +x "$download/typist"
cat >"$download/inside" <<'INSIDE'
set -eo pipefail
cd ~/download
download=$PWD TIMEFORMAT=%R
trap 'status=$?; [ "$status" = 0 ] || { tail -n 20 "$download/log"; echo "try_two_hosts: failed with $status: $line"; }' EXIT
while read -r line; do
  unset SSH_ASKPASS_REQUIRE
  case $line in *ssh-copy-id*) export SSH_ASKPASS=$download/typist SSH_ASKPASS_REQUIRE=force ;; esac
  { time eval "$line" >"$download/log" 2>&1 </dev/null; } 2>"$download/timed"
  awk -v line="$line" '{printf "%7.1f s  %s\n", $1, line}' "$download/timed"
  case $line in
    poseidon\ doctor*) sed 's/^/             /' "$download/log" ;;
    poseidon\ run*) grep -E 'epoch|poseidon:' "$download/log" | sed 's/^/             /' ;;
  esac
done <"$download/lines"
INSIDE
chown -R --reference="$scratch/a/root/home/ann" "$download"
begun=$(now)
nsenter --target "${inits[a]}" --mount --net --uts --ipc --pid --root --wd=/ su --login ann --command 'bash download/inside' </dev/null
echo "$(took "$begun")  in all, without downloads: two machines have trained a model"
