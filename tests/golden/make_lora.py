#!/usr/bin/env python3
"""Makes the golden data of the LoRA tests: random adapters of tiny models, and the logits of the models with them merged.

    python3 tests/golden/make_lora.py LLAMA_CPP        # needs torch, transformers and peft; a minute

Reads the folders of make_architectures.py. For every model in MODELS it writes lora/NAME/
    adapter_config.json, adapter_model.safetensors     the adapter as PEFT saves it
    adapter.gguf                                       the same as llama.cpp's convert_lora_to_gguf.py writes it, if it can
    logits.npy                                         float32 [T, vocabulary]: of PEFT's merged weights, in double precision
A is drawn as PEFT does, B from a normal distribution of 0.2, so that every matrix has a visible effect. rslora: the scale is
alpha / sqrt(r).

Made with Python 3.11.7, torch 2.15.0, transformers 5.24.0, peft 0.21.2 and the llama.cpp source inside llama_cpp_python 0.3.36.
"""
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import peft
import torch
import transformers

from architectures_weights import in_double_precision

HERE = Path(__file__).resolve().parent
ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
MODELS = {
    "llama3": dict(r=4, lora_alpha=12, target_modules=ALL),
    "qwen3": dict(r=8, lora_alpha=16, target_modules=ALL, use_rslora=True),
    "gemma3": dict(r=3, lora_alpha=6, target_modules=["q_proj", "v_proj"]),
    "opt": dict(r=4, lora_alpha=8, target_modules=["q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2"]),
}
SEED = 7


def make(name, config, llama_cpp):
    base, out = HERE / "architectures" / name, HERE / "lora" / name
    torch.manual_seed(SEED)
    model = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32, attn_implementation="eager")
    adapted = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", **config))
    for key, value in adapted.named_parameters():
        if "lora_B" in key:
            torch.nn.init.normal_(value, std=0.2)
    adapted.save_pretrained(out)
    (out / "README.md").unlink()
    saved = json.loads((out / "adapter_config.json").read_text()) | {"base_model_name_or_path": None}
    (out / "adapter_config.json").write_text(json.dumps(saved, indent=2, sort_keys=True) + "\n")
    tokens = json.loads((base / "tokens.json").read_text())
    merged = adapted.merge_and_unload()
    with in_double_precision(), torch.no_grad():
        logits = merged.double()(torch.tensor([tokens])).logits[0]
    np.save(out / "logits.npy", logits.numpy().astype(np.float32))
    converted = subprocess.run([sys.executable, f"{llama_cpp}/convert_lora_to_gguf.py", "--base", base, "--outtype", "f32", "--outfile",
                                out / "adapter.gguf", out], capture_output=True, text=True)
    print(name, float(logits.abs().max()), "gguf" if converted.returncode == 0 else converted.stderr[-300:])


if __name__ == "__main__":
    for model, settings in MODELS.items():
        make(model, settings, sys.argv[1])
