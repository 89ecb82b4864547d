"""The GGUF files of make_architectures.py.

llama.cpp does not know OPT and Bamboo.  Their GGUF files follow PowerInfer's dense layout: llama's
tensor names, and for Bamboo llama's permutation of the query and key rows.
"""

import contextlib
import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

VOCABULARY = 96


class LlamaCpp:
    """The two Python packages of a llama.cpp source tree."""

    def __init__(self, source: Path):
        sys.path[:0] = [str(source), str(source / "gguf-py")]
        import conversion
        import gguf
        self.conversion = conversion
        self.gguf = gguf


def add_vocabulary(writer, gguf) -> None:
    """A stand-in for the tokenizer that these models do not have: one ASCII character per token, from '!'."""
    types = gguf.TokenType
    special = [("<unk>", types.UNKNOWN), ("<s>", types.CONTROL), ("</s>", types.CONTROL), ("<0x0A>", types.BYTE)]
    ordinary = [(chr(ord("!") + i), types.NORMAL) for i in range(VOCABULARY - len(special))]
    texts, kinds = zip(*(special + ordinary))
    writer.add_tokenizer_model("llama")
    writer.add_token_list(list(texts))
    writer.add_token_scores([-float(i) for i in range(VOCABULARY)])
    writer.add_token_types([int(kind) for kind in kinds])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_add_space_prefix(False)


def converter_settings(folder: Path, llama_cpp: LlamaCpp) -> dict:
    """config.json as the converter wants it.

    transformers saves num_kv_heads = num_attention_heads for a multi-query Falcon and ignores it;
    published models do not have the key, and the converter believes it.
    """
    settings = llama_cpp.conversion.ModelBase.load_hparams(folder, False)
    if settings.get("multi_query") and not settings["new_decoder_architecture"]:
        del settings["num_kv_heads"]
    if settings["model_type"] == "cohere2":
        settings["rotary_pct"] = 1.0  # as published ones say
    if settings["model_type"] == "minimax_m2":
        settings |= dict(rotary_dim=8, scoring_func="sigmoid")  # as published ones say
    if settings["model_type"] == "granitemoehybrid":  # the converter knows the older names alone
        names = {"linear_attention": "mamba", "full_attention": "attention"}
        settings["layer_types"] = [names[kind] for kind in settings["layer_types"]]
    if settings["model_type"] == "nemotron_h" and "moe" not in settings["layers_block_type"]:
        letters = {"linear_attention": "M", "full_attention": "*", "mlp": "-"}
        settings["hybrid_override_pattern"] = "".join(letters[kind] for kind in settings.pop("layers_block_type"))
        settings["num_hidden_layers"] = len(settings["hybrid_override_pattern"])
        del settings["num_experts_per_tok"]  # of no layer
    return settings


@contextlib.contextmanager
def vocabulary_file(folder: Path):
    """A tokenizer.json of the right size, which Gemma 3's converter counts."""
    path = folder / "tokenizer.json"
    path.write_text(json.dumps({"model": {"vocab": {f"t{i}": i for i in range(VOCABULARY)}}, "added_tokens": []}))
    try:
        yield
    finally:
        path.unlink()


def convert(folder: Path, llama_cpp: LlamaCpp) -> None:
    """Writes model.gguf with llama.cpp's converter; only the tokenizer is replaced."""
    settings = converter_settings(folder, llama_cpp)
    if settings["model_type"] == "mistral4":  # published ones are a part of Mistral 3's class
        converter = llama_cpp.conversion.get_model_class("Mistral3ForConditionalGeneration").Mistral4Model
    else:
        converter = llama_cpp.conversion.get_model_class(settings["architectures"][0])
    converter = getattr(converter, "Ministral3Model", converter)  # behind a choice of two
    gguf = llama_cpp.gguf
    instance_class = type(converter.__name__, (converter,), dict(
        model_arch=converter.model_arch, no_mtp=True,
        set_vocab=lambda self: add_vocabulary(self.gguf_writer, gguf)))
    with torch.inference_mode(), vocabulary_file(folder):
        instance = instance_class(folder, gguf.LlamaFileType.ALL_F32, folder / "model.gguf", hparams=settings)
        instance.write()


def write_gguf_by_hand(folder: Path, gguf, architecture: str, add_settings: Callable, rename: Callable) -> None:
    """`add_settings(writer, config)` adds the metadata, `rename(name, data, config)` gives (name, data)."""
    from safetensors.numpy import load_file
    config = json.loads((folder / "config.json").read_text())
    writer = gguf.GGUFWriter(folder / "model.gguf", architecture)
    writer.add_name(folder.name)
    add_settings(writer, config)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    add_vocabulary(writer, gguf)
    for name, data in load_file(folder / "model.safetensors").items():
        writer.add_tensor(*rename(name, np.ascontiguousarray(data), config))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def gguf_name(name: str, parts: dict[str, str]) -> str:
    """Translates e.g. PREFIX.layers.3.self_attn.q_proj.weight into blk.3.attn_q.weight."""
    path, kind = name.rsplit(".", 1)
    if ".layers." not in path:
        return f"{parts[path]}.{kind}"
    number, module = path.split(".layers.")[1].split(".", 1)
    return f"blk.{number}.{parts[module]}.{kind}"


ATTENTION_PARTS = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v"}

BAMBOO_PARTS = ATTENTION_PARTS | {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
    "input_layernorm": "attn_norm", "self_attn.o_proj": "attn_output", "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}

OPT_PARTS = ATTENTION_PARTS | {
    "model.decoder.embed_tokens": "token_embd", "model.decoder.embed_positions": "position_embd",
    "model.decoder.final_layer_norm": "output_norm", "self_attn_layer_norm": "attn_norm",
    "self_attn.out_proj": "attn_output", "final_layer_norm": "ffn_norm", "fc1": "ffn_up", "fc2": "ffn_down",
}


def interleave_halves(matrix: np.ndarray, heads: int) -> np.ndarray:
    """llama.cpp's order of query and key rows: the two halves of each head take turns."""
    rows, columns = matrix.shape
    halves = matrix.reshape(heads, 2, rows // heads // 2, columns)
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(rows, columns)


def rename_bamboo(name: str, data: np.ndarray, config: dict) -> tuple[str, np.ndarray]:
    if name.endswith("q_proj.weight"):
        data = interleave_halves(data, config["num_attention_heads"])
    elif name.endswith("k_proj.weight"):
        data = interleave_halves(data, config["num_key_value_heads"])
    return gguf_name(name, BAMBOO_PARTS), data


def add_bamboo_settings(writer, config: dict) -> None:
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_rope_dimension_count(config["hidden_size"] // config["num_attention_heads"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])


def write_bitnet_gguf(folder: Path, llama_cpp: LlamaCpp) -> None:
    """As Microsoft's fork names it; llama.cpp's converter does not know transformers' names of the inner norms."""
    def rename(name, data, config):
        name = name.replace("model.embed_tokens", "token_embd").replace("model.norm", "output_norm").replace("model.layers.", "blk.")
        for old, new in [("input_layernorm", "attn_norm"), ("post_attention_layernorm", "ffn_norm"),
                         ("self_attn.attn_sub_norm", "attn_sub_norm"), ("mlp.ffn_sub_norm", "ffn_sub_norm"),
                         ("self_attn.o_proj", "attn_output"), ("self_attn.q_proj", "attn_q"), ("self_attn.k_proj", "attn_k"),
                         ("self_attn.v_proj", "attn_v"), ("mlp.gate_proj", "ffn_gate"), ("mlp.up_proj", "ffn_up"),
                         ("mlp.down_proj", "ffn_down")]:
            name = name.replace(old, new)
        return name, data

    def settings(writer, config):
        writer.add_context_length(config["max_position_embeddings"])
        writer.add_embedding_length(config["hidden_size"])
        writer.add_block_count(config["num_hidden_layers"])
        writer.add_feed_forward_length(config["intermediate_size"])
        writer.add_head_count(config["num_attention_heads"])
        writer.add_head_count_kv(config["num_key_value_heads"])
        writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
        writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])

    write_gguf_by_hand(folder, llama_cpp.gguf, "bitnet-b1.58", settings, rename)


def write_bamboo_gguf(folder: Path, llama_cpp: LlamaCpp) -> None:
    write_gguf_by_hand(folder, llama_cpp.gguf, "bamboo", add_bamboo_settings, rename_bamboo)


def add_opt_settings(writer, config: dict) -> None:
    # PowerInfer's context length counts the two unused rows of the position table, and it writes no
    # epsilon.
    writer.add_context_length(config["max_position_embeddings"] + 2)
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["ffn_dim"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_layer_norm_eps(1e-5)


def write_opt_gguf(folder: Path, llama_cpp: LlamaCpp) -> None:
    def rename(name, data, config):
        return gguf_name(name, OPT_PARTS), data

    write_gguf_by_hand(folder, llama_cpp.gguf, "opt", add_opt_settings, rename)


PERSIMMON_PARTS = {
    "model.embed_tokens": "token_embd", "model.final_layernorm": "output_norm", "lm_head": "output",
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.query_key_value": "attn_qkv",
    "self_attn.dense": "attn_output", "self_attn.q_layernorm": "attn_q_norm", "self_attn.k_layernorm": "attn_k_norm",
    "mlp.dense_h_to_4h": "ffn_up", "mlp.dense_4h_to_h": "ffn_down",
}


def add_persimmon_settings(writer, config: dict) -> None:
    head_dim = config["hidden_size"] // config["num_attention_heads"]
    rope = config["rope_parameters"]
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_rope_dimension_count(int(head_dim * rope["partial_rotary_factor"]))
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_attention_heads"])
    writer.add_layer_norm_eps(config["layer_norm_eps"])
    writer.add_rope_freq_base(rope["rope_theta"])


def write_persimmon_gguf(folder: Path, llama_cpp: LlamaCpp) -> None:
    """As llama.cpp's converter did while it knew Persimmon: the fused tensor head by head, as it is."""
    def rename(name, data, config):
        return gguf_name(name, PERSIMMON_PARTS), data

    write_gguf_by_hand(folder, llama_cpp.gguf, "persimmon", add_persimmon_settings, rename)
