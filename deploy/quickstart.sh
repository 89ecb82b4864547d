#!/usr/bin/env bash
# From a fresh clone to a chat: installs what is missing, builds, and serves the built-in model.
# Arguments go to thermoclined, for example: deploy/quickstart.sh --set model.path=/models/my.gguf
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

deploy/install-deps.sh
echo "building (a few minutes the first time)"
cmake --preset release -DTHERMOCLINE_TESTS=OFF >build.log 2>&1 || { cat build.log; exit 1; }
cmake --build --preset release >>build.log 2>&1 || { tail -n 40 build.log; exit 1; }
rm -f build.log

log=$(mktemp)
build/release/bin/thermoclined --config config/thermocline.yaml "$@" 2> >(tee "$log" >&2) &
daemon=$!
trap 'kill "$daemon" 2>/dev/null; wait "$daemon" 2>/dev/null; rm -f "$log"' EXIT
trap 'exit 0' INT TERM
until grep -q ' ready: ' "$log"; do
  kill -0 "$daemon" 2>/dev/null || { wait "$daemon" || exit $?; exit 0; }
  sleep 0.1
done
url=$(grep -o 'http://[^ ]*' "$log" | head -n 1)
cat <<EOF

Chat in a browser:  ${url}
Or with curl:

  curl -N ${url}v1/chat/completions -H 'content-type: application/json' \\
    -d '{"messages": [{"role": "user", "content": "Tell me a story about an owl."}], "stream": true}'

Ctrl-C ends it.
EOF
wait "$daemon"
