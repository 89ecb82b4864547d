#!/usr/bin/env python3
"""Writes a llama model of any shape with random weights: make_shape.py OUT [--layers 12 ...]

Speed depends on shapes and types, not on values, so a few random rows are repeated over each matrix.
The default is the 1.5 GB shape: 12 layers, D 4096, F 11008, Q4_0. Needs the PyPI packages gguf and numpy.
"""
import argparse

import gguf
import numpy as np

BLOCK_ROWS = 64  # distinct random rows; more would only take longer to write


def random_rows(rng, rows, cols, kind):
    values = (rng.standard_normal((min(rows, BLOCK_ROWS), cols)) / np.sqrt(cols)).astype(np.float32)
    packed = gguf.quants.quantize(values, kind)
    return np.tile(packed, ((rows + len(packed) - 1) // len(packed), 1))[:rows]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    for name, value in dict(layers=12, hidden_size=4096, intermediate_size=11008, heads=32, kv_heads=32, vocab=32000).items():
        parser.add_argument("--" + name.replace("_", "-"), type=int, default=value)
    parser.add_argument("--type", default="Q4_0", choices=["F16", "Q8_0", "Q4_0", "Q4_1"])
    a = parser.parse_args()
    kind = gguf.GGMLQuantizationType[a.type]
    rng = np.random.default_rng(1)
    writer = gguf.GGUFWriter(a.out, "llama")
    writer.add_name("shape")
    writer.add_block_count(a.layers)
    writer.add_context_length(4096)
    writer.add_embedding_length(a.hidden_size)
    writer.add_feed_forward_length(a.intermediate_size)
    writer.add_head_count(a.heads)
    writer.add_head_count_kv(a.kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(a.hidden_size // a.heads)
    writer.add_vocab_size(a.vocab)
    writer.add_tokenizer_model("llama")
    pieces = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    pieces += [f"t{i}" for i in range(a.vocab - len(pieces))]
    writer.add_token_list(pieces)
    writer.add_token_scores([0.0] * a.vocab)
    writer.add_token_types([2, 3, 3] + [6] * 256 + [1] * (a.vocab - 259))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)

    def matrix(name, rows, cols):
        writer.add_tensor(name + ".weight", random_rows(rng, rows, cols, kind), raw_dtype=kind)

    def norm(name):
        writer.add_tensor(name + ".weight", np.ones(a.hidden_size, dtype=np.float32))

    d, f, kv = a.hidden_size, a.intermediate_size, a.hidden_size // a.heads * a.kv_heads
    matrix("token_embd", a.vocab, d)
    for i in range(a.layers):
        norm(f"blk.{i}.attn_norm")
        matrix(f"blk.{i}.attn_q", d, d)
        matrix(f"blk.{i}.attn_k", kv, d)
        matrix(f"blk.{i}.attn_v", kv, d)
        matrix(f"blk.{i}.attn_output", d, d)
        norm(f"blk.{i}.ffn_norm")
        matrix(f"blk.{i}.ffn_gate", f, d)
        matrix(f"blk.{i}.ffn_up", f, d)
        matrix(f"blk.{i}.ffn_down", d, f)
    norm("output_norm")
    matrix("output", a.vocab, d)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
