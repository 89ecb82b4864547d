#!/usr/bin/env python3
"""The tables of docs/models.md: models by memory, and memory and speed by machine, as `thermocline plan` expects them.

    python3 tests/bench/expected_speeds.py build/release/bin/thermocline

Of each model a file of its shape and of no content is made, which is all that `plan` reads. Needs gguf.
"""
import argparse
import json
import pathlib
import subprocess
import tempfile

import gguf

# layers, D, F, heads, kv heads, head size, vocabulary; tied; gated; type; whether a GPU computes the family's layers
MODELS = {
    "Llama 3.1 8B": (32, 4096, 14336, 32, 8, 128, 128256, False, True, "Q4_K", True),
    "Qwen 3 8B": (36, 4096, 12288, 32, 8, 128, 151936, False, True, "Q4_K", True),
    "Gemma 2 2B": (26, 2304, 9216, 8, 4, 256, 256000, True, True, "Q4_K", False),
    "Gemma 3 4B": (34, 2560, 10240, 8, 4, 256, 262208, True, True, "Q4_K", False),
    "Phi 4 mini": (32, 3072, 8192, 24, 8, 128, 200064, True, True, "Q4_K", True),
    "SmolLM3 3B": (36, 2048, 11008, 16, 4, 128, 128256, True, True, "Q4_K", False),
    "Granite 3.3 8B": (40, 4096, 12800, 32, 8, 128, 49159, True, True, "Q4_K", False),
    "OLMo 2 7B": (32, 4096, 11008, 32, 32, 128, 100352, False, True, "Q4_K", False),
    "Command R7B": (32, 4096, 14336, 32, 8, 128, 256000, True, True, "Q4_K", False),
    "GLM 4 9B (0414)": (40, 4096, 13696, 32, 2, 128, 151552, False, True, "Q4_0", False),
    "EXAONE 4 1.2B": (30, 2048, 4096, 32, 8, 64, 102400, True, True, "Q4_K", False),
    "Seed-OSS 36B": (64, 5120, 27648, 80, 8, 128, 155136, False, True, "Q4_K", True),
    "Ministral 3 8B": (34, 4096, 14336, 32, 8, 128, 131072, False, True, "Q4_K", False),
    "Hunyuan 7B": (32, 4096, 14336, 32, 8, 128, 128167, True, True, "Q4_K", False),
    "InternLM 2.5 7B": (32, 4096, 14336, 32, 8, 128, 92544, False, True, "Q4_K", True),
    "StableLM 2 1.6B": (24, 2048, 5632, 32, 32, 64, 100352, False, True, "Q4_K", True),
    "StarCoder2 3B": (30, 3072, 12288, 24, 2, 128, 49152, True, False, "Q4_K", True),
    "MiniCPM 2B": (40, 2304, 5760, 36, 36, 64, 122753, True, True, "Q4_0", False),
    "BitNet b1.58 2B4T": (30, 2560, 6912, 20, 5, 128, 128256, True, True, "TQ2_0", False),
}
# memory; name; licence; command; shape, and of a mixture the experts, those of a token, and an expert's width
BY_MEMORY = [
    ("4 GB", "Qwen 3 1.7B", "Apache 2.0", "hf:unsloth/Qwen3-1.7B-GGUF", (28, 2048, 6144, 16, 8, 128, 151936, True, True, "Q4_K", True), None),
    ("8 GB", "Qwen 3 4B", "Apache 2.0", "hf:unsloth/Qwen3-4B-GGUF", (36, 2560, 9728, 32, 8, 128, 151936, True, True, "Q4_K", True), None),
    ("16 GB", "Qwen 3 8B", "Apache 2.0", "hf:unsloth/Qwen3-8B-GGUF", MODELS["Qwen 3 8B"], None),
    ("32 GB", "Qwen 3 30B-A3B", "Apache 2.0", "hf:unsloth/Qwen3-30B-A3B-GGUF", (48, 2048, 6144, 32, 4, 128, 151936, False, True, "Q4_K", True), (128, 8, 768)),
]
MACHINES = ["desktop-8gb", "desktop-24gb", "orin-nano-8gb", "orin-agx-64gb"]


def write_shape(path, shape, experts=None):
    layers, d, f, heads, kv_heads, dim, vocab, tied, gated, kind, _ = shape
    kind = gguf.GGMLQuantizationType[kind]
    edge = gguf.GGMLQuantizationType.Q6_K if d % 256 == 0 else gguf.GGMLQuantizationType.Q8_0
    writer = gguf.GGUFWriter(path, "qwen3moe" if experts else "llama" if gated else "starcoder2")
    writer.add_context_length(131072)
    writer.add_embedding_length(d)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(f)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_key_length(dim)
    writer.add_value_length(dim)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_layer_norm_eps(1e-5)
    if experts:
        writer.add_expert_count(experts[0])
        writer.add_expert_used_count(experts[1])
        writer.add_expert_feed_forward_length(experts[2])

    def tensor(name, rows, cols, of):
        block, size = gguf.GGML_QUANT_SIZES[of]
        shape_of = (rows, cols) if rows > 1 else (cols,)
        writer.add_tensor_info(name, shape_of, "float32", rows * cols // block * size, raw_dtype=of)

    f32 = gguf.GGMLQuantizationType.F32
    tensor("token_embd.weight", vocab, d, edge)
    if not tied:
        tensor("output.weight", vocab, d, edge)
    tensor("output_norm.weight", 1, d, f32)
    for layer in range(layers):
        p = f"blk.{layer}."
        tensor(p + "attn_norm.weight", 1, d, f32)
        tensor(p + "ffn_norm.weight", 1, d, f32)
        tensor(p + "attn_q.weight", heads * dim, d, kind)
        tensor(p + "attn_k.weight", kv_heads * dim, d, kind)
        tensor(p + "attn_v.weight", kv_heads * dim, d, kind)
        tensor(p + "attn_output.weight", d, heads * dim, kind)
        if experts:
            tensor(p + "attn_q_norm.weight", 1, dim, f32)
            tensor(p + "attn_k_norm.weight", 1, dim, f32)
            tensor(p + "ffn_gate_inp.weight", experts[0], d, f32)
            for name, rows, cols in (("gate", experts[2], d), ("up", experts[2], d), ("down", d, experts[2])):
                block, size = gguf.GGML_QUANT_SIZES[kind]
                writer.add_tensor_info(f"{p}ffn_{name}_exps.weight", (experts[0], rows, cols), "float32", experts[0] * rows * cols // block * size, raw_dtype=kind)
            continue
        for name in ["ffn_gate", "ffn_up"] if gated else ["ffn_up"]:
            tensor(p + name + ".weight", f, d, kind)
        tensor(p + "ffn_down.weight", d, f, kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    bytes_of = sum(-(-info.nbytes // 32) * 32 for info in writer.tensors[0].values())
    with open(path, "r+b") as file:  # all of it holes
        file.seek(0, 2)
        file.truncate(file.tell() + bytes_of + 64)
    return bytes_of


def speed(thermocline, path, machine, on_gpu):
    source = pathlib.Path(__file__).parent.parent.parent / "config" / "machines" / f"{machine}.json"
    description = json.loads(source.read_text())
    if not on_gpu:
        description |= {"hot_bytes": 0, "unified": False}
    file = path.parent / "machine.json"
    file.write_text(json.dumps(description))
    result = subprocess.run([thermocline, "plan", path, "--machine", file, "--json"], capture_output=True, text=True)
    if result.returncode != 0:
        return "does not fit" if "fit" in result.stderr else result.stderr.strip()[-60:]
    tokens = json.loads(result.stdout)["tokens_per_s"]
    return f"{tokens:.0f}" if tokens >= 10 else f"{tokens:.1f}"


def by_memory(thermocline):
    print("| memory | model | weights | licence | desktop, no GPU | orin-nano-8gb | command |")
    print("|---|---|---|---|---|---|---|")
    for memory, name, licence, command, shape, experts in BY_MEMORY:
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "shape.gguf"
            size = write_shape(path, shape, experts)
            speeds = [speed(thermocline, path, "desktop-8gb", False), speed(thermocline, path, "orin-nano-8gb", not experts)]
        print(f"| {memory} | {name}, {shape[9].lower()} | {size / 2**30:.1f} GiB | {licence} | " + " | ".join(speeds) + f" | `thermocline pull {command}` |")
    print()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("thermocline")
    o = parser.parse_args()
    by_memory(o.thermocline)
    print("| model, type | weights | KV of 8,192 tokens | " + " | ".join(MACHINES) + " |")
    print("|---|---|---|" + "---|" * len(MACHINES))
    for name, shape in MODELS.items():
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "shape.gguf"
            size = write_shape(path, shape)
            kv = 2 * 2 * shape[0] * shape[4] * shape[5] * 8192
            speeds = [speed(o.thermocline, path, machine, shape[-1]) for machine in MACHINES]
        print(f"| {name}, {shape[9].lower()} | {size / 2**30:.1f} GiB | {kv / 2**30:.2f} GiB | " + " | ".join(speeds) + " |")


if __name__ == "__main__":
    main()
