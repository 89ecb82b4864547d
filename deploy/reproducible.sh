#!/usr/bin/env bash
# Builds the programs of this commit twice, in folders of different names at different times, without a compiler's cache, and compares
# them byte for byte:
#     deploy/reproducible.sh [FOLDER]      where the two are built [a temporary one, removed at the end]
# Prints the hashes, by which anybody with the same packages (deploy/sbom.py) can compare their own.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [ $# -gt 0 ]; then
  folder=$1
  mkdir -p "$folder"
else
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
fi
commit=$(git rev-parse HEAD)
for name in one another-place; do
  rm -rf "${folder:?}/$name"
  mkdir -p "$folder/$name"
  git archive "$commit" | tar -x -C "$folder/$name"
  (
    cd "$folder/$name"
    cmake --preset release -DTHERMOCLINE_TESTS=OFF -DCCACHE=OFF >/dev/null
    cmake --build --preset release --target thermocline thermoclined thermocline-load
    cd build/release/bin
    sha256sum thermocline thermoclined thermocline-load
  ) | tee "$folder/$name.log"
  tail -3 "$folder/$name.log" >"$folder/$name.sums"
done
cmp "$folder/one.sums" "$folder/another-place.sums"
echo "the same, bit by bit"
