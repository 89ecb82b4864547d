#!/usr/bin/env bash
# The package for 64-bit Arm, installed into Debian's system for Arm and run under qemu: the command line, a chat, a gRPC call.
# Needs root; a build of twenty minutes where nothing is compiled yet. Recorded results: docs/benchmarks.md.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
root=$PWD/build/arm64-root
deploy/arm64_root.sh
cmake --preset arm64 "$@" >/dev/null
cmake --build --preset arm64
rm -f build/arm64/*.deb
(cd build/arm64 && cpack)
deb=$(ls build/arm64/*.deb)
lintian --allow-root --fail-on error "$deb"
cp "$deb" "$root/root/thermocline.deb"
chroot "$root" sh -c 'apt-get update -qq; DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends --reinstall /root/thermocline.deb' >/dev/null

mounted() { mountpoint -q "$root/proc" || mount -t proc proc "$root/proc"; }
mounted
daemon=''
clean_up() {
  if [ -n "$daemon" ]; then kill "$daemon" 2>/dev/null && wait "$daemon" || true; fi
  umount "$root/proc" || true
}
trap clean_up EXIT
echo "thermocline run:"
chroot "$root" thermocline run tidepool -p "Once upon a time" -n 20 --temperature 0
log=$(mktemp)
chroot "$root" thermoclined --config /etc/thermocline/thermocline.yaml --set server.port=0 --set grpc.address=127.0.0.1:0 2>"$log" &
daemon=$!
for _ in $(seq 600); do
  if grep -q ' ready: ' "$log"; then break; fi
  kill -0 "$daemon" || { cat "$log"; exit 1; }
  sleep 0.5
done
grep -E 'ready|listening' "$log"
url=$(grep -o 'http://[^ ]*' "$log" | head -n 1)
echo "chat:"
curl -sSf "${url}v1/chat/completions" -H 'content-type: application/json' \
  -d '{"messages": [{"role": "user", "content": "Tell me a story about an owl."}], "max_tokens": 16, "temperature": 0}'
echo
echo "gRPC:"
address=$(sed -nE 's/.*listening for gRPC on ([^ ]+:[0-9]+).*/\1/p' "$log")
PYTHONPATH=tests/e2e build/venv/bin/python tests/packages/one_grpc_call.py "$address"
kill "$daemon"
wait "$daemon"
daemon=''
chroot "$root" apt-get purge -y -qq thermocline >/dev/null
if find "$root" -xdev -path "$root/proc" -prune -o -path "$root/var/log" -prune -o -path "$root/var/cache" -prune -o -name 'thermocline*' ! -name thermocline.deb -print | grep .; then
  echo "the purge left these files" >&2
  exit 1
fi
echo "the Arm package installs, runs, answers over HTTP and gRPC, and purges"
