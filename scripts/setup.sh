#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Installs what scripts/dependencies.txt lists and this machine lacks: Debian packages through
# apt-get (as root or through sudo), Python packages into .venv of the checkout through pip, with
# the user's own pip configuration.
#
#   scripts/setup.sh [demo|wheel|site|test|develop]      default: test
#
# Running it again changes nothing and takes a fraction of a second.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# Each of these would point Python or pip at another one's packages.
unset PYTHONHOME PYTHONPATH VIRTUAL_ENV PIP_TARGET PIP_PREFIX PIP_USER

level=${1:-test}
case $level in
  demo) levels='demo' ;;
  wheel) levels='demo|wheel' ;;
  site) levels='site' ;;
  test) levels='demo|wheel|site|test' ;;
  develop) levels='demo|wheel|site|test|develop' ;;
  *) echo "setup: unknown level '$level', expected demo, wheel, site, test or develop" >&2; exit 2 ;;
esac

listed() { # listed debian|python: the packages of this level, one a line
  awk -v levels="^($levels)\$" -v source="$1" \
    '$1 ~ levels && $2 == source { for (i = 3; i <= NF; ++i) if (!seen[$i]++) print $i }' scripts/dependencies.txt
}

# The same interpreter every time: Debian's, because python3-venv belongs to it and because another
# python3 earlier in PATH may be of any version.
python=${POSEIDON_BASE_PYTHON:-/usr/bin/python3}

missing_debian() {
  local have package
  have=" $(dpkg-query -W -f='${db:Status-Status} ${Package}\n' 2>/dev/null |
           awk '$1 == "installed" { printf "%s ", $2 }')"
  for package in $(listed debian); do
    # Its server starts at once, and only root's tests log in to one.
    [ "$package" != openssh-server ] || [ "$(id -u)" = 0 ] || continue
    [[ $have == *" $package "* ]] || echo "$package"
  done
}

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo -- "$@"; fi
}

may_be_root() {
  [ "$(id -u)" = 0 ] && return
  command -v sudo >/dev/null || return
  sudo -n true 2>/dev/null || { [ -t 0 ] && sudo -v; } # a terminal can ask for the password
}

install_debian() {
  local missing log
  missing=$(missing_debian)
  [ -n "$missing" ] || return 0
  missing=$(echo $missing) # one line
  if ! may_be_root; then
    printf 'setup: these packages are missing and installing them needs root. Run this, then try again:\n  sudo apt-get install -y %s\n' \
      "$missing" >&2
    exit 1
  fi
  echo "setup: installing $missing"
  log=$(mktemp "${TMPDIR:-/tmp}/poseidon-setup-XXXXXX.log")
  # The first takes up what an installation left that was cut off.
  { as_root dpkg --configure -a &&
    apt_get update -qq &&
    apt_get -o Dpkg::Options::=--force-confold -o Dpkg::Use-Pty=0 \
      install -y -qq --no-install-recommends $missing
  } >"$log" 2>&1 || {
    tail -n 20 "$log" >&2
    echo "setup: apt-get could not install the packages above; its whole output is in $log" >&2
    exit 1
  }
  rm -f "$log"
  # Tests start a server of their own; Debian's listens on every address.
  if [[ " $missing " == *" openssh-server "* ]] && command -v systemctl >/dev/null; then
    as_root systemctl disable --now ssh >/dev/null 2>&1 || true # no systemd runs here
  fi
}

apt_get() { # others may be installing too: a machine's first minutes
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300 "$@"
}

# install_python SOURCE FOLDER: FOLDER/.installed names the interpreter and the packages of the last successful
# installation; a lower level is satisfied by what a higher one installed.
install_python() {
  local version wanted folder=$2
  version=$("$python" -c 'import sys; print(sys.executable, sys.version.split()[0])')
  wanted=$(listed "$1")
  [ -n "$wanted" ] || return 0
  if [ -e "$folder/.installed" ] && [ "$(head -n 1 "$folder/.installed")" = "$version" ]; then
    [ -z "$(echo "$wanted" | grep -vxFf "$folder/.installed")" ] && return
  else
    "$python" -m venv --clear "$folder"
  fi
  echo "setup: installing $(echo $wanted) into $folder"
  rm -f "$folder/.installed"
  "$folder/bin/python3" -m pip install --progress-bar off --quiet $wanted || {
    echo "setup: pip could not install the packages above; see its message before this line" >&2
    exit 1
  }
  printf '%s\n' "$version" $wanted >"$folder/.installed"
}

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
  printf 'setup: this is not a Debian system; install what these Debian packages hold and then make .venv with the Python packages:\n  %s\n  %s\n' \
    "$(echo $(listed debian))" "$(echo $(listed python))" >&2
  exit 1
fi
install_debian
# The environments side by side: pip works in one thread, and much of its time is the network's and the disk's.
installing=()
install_python python .venv & installing+=($!)
install_python site .venv-site & installing+=($!)
# Without them their tests are skipped, which POSEIDON_TENSORFLOW=0 wishes.
if [ "${POSEIDON_TENSORFLOW:-1}" != 0 ]; then
  install_python tensorflow .venv-tensorflow & installing+=($!)
  install_python tensorflow-oldest .venv-tensorflow-oldest & installing+=($!)
fi
failed=0
for one in "${installing[@]}"; do wait "$one" || failed=1; done
exit $failed
