#!/usr/bin/env bash
# Fuzzes every target, or those named, with libFuzzer under the address and undefined-behaviour sanitizers:
#     tests/fuzz/run.sh [--seconds N | --minutes N] [--jobs N] [TARGET...]
# N of time for each target [20 s]. Needs clang and libclang-rt-14-dev. What is found lies in build/asan/found/TARGET-*:
# mend it, and add the input to tests/fuzz/corpus/TARGET. Prints executions, coverage and findings by target; fails
# if there is any.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
seconds=20 jobs=$(nproc) targets=()
while [ $# -gt 0 ]; do
  case $1 in
    --seconds) seconds=$2; shift ;;
    --minutes) seconds=$(awk "BEGIN { print int(60 * $2) }"); shift ;;
    --jobs) jobs=$2; shift ;;
    *) targets+=("$1") ;;
  esac
  shift
done
cmake --preset asan >/dev/null
cmake --build --preset asan --target fuzz_targets
if [ ${#targets[@]} -eq 0 ]; then
  for program in build/asan/fuzz/fuzz_*; do targets+=("$(basename "$program" | sed 's/^fuzz_//')"); done
fi
mkdir -p build/asan/found build/asan/grown

fuzz() {
  local target=$1 log=build/asan/found/$1.log dictionary=()
  mkdir -p "build/asan/grown/$target"
  [ -e "tests/fuzz/$target.dict" ] && dictionary=(-dict="tests/fuzz/$target.dict")
  # detect_leaks: what LeakSanitizer needs, ptrace, not every container allows. timeout: libFuzzer's own alarm can stop
  # within the allocator that it interrupts, and waits there for ever.
  ASAN_OPTIONS=detect_leaks=${THERMOCLINE_LEAKS:-1}:allocator_may_return_null=1 \
    timeout --kill-after=10 "$((seconds + 180))" "build/asan/fuzz/fuzz_$target" "build/asan/grown/$target" \
    "tests/fuzz/corpus/$target" "${dictionary[@]}" -max_total_time="$seconds" -max_len=131072 -timeout=60 -rss_limit_mb=2048 \
    -print_final_stats=1 -artifact_prefix="build/asan/found/$target-" >"$log" 2>&1 ||
    [[ $? -ne 124 && $? -ne 137 ]] || echo "SUMMARY: stopped: an input took minutes, or the end did" >>"$log"
  local runs coverage found
  runs=$(grep -oP 'number_of_executed_units: \K\d+' "$log" || echo 0)
  coverage=$(grep -oP 'cov: \K\d+' "$log" | tail -1 || echo 0)
  found=$(grep -c '^==.*ERROR: \|^SUMMARY: \|runtime error' "$log" || true)
  printf '%-16s %10s runs, %6s edges, %s\n' "$target" "$runs" "${coverage:-0}" \
    "$([ "$found" -eq 0 ] && echo 'nothing found' || echo "FOUND: $log")"
  if [ "$found" -eq 0 ] && [ "$runs" -gt 0 ]; then return 0; fi
  tail -n 40 "$log"
  return 1
}
export -f fuzz
export seconds
printf '%s\n' "${targets[@]}" | xargs -P "$jobs" -I{} bash -c 'fuzz {}'
