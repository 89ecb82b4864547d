"""Logits of transformers behind 2,000 tokens, of tiny models with each kind of recurrent layer: states that drift would show.

    python3 tests/golden/make_long_states.py        # needs torch 2.15 and transformers 5.24; a minute

Reads the folders of make_architectures.py, which allow 128 positions, with 4,096 instead. Writes long_states/tokens.json and the
last four rows of each model's logits, computed in double, as long_states/NAME.npy.
"""
import json
import pathlib
import random
import shutil
import tempfile

import numpy as np
import torch
import transformers
from architectures_hybrid import without_clamp

HERE = pathlib.Path(__file__).parent
NAMES = ("lfm2", "qwen3next", "qwen35", "granitehybrid", "nemotron_h", "nemotron_h_moe")
ROWS = 4


def last_logits(name, tokens):
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(HERE / "architectures" / name / "model.safetensors", folder)
        config = json.loads((HERE / "architectures" / name / "config.json").read_text()) | {"max_position_embeddings": 4096}
        (pathlib.Path(folder) / "config.json").write_text(json.dumps(config))
        network = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64, experts_implementation="eager").eval()
    without_clamp(network)
    with torch.no_grad():
        return network(torch.tensor([tokens]), use_cache=False).logits[0, -ROWS:].numpy().astype(np.float32)


def main():
    out = HERE / "long_states"
    out.mkdir(exist_ok=True)
    draw = random.Random(5)
    tokens = [draw.randrange(4, 96) for _ in range(2000)]
    (out / "tokens.json").write_text(json.dumps([tokens]) + "\n")
    for name in NAMES:
        np.save(out / f"{name}.npy", last_logits(name, tokens))


if __name__ == "__main__":
    main()
