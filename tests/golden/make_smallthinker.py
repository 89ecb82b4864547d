#!/usr/bin/env python3
"""Makes the golden data of SmallThinker, which transformers does not have, as make_architectures.py does for others.

    python make_smallthinker.py OUT LLAMA_CPP

The logits are computed here, in double precision with NumPy, from the definition: the router sees the residual at the
layer's entry, before attention and not normed; sigmoid gates of the chosen experts are normalised; experts are
down(relu(gate x) * up x); layers il with il % 4 == 0 see everything and are not rotated, the others have a window.
llama.cpp's logits of the GGUF file, computed in float32, differ by at most 1.3e-5 where WINDOW is 4096, which it takes
whatever the file says.

Made with Python 3.11.7, numpy 2.4.6, torch 2.15.0 (for the converter), safetensors 0.8.0 and the llama.cpp source
inside llama_cpp_python 0.3.36.
"""

import json
import sys
from pathlib import Path

import numpy as np
from architectures_gguf import VOCABULARY, LlamaCpp, convert
from safetensors.numpy import save_file

D, HEADS, KV_HEADS, HEAD_DIM, LAYERS = 32, 4, 2, 16, 5
EXPERTS, USED, NEURONS = 6, 2, 16
WINDOW, THETA, EPSILON, TOKENS, SEED = 8, 10000.0, 1e-6, 40, 1

CONFIG = dict(
    architectures=["SmallThinkerForCausalLM"], model_type="smallthinker", hidden_size=D, num_hidden_layers=LAYERS,
    num_attention_heads=HEADS, num_key_value_heads=KV_HEADS, head_dim=HEAD_DIM, vocab_size=VOCABULARY,
    max_position_embeddings=128, rms_norm_eps=EPSILON, rope_theta=THETA, tie_word_embeddings=False,
    moe_num_primary_experts=EXPERTS, moe_num_active_primary_experts=USED, moe_ffn_hidden_size=NEURONS,
    moe_primary_router_apply_softmax=False, norm_topk_prob=True, sliding_window_size=WINDOW,
    sliding_window_layout=[int(i % 4 != 0) for i in range(LAYERS)], rope_layout=[int(i % 4 != 0) for i in range(LAYERS)],
    bos_token_id=1, eos_token_id=2)


def make_weights() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(SEED)

    def matrix(rows, columns):
        return (1.3 / np.sqrt(columns) * rng.standard_normal((rows, columns))).astype(np.float32)

    def norm():
        return (1 + 0.2 * rng.standard_normal(D)).astype(np.float32)

    weights = {"model.embed_tokens.weight": (0.5 * rng.standard_normal((VOCABULARY, D))).astype(np.float32)}
    for i in range(LAYERS):
        layer = f"model.layers.{i}."
        for name, rows, columns in [("q", HEADS * HEAD_DIM, D), ("k", KV_HEADS * HEAD_DIM, D), ("v", KV_HEADS * HEAD_DIM, D),
                                    ("o", D, HEADS * HEAD_DIM)]:
            weights[f"{layer}self_attn.{name}_proj.weight"] = matrix(rows, columns)
        weights[layer + "input_layernorm.weight"] = norm()
        weights[layer + "post_attention_layernorm.weight"] = norm()
        weights[layer + "block_sparse_moe.primary_router.weight"] = matrix(EXPERTS, D)
        for j in range(EXPERTS):
            for name, rows, columns in [("gate", NEURONS, D), ("up", NEURONS, D), ("down", D, NEURONS)]:
                weights[f"{layer}block_sparse_moe.experts.{j}.{name}.weight"] = matrix(rows, columns)
    weights["model.norm.weight"] = norm()
    weights["lm_head.weight"] = matrix(VOCABULARY, D)
    return weights


def rms(x, weight):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPSILON) * weight


def rotate(x, positions):
    half = HEAD_DIM // 2
    angles = positions[:, None] * THETA ** (-np.arange(half) / half)
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    first, second = x[..., :half], x[..., half:]
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], -1)


def attention(x, weights, layer, windowed):
    count = len(x)
    q, k, v = ((x @ weights[f"{layer}self_attn.{name}_proj.weight"].T).reshape(count, -1, HEAD_DIM) for name in "qkv")
    positions = np.arange(count)
    if windowed:
        q, k = rotate(q, positions), rotate(k, positions)
    distance = positions[:, None] - positions[None]
    seen = (distance >= 0) & (distance < (WINDOW if windowed else count))
    out = np.empty_like(q)
    for head in range(HEADS):
        kv = head // (HEADS // KV_HEADS)
        scores = np.where(seen, q[:, head] @ k[:, kv].T / np.sqrt(HEAD_DIM), -np.inf)
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        out[:, head] = shares / shares.sum(-1, keepdims=True) @ v[:, kv]
    return out.reshape(count, -1) @ weights[f"{layer}self_attn.o_proj.weight"].T


def experts(x, router_logits, weights, layer):
    out = np.zeros_like(x)
    for t, logits in enumerate(router_logits):
        order = np.argsort(-logits)
        assert logits[order[USED - 1]] - logits[order[USED]] > 1e-3, "another SEED"
        gates = 1 / (1 + np.exp(-logits[order[:USED]]))
        for j, weight in zip(order, gates / gates.sum()):
            gate, up, down = (weights[f"{layer}block_sparse_moe.experts.{j}.{name}.weight"] for name in ("gate", "up", "down"))
            out[t] += weight * (down @ (np.maximum(gate @ x[t], 0) * (up @ x[t])))
    return out


def logits_of(weights, tokens):
    x = weights["model.embed_tokens.weight"][tokens]
    for i in range(LAYERS):
        layer = f"model.layers.{i}."
        router_logits = x @ weights[layer + "block_sparse_moe.primary_router.weight"].T
        x = x + attention(rms(x, weights[layer + "input_layernorm.weight"]), weights, layer, i % 4 != 0)
        x = x + experts(rms(x, weights[layer + "post_attention_layernorm.weight"]), router_logits, weights, layer)
    return rms(x, weights["model.norm.weight"]) @ weights["lm_head.weight"].T


def main() -> None:
    folder, llama_cpp = Path(sys.argv[1]) / "smallthinker", LlamaCpp(Path(sys.argv[2]))
    folder.mkdir(parents=True, exist_ok=True)
    weights = make_weights()
    tokens = np.random.default_rng(2).integers(4, VOCABULARY, TOKENS)
    save_file(weights, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(CONFIG, indent=2, sort_keys=True) + "\n")
    (folder / "tokens.json").write_text(json.dumps(tokens.tolist()) + "\n")
    logits = logits_of({name: data.astype(np.float64) for name, data in weights.items()}, tokens)
    np.save(folder / "logits.npy", logits.astype(np.float32))
    convert(folder, llama_cpp)


if __name__ == "__main__":
    main()
