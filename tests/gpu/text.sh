#!/usr/bin/env bash
# Tidepool's greedy text on the GPU is the processor's: tests/gpu/text.sh THERMOCLINE MODE HOT_MEMORY (0: what the GPU has).
# Exit code 1 if it is not, 77 if the plan leaves the GPU out.
set -euo pipefail
thermocline=$1 mode=$2 memory=$3
errors=$(mktemp)
trap 'rm -f "$errors"' EXIT
run() { "$thermocline" run tidepool --ffn-mode "$mode" -p "Once upon a time" -n 48 --temperature 0 "$@" 2>"$errors"; }
want=$(run --device cpu) || { cat "$errors"; exit 1; }
if ! got=$(run --device cuda --hot-memory "$memory"); then
  cat "$errors"
  grep -q "would make no token faster" "$errors" && exit 77
  exit 1
fi
[ -n "$want" ] && [ "$got" = "$want" ] && { echo "the same text"; exit 0; }
printf 'processor: %s\nGPU:       %s\nthe texts differ\n' "$want" "$got"
exit 1
