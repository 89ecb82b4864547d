#!/usr/bin/env bash
# Makes the files of a release from the last commit, with SHA256SUMS over all of them. The same commit, built with the same
# packages of Debian 12, gives the same bytes.
#   deploy/release.sh [--arm64] [--uncommitted] [--only PART,...] [FOLDER]
#     FOLDER          where the files go [build/release-files]; the sums cover every file of a release in it
#     --arm64         for 64-bit Arm, beside the files that are there: deploy/arm64_root.sh makes the system to build against, as root
#     --uncommitted   with the changes of tracked files that are not committed yet, which are refused otherwise
#     --only          some of the parts: deb, tarball, wheel, image, notes (sbom.json, CHANGELOG.md, install.sh)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD

fail() { echo "deploy/release.sh: $1" >&2; exit 1; }

machine=x86_64 preset=release system_root='' uncommitted='' parts=deb,tarball,wheel,image,notes folder=build/release-files
while [ $# -gt 0 ]; do
  case "$1" in
    --arm64) machine=aarch64 preset=arm64 system_root=$root/build/arm64-root ;;
    --uncommitted) uncommitted=yes ;;
    --only) shift; parts=${1:?deploy/release.sh: --only needs names of parts} ;;
    -*) sed -n '2,/^set/{/^#/p}' "$root/deploy/release.sh" >&2; exit 2 ;;
    *) folder=$1 ;;
  esac
  shift
done
wants() { [[ ,$parts, == *,$1,* ]]; }
for part in ${parts//,/ }; do
  [[ ,deb,tarball,wheel,image,notes, == *,$part,* ]] || fail "--only: there is no part '$part'; the parts are deb, tarball, wheel, image, notes"
done
if [ "$machine" = x86_64 ] && [ "$(uname -m)" != x86_64 ]; then fail "this machine is $(uname -m); a release for x86_64 is built on x86_64"; fi
for tool in cmake git help2man objdump python3 readelf xz; do
  command -v "$tool" >/dev/null || fail "$tool is missing: deploy/install-deps.sh --tests installs what a release is made with"
done

# The newest symbols that a program may need: those of Ubuntu 22.04 (deploy/install.cmake, Depends of the portable package).
# The wheel's tag and install.sh name the same version.
glibc=2.35 libstdcxx=3.4.30
version=$(sed -nE 's/^project\(thermocline VERSION ([0-9.]+) .*/\1/p' CMakeLists.txt)
commit=$(git rev-parse HEAD)
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct HEAD)
export SOURCE_DATE_EPOCH
source=$commit
changed=$(git stash create)
if [ -n "$changed" ]; then
  [ -n "$uncommitted" ] || fail "tracked files differ from the last commit (git status): commit them, or give --uncommitted for a trial"
  source=$changed
fi

# The build is one of an export, so that nothing else in the checkout gets into it. It has the folders' names of any other
# clone, with which the compiler's cache is shared.
tree=$root/build/release-tree/$machine
identity=$(git rev-parse "$source^{tree}")
if [ "$(cat "$tree.id" 2>/dev/null)" != "$identity" ]; then
  rm -rf "$tree" "$tree.id"
  mkdir -p "$tree"
  git archive "$source" | tar -x -C "$tree"
  echo "$identity" >"$tree.id"
fi
if [ "$machine" = aarch64 ]; then
  deploy/arm64_root.sh
  mkdir -p "$tree/build"
  ln -sfn "$system_root" "$tree/build/arm64-root"
fi
build=$tree/build/$preset
echo "building $version for $machine at ${commit:0:12}"
cd "$tree"
cmake --preset "$preset" -DTHERMOCLINE_PORTABLE=ON -DTHERMOCLINE_TESTS=OFF -DTHERMOCLINE_CUDA=OFF -DTHERMOCLINE_GRPC=ON >"$tree.log" 2>&1 ||
  { tail -n 20 "$tree.log" >&2; fail "cmake failed, see above"; }
cmake --build --preset "$preset" >>"$tree.log" 2>&1 || { tail -n 40 "$tree.log" >&2; fail "the build failed, see above"; }

export LC_ALL=C TZ=UTC  # not before: the compiler's cache counts the locale as an input
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
name=thermocline-$version-linux-$machine
umask 022
DESTDIR=$work/stage cmake --install "$build" --prefix /usr/local --strip >"$tree.log" 2>&1 ||
  { tail -n 20 "$tree.log" >&2; fail "cmake --install failed, see above"; }
top=$work/$name
mv "$work/stage/usr/local" "$top"
mv "$work/stage/etc" "$top/etc"
cp LICENSE "$top/LICENSE"
install -m 755 deploy/install.sh "$top/install.sh"
printf 'machine %s\nglibc %s\nlibstdc++ GLIBCXX_%s\n' "$machine" "$glibc" "$libstdcxx" >"$top/share/thermocline/requirements"

# newest FAMILY LIMIT: fails where a program or library of the release needs a newer symbol.
newest() {
  local found
  found=$(readelf -VW "$top"/bin/* "$top"/lib/thermocline/* | grep -oE "\b$1_[0-9.]+" | sort -uV | tail -n 1)
  [ "$(printf '%s\n' "$found" "$1_$2" | sort -V | tail -n 1)" = "$1_$2" ] ||
    fail "a program needs $found, newer than $1_$2, which the wheel's tag and the packages promise: build on Debian 12"
  echo "newest symbol needed: $found (at most $1_$2)"
}
newest GLIBC "$glibc"
newest GLIBCXX "$libstdcxx"

cd "$root"
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
if wants deb; then
  (cd "$build" && cpack -B "$work/deb" >/dev/null) || fail "cpack failed in $build"
  cp "$work"/deb/*.deb "$folder/"
fi
if wants tarball; then
  # Blocks make the bytes independent of the number of threads.
  tar --format=gnu --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" --mode=u=rwX,go=rX -C "$work" -cf - "$name" |
    xz -6 --threads=2 --block-size=24MiB >"$folder/$name.tar.xz"
fi
if wants wheel; then
  python3 "$tree/deploy/release/wheel.py" "$top" "$folder" "$version" "manylinux_${glibc/./_}_$machine"
fi
if wants image; then
  python3 "$tree/deploy/release/oci_image.py" "$top" "$folder/$name.oci.tar" --version "$version" --machine "$machine" \
    --revision "$commit" --system-root "${system_root:-/}"
fi
if wants notes; then
  bill=sbom.json
  if [ "$machine" = aarch64 ]; then bill=sbom-aarch64.json; fi
  python3 "$tree/deploy/sbom.py" "$build/bin" ${system_root:+--root "$system_root"} >"$folder/$bill"
  python3 "$tree/deploy/release/changelog.py" "$tree/deploy/debian/changelog" >"$folder/CHANGELOG.md"
  install -m 755 "$tree/deploy/install.sh" "$folder/install.sh"
fi
cd "$folder"
shopt -s nullglob
files=(CHANGELOG.m[d] install.s[h] sbom*.json thermocline-"$version"-linux-* thermocline_"$version"* thermocline_server-"$version"-*)
sha256sum -- "${files[@]}" >SHA256SUMS.new
mv SHA256SUMS.new SHA256SUMS
cat SHA256SUMS
echo "in $folder"
