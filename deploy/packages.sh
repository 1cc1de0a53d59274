#!/usr/bin/env bash
# packages.sh build|runtime: the names in that section of packages.txt, one a line.
set -euo pipefail
awk -v want="[$1]" '/^\[/ { on = ($0 == want); next } on && NF && !/^#/ { print $1 }' "$(dirname "${BASH_SOURCE[0]}")/packages.txt"
