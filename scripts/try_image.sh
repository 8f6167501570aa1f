#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Builds the Dockerfile's image and tries it, where there is no container engine: Debian's buildah executes the Dockerfile itself, in a chroot.
# Then, as the image's user: version, doctor, a job of two processes, the trainer; and the three services of compose.yaml, each with
# its environment, its files and its user, in a network of its own with an address that its name has.
#
#   [TORCH=cuda] scripts/try_image.sh ROOT FOLDER
#
# ROOT is what `debootstrap --variant=minbase --include=ca-certificates bookworm ROOT` makes, with the settings of apt and pip that its
# network needs; it stays as it is. It takes the place of debian:12-slim, so that nothing comes from a registry of images. FOLDER gets buildah, the
# layers and the compiler's cache, 6 GB, and serves the next try; `rm -r` removes it. Needs root, and iproute2 for the three services. Where
# PyTorch's index is out of reach, PyTorch comes from what ROOT's pip is configured with, and the output says so.
set -euo pipefail
if [ $# -lt 2 ] || [ ! -x "$1/usr/bin/apt-get" ]; then
  echo "usage: scripts/try_image.sh ROOT FOLDER, with a Debian in ROOT" >&2
  exit 2
fi
root=$(realpath "$1")
mkdir -p "$2"
folder=$(realpath "$2")
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/bare.sh
if [ $# = 2 ]; then
  apart scripts/try_image.sh "$root" "$folder" inside
  exit
fi

# The machine on which buildah runs is ROOT with what buildah needs above it.
layers "$folder/machine" "$root"
machine=$folder/machine/root
mounted "$machine"
mkdir -p "$folder"/{storage,cache} "$machine"/{src,runs,root/bare,var/lib/containers,var/tmp}
mount --bind . "$machine/src"
mount --bind "$root" "$machine/root/bare"
mount --bind "$folder/storage" "$machine/var/lib/containers"  # layers cannot lie above layers
mount --bind "$folder/cache" "$machine/var/tmp"
clean+=(BUILDAH_ISOLATION=chroot)
on() { there "$machine" "$@"; }
step() {  # step WORDS COMMAND...: says how long it took, and its last lines where it failed
  local words=$1 begun
  begun=$(now)
  shift
  "$@" >"$folder/log" 2>&1 </dev/null || { tail -n 30 "$folder/log"; echo "try_image: failed: $words"; exit 1; }
  echo "$(took "$begun")  $words"
}
shows() { grep -E "$1" "$folder/log" | sed 's/^/           /'; }

install_buildah() {
  [ -x "$machine/usr/bin/buildah" ] && return
  on apt-get update -qq
  on apt-get install -y -qq --no-install-recommends buildah python3-yaml
}
make_base() {
  local made
  on buildah images --quiet localhost/debian:12-slim | grep -q . && return
  made=$(on buildah from scratch)
  on buildah add --quiet "$made" /root/bare /
  on buildah run "$made" -- apt-get clean  # debootstrap leaves its packages there
  on buildah commit --quiet --rm "$made" localhost/debian:12-slim
}
index=$(sed -n 's/^ARG CPU_INDEX=//p' Dockerfile)
if ! reached "$index"; then
  echo "           $index is out of reach: PyTorch comes from what pip is configured with"
  index=
fi
torch=${TORCH:-cpu}
image=localhost/poseidon:$torch
volumes=()
for one in ${PIP_FIND_LINKS:-}; do  # builds of torch for CPUs may be there
  [ "$torch" = cuda ] || [ ! -d "$one" ] || volumes+=(--volume "$one:$one:ro")
done

step "buildah is installed" install_buildah
step "ROOT is an image" make_base
step "the image is built" on buildah bud --layers --pull-never --build-arg "CPU_INDEX=$index" --build-arg "TORCH=$torch" \
  "${volumes[@]}" --tag "$image" /src
on buildah images --format '{{.Name}}:{{.Tag}} has {{.Size}}' "$image" | tr -s ' ' | sed 's/^/           /'

version=$(sed -n 's/^project(poseidon VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
says=$(on buildah inspect --type image "$image" | python3 -c 'import json, sys; of = json.load(sys.stdin)["OCIv1"]["config"]
print(of["User"], of["Entrypoint"], of["Labels"]["org.opencontainers.image.version"])')
[ "$says" = "1000:1000 ['poseidon'] $version" ] || { echo "try_image: failed: the image says '$says'"; exit 1; }

mkdir -p "$machine/root/caffe"
container=$(on buildah from --pull-never "$image")
inside() { on buildah run --volume /src/examples:/examples:ro --volume /root/caffe:/caffe:ro "$container" -- "$@"; }
no_compiler() { inside sh -c 'for one in cc gcc g++ cmake ninja make; do ! command -v $one || exit 1; done; [ "$(id -u)" = 1000 ]'; }
says_version() { [ "$(inside poseidon --version)" = "poseidon $version" ]; }
step "no compiler is in it, and its user is not root" no_compiler
step "poseidon --version" says_version
step "import poseidon.torch" inside python3 -c 'import poseidon.torch'
step "poseidon doctor" inside poseidon doctor
shows '^all well|^(breaks|slows|note) '
step "poseidon demo" inside poseidon demo
step "poseidon run -n 2 python /examples/torch/quickstart.py" inside poseidon run -n 2 python /examples/torch/quickstart.py
shows 'epoch 2:'
cat >"$machine/root/caffe/net.prototxt" <<'NET'
layer { name: "data" type: "DummyData" top: "data" top: "label"
        dummy_data_param { shape { dim: 8 dim: 16 } shape { dim: 8 } data_filler { type: "gaussian" } data_filler { type: "constant" } } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 4 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
NET
echo 'net: "/caffe/net.prototxt" base_lr: 0.1 lr_policy: "fixed" max_iter: 20 snapshot_prefix: "small"' >"$machine/root/caffe/solver.prototxt"
step "poseidon train --solver /caffe/solver.prototxt --workers 2" inside poseidon train --solver /caffe/solver.prototxt --workers 2
shows 'equal on all workers'

# The services of compose.yaml: for each its name, and the options of buildah. What compose does, this does: files beside compose.yaml,
# secrets below /run/secrets, names that lead to addresses. Services share nothing but what it names.
cat >"$machine/root/services.py" <<'SERVICES'
import re
import shlex

import yaml

with open("/src/compose.yaml") as file:
    job = yaml.safe_load(re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", file.read()))


def here(path):
    return "/runs" + path[len("./runs"):] if path.startswith("./runs") else "/src" + path[1:]


for name, service in job["services"].items():
    files = service["volumes"] + [f"{job['secrets'][secret]['file']}:/run/secrets/{secret}:ro" for secret in service["secrets"]]
    words = ["--user", service["user"], "--hostname", service["hostname"], *(word for file in files for word in ("--volume", here(file))),
             *(word for pair in service["environment"].items() for word in ("--env", "=".join(pair)))]
    print(name, shlex.join(words), shlex.join(service["entrypoint"]), sep="\t")
SERVICES
on python3 /root/services.py >"$folder/services"

bridge
rm -rf "$folder/runs"
mkdir "$folder/runs"
chown 1000:1000 "$folder/runs"
mount --bind "$folder/runs" "$machine/runs"
number=0
names=()
declare -A holders
while IFS=$'\t' read -r name _; do
  number=$((number + 1))
  network
  holders[$name]=$holder
  plugged "$number" "$holder"
  names+=(--add-host "$name:10.209.0.$number")
done <"$folder/services"

make_token() { on buildah run --volume /runs:/work "$container" -- python3 -c "import poseidon; poseidon.make_token_file('job.token')"; }
step "a token for the services of compose.yaml" make_token
start_services() {
  local name words command container failed=0 started=()
  while IFS=$'\t' read -r name words command; do
    container=$(on buildah from --pull-never "${names[@]}" "$image")
    # Processes of its own too, as in a container: Poseidon's workers look whether they are on one machine.
    of_network "${holders[$name]}" unshare --mount --pid --fork --kill-child env -i "${clean[@]}" chroot "$machine" sh -c \
      "mount -t proc proc /proc && exec buildah run $words $container -- $command" > >(sed "s/^/$name  | /") 2>&1 &
    started+=($!)
  done <"$folder/services"
  for one in "${started[@]}"; do wait "$one" || failed=1; done
  return $failed
}
step "the $number services of compose.yaml have met and trained" start_services
shows '\| '
[ "$(grep -c 'worker0  | epoch 2:' "$folder/log")" = 1 ] || { echo "try_image: worker 0 has printed no epoch 2"; exit 1; }
for one in $(on buildah containers --quiet); do on buildah rm "$one" >/dev/null; done
