#!/usr/bin/env bash
# From a fresh clone to a chat: installs missing packages, builds the daemon and the command line, and serves the built-in model.
#   deploy/quickstart.sh [--cuda] [--with-prometheus] [ARGUMENT of thermoclined ...]
# For example: deploy/quickstart.sh --set model.path=/models/my.gguf
# The GPU's kernels are built where a GPU and nvcc are found; --cuda builds them without a GPU, too. --with-prometheus starts a
# Prometheus with our rules beside the daemon (the package prometheus is installed), and ends it with the daemon.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

cuda=AUTO prometheus=''
while true; do
  case "${1:-}" in
    --cuda) cuda=ON ;;
    --with-prometheus) prometheus=yes ;;
    *) break ;;
  esac
  shift
done

# Percent of the build's time at each tenth of its steps, measured on two cores with an empty compiler cache: the last steps
# are the longest.
time_at=(0 13 21 31 39 45 52 64 75 85 100)

# Draws what ninja says of its progress: a bar on a terminal, else a line for each tenth.
show_progress() {
  local tenth=-1 share elapsed left at
  while IFS= read -r line; do
    if [[ $line =~ ^@([0-9]+)/([0-9]+)\ ([0-9]+) ]]; then
      share=$((100 * BASH_REMATCH[1] / BASH_REMATCH[2])) elapsed=${BASH_REMATCH[3]}
      at=$((share / 10)) # per mille of the time, between two tenths
      at=$((10 * time_at[at] + share % 10 * (time_at[at < 10 ? at + 1 : 10] - time_at[at])))
      left=$((at > 0 ? elapsed * (1000 - at) / at : 0))
      if [ -t 1 ]; then
        printf '\r  [%-40s] %3d%%  about %d:%02d left ' "$(printf '%*s' $((share * 40 / 100)) '' | tr ' ' '#')" \
          "$share" $((left / 60)) $((left % 60))
      elif [ $((share / 10)) -ne "$tenth" ]; then
        tenth=$((share / 10))
        printf '  %d%%, about %d:%02d left\n' "$share" $((left / 60)) $((left % 60))
      fi
    else
      printf '%s\n' "$line" >>"$1"
    fi
  done
  if [ -t 1 ]; then echo; fi
}

deploy/install-deps.sh
if [ -n "$prometheus" ] && ! command -v prometheus >/dev/null; then
  command -v apt-get >/dev/null || { echo "--with-prometheus: install prometheus, so that it is in the PATH" >&2; exit 1; }
  as_root=()
  if [ "$(id -u)" -ne 0 ]; then as_root=(sudo); fi
  echo "installing prometheus; its own service stays off (systemctl unmask prometheus allows it again)"
  "${as_root[@]}" mkdir -p /etc/systemd/system
  [ -e /etc/systemd/system/prometheus.service ] || "${as_root[@]}" ln -s /dev/null /etc/systemd/system/prometheus.service
  "${as_root[@]}" apt-get update -qq
  DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -qq --no-install-recommends prometheus >/dev/null
fi
log=$(mktemp)
echo "building (5 to 15 minutes on two cores the first time)"
cmake --preset release -DTHERMOCLINE_TESTS=OFF -DTHERMOCLINE_CUDA=$cuda >"$log" 2>&1 || { cat "$log"; exit 1; }
NINJA_STATUS='@%f/%t %e ' cmake --build --preset release --target thermoclined thermocline thermocline-load 2>&1 | show_progress "$log" ||
  { tail -n 40 "$log"; exit 1; }

build/release/bin/thermoclined --config config/thermocline.yaml "$@" 2> >(tee "$log" >&2) &
daemon=$!
server=''
trap 'kill "$daemon" $server 2>/dev/null; wait "$daemon" $server 2>/dev/null; rm -f "$log"' EXIT
trap 'exit 0' INT TERM
until grep -q ' ready: ' "$log"; do
  kill -0 "$daemon" 2>/dev/null || { wait "$daemon" || exit $?; exit 0; }
  sleep 0.1
done
url=$(grep -oE 'https?://[^ ]*' "$log" | head -n 1 || true)
if [ -n "$prometheus" ]; then
  mkdir -p build/prometheus
  address=${url#http://}
  sed "s|127.0.0.1:8080|${address%/}|" deploy/prometheus/prometheus.yml >build/prometheus/prometheus.yml
  cp deploy/prometheus/rules.yml build/prometheus/
  prometheus --config.file=build/prometheus/prometheus.yml --storage.tsdb.path=build/prometheus/data \
    --web.listen-address="${PROMETHEUS_ADDRESS:-127.0.0.1:9090}" --log.level=warn &
  server=$!
  echo
  echo "Prometheus:         http://${PROMETHEUS_ADDRESS:-127.0.0.1:9090}/   (dashboards for Grafana: deploy/grafana)"
fi
cat <<EOF

Chat in a browser:  ${url}
Or with curl:

  curl -N ${url}v1/chat/completions -H 'content-type: application/json' \\
    -d '{"messages": [{"role": "user", "content": "Tell me a story about an owl."}], "stream": true}'

Ctrl-C ends it. For the commands thermocline, thermoclined and thermocline-load in another terminal:

  export PATH="$PWD/build/release/bin:\$PATH"
EOF
wait "$daemon"
