#!/usr/bin/env python3
"""Writes a random model of Gemma 4's shape, in Q4_0: for speeds, not for text.

    python3 tests/bench/gemma4_shape.py OUT.gguf [--kind 26b|e2b] [--layers 12 --vocab 32000]

26b is 26B-A4B (30 layers), e2b is E2B (35 layers, of which the last 20 read earlier keys and have networks twice as wide).
Fewer layers have the same pattern. Needs gguf and numpy.
"""
import argparse

import numpy
from gemma3n_shape import Writer

KINDS = {
    "26b": dict(hidden=2816, heads=16, kv=8, whole_kv=2, neurons=2112, experts=128, used=8, expert=704, own=0, window=1024, period=6, layers=30),
    "e2b": dict(hidden=1536, heads=8, kv=1, whole_kv=1, neurons=6144, experts=0, used=0, expert=0, own=256, window=512, period=5, layers=35),
}
WINDOW_DIM, WHOLE_DIM = 256, 512


def write_attention(out, p, k, whole, owns):
    dim, kv = (WHOLE_DIM, k["whole_kv"]) if whole else (WINDOW_DIM, k["kv"])
    d = k["hidden"]
    out.norm(f"{p}attn_norm.weight", d)
    out.norm(f"{p}post_attention_norm.weight", d)
    out.norm(f"{p}attn_q_norm.weight", dim)
    out.blocks(f"{p}attn_q.weight", k["heads"] * dim, d)
    out.blocks(f"{p}attn_output.weight", d, k["heads"] * dim)
    if not owns:
        return
    out.norm(f"{p}attn_k_norm.weight", dim)
    out.blocks(f"{p}attn_k.weight", kv * dim, d)
    if not (whole and k["experts"]):
        out.blocks(f"{p}attn_v.weight", kv * dim, d)


def write_networks(out, p, k, neurons):
    d = k["hidden"]
    out.norm(f"{p}ffn_norm.weight", d)
    out.norm(f"{p}post_ffw_norm.weight", d)
    out.blocks(f"{p}ffn_gate.weight", neurons, d)
    out.blocks(f"{p}ffn_up.weight", neurons, d)
    out.blocks(f"{p}ffn_down.weight", d, neurons)
    out.floats(f"{p}layer_output_scale.weight", 1, scale=0.0, centre=0.9)
    if k["own"]:
        out.blocks(f"{p}inp_gate.weight", k["own"], d)
        out.blocks(f"{p}proj.weight", d, k["own"])
        out.norm(f"{p}post_norm.weight", d)
    if not k["experts"]:
        return
    e, f = k["experts"], k["expert"]
    for name in ["post_ffw_norm_1", "pre_ffw_norm_2", "post_ffw_norm_2"]:
        out.norm(f"{p}{name}.weight", d)
    out.floats(f"{p}ffn_gate_inp.weight", e, d)
    out.norm(f"{p}ffn_gate_inp.scale", d)
    out.norm(f"{p}ffn_down_exps.scale", e)
    out.blocks(f"{p}ffn_gate_up_exps.weight", e, 2 * f, d)
    out.blocks(f"{p}ffn_down_exps.weight", e, d, f)


def write_keys(writer, k, layers, windows, shared, sizes):
    writer.add_context_length(131072)
    writer.add_embedding_length(k["hidden"])
    writer.add_block_count(layers)
    writer.add_feed_forward_length(sizes)
    writer.add_head_count(k["heads"])
    writer.add_head_count_kv([k["kv"] if window else k["whole_kv"] for window in windows])
    writer.add_key_length(WHOLE_DIM)
    writer.add_value_length(WHOLE_DIM)
    writer.add_key_length_swa(WINDOW_DIM)
    writer.add_value_length_swa(WINDOW_DIM)
    writer.add_rope_dimension_count(WHOLE_DIM)
    writer.add_rope_dimension_count_swa(WINDOW_DIM)
    writer.add_rope_freq_base(1e6)
    writer.add_rope_freq_base_swa(1e4)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_sliding_window(k["window"])
    writer.add_sliding_window_pattern(windows)
    writer.add_shared_kv_layers(shared)
    writer.add_embedding_length_per_layer_input(k["own"])
    writer.add_final_logit_softcapping(30.0)
    if k["experts"]:
        writer.add_expert_count(k["experts"])
        writer.add_expert_used_count(k["used"])
        writer.add_expert_feed_forward_length(k["expert"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out")
    parser.add_argument("--kind", choices=KINDS, default="26b")
    parser.add_argument("--layers", type=int, default=0)
    parser.add_argument("--vocab", type=int, default=262144)
    o = parser.parse_args()
    k = KINDS[o.kind]
    layers = o.layers or k["layers"]
    windows = [(layer + 1) % k["period"] != 0 for layer in range(layers)]
    shared = layers * 20 // 35 // k["period"] * k["period"] if k["own"] else 0
    sizes = [k["neurons"] * (2 if layer >= layers - shared else 1) for layer in range(layers)]
    out = Writer(o.out, "gemma4")
    write_keys(out.writer, k, layers, windows, shared, sizes)
    out.blocks("token_embd.weight", o.vocab, k["hidden"], bits=8)
    out.norm("output_norm.weight", k["hidden"])
    out.writer.add_tensor("rope_freqs.weight", numpy.array([1.0] * 64 + [1e30] * 192, dtype=numpy.float32))
    if k["own"]:
        out.blocks("per_layer_token_embd.weight", o.vocab, k["own"] * layers)
        out.blocks("per_layer_model_proj.weight", k["own"] * layers, k["hidden"], bits=8)
        out.norm("per_layer_proj_norm.weight", k["own"])
    for layer, window in enumerate(windows):
        write_attention(out, f"blk.{layer}.", k, not window, layer < layers - shared)
        write_networks(out, f"blk.{layer}.", k, sizes[layer])
    out.writer.write_header_to_file()
    out.writer.write_kv_data_to_file()
    out.writer.write_tensors_to_file()
    out.writer.close()


if __name__ == "__main__":
    main()
