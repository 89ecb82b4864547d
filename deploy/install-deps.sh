#!/usr/bin/env bash
# Installs what Thermocline is built with. --tests: what its tests need, too (Debian 12); --arm: a compiler and an emulator for
# 64-bit Arm (Debian); --list: prints the names and installs nothing.
set -euo pipefail

# A line for each need: the package that has it, by distribution; "-": another line's package has it.
table='
need             debian-12                 debian-13                 ubuntu-24.04              fedora
compiler         g++                       g++                       g++                       gcc-c++
cmake>=3.25      cmake                     cmake                     cmake                     cmake
ninja            ninja-build               ninja-build               ninja-build               ninja-build
ccache           ccache                    ccache                    ccache                    ccache
boost>=1.81      libboost1.81-dev          libboost-dev              libboost-dev              boost-devel
cli11            libcli11-dev              libcli11-dev              libcli11-dev              cli11-devel
eigen3           libeigen3-dev             libeigen3-dev             libeigen3-dev             eigen3-devel
grpc             libgrpc++-dev             libgrpc++-dev             libgrpc++-dev             grpc-devel
grpc-plugin      protobuf-compiler-grpc    protobuf-compiler-grpc    protobuf-compiler-grpc    grpc-plugins
icu              libicu-dev                libicu-dev                libicu-dev                libicu-devel
json             nlohmann-json3-dev        nlohmann-json3-dev        nlohmann-json3-dev        json-devel
prometheus-cpp   prometheus-cpp-dev        prometheus-cpp-dev        prometheus-cpp-dev        prometheus-cpp-devel
protobuf         libprotobuf-dev           libprotobuf-dev           libprotobuf-dev           protobuf-devel
protoc           protobuf-compiler         protobuf-compiler         protobuf-compiler         protobuf-compiler
spdlog           libspdlog-dev             libspdlog-dev             libspdlog-dev             spdlog-devel
re2              libre2-dev                libre2-dev                libre2-dev                re2-devel
openssl          libssl-dev                libssl-dev                libssl-dev                openssl-devel
libcurl          libcurl4-openssl-dev      libcurl4-openssl-dev      libcurl4-openssl-dev      libcurl-devel
systemd          libsystemd-dev            libsystemd-dev            libsystemd-dev            systemd-devel
liburing         liburing-dev              liburing-dev              liburing-dev              liburing-devel
libedit          libedit-dev               libedit-dev               libedit-dev               libedit-devel
xxhash           libxxhash-dev             libxxhash-dev             libxxhash-dev             xxhash-devel
yaml-cpp         libyaml-cpp-dev           libyaml-cpp-dev           libyaml-cpp-dev           yaml-cpp-devel
curl             curl                      curl                      curl                      curl
'
tests=(chromium chromium-driver clang-14 clang-format-14 clang-tidy-14 debootstrap dpkg-dev git haproxy help2man libboost-context1.81-dev libclang-rt-14-dev
  libglpk-dev libgtest-dev lintian openssl prometheus python3 python3-venv systemd systemd-container yamllint)
arm=(ccache cmake g++-aarch64-linux-gnu libgtest-dev ninja-build qemu-user-static)

what=${1:-}
list=''
if [ "$what" = --list ]; then list=yes what=''; fi
case "$what" in
  '' | --tests | --arm) ;;
  *) echo "usage: deploy/install-deps.sh [--tests | --arm | --list]" >&2; exit 2 ;;
esac

# The column of the table for this system, from /etc/os-release. A system made of another one (Linux Mint, Pop!_OS, Nobara) names
# that one in ID_LIKE, and its release by a code name or PLATFORM_ID.
mapfile -t told < <(. "${THERMOCLINE_OS_RELEASE:-/etc/os-release}" && printf '%s\n' "${ID:-unknown}-${VERSION_ID:-}" \
  "${ID_LIKE:-}  ${UBUNTU_CODENAME:-${DEBIAN_CODENAME:-${VERSION_CODENAME:-}}}  ${PLATFORM_ID:-}")
system=${told[0]:-unknown} base=${told[1]:-}
case "$system" in
  fedora-*) column=fedora ;;
  raspbian-12* | debian-12*) column=debian-12 ;;
  debian-13*) column=debian-13 ;;
  ubuntu-24.04 | ubuntu-24.10 | ubuntu-25.* | ubuntu-26.*) column=ubuntu-24.04 ;;
  *)
    case " $base " in
      *' ubuntu '*' noble '* | *' ubuntu '*' oracular '* | *' ubuntu '*' plucky '* | *' ubuntu '*' questing '*) column=ubuntu-24.04 ;;
      *' debian '*' bookworm '*) column=debian-12 ;;
      *' debian '*' trixie '*) column=debian-13 ;;
      *' fedora '*' platform:f'*) column=fedora ;;
      *) column='' ;;
    esac
    ;;
esac
if [ -z "$column" ]; then
  cat >&2 <<EOF
deploy/install-deps.sh does not know the packages of $system. Thermocline builds with g++ 12 or newer and these:
$(awk 'NR > 2 && NF { printf "  %-16s (Debian: %s)\n", $1, $3 }' <<<"$table")
On Ubuntu 22.04 and JetPack 6, whose CMake and Boost are too old, install a release or the portable package instead: docs/install.md.
EOF
  exit 1
fi
mapfile -t packages < <(awk -v column="$column" 'NF && !at { for (i = 1; i <= NF; ++i) if ($i == column) at = i; next } NF && $at != "-" { print $at }' <<<"$table")
if [ -n "$list" ]; then
  printf '%s\n' "${packages[@]}"
  exit 0
fi
if [ -n "$what" ] && [ "$column" != debian-12 ]; then
  echo "deploy/install-deps.sh $what: the tests run on Debian 12; this is $system" >&2
  exit 1
fi
if [ "$what" = --tests ]; then packages+=("${tests[@]}"); fi
if [ "$what" = --arm ]; then packages=("${arm[@]}"); fi

installed() {
  if [ "$column" = fedora ]; then rpm -q --whatprovides "$1" >/dev/null 2>&1; return; fi
  dpkg-query -W -f='${Status}' "$1" 2>/dev/null | grep -q 'install ok installed'
}
missing=()
for package in "${packages[@]}"; do
  installed "$package" || missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then
  exit 0
fi
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "run as root, or install sudo; missing: ${missing[*]}" >&2; exit 1; }
  as_root=(sudo)
fi
echo "installing ${missing[*]}"
if [ "$column" = fedora ]; then
  "${as_root[@]}" dnf install -y -q "${missing[@]}"
  exit 0
fi
export DEBIAN_FRONTEND=noninteractive
# The tests start a Prometheus and an HAProxy of their own; the packages' services, which would take ports, stay off.
for service in prometheus haproxy; do
  if [[ " ${missing[*]} " == *" $service "* && ! -e /etc/systemd/system/$service.service ]]; then
    "${as_root[@]}" mkdir -p /etc/systemd/system
    "${as_root[@]}" ln -s /dev/null "/etc/systemd/system/$service.service"
  fi
done
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
