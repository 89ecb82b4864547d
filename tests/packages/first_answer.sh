#!/usr/bin/env bash
# The time from nothing to the first answer without a compiler: install.sh of a release, downloaded from a server on this machine,
# in a clean Debian 12 that has curl and xz, then the daemon, then a completion. Prints seconds. Needs root and debootstrap.
#   tests/packages/first_answer.sh FOLDER [ROUNDS]      FOLDER: what deploy/release.sh made; ROUNDS [3]
set -euo pipefail
release=$(cd "${1:?tests/packages/first_answer.sh: name the folder that deploy/release.sh made}" && pwd)
work=$(mktemp -d)
server=''
clean_up() {
  if [ -n "$server" ]; then kill "$server"; fi
  rm -rf "$work"
}
trap clean_up EXIT
debootstrap --variant=minbase --include=ca-certificates,curl,xz-utils bookworm "$work/root" \
  "${THERMOCLINE_DEBIAN_MIRROR:-http://deb.debian.org/debian}" >"$work/log" || { tail -n 5 "$work/log" >&2; exit 1; }
python3 -u -m http.server --bind 127.0.0.1 --directory "$release" 0 >"$work/server" 2>/dev/null &
server=$!
until address=$(grep -oE 'http://127[0-9.]*:[0-9]+' "$work/server"); do sleep 0.1; done

cat >"$work/root/first_answer.sh" <<'INSIDE'
set -eu
before=$(date +%s.%N)
curl -fsSL "$1/install.sh" -o /tmp/install.sh
sh /tmp/install.sh "$1" >/dev/null
installed=$(date +%s.%N)
: >/tmp/log
thermoclined --set server.port=0 --set grpc.address= 2>>/tmp/log &
until grep -q ' ready: ' /tmp/log; do sleep 0.05; done
url=$(grep -oE 'http://[^ ]*/' /tmp/log | head -n 1)
curl -fsS "${url}v1/completions" -H 'content-type: application/json' -d '{"prompt": "Once upon a time", "max_tokens": 16, "temperature": 0}' >/tmp/answer
after=$(date +%s.%N)
grep -q '"text":"[^"]' /tmp/answer
kill $!
wait $!
echo "$before $installed $after" | awk '{ printf "installed after %.1f s, the answer after %.1f s\n", $2 - $1, $3 - $1 }'
sh /usr/local/lib/thermocline-release/current/install.sh --remove >/dev/null
rm -rf /etc/thermocline /tmp/log
INSIDE
for _ in $(seq "${2:-3}"); do
  unshare --mount sh -c 'mount --bind /dev "$0/dev" && mount -t proc proc "$0/proc" && exec chroot "$0" sh /first_answer.sh "$1"' "$work/root" "$address"
done
