#!/usr/bin/env bash
# Installs the Debian 12 packages Thermocline needs. --run: to run only; --tests: for the tests too;
# --arm: to build and test the kernels for 64-bit Arm.
set -euo pipefail

run=(libgrpc++1.51 libicu72 libprometheus-cpp-core1.0 libprotobuf32 libspdlog1.10 libssl3 libsystemd0 liburing2 libyaml-cpp0.7 curl)
build=(ccache cmake g++ libboost1.81-dev libcli11-dev libeigen3-dev libgrpc++-dev libicu-dev libprotobuf-dev libspdlog-dev libssl-dev libsystemd-dev
  liburing-dev libxxhash-dev libyaml-cpp-dev ninja-build nlohmann-json3-dev prometheus-cpp-dev protobuf-compiler protobuf-compiler-grpc)
tests=(chromium chromium-driver debootstrap dpkg-dev help2man lintian systemd-container clang-14 clang-format-14 clang-tidy-14 git libboost-context1.81-dev libglpk-dev libgtest-dev openssl prometheus
  python3 python3-venv systemd)
arm=(ccache cmake g++-aarch64-linux-gnu libgtest-dev ninja-build qemu-user-static)

case "${1:-}" in
  --run) packages=("${run[@]}") ;;
  --tests) packages=("${run[@]}" "${build[@]}" "${tests[@]}") ;;
  --arm) packages=("${arm[@]}") ;;
  "") packages=("${run[@]}" "${build[@]}") ;;
  *) echo "usage: deploy/install-deps.sh [--run | --tests | --arm]" >&2; exit 2 ;;
esac

missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
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
export DEBIAN_FRONTEND=noninteractive
# The tests start a Prometheus of their own; the package's service, which would take a port, stays off.
if [[ " ${missing[*]} " == *" prometheus "* && ! -e /etc/systemd/system/prometheus.service ]]; then
  "${as_root[@]}" mkdir -p /etc/systemd/system
  "${as_root[@]}" ln -s /dev/null /etc/systemd/system/prometheus.service
fi
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
