#!/usr/bin/env bash
# What takes too long for every run: all unit tests, those in the GPU emulator too, under the address and
# undefined-behaviour sanitizers, and the threads' suites under the thread sanitizer. Needs what tests/run.sh installs.
#   tests/long.sh [asan] [tsan]      (none: both)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
what=${*:-asan tsan}

stage() { printf '\n== %s (%d s so far)\n' "$1" "$SECONDS"; }

if [[ " $what " == *" asan "* ]]; then
  stage "every unit test under the address and undefined-behaviour sanitizers"
  cmake --preset asan -DTHERMOCLINE_EMULATED_TESTS=ON >/dev/null
  cmake --build --preset asan --target unit_tests
  ASAN_OPTIONS=detect_leaks=1 ctest --preset asan --no-tests=error -j "$(nproc)" -E '^(e2e|lint)_'
fi

if [[ " $what " == *" tsan "* ]]; then
  stage "scheduler, speculation, store and server under the thread sanitizer"
  cmake --preset tsan -DTHERMOCLINE_EMULATED_TESTS=OFF >/dev/null
  cmake --build --preset tsan --target sched_test spec_test store_test server_test base_test
  ctest --preset tsan --no-tests=error -j "$(nproc)" -R '^(sched|spec|store|server|base)_test$'
fi
