#!/usr/bin/env bash
# Runs thermocline-gpu-test beside this script, or the one named: checks and speeds of the CUDA kernels.
# Carry both files alone to a machine with a GPU. run.sh [PROGRAM] [--brief]
set -euo pipefail
program=$(dirname "${BASH_SOURCE[0]}")/thermocline-gpu-test
if [ $# -gt 0 ] && [ "${1#--}" = "$1" ]; then
  program=$1
  shift
fi
[ -x "$program" ] || { echo "SKIPPED: $program is not there: build preset cuda, target thermocline-gpu-test"; exit 77; }
date -u +"%Y-%m-%d %H:%M UTC"
if command -v nvidia-smi >/dev/null; then
  nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.max.sm,clocks.mem,power.limit --format=csv || true
fi
exec "$program" "$@"
