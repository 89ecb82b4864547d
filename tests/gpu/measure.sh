#!/usr/bin/env bash
# Everything that is to be known of a GPU, in one command and at most 40 minutes, on a bare machine: needs a driver, and
# CUDA with g++ and CMake unless --bin names a folder with the programs, which may be built elsewhere and carried.
#
#   tests/gpu/measure.sh [--out FOLDER] [--minutes N] [--bin FOLDER] [--llama-bench PROGRAM] [--brief]
#
# In order: what the machine is; every check of a kernel in a process of its own, so that a fault ends that check alone;
# compute-sanitizer (memcheck, racecheck) over the small shapes; speeds of the kernels; engine tests and models end to end
# where the programs for that are there. Each step has a limit of time, and what is done stays in FOLDER if the time runs
# out: summary.txt, results.json, and the output of each step. Exit code 1 if a step failed or was not run, 77 without a
# GPU.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
out=build/gpu-measure minutes=40 bin= llama= brief=()
while [ $# -gt 0 ]; do
  case "$1" in
    --out) out=$2; shift 2 ;;
    --minutes) minutes=$2; shift 2 ;;
    --bin) bin=$2; shift 2 ;;
    --llama-bench) llama=$2; shift 2 ;;
    --brief) brief=(--brief); shift ;;
    *) sed -n '2,12p' "$0" >&2; exit 2 ;;
  esac
done
mkdir -p "$out"
: > "$out/summary.txt"; : > "$out/lines.json"
failed=0 incomplete=0

left() { echo $((minutes * 60 - SECONDS)); }
say() { printf '%s\n' "$*" | tee -a "$out/summary.txt"; }
# results.json is whole after every step.
collect() { { echo '['; grep '^{' "$out/lines.json" | sed '$!s/$/,/'; echo ']'; } > "$out/results.json"; }
# step NAME SECONDS COMMAND...: its output in NAME.txt, its JSON lines collected, one line in the summary.
step() {
  local name=$1 limit=$2 begin=$SECONDS rc=0
  shift 2
  [ "$limit" -gt "$(left)" ] && limit=$(left)
  if [ "$limit" -le 0 ]; then incomplete=1; say "$(printf '%-28s not run: the %s minutes are over' "$name" "$minutes")"; return 1; fi
  timeout --kill-after=10 "$limit" "$@" > "$out/$name.txt" 2>&1 || rc=$?
  grep '^{' "$out/$name.txt" >> "$out/lines.json" || true
  printf '{"step": "%s", "exit_code": %d, "seconds": %d}\n' "$name" "$rc" $((SECONDS - begin)) >> "$out/lines.json"
  collect
  case $rc in
    0) say "$(printf '%-28s ok       %4d s' "$name" $((SECONDS - begin)))" ;;
    77) say "$(printf '%-28s skipped  %s' "$name" "$(tail -n 1 "$out/$name.txt")")" ;;
    124 | 137) failed=1; say "$(printf '%-28s FAILED   longer than %s s' "$name" "$limit")" ;;
    *) failed=1; say "$(printf '%-28s FAILED   exit code %d: %s' "$name" "$rc" "$(grep -v '^{' "$out/$name.txt" | tail -n 1)")" ;;
  esac
  return $rc
}

say "$(date -u +'%Y-%m-%d %H:%M UTC')"
if command -v nvidia-smi >/dev/null; then
  nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.max.sm,clocks.mem,power.limit --format=csv 2>/dev/null | tee -a "$out/summary.txt"
fi

# For the GPU that is there alone: the kernels need no library, the engine and the daemon what deploy/install-deps.sh installs.
if [ -z "$bin" ]; then
  bin=$out/build/bin
  kernels=(cmake -B "$out/build" -DCMAKE_BUILD_TYPE=Release -DTHERMOCLINE_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES=native)
  if step configure_all 120 "${kernels[@]}" -DTHERMOCLINE_SERVER=OFF; then
    step build_all 1200 cmake --build "$out/build" --target thermocline thermocline-gpu-test -j "$(nproc)"
  else
    say "the engine's libraries are not here (deploy/install-deps.sh): the kernels alone"
    failed=0
    rm -rf "$out/build"
    step configure_kernels 120 "${kernels[@]}" -DTHERMOCLINE_KERNELS_ONLY=ON &&
      step build_kernels 900 cmake --build "$out/build" --target thermocline-gpu-test -j "$(nproc)"
  fi
fi
test=$bin/thermocline-gpu-test
[ -x "$test" ] || { say "FAILED: $test is not there"; exit 1; }

step probe 60 "$test" --brief --json --only read
case $? in 77) exit 77 ;; esac
for part in $("$test" --list); do
  if [ "$part" = speeds ]; then
    [ ${#brief[@]} -eq 0 ] && step speeds 600 "$test" --json --only speeds
  else
    step "check_$part" 240 "$test" --json "${brief[@]}" --only "$part"
  fi
done
if command -v compute-sanitizer >/dev/null; then
  for tool in memcheck racecheck; do
    step "$tool" 300 compute-sanitizer --tool "$tool" --error-exitcode 9 "$test" --brief
  done
else
  say "memcheck, racecheck          not run: compute-sanitizer is not installed"
fi

# Whole models: 7B shapes, dense and with a tenth of the neurons active, with several sizes of the hot tier.
thermocline=$bin/thermocline
if [ -x "$thermocline" ] && [ ${#brief[@]} -eq 0 ]; then
  # All that the GPU has; and little more than the 512 MiB that are kept free.
  for memory in 0 518MiB; do
    for mode in dense exact sign; do
      step "text_${mode}_$memory" 120 tests/gpu/text.sh "$thermocline" "$mode" "$memory"
    done
  done
  shape=$out/shape.gguf
  if step shape 300 "$thermocline" synth "$shape" --layers 32 --hidden-size 4096 --intermediate-size 11008 --heads 32 --kv-heads 32 \
      --type q4_0 --down rows; then
    for mode in dense exact sign; do
      for memory in 1500MiB 2500MiB 6GiB; do
        step "bench_${mode}_$memory" 240 "$thermocline" bench "$shape" --device cuda --hot-memory "$memory" --ffn-mode "$mode" \
          --prefill 512 --decode 64 --json
      done
    done
    [ -n "$llama" ] && step llama_bench 300 "$llama" -m "$shape" -p 512 -n 64 -ngl 99 -o jsonl
  fi
else
  say "models end to end            not run: $([ -x "$thermocline" ] && echo "--brief" || echo "$thermocline is not there")"
fi
verdict=passed
[ $incomplete -eq 0 ] || verdict=INCOMPLETE
[ $failed -eq 0 ] || verdict=FAILED
say "$verdict in $SECONDS s; $out/results.json has the numbers"
[ $verdict = passed ]
