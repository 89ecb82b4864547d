#!/usr/bin/env python3
"""Makes the golden data of tests/e2e/test_packed_weights.py: tiny models with packed weights, and the same in bf16.

This script is not part of the build or of the tests.  It is run by hand to regenerate the data:

    python make_packed.py OUT LLAMA_CPP PACKING_UTILS [NAME...]

LLAMA_CPP is a llama.cpp source tree, PACKING_UTILS the file awq/utils/packing_utils.py of AutoAWQ.

For every form it writes OUT/NAME/
    config.json          of a Qwen 3 with 'quantization_config'
    model.safetensors    random codes and scales in the form's layout
    bf16.safetensors     the same model as transformers, compressed-tensors, llama.cpp's converter (GPTQ) or AutoAWQ unpack it,
                         rounded once to bf16, and of GPTQ and AWQ, whose scales are f16, to f16

Codes take all values but NaN.  Made with Python 3.11.7, torch 2.15.0 (CPU), transformers 5.24.0,
compressed-tensors 0.20.1, AutoAWQ 0.2.9 and the llama.cpp source inside llama_cpp_python 0.3.36.
"""

import argparse
import importlib.util
import json
from collections.abc import Callable
from pathlib import Path

import torch
from compressed_tensors.compressors.mxfp4.base import MXFP4PackedCompressor
from compressed_tensors.compressors.mxfp8.base import MXFP8QuantizationCompressor
from compressed_tensors.compressors.naive_quantized.base import NaiveQuantizationCompressor
from compressed_tensors.compressors.nvfp4.base import NVFP4PackedCompressor
from compressed_tensors.compressors.pack_quantized.base import PackedQuantizationCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from safetensors.torch import save_file
from transformers.integrations.finegrained_fp8 import Fp8Dequantize, _dequantize_fp8_weight

from architectures_gguf import VOCABULARY, LlamaCpp, convert

HIDDEN, INTERMEDIATE, HEADS, KV_HEADS, HEAD_DIM, EXPERTS = 64, 80, 4, 2, 16, 3
BLOCK = 32  # of FP8; the last block of the network's rows is cut
SEED = 5

Tensors = dict[str, torch.Tensor]


def scales(*shape: int) -> torch.Tensor:
    return torch.exp(torch.empty(shape).uniform_(-9, -7))


def fp8(*shape: int) -> torch.Tensor:
    codes = torch.randint(0, 256, shape, dtype=torch.uint8)
    codes[codes & 127 == 127] -= 1
    return codes.view(torch.float8_e4m3fn)


def small_scales(*shape: int) -> torch.Tensor:
    """Scales in FP8, above 0."""
    return torch.randint(40, 100, shape, dtype=torch.uint8).view(torch.float8_e4m3fn)


def powers(*shape: int) -> torch.Tensor:
    return torch.randint(115, 120, shape, dtype=torch.uint8)


def fp8_blocks(rows: int, cols: int) -> tuple[Tensors, torch.Tensor]:
    codes, inverse = fp8(rows, cols), scales(-(-rows // BLOCK), -(-cols // BLOCK))
    return {"weight": codes, "weight_scale_inv": inverse}, _dequantize_fp8_weight(codes, inverse, [BLOCK, BLOCK], torch.float32)


def fp8_tensor(rows: int, cols: int) -> tuple[Tensors, torch.Tensor]:
    codes, inverse = fp8(rows, cols), scales()
    helpers = {"activation_scale": scales()}
    return {"weight": codes, "weight_scale_inv": inverse, **helpers}, _dequantize_fp8_weight(codes, inverse, None, torch.float32)


def by_library(compressor: type, scheme: dict, make: Callable) -> Callable:
    """Random tensors of `make`, and what the compressor of compressed-tensors unpacks from them."""
    def form(rows: int, cols: int) -> tuple[Tensors, torch.Tensor]:
        packed = make(rows, cols)
        how = QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(**scheme))
        return packed, compressor.decompress(dict(packed), how)["weight"]
    return form


def modelopt_nvfp4(rows: int, cols: int) -> tuple[Tensors, torch.Tensor]:
    codes, small, factor = torch.randint(0, 256, (rows, cols // 2), dtype=torch.uint8), small_scales(rows, cols // 16), scales()
    values = Fp8Dequantize(None)._unpack_fp4(codes) * (small.float() * factor).repeat_interleave(16, 1)
    return {"weight": codes, "weight_scale": small, "weight_scale_2": factor, "input_scale": scales()}, values


def nvfp4(rows: int, cols: int) -> Tensors:
    return {"weight_packed": torch.randint(0, 256, (rows, cols // 2), dtype=torch.uint8), "weight_scale": small_scales(rows, cols // 16),
            "weight_global_scale": 1 / scales(1), "input_global_scale": scales(1)}


def words(bits: int, zeros: bool = False) -> Callable:
    def make(rows: int, cols: int) -> Tensors:
        points = {"weight_zero_point": random_words(rows * bits // 32, cols // 16)} if zeros else {}
        return points | {"weight_packed": torch.randint(-2**31, 2**31, (rows, cols * bits // 32), dtype=torch.int32),
                "weight_scale": scales(rows, cols // 16).bfloat16(), "weight_shape": torch.tensor([rows, cols])}
    return make


def random_words(*shape: int) -> torch.Tensor:
    return torch.randint(-2**31, 2**31, shape, dtype=torch.int32)


def gptq(bits: int, ordered: bool) -> Callable:
    """Made by llama.cpp's converter from the whole folder."""
    def make(rows: int, cols: int) -> tuple[Tensors, None]:
        groups = torch.arange(cols, dtype=torch.int32) // 16
        return {"qweight": random_words(cols * bits // 32, rows), "qzeros": random_words(cols // 16, rows * bits // 32),
                "scales": scales(cols // 16, rows).half(), "g_idx": groups if ordered else groups[torch.randperm(cols)]}, None
    return make


UNPACKERS: dict[str, Callable] = {}  # AutoAWQ's, which main() loads: its package asks for a GPU


def awq(rows: int, cols: int) -> tuple[Tensors, torch.Tensor]:
    tensors = {"qweight": random_words(cols, rows // 8), "qzeros": random_words(cols // 16, rows // 8), "scales": scales(cols // 16, rows).half()}
    return tensors, UNPACKERS["awq"](tensors["qweight"], tensors["qzeros"], tensors["scales"], 4, 16).T


def fill_from_gguf(folder: Path, llama_cpp: LlamaCpp, unpacked: Tensors) -> None:
    """What llama.cpp's converter makes of a packed folder, in f16."""
    convert(folder, llama_cpp)
    names = {"attn_q": "self_attn.q", "attn_k": "self_attn.k", "attn_v": "self_attn.v", "attn_output": "self_attn.o", "ffn_gate": "mlp.gate",
             "ffn_up": "mlp.up", "ffn_down": "mlp.down"}
    for tensor in llama_cpp.gguf.GGUFReader(folder / "model.gguf").tensors:
        if (name := names.get(tensor.name.removeprefix("blk.0.").removesuffix(".weight"))) is not None:
            unpacked[f"model.layers.0.{name}_proj.weight"] = torch.from_numpy(tensor.data.copy()).half()
    (folder / "model.gguf").unlink()


UNEVEN = dict(strategy="group", group_size=16, symmetric=False)
GROUP = dict(strategy="group", group_size=16, symmetric=True)
FLOAT8 = dict(num_bits=8, type="float", strategy="channel", symmetric=True)
TENSORS = "compressed-tensors"
FORMS = {
    "fp8_blocks": (dict(quant_method="fp8", weight_block_size=[BLOCK, BLOCK]), fp8_blocks),
    "fp8_experts": (dict(quant_method="fp8", weight_block_size=[BLOCK, BLOCK]), fp8_blocks),
    "fp8_tensor": (dict(quant_method="fp8", activation_scheme="static", weight_block_size=None), fp8_tensor),
    "fp8_rows": (dict(quant_method=TENSORS, format="float-quantized"), by_library(
        NaiveQuantizationCompressor, FLOAT8,
        lambda rows, cols: {"weight": fp8(rows, cols), "weight_scale": scales(rows, 1).bfloat16()})),
    "mxfp8": (dict(quant_method=TENSORS, format="mxfp8-quantized"), by_library(
        MXFP8QuantizationCompressor, dict(num_bits=8, type="float", strategy="group", group_size=16, symmetric=True),
        lambda rows, cols: {"weight": fp8(rows, cols), "weight_scale": powers(rows, cols // 16)})),
    "nvfp4": (dict(quant_method=TENSORS, format="nvfp4-pack-quantized"), by_library(
        NVFP4PackedCompressor, dict(num_bits=4, type="float", strategy="tensor_group", group_size=16, symmetric=True), nvfp4)),
    "nvfp4_modelopt": (dict(quant_method="modelopt", quant_algo="NVFP4"), modelopt_nvfp4),
    "mxfp4": (dict(quant_method=TENSORS, format="mxfp4-pack-quantized"), by_library(
        MXFP4PackedCompressor, dict(num_bits=4, type="float", strategy="group", group_size=16, symmetric=True),
        lambda rows, cols: {"weight_packed": torch.randint(0, 256, (rows, cols // 2), dtype=torch.uint8),
                            "weight_scale": powers(rows, cols // 16)})),
    "int8": (dict(quant_method=TENSORS, format="int-quantized"), by_library(
        NaiveQuantizationCompressor, dict(num_bits=8, type="int", strategy="channel", symmetric=True),
        lambda rows, cols: {"weight": torch.randint(-128, 128, (rows, cols), dtype=torch.int8), "weight_scale": scales(rows, 1).bfloat16()})),
    "int4_words": (dict(quant_method=TENSORS, format="pack-quantized"), by_library(
        PackedQuantizationCompressor, dict(num_bits=4, type="int", **GROUP), words(4))),
    "int8_words": (dict(quant_method=TENSORS, format="pack-quantized"), by_library(
        PackedQuantizationCompressor, dict(num_bits=8, type="int", **GROUP), words(8))),
    "int8_zeros": (dict(quant_method=TENSORS, format="int-quantized"), by_library(
        NaiveQuantizationCompressor, dict(num_bits=8, type="int", strategy="channel", symmetric=False),
        lambda rows, cols: {"weight": torch.randint(-128, 128, (rows, cols), dtype=torch.int8), "weight_scale": scales(rows, 1).bfloat16(),
                            "weight_zero_point": torch.randint(-128, 128, (rows, 1), dtype=torch.int8)})),
    "int4_words_zeros": (dict(quant_method=TENSORS, format="pack-quantized"), by_library(
        PackedQuantizationCompressor, dict(num_bits=4, type="int", **UNEVEN), words(4, zeros=True))),
    "int8_words_zeros": (dict(quant_method=TENSORS, format="pack-quantized"), by_library(
        PackedQuantizationCompressor, dict(num_bits=8, type="int", **UNEVEN), words(8, zeros=True))),
    "gptq": (dict(quant_method="gptq", bits=4, group_size=16, desc_act=False, sym=False), gptq(4, True)),
    "gptq_act_order": (dict(quant_method="gptq", bits=4, group_size=16, desc_act=True, sym=False, checkpoint_format="gptq_v2"), gptq(4, False)),
    "gptq8": (dict(quant_method="gptq", bits=8, group_size=16, desc_act=False, sym=False), gptq(8, True)),
    "awq": (dict(quant_method="awq", bits=4, group_size=16, version="gemm", zero_point=True), awq),
}


def matrices(experts: bool) -> dict[str, tuple[int, int]]:
    """The packed matrices of a layer: rows and columns."""
    attention = {"q": (HEADS * HEAD_DIM, HIDDEN), "k": (KV_HEADS * HEAD_DIM, HIDDEN), "v": (KV_HEADS * HEAD_DIM, HIDDEN),
                 "o": (HIDDEN, HEADS * HEAD_DIM)}
    network = {"gate": (INTERMEDIATE, HIDDEN), "up": (INTERMEDIATE, HIDDEN), "down": (HIDDEN, INTERMEDIATE)}
    out = {f"self_attn.{name}_proj": shape for name, shape in attention.items()}
    for place in [f"mlp.experts.{i}" for i in range(EXPERTS)] if experts else ["mlp"]:
        out |= {f"{place}.{name}_proj": shape for name, shape in network.items()}
    return out


def plain(experts: bool) -> Tensors:
    """What is not packed."""
    layer, normal = "model.layers.0.", lambda *shape: torch.randn(shape).bfloat16()
    out = {"model.embed_tokens.weight": normal(VOCABULARY, HIDDEN), "lm_head.weight": normal(VOCABULARY, HIDDEN), "model.norm.weight": normal(HIDDEN)}
    out |= {f"{layer}{norm}_layernorm.weight": normal(HIDDEN) for norm in ("input", "post_attention")}
    out |= {f"{layer}self_attn.{norm}_norm.weight": normal(HEAD_DIM) for norm in ("q", "k")}
    return out | ({f"{layer}mlp.gate.weight": normal(EXPERTS, HIDDEN)} if experts else {})


def config(experts: bool, quantization: dict) -> dict:
    family = dict(architectures=["Qwen3MoeForCausalLM"], model_type="qwen3_moe", num_experts=EXPERTS, num_experts_per_tok=2, norm_topk_prob=True,
                  moe_intermediate_size=INTERMEDIATE) if experts else dict(architectures=["Qwen3ForCausalLM"], model_type="qwen3")
    return family | dict(
        hidden_size=HIDDEN, intermediate_size=INTERMEDIATE, num_hidden_layers=1, num_attention_heads=HEADS, num_key_value_heads=KV_HEADS,
        head_dim=HEAD_DIM, hidden_act="silu", rms_norm_eps=1e-6, max_position_embeddings=128, vocab_size=VOCABULARY, tie_word_embeddings=False,
        rope_theta=1e6, quantization_config=quantization)


def make(name: str, out: Path, llama_cpp: LlamaCpp) -> None:
    torch.manual_seed(SEED)
    quantization, form = FORMS[name]
    experts = name.endswith("_experts")
    common = plain(experts)
    packed, unpacked = dict(common), dict(common)
    for place, shape in matrices(experts).items():
        tensors, values = form(*shape)
        packed |= {f"model.layers.0.{place}.{part}": tensor for part, tensor in tensors.items()}
        if values is not None:
            unpacked[f"model.layers.0.{place}.weight"] = values if values.dtype == torch.float16 else values.bfloat16()
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    save_file({key: tensor.contiguous() for key, tensor in packed.items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config(experts, quantization), indent=2) + "\n")
    if quantization["quant_method"] == "gptq":
        fill_from_gguf(folder, llama_cpp, unpacked)
    save_file({key: tensor.contiguous() for key, tensor in unpacked.items()}, folder / "bf16.safetensors")
    print(name, {key: (list(tensor.shape), str(tensor.dtype)) for key, tensor in packed.items() if "q_proj" in key})


def main() -> None:
    parser = argparse.ArgumentParser(description="Makes tiny models with packed weights.")
    parser.add_argument("out", type=Path)
    parser.add_argument("llama_cpp", type=Path)
    parser.add_argument("packing_utils", type=Path)
    parser.add_argument("names", nargs="*", help="the forms to make (default: all)")
    arguments = parser.parse_args()
    spec = importlib.util.spec_from_file_location("packing_utils", arguments.packing_utils)
    spec.loader.exec_module(packing_utils := importlib.util.module_from_spec(spec))
    UNPACKERS["awq"] = packing_utils.dequantize_gemm
    llama_cpp = LlamaCpp(arguments.llama_cpp)
    for name in arguments.names or FORMS:
        make(name, arguments.out, llama_cpp)


if __name__ == "__main__":
    main()
