#!/usr/bin/env bash
# Makes a Debian 12 system for 64-bit Arm with the libraries Thermocline needs in build/arm64-root, to build against
# (cmake --preset arm64) and to run under qemu. As root, on Debian; five minutes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD/build/arm64-root
if [ -e "$root/usr/bin/curl" ]; then exit 0; fi
if ! command -v mmdebstrap arch-test qemu-aarch64-static aarch64-linux-gnu-g++ >/dev/null; then
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends arch-test g++-aarch64-linux-gnu mmdebstrap \
    qemu-user-static >/dev/null
fi
# The kernel hands programs for Arm to qemu.
if [ ! -e /proc/sys/fs/binfmt_misc/register ]; then mount -t binfmt_misc none /proc/sys/fs/binfmt_misc; fi
if [ ! -e /proc/sys/fs/binfmt_misc/qemu-aarch64 ]; then
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends binfmt-support >/dev/null
  update-binfmts --enable qemu-aarch64
fi
libraries=$(THERMOCLINE_OS_RELEASE=<(printf 'ID=debian\nVERSION_ID=12\n') deploy/install-deps.sh --list |
  grep -vxE 'g\+\+|cmake|ninja-build|ccache' | paste -sd ,)
mmdebstrap --variant=minbase --arch=arm64 --include="ca-certificates,libc6-dev,$libraries" bookworm "$root" \
  "${THERMOCLINE_DEBIAN_MIRROR:-http://deb.debian.org/debian}"
