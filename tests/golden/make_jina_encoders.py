#!/usr/bin/env python3
"""Makes the golden data of Jina's encoders: tiny random models of jina-embeddings-v2 (ALiBi) and of v3 (rotation).

    python make_jina_encoders.py OUT LLAMA_CPP

Run by hand. OUT is tests/golden/encoders, LLAMA_CPP a llama.cpp source tree. For jina_v2 and jina_v3 it writes OUT/NAME: config.json, model.safetensors and
tokenizer.json, model.gguf by llama.cpp's converter, and expected.json: texts, their tokens by the tokenizers library, and their vectors.

transformers has v3 itself. Its v2 is a BERT whose attention mask holds the slopes times the distances, without embeddings of positions, and whose networks have a
gate; v2's folder is written with the names of the published files. llama.cpp's converter reads v3 in the layout of the first publication.

Made with transformers 5.24.0, torch 2.15.0, tokenizers 0.23.3, sentencepiece 0.2.3 and the llama.cpp source inside llama_cpp_python
0.3.36.
"""
import argparse
import json
import math
import tempfile
from pathlib import Path

import numpy as np
import safetensors.torch  # before torch.float32 is replaced
import torch
import transformers
from architectures_gguf import LlamaCpp
from architectures_weights import fill_weights, in_double_precision
from make_encoders import SHAPE, TEXTS
from make_unigram_encoder import bert_tokenizer, train, unigram_tokenizer

LONG = "the owl and the heron sat by the river " * 9  # beyond one block of keys
HEADS = 6  # no power of two: the last slopes lie between the others
V2 = SHAPE | dict(hidden_size=48, num_attention_heads=HEADS, max_position_embeddings=512)


class GatedNetwork(torch.nn.Module):
    """down(gelu(gate) up), with gate and up below one another. Source: JinaBert's GLU."""

    def __init__(self, config):
        super().__init__()
        self.gated_layers = torch.nn.Linear(config.hidden_size, 2 * config.intermediate_size, bias=False)

    def forward(self, x):
        gate, up = self.gated_layers(x).chunk(2, -1)
        return torch.nn.functional.gelu(gate) * up


def slopes(heads: int) -> list[float]:
    """Source: the code of Press et al., get_slopes."""
    def of_power(n):
        start = 2 ** (-(2 ** -(math.log2(n) - 3)))
        return [start * start**i for i in range(n)]
    if math.log2(heads).is_integer():
        return of_power(heads)
    closest = 2 ** math.floor(math.log2(heads))
    return of_power(closest) + of_power(2 * closest)[0::2][:heads - closest]


def v2_network(config):
    network = transformers.BertModel._from_config(config, attn_implementation="eager")
    for layer in network.encoder.layer:
        layer.intermediate = GatedNetwork(config)
    fill_weights(network, 1)
    network.embeddings.position_embeddings.weight.data.zero_()
    return network.eval()


def v2_states(network, ids):
    at = torch.arange(len(ids))
    distances = (at[:, None] - at[None, :]).abs().to(torch.get_default_dtype())
    mask = -torch.tensor(slopes(HEADS))[:, None, None] * distances
    return network(torch.tensor([ids]), attention_mask=mask[None]).last_hidden_state


def vectors(states_of, tokenizer) -> dict:
    texts = [*TEXTS, LONG]
    out = dict(texts=texts, tokens=[tokenizer.encode(text).ids for text in texts], mean=[], cls=[])
    for ids in out["tokens"]:
        with torch.no_grad():
            states = states_of(ids)[0].double().numpy()
        for name, vector in [("mean", states.mean(0)), ("cls", states[0])]:
            out[name].append((vector / np.linalg.norm(vector)).astype(np.float32).tolist())
    return out


def write_folder(folder: Path, config: dict, tensors: dict) -> None:
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    safetensors.torch.save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "model.safetensors")


def convert(folder: Path, out: Path, llama_cpp: LlamaCpp) -> None:
    conversion, gguf = llama_cpp.conversion, llama_cpp.gguf
    settings = conversion.ModelBase.load_hparams(folder, False)
    converter = conversion.get_model_class(settings["architectures"][0])
    converter.get_vocab_base_pre = lambda self, tokenizer: "jina-v2-en"  # known by the hash of the published vocabulary alone
    with torch.inference_mode():
        converter(folder, gguf.LlamaFileType.ALL_F32, out / "model.gguf", hparams=settings).write()


def make_v2(folder: Path, llama_cpp: LlamaCpp) -> dict:
    tokenizer = bert_tokenizer(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = transformers.BertConfig(**V2, vocab_size=tokenizer.get_vocab_size(), pad_token_id=0, hidden_act="gelu")
    with in_double_precision():
        network = v2_network(config)
        expected = vectors(lambda ids: v2_states(network, ids), tokenizer)
    names = {".intermediate.gated_layers.": ".mlp.gated_layers.", ".attention.output.": ".attention.output.", ".output.dense.": ".mlp.wo.",
             ".output.LayerNorm.": ".mlp.layernorm."}
    tensors = {}
    for name, tensor in v2_network(config).state_dict().items():
        if "position_embeddings" in name:
            continue
        old = next((old for old in names if old in name), None)
        tensors[name if old is None else name.replace(old, names[old])] = tensor
    published = config.to_dict() | dict(architectures=["JinaBertModel"], position_embedding_type="alibi", feed_forward_type="geglu", emb_pooler="mean")
    (folder / "tokenizer_config.json").write_text(json.dumps(dict(tokenizer_class="BertTokenizer", cls_token="[CLS]", sep_token="[SEP]", pad_token="[PAD]",
                                                                  unk_token="[UNK]", mask_token="[MASK]")))
    write_folder(folder, published, tensors)
    convert(folder, folder, llama_cpp)
    return expected


def first_layout(network) -> dict:
    """The tensors under the names of v3's first publication, without tasks' adapters."""
    weights, out = network.state_dict(), {}
    names = {"self_attn.o_proj": "mixer.out_proj", "post_attention_layernorm": "norm1", "post_mlp_layernorm": "norm2", "mlp.fc1": "mlp.fc1", "mlp.fc2": "mlp.fc2"}
    for name, tensor in weights.items():
        if name.startswith("embeddings."):
            out["roberta." + name.replace("embeddings.LayerNorm", "emb_ln")] = tensor
            continue
        if not name.startswith("layers."):
            continue
        _, layer, module = name.split(".", 2)
        module, kind = module.rsplit(".", 1)
        begin = f"roberta.encoder.layers.{layer}."
        if module in names:
            out[f"{begin}{names[module]}.{kind}"] = tensor
        elif module == "self_attn.q_proj":
            out[f"{begin}mixer.Wqkv.{kind}"] = torch.cat([weights[f"layers.{layer}.self_attn.{c}_proj.{kind}"] for c in "qkv"])
    return out


def make_v3(folder: Path, llama_cpp: LlamaCpp) -> dict:
    train(folder)
    tokenizer = unigram_tokenizer(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    shape = SHAPE | dict(vocab_size=tokenizer.get_vocab_size(), type_vocab_size=1, max_position_embeddings=512, bos_token_id=0, eos_token_id=2, pad_token_id=1)
    config = transformers.JinaEmbeddingsV3Config(**shape)

    def build():
        network = transformers.JinaEmbeddingsV3Model._from_config(config, attn_implementation="eager")
        fill_weights(network, 1)
        return network.eval()
    with in_double_precision():
        network = build()
        expected = vectors(lambda ids: network(torch.tensor([ids])).last_hidden_state, tokenizer)
    network = build()
    network.save_pretrained(folder)
    with tempfile.TemporaryDirectory() as name:
        first = Path(name)
        for file in ("tokenizer.json", "sentencepiece.bpe.model"):
            (first / file).write_bytes((folder / file).read_bytes())
        published = dict(architectures=["XLMRobertaModel"], model_type="xlm-roberta", lora_adaptations=["retrieval"], lora_alpha=1, lora_rank=4,
                         position_embedding_type="rotary", rotary_emb_base=20000.0, hidden_act="gelu", **shape)
        write_folder(first, published, first_layout(network))
        convert(first, folder, llama_cpp)
    for file in (*folder.glob("lora-*"), folder / "sentencepiece.bpe.model"):
        file.unlink()
    return expected


def main() -> None:
    parser = argparse.ArgumentParser(description="Makes the golden data of Jina's encoders.")
    for name in ["out", "llama_cpp"]:
        parser.add_argument(name, type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    llama_cpp = LlamaCpp(arguments.llama_cpp)
    for name, make in [("jina_v2", make_v2), ("jina_v3", make_v3)]:
        folder = arguments.out / name
        folder.mkdir(parents=True, exist_ok=True)
        expected = make(folder, llama_cpp)
        (folder / "expected.json").write_text(json.dumps(expected))
        print(name, sum(file.stat().st_size for file in folder.iterdir()) // 1000, "kB", list(map(len, expected["tokens"])))


if __name__ == "__main__":
    main()
