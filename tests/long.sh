#!/usr/bin/env bash
# What takes too long for every run. Needs what tests/run.sh installs, and its build.
#   tests/long.sh [tidy] [arm] [asan] [tsan] [e2e-asan] [e2e-tsan] [kills] [chaos] [release]    (none: all)
# tidy: clang-tidy over every source. arm: all tests of the kernels for 64-bit Arm, emulated. asan: all unit tests, those in
# the GPU emulator too, under the address and undefined-behaviour sanitizers. tsan: the threads' suites under the thread
# sanitizer. e2e-*: the daemon as a whole, with its end-to-end tests. kills: 200 rounds, and a minute of connections. chaos: an
# hour of faults, half an hour of a crowd, and ten minutes of a hostile key. release: the files of a release, each in a clean root.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
what=${*:-tidy arm asan tsan e2e-asan e2e-tsan kills chaos release}

stage() { printf '\n== %s (%d s so far)\n' "$1" "$SECONDS"; }

if [[ " $what " == *" tidy "* ]]; then
  stage "clang-tidy over every source"
  tests/lint/tidy.sh
fi

if [[ " $what " == *" arm "* ]]; then
  stage "the kernels' tests for 64-bit Arm, emulated"
  deploy/install-deps.sh --arm
  cmake --preset aarch64 >/dev/null
  cmake --build --preset aarch64
  ctest --preset aarch64 --no-tests=error
fi

if [[ " $what " == *" asan "* ]]; then
  stage "every unit test under g++'s address and undefined-behaviour sanitizers"  # tests/run.sh has clang's
  cmake --preset asan -B build/asan-gnu -DCMAKE_CXX_COMPILER=g++ -DCMAKE_C_COMPILER=gcc -DTHERMOCLINE_SANITIZE=address,undefined \
    -DTHERMOCLINE_EMULATED_TESTS=ON >/dev/null
  cmake --build build/asan-gnu --target unit_tests
  ASAN_OPTIONS=detect_leaks=1 ctest --test-dir build/asan-gnu --output-on-failure --no-tests=error -j "$(nproc)" -E '^(e2e|lint)_'
fi

if [[ " $what " == *" tsan "* ]]; then
  stage "scheduler, speculation, store and server under the thread sanitizer"
  cmake --preset tsan -DTHERMOCLINE_EMULATED_TESTS=OFF >/dev/null
  cmake --build --preset tsan --target sched_test spec_test store_test server_test base_test
  ctest --preset tsan --no-tests=error -j "$(nproc)" -R '^(sched|spec|store|server|base)_test$'
fi

# The daemon's tests but those that count bytes or time, which sanitizers take.
daemon_tests() {
  local bin=$PWD/$1
  shift
  (cd tests/e2e && THERMOCLINE_BIN=$bin "$@" ../../build/venv/bin/python -m pytest -q -p no:cacheprovider test_access.py test_anthropic_api.py test_daemon.py \
    test_daemon_drain.py test_daemon_http.py test_grpc.py test_grpc_refusals.py test_isolation.py test_lessons.py test_llama_server_api.py test_ollama_api.py \
    test_openai_api.py test_openai_fields.py test_openai_streams.py test_responses_api.py test_security.py test_structured_output.py \
    --deselect test_lessons.py::test_GHSA_389x_67px_mjg3_grammars_that_are_kept_are_bounded)
}
# The thread sanitizer takes ten times as long: these wait for an answer of a length within a drain's time.
too_slow_for_tsan="--deselect test_daemon_drain.py::test_sigterm_lets_streams_end_and_refuses_new_work \
  --deselect test_daemon_http.py::test_bytes_sent_early_do_not_end_the_answer"

if [[ " $what " == *" e2e-asan "* ]]; then
  stage "the daemon under the address and undefined-behaviour sanitizers"
  cmake --preset asan >/dev/null
  cmake --build --preset asan --target thermocline thermoclined thermocline-load
  daemon_tests build/asan/bin env ASAN_OPTIONS=detect_leaks=1
fi

if [[ " $what " == *" e2e-tsan "* ]]; then
  stage "the daemon under the thread sanitizer"
  cmake --preset tsan -DTHERMOCLINE_EMULATED_TESTS=OFF >/dev/null
  cmake --build --preset tsan --target thermocline thermoclined thermocline-load
  PYTEST_ADDOPTS=$too_slow_for_tsan daemon_tests build/tsan/bin env \
    TSAN_OPTIONS="halt_on_error=1:ignore_noninstrumented_modules=1:suppressions=$PWD/tests/tsan.supp"
fi

if [[ " $what " == *" kills "* ]]; then
  stage "killed while writing, 200 rounds; connections for a minute"
  (cd tests/e2e && THERMOCLINE_KILLS=200 THERMOCLINE_CHURN_S=60 THERMOCLINE_PREFIX_KILLS=200 ../../build/venv/bin/python -m pytest -q -s -p no:cacheprovider test_faults.py test_isolation.py test_prefix_flash.py -k 'killed or kills or churn')
fi

if [[ " $what " == *" chaos "* ]]; then
  stage "an hour of faults, half an hour of a crowd, ten minutes of a hostile key"
  build/venv/bin/python tests/chaos/chaos.py --minutes 60
  build/venv/bin/python tests/chaos/crowd.py --minutes 30
  build/venv/bin/python tests/chaos/hostile.py --minutes 10
fi

if [[ " $what " == *" release "* ]]; then
  stage "the files of a release"
  ctest --preset release --no-tests=error -R '^packages_test_release$'
fi
