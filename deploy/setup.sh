#!/usr/bin/env bash
# What `make setup` does: the Debian packages of deploy/packages.txt and a .venv with deploy/requirements.txt.
# Does only what is missing, and says so; needs root or sudo only when a package is missing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf '\033[1m== %s\033[0m\n' "$*"; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

install_packages() {
  command -v dpkg-query >/dev/null || fail "this is not a Debian system; install the equivalents of deploy/packages.txt yourself and set SKIP_PACKAGES=1"
  local missing
  missing=$(comm -23 <(bash deploy/packages.sh build | sort -u) \
                     <(dpkg-query -W -f '${db:Status-Status} ${Package}\n' 2>/dev/null | awk '$1 == "installed" { print $2 }' | sort -u))
  if [ -z "$missing" ]; then
    echo "Debian packages: all $(bash deploy/packages.sh build | wc -l) are installed"
    return
  fi
  say "Debian packages: installing" $missing
  local sudo=""
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || fail "not root and no sudo; as root run: apt-get install -y" $missing
    sudo="sudo"
  fi
  $sudo env DEBIAN_FRONTEND=noninteractive apt-get update
  $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing
}

make_venv() {
  local python=${PYTHON:-python3}
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    fail "$("$python" --version) is too old; Python 3.11 or newer is needed (PYTHON=/path/to/python3)"
  if [ ! -x .venv/bin/python ] || [ ! -e .venv/bin/pip ]; then
    say "Python environment: creating .venv with $("$python" --version)"
    "$python" -m venv --clear .venv
  fi
  local stamp=.venv/requirements.stamp
  if cmp -s deploy/requirements.txt "$stamp"; then
    echo "Python packages: up to date with deploy/requirements.txt"
    return
  fi
  say "Python packages: installing deploy/requirements.txt into .venv"
  .venv/bin/python -m pip install --disable-pip-version-check --no-compile --progress-bar off -r deploy/requirements.txt
  # On all cores, which pip does not do. Without byte code each new process compiles some 1,400 modules again, seconds
  # that step one would pay for. Templates that are no Python by themselves are none of our business.
  say "Python packages: compiling to byte code"
  .venv/bin/python -m compileall -q -j 0 .venv/lib/python3.*/site-packages >/dev/null 2>&1 || true
  cp deploy/requirements.txt "$stamp"
}

[ -n "${SKIP_PACKAGES:-}" ] || install_packages
make_venv
