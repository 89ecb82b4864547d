#!/usr/bin/env bash
# Runs clang-tidy (.clang-tidy) over every source of the engine, the kernels, the daemon, the tools and the load tester; a
# finding is mended or carries a NOLINT with its reason.
#     tests/lint/tidy.sh [--changed | --since COMMIT] [--list]
# --changed: only what the last day's commits changed. --since: what changed after a commit.
# --list: prints the sources, and reads none.
# The sources are read joined, as the build joins them: an eighth of the time.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
tidy=$(command -v clang-tidy-14 || command -v clang-tidy) || { echo "install clang-tidy (deploy/install-deps.sh --tests)" >&2; exit 1; }
clang=$(command -v clang++-14 || command -v clang++)

base=''
case ${1:-} in
  '') ;;
  --changed) base=$(git rev-list -1 --before="$(($(git log -1 --format=%ct) - 86400))" HEAD) ;;
  --since) base=$2 ;;
  --list) ;;
  *) echo "usage: tests/lint/tidy.sh [--changed | --since COMMIT] [--list]" >&2; exit 2 ;;
esac

find build/tidy -name 'unity_*.cxx' -delete 2>/dev/null || true  # of an earlier list of sources
cmake --preset release -B build/tidy -DCMAKE_CXX_COMPILER="$clang" -DTHERMOCLINE_TESTS=OFF -DCMAKE_EXPORT_COMPILE_COMMANDS=ON >/dev/null
cmake --build build/tidy --target proto embedded >/dev/null  # generated sources

# Joined sources, and those with definitions of their own, which are joined with none.
all() {
  find build/tidy -name 'unity_*.cxx'
  echo tools/main.cc loadtest/options/command_line.cc server/daemon/main.cc server/metrics/build_info.cc server/openai/response.cc | tr ' ' '\n'
}
# Of those, the ones with a source that changed, or whose header did.
changed() {
  local names
  names=$(git diff --name-only --diff-filter=d "$base" HEAD -- '*.cc' '*.h' | sed -E 's/\.(cc|h)$/.cc/' | sort -u)
  [ -n "$names" ] || return 0
  { all | grep -xF "$names" || true; all | grep unity_ | xargs -r grep -lF "$names" || true; } | sort -u
}
list=$(if [ -n "$base" ]; then changed; else all; fi)
if [ "${!#}" = --list ]; then printf '%s\n' "$list"; exit 0; fi
if [ -z "$list" ]; then echo "clang-tidy: no source changed"; exit 0; fi
xargs -P "$(nproc)" -I{} "$tidy" -quiet -p build/tidy {} 2>/dev/null <<<"$list"
echo "clang-tidy: $(wc -l <<<"$list") sources, no finding"
