#!/usr/bin/env bash
# The Depends of a package whose programs were built for another processor: the packages of the system in SYSTEM_ROOT that have
# the libraries they name. dpkg-shlibdeps does it where the programs are this machine's.
#   deploy/depends.sh SYSTEM_ROOT PROGRAM ...
set -euo pipefail
root=${1%/}
shift
# The newest version of the C library's symbols that they name.
glibc=$(readelf -V "$@" | grep -oE 'GLIBC_[0-9]+\.[0-9]+' | sort -uV | tail -n 1)
for name in $(readelf -d "$@" | sed -nE 's/.*\(NEEDED\).*\[(.*)\]/\1/p' | sort -u); do
  case "$name" in
    libc.so* | libm.so* | ld-linux*) echo "libc6 (>= ${glibc#GLIBC_})" ;;
    libstdc++.so*) echo 'libstdc++6 (>= 12)' ;;
    *) dpkg-query --admindir="$root/var/lib/dpkg" -S "*/$name" | head -n 1 | sed 's/:.*//' ;;
  esac
done | sort -u | paste -sd , | sed 's/,/, /g'
