#!/usr/bin/env bash
# Copies the shared libraries that programs need, and those that these need, to where the programs look first. Left out is
# what every system has: the C and C++ libraries, and libsystemd, which talks to the systemd that is there.
#   deploy/bundle_libraries.sh SYSTEM_ROOT LIBRARY_FOLDER PROGRAM ...
set -euo pipefail
root=${1%/} out=$2
shift 2
theirs='^(ld-linux.*|libc|libm|libdl|librt|libpthread|libresolv|libstdc\+\+|libgcc_s|libsystemd)\.so'
mkdir -p "$out"

needed() { readelf -d "$1" | sed -nE 's/.*\(NEEDED\).*\[(.*)\]/\1/p'; }

find_library() {  # NAME TRIPLET
  local folder
  for folder in "$root/usr/lib/$2" "$root/lib/$2" "$root/usr/lib64" "$root/usr/lib"; do
    if [ -e "$folder/$1" ]; then echo "$folder/$1"; return; fi
  done
  echo "deploy/bundle_libraries.sh: $1 is not below ${root:-/}" >&2
  return 1
}

todo=("$@")
while [ ${#todo[@]} -gt 0 ]; do
  file=${todo[0]}
  todo=("${todo[@]:1}")
  case "$(readelf -h "$file" | sed -n 's/.*Machine: *//p')" in
    AArch64) triplet=aarch64-linux-gnu ;;
    *) triplet=x86_64-linux-gnu ;;
  esac
  for name in $(needed "$file"); do
    if [[ $name =~ $theirs ]] || [ -e "$out/$name" ]; then continue; fi
    library=$(find_library "$name" "$triplet")
    cp -L "$library" "$out/$name"
    chmod 644 "$out/$name"
    todo+=("$out/$name")
  done
done
