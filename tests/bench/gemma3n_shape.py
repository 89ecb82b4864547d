#!/usr/bin/env python3
"""Writes a random model of Gemma 3n's shape, in Q4_0: for speeds, not for text.

    python3 tests/bench/gemma3n_shape.py OUT.gguf [--layers 30 --neurons 8192 --vocab 262144 --rows]

The defaults are E2B's; E4B has 35 layers of 16,384 neurons. --rows: the down projections of the layers whose gates are cut
lie neuron by neuron, as `thermocline convert` writes them of an unquantised model. Random gates are Gaussian, so that the
cut leaves 5% of the neurons of the first ten layers. Needs gguf and numpy.
"""
import argparse

import gguf
import numpy

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, OWN, LAUREL, STREAMS = 2048, 8, 2, 256, 256, 64, 4
CUT_LAYERS, CUT = 10, 1.6448535
RNG = numpy.random.default_rng(1)


class Writer:
    def __init__(self, path, architecture="gemma3n"):
        self.writer = gguf.GGUFWriter(path, architecture, use_temp_file=False)

    def blocks(self, name, *shape, bits=4):
        """Random levels, scaled so that a product keeps the size of its input."""
        kind, size = (gguf.GGMLQuantizationType.Q4_0, 18) if bits == 4 else (gguf.GGMLQuantizationType.Q8_0, 34)
        rows = int(numpy.prod(shape[:-1]))
        data = RNG.integers(0, 256, (rows, shape[-1] // 32, size), dtype=numpy.uint8)
        spread = 4.6 if bits == 4 else 74.0
        data[:, :, :2] = numpy.frombuffer(numpy.float16(1 / (spread * shape[-1] ** 0.5)).tobytes(), dtype=numpy.uint8)
        self.writer.add_tensor(name, data.reshape(*shape[:-1], -1), raw_dtype=kind)

    def floats(self, name, *shape, scale=1.0, centre=0.0):
        data = (centre + scale * RNG.standard_normal(shape)).astype(numpy.float32)
        self.writer.add_tensor(name, data)

    def norm(self, name, size=HIDDEN):
        self.floats(name, size, scale=0.1, centre=1.0)


def write_layer(out, layer, neurons, rows):
    p = f"blk.{layer}."
    for name in ["attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm", "altup_router_norm", "altup_correct_scale",
                 "laurel_post_norm", "post_norm"]:
        out.norm(f"{p}{name}.weight")
    for name in ["attn_q_norm", "attn_k_norm"]:
        out.norm(f"{p}{name}.weight", HEAD_DIM)
    out.blocks(f"{p}attn_q.weight", HEADS * HEAD_DIM, HIDDEN)
    out.blocks(f"{p}attn_k.weight", KV_HEADS * HEAD_DIM, HIDDEN)
    out.blocks(f"{p}attn_v.weight", KV_HEADS * HEAD_DIM, HIDDEN)
    out.blocks(f"{p}attn_output.weight", HIDDEN, HEADS * HEAD_DIM)
    out.blocks(f"{p}ffn_gate.weight", neurons, HIDDEN)
    out.blocks(f"{p}ffn_up.weight", neurons, HIDDEN)
    if rows and layer < CUT_LAYERS:
        out.blocks(f"{p}ffn_down_t.weight", neurons, HIDDEN)
    else:
        out.blocks(f"{p}ffn_down.weight", HIDDEN, neurons)
    out.floats(f"{p}altup_router.weight", STREAMS, HIDDEN)
    out.floats(f"{p}altup_predict_coef.weight", STREAMS ** 2, STREAMS, scale=0.1)
    out.floats(f"{p}altup_correct_coef.weight", STREAMS, STREAMS, scale=0.1)
    out.blocks(f"{p}laurel_l.weight", LAUREL, HIDDEN)
    out.blocks(f"{p}laurel_r.weight", HIDDEN, LAUREL)
    out.blocks(f"{p}inp_gate.weight", OWN, HIDDEN)
    out.blocks(f"{p}proj.weight", HIDDEN, OWN)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out")
    parser.add_argument("--layers", type=int, default=30)
    parser.add_argument("--neurons", type=int, default=8192)
    parser.add_argument("--vocab", type=int, default=262144)
    parser.add_argument("--rows", action="store_true")
    o = parser.parse_args()
    out = Writer(o.out)
    writer = out.writer
    writer.add_context_length(32768)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(o.layers)
    writer.add_feed_forward_length(o.neurons)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(HEAD_DIM)
    writer.add_value_length(HEAD_DIM)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(1e6)
    writer.add_sliding_window(512)
    writer.add_sliding_window_pattern([(layer + 1) % 5 != 0 for layer in range(o.layers)])
    writer.add_altup_active_idx(0)
    writer.add_altup_num_inputs(STREAMS)
    writer.add_embedding_length_per_layer_input(OWN)
    writer.add_shared_kv_layers(o.layers - 20)
    writer.add_activation_sparsity_scale([CUT if layer < CUT_LAYERS else -numpy.inf for layer in range(o.layers)])
    out.blocks("token_embd.weight", o.vocab, HIDDEN, bits=8)
    out.blocks("per_layer_token_embd.weight", o.vocab, OWN * o.layers)
    out.blocks("per_layer_model_proj.weight", OWN * o.layers, HIDDEN, bits=8)
    out.norm("per_layer_proj_norm.weight", OWN)
    out.norm("output_norm.weight")
    for name in ["altup_proj", "altup_unembd_proj"]:
        out.blocks(f"{name}.weight", STREAMS - 1, HIDDEN, HIDDEN, bits=8)
    for layer in range(o.layers):
        write_layer(out, layer, o.neurons, o.rows)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
