#!/usr/bin/env bash
# Checks the marks of engine/base/mutex.h: compiles every source that uses a lock with clang, -Wthread-safety -Werror.
# Needs a configured build/release for the generated gRPC code.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
clang=$(command -v clang++-14 || command -v clang++) || { echo "install clang (deploy/install-deps.sh --tests)" >&2; exit 1; }
# Sources that name a mutex, or whose own header does.
list() {
  local marks='base::Mutex|GUARDED_BY|REQUIRES\('
  git grep -lE "$marks" -- 'engine/*.cc' 'server/*.cc'
  git grep -lE "$marks" -- 'engine/*.h' 'server/*.h' | sed 's/\.h$/.cc/' | while read -r file; do
    if [ -f "$file" ]; then echo "$file"; fi
  done
}
list | sort -u | xargs -P "$(nproc)" -I{} "$clang" -std=c++20 -fsyntax-only -I. -isystem build/release/proto -DBOOST_ASIO_NO_DEPRECATED \
  -Wthread-safety -Werror {}
echo "$(list | sort -u | wc -l) sources: no lock is missing"
