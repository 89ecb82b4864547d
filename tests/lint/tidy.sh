#!/usr/bin/env bash
# Runs clang-tidy (.clang-tidy) over every source of the engine, the kernels, the daemon and the load tester. A finding is mended or
# carries a NOLINT with its reason. The sources are read joined, as the build joins them: an eighth of the time.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
tidy=$(command -v clang-tidy-14 || command -v clang-tidy) || { echo "install clang-tidy (deploy/install-deps.sh --tests)" >&2; exit 1; }
clang=$(command -v clang++-14 || command -v clang++)
find build/tidy -name 'unity_*.cxx' -delete 2>/dev/null || true  # of an earlier list of sources
cmake --preset release -B build/tidy -DCMAKE_CXX_COMPILER="$clang" -DTHERMOCLINE_TESTS=OFF -DCMAKE_EXPORT_COMPILE_COMMANDS=ON >/dev/null
cmake --build build/tidy --target proto embedded >/dev/null  # generated sources
list() {
  find build/tidy -name 'unity_*.cxx'
  # With definitions of their own, so they are joined with none.
  echo tools/main.cc loadtest/options/command_line.cc server/daemon/main.cc server/metrics/build_info.cc server/openai/response.cc | tr ' ' '\n'
}
list | xargs -P "$(nproc)" -I{} "$tidy" -quiet -p build/tidy {} 2>/dev/null
echo "clang-tidy: $(list | wc -l) sources, no finding"
