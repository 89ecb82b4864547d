#!/usr/bin/env python3
"""Makes the golden data of encoders with windows to both sides: a tiny random ModernBERT, and a tiny random EmbeddingGemma.

    python make_modern_encoders.py OUT LLAMA_CPP

Run by hand. OUT is tests/golden/encoders, LLAMA_CPP a llama.cpp source tree. For modernbert, modernbert_rank (which ranks pairs) and
embeddinggemma it writes OUT/NAME: the files of a sentence-transformers folder, model.gguf by llama.cpp's converter (EmbeddingGemma's with its dense modules), and
expected.json: texts, their tokens by tokenizers or SentencePiece, and their vectors, or pairs and their scores, by transformers. The vocabularies are trained on
tests/data.

Made with transformers 5.24.0, torch 2.15.0, tokenizers 0.23.3, sentencepiece 0.2.3 and the llama.cpp source inside llama_cpp_python
0.3.36.
"""
import argparse
import json
from pathlib import Path

import numpy as np
import safetensors.torch  # before torch.float32 is replaced
import sentencepiece
import torch
import transformers
from architectures_gguf import LlamaCpp
from architectures_weights import fill_weights, in_double_precision
from make_encoders import TEXTS
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

DATA = Path(__file__).parent.parent / "data" / "wikitext2_valid.txt"
LONG = "who sat by the river when the heron and the owl came home? " * 4  # beyond the windows
SPECIAL = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"]


PAIRS = [("the owl", "the owl and the heron"), ("the owl", "a river"), ("who sat by the river?", "the heron sat by the river"), ("x", ""), ("owl", LONG)]


def modern_tokenizer(folder: Path):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train([str(DATA)], trainers.BpeTrainer(vocab_size=500, special_tokens=SPECIAL, show_progress=False,
                                                     initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]",
                                                             special_tokens=[("[CLS]", 1), ("[SEP]", 2)])
    tokenizer.save(str(folder / "tokenizer.json"))
    names = dict(cls_token="[CLS]", sep_token="[SEP]", unk_token="[UNK]", pad_token="[PAD]", mask_token="[MASK]")
    (folder / "tokenizer_config.json").write_text(json.dumps(dict(tokenizer_class="PreTrainedTokenizerFast", **names)))
    return lambda *texts: tokenizer.encode(*texts).ids


def gemma_tokenizer(folder: Path):
    sentencepiece.SentencePieceTrainer.train(
        input=str(DATA), model_prefix=str(folder / "tokenizer"), vocab_size=700, model_type="bpe", byte_fallback=True, num_threads=1,
        normalization_rule_name="identity", add_dummy_prefix=False, remove_extra_whitespaces=False, pad_id=0, eos_id=1, bos_id=2, unk_id=3,
        pad_piece="<pad>", eos_piece="<eos>", bos_piece="<bos>", input_sentence_size=20000, minloglevel=2)
    (folder / "tokenizer.vocab").unlink()
    (folder / "tokenizer_config.json").write_text(json.dumps(dict(
        tokenizer_class="GemmaTokenizer", add_bos_token=True, add_eos_token=True, bos_token="<bos>", eos_token="<eos>", unk_token="<unk>",
        pad_token="<pad>")))
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
    return lambda text: [2, *pieces.encode(text), 1]


def modern_config(ranks: bool) -> transformers.ModernBertConfig:
    return transformers.ModernBertConfig(
        **(dict(num_labels=1, classifier_pooling="mean") if ranks else {}),
        vocab_size=500, hidden_size=32, intermediate_size=48, num_hidden_layers=5, num_attention_heads=4, max_position_embeddings=256,
        local_attention=16, global_attn_every_n_layers=3, pad_token_id=3, bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2)


def gemma_config() -> transformers.Gemma3TextConfig:
    return transformers.Gemma3TextConfig(
        vocab_size=700, hidden_size=32, intermediate_size=48, num_hidden_layers=7, num_attention_heads=4, num_key_value_heads=1, head_dim=8,
        query_pre_attn_scalar=8, max_position_embeddings=256, sliding_window=16, use_bidirectional_attention=True, pad_token_id=0,
        bos_token_id=2, eos_token_id=1)


def dense_modules(folder: Path) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(7)
    matrices = []
    for name, inputs, outputs in (("2_Dense", 32, 64), ("3_Dense", 64, 32)):
        (folder / name).mkdir(exist_ok=True)
        matrix = torch.randn(outputs, inputs, generator=generator, dtype=torch.float64).float() / inputs**0.5
        safetensors.torch.save_file({"linear.weight": matrix}, folder / name / "model.safetensors")
        (folder / name / "config.json").write_text(json.dumps(dict(
            in_features=inputs, out_features=outputs, bias=False, activation_function="torch.nn.modules.linear.Identity")))
        matrices.append(matrix)
    modules = ["", "1_Pooling", "2_Dense", "3_Dense", "4_Normalize"]
    kinds = ["Transformer", "Pooling", "Dense", "Dense", "Normalize"]
    (folder / "modules.json").write_text(json.dumps([
        dict(idx=i, name=str(i), path=path, type=f"sentence_transformers.models.{kind}") for i, (path, kind) in enumerate(zip(modules, kinds))]))
    return matrices


def scores(network, encode) -> dict:
    out = dict(pairs=PAIRS, tokens=[encode(*pair) for pair in PAIRS], scores=[])
    for ids in out["tokens"]:
        with torch.no_grad():
            out["scores"].append(torch.sigmoid(network(torch.tensor([ids])).logits[0, 0]).item())
    return out


def vectors(network, encode, dense: list[torch.Tensor]) -> dict:
    texts = [*TEXTS, LONG]
    out = dict(texts=texts, tokens=[], mean=[], cls=[])
    for text in texts:
        ids = encode(text)
        with torch.no_grad():
            states = network(torch.tensor([ids])).last_hidden_state[0].double().numpy()
        out["tokens"].append(ids)
        for name, vector in [("mean", states.mean(0)), ("cls", states[0])]:
            for matrix in dense:
                vector = matrix.double().numpy() @ vector
            out[name].append((vector / np.linalg.norm(vector)).astype(np.float32).tolist())
    return out


def convert(folder: Path, llama_cpp: LlamaCpp) -> None:
    conversion, gguf = llama_cpp.conversion, llama_cpp.gguf
    settings = conversion.ModelBase.load_hparams(folder, False)
    converter = conversion.get_model_class(settings["architectures"][0])
    converter.get_vocab_base_pre = lambda self, tokenizer: "modern-bert"  # known by the hash of the published vocabulary alone
    with torch.inference_mode():
        converter(folder, gguf.LlamaFileType.ALL_F32, folder / "model.gguf", hparams=settings, sentence_transformers_dense_modules=True).write()


def make(name: str, out: Path, llama_cpp: LlamaCpp) -> None:
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    modern, ranks = name.startswith("modernbert"), name.endswith("_rank")
    encode = (modern_tokenizer if modern else gemma_tokenizer)(folder)
    kind = transformers.ModernBertForSequenceClassification if ranks else transformers.ModernBertModel if modern else transformers.Gemma3TextModel
    dense = [] if modern else dense_modules(folder)
    if not ranks:
        (folder / "1_Pooling").mkdir(exist_ok=True)
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(dict(word_embedding_dimension=32, pooling_mode_mean_tokens=True)))

    def build():
        network = kind._from_config(modern_config(ranks) if modern else gemma_config(), attn_implementation="eager")
        fill_weights(network, 1)
        return network.eval()
    with in_double_precision():
        expected = scores(build(), encode) if ranks else vectors(build(), encode, dense)
    build().save_pretrained(folder)
    # As published files say: the whole window instead of the one that transformers computes with, and the epsilon under its other name.
    config = json.loads((folder / "config.json").read_text()) | (dict(layer_norm_eps=1e-5) if modern else dict(sliding_window=16))
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    convert(folder, llama_cpp)
    (folder / "expected.json").write_text(json.dumps(expected))
    print(name, sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) // 1000, "kB", list(map(len, expected["tokens"])))


def main() -> None:
    parser = argparse.ArgumentParser(description="Makes the golden data of encoders with windows to both sides.")
    for name in ["out", "llama_cpp"]:
        parser.add_argument(name, type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    llama_cpp = LlamaCpp(arguments.llama_cpp)
    for name in ["modernbert", "modernbert_rank", "embeddinggemma"]:
        make(name, arguments.out, llama_cpp)


if __name__ == "__main__":
    main()
