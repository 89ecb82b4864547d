#!/usr/bin/env bash
# Sets up a Jetson Orin with JetPack 6 (L4T r36) as a headless server of one model.
#   deploy/jetson/setup.sh [--dry-run] [--headless] [--power-mode ID] PACKAGE.deb [MODEL.gguf]
# --headless: no desktop from the next start on, which frees nearly 1 GB. --power-mode: an id of /etc/nvpmodel.conf.
# --dry-run prints what would be done. THERMOCLINE_ROOT stands for / in tests.
set -euo pipefail
root=${THERMOCLINE_ROOT:-}
dry='' headless='' mode=''
usage() { sed -n '3,5s/^# *//p' "$0" >&2; exit 2; }
while [[ ${1:-} == --* ]]; do
  case "$1" in
    --dry-run) dry=yes ;;
    --headless) headless=yes ;;
    --power-mode) mode=${2:-}; [[ $mode =~ ^[0-9]+$ ]] || usage; shift ;;
    *) usage ;;
  esac
  shift
done
[ $# -ge 1 ] && [ $# -le 2 ] || usage
package=$1 model=${2:-}

fail() { echo "setup.sh: $1" >&2; exit 1; }
run() {
  echo "+ $*"
  if [ -z "$dry" ]; then "$@"; fi
}

release=$(sed -nE '1s/^# R([0-9]+) .*/\1/p' "$root/etc/nv_tegra_release" 2>/dev/null || true)
[ -n "$release" ] || fail "this is no Jetson: /etc/nv_tegra_release is missing"
[ "$release" = 36 ] || fail "L4T r$release: these instructions are for r36 (JetPack 6); update with NVIDIA's SDK Manager"
[ -e "$package" ] || fail "$package: no such package"
[ -z "$model" ] || [ -e "$model" ] || fail "$model: no such model"
[ -n "$dry" ] || [ "$(id -u)" -eq 0 ] || fail "run it as root"
echo "$(tr -d '\0' <"$root/proc/device-tree/model"), L4T r$release"

run apt-get install -y "$package"
if [ -n "$mode" ]; then
  # Some modes ask for a restart: the answer is yes, at the end.
  run nvpmodel -m "$mode"
fi
if [ -n "$headless" ]; then run systemctl set-default multi-user.target; fi
run install -d /etc/systemd/system/thermocline.service.d
run install -m 644 /usr/share/doc/thermocline/examples/systemd/jetson.conf /etc/systemd/system/thermocline.service.d/gpu.conf
if [ -n "$model" ]; then
  # The unit's user is dynamic: it reads what everybody may read.
  run install -m 644 -D "$model" "/srv/thermocline/$(basename "$model")"
  run sed -i "/^model:/,/^[^ #]/s|^  path: .*|  path: /srv/thermocline/$(basename "$model")|" /etc/thermocline/thermocline.yaml
fi
run systemctl daemon-reload
run systemctl restart thermocline
run thermocline doctor ${model:+"/srv/thermocline/$(basename "$model")"} --config /etc/thermocline/thermocline.yaml
if [ -n "$headless" ]; then echo "restart the board to be without a desktop: systemctl reboot"; fi
