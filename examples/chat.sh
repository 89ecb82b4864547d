#!/bin/sh
# A chat with curl. Each line that begins with "data:" is a chunk of the answer, in JSON; the last one is "data: [DONE]".
#
#   ./chat.sh
#
# To see the text alone, with jq:
#
#   ./chat.sh | sed -un 's/^data: {/{/p' | jq -j --unbuffered '.choices[0].delta.content // empty'
set -eu

curl -sS -N --fail-with-body "${THERMOCLINE_URL:-http://127.0.0.1:8080}/v1/chat/completions" \
  -H "authorization: Bearer ${THERMOCLINE_KEY:-none}" -H 'content-type: application/json' \
  -d '{"messages": [{"role": "user", "content": "Tell me a story about an owl."}], "max_tokens": 300, "stream": true}'
