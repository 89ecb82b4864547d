#!/usr/bin/env python3
"""Makes the golden data of encoders with a Unigram vocabulary: a tiny random XLM-RoBERTa, and one with a head that ranks.

    python make_unigram_encoder.py OUT LLAMA_CPP

Run by hand. OUT is tests/golden/encoders, LLAMA_CPP a llama.cpp source tree. For xlm_roberta and xlm_roberta_rank it writes OUT/NAME:
config.json, model.safetensors and tokenizer.json as such models have them, model.gguf by llama.cpp's converter, and expected.json:
texts, their tokens by the tokenizers library, and their vectors (or pairs and their scores) by transformers. The vocabulary is
trained by SentencePiece on tests/data, with its map nmt_nfkc. bert_rank is the same of a BERT, whose GGUF file llama.cpp's converter
cannot write.

Made with transformers 5.24.0, torch 2.15.0, tokenizers 0.23.3, sentencepiece 0.2.3 and the llama.cpp source inside llama_cpp_python
0.3.36.
"""
import argparse
import base64
import json
from pathlib import Path

import numpy as np
import safetensors.torch  # noqa: F401  before torch.float32 is replaced
import sentencepiece
import torch
import transformers
from architectures_gguf import LlamaCpp
from architectures_weights import fill_weights, in_double_precision
from make_encoders import SHAPE, vectors, vocabulary
from tokenizers import AddedToken, BertWordPieceTokenizer, Regex, Tokenizer, models, normalizers, pre_tokenizers, processors

DATA = Path(__file__).parent.parent / "data"
PIECES = 600
PAIRS = [("the owl", "the owl and the heron"), ("the owl", "a river"), ("who sat by the river?", "the heron sat by the river"), ("x", "")]


def train(folder: Path) -> None:
    sentencepiece.SentencePieceTrainer.train(
        input=str(DATA / "wikitext2_valid.txt"), model_prefix=str(folder / "sentencepiece.bpe"), vocab_size=PIECES, model_type="unigram",
        normalization_rule_name="nmt_nfkc", character_coverage=0.999, num_threads=1, input_sentence_size=20000, minloglevel=2)
    (folder / "sentencepiece.bpe.vocab").unlink()


def unigram_tokenizer(folder: Path) -> Tokenizer:
    """As XLM-RoBERTa's: ids are those of fairseq, which begin with <s> <pad> </s> <unk>."""
    from sentencepiece import sentencepiece_model_pb2 as proto
    model = proto.ModelProto()
    model.ParseFromString((folder / "sentencepiece.bpe.model").read_bytes())
    pieces = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), *((p.piece, p.score) for p in model.pieces[3:]), ("<mask>", 0.0)]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=3))
    tokenizer.normalizer = normalizers.Sequence([
        normalizers.Precompiled(base64.b64decode(base64.b64encode(model.normalizer_spec.precompiled_charsmap))),
        normalizers.Replace(Regex(" {2,}"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace("\u2581", "always")])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in ("<s>", "<pad>", "</s>", "<unk>")])
    tokenizer.add_special_tokens([AddedToken("<mask>", special=True, lstrip=True, normalized=False)])
    return tokenizer


def bert_tokenizer(folder: Path) -> BertWordPieceTokenizer:
    (folder / "vocab.txt").write_text("\n".join(vocabulary()) + "\n")
    tokenizer = BertWordPieceTokenizer(str(folder / "vocab.txt"), lowercase=True)
    (folder / "vocab.txt").unlink()
    return tokenizer


def scores(network, tokenizer) -> dict:
    out = dict(pairs=PAIRS, tokens=[], scores=[])
    for query, document in PAIRS:
        encoded = tokenizer.encode(query, document)
        types = encoded.type_ids if network.config.type_vocab_size > 1 else [0] * len(encoded.ids)
        with torch.no_grad():
            logits = network(torch.tensor([encoded.ids]), token_type_ids=torch.tensor([types])).logits
        out["tokens"].append(encoded.ids)
        out["scores"].append(torch.sigmoid(logits[0, 0]).item())  # as sentence-transformers' CrossEncoder
    return out


def convert(folder: Path, llama_cpp: LlamaCpp) -> None:
    conversion, gguf = llama_cpp.conversion, llama_cpp.gguf
    settings = conversion.ModelBase.load_hparams(folder, False)
    converter = conversion.get_model_class(settings["architectures"][0])
    with torch.inference_mode():
        converter(folder, gguf.LlamaFileType.ALL_F32, folder / "model.gguf", hparams=settings).write()


def make(name: str, out: Path, llama_cpp: LlamaCpp) -> None:
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    ranks, bert = name.endswith("_rank"), name.startswith("bert")
    if not bert:
        train(folder)
    tokenizer = bert_tokenizer(folder) if bert else unigram_tokenizer(folder)
    shape = SHAPE | dict(vocab_size=tokenizer.get_vocab_size(), pad_token_id=0 if bert else 1, num_labels=1)
    shape |= {} if bert else dict(type_vocab_size=1, max_position_embeddings=130, bos_token_id=0, eos_token_id=2)
    config = transformers.BertConfig(**shape) if bert else transformers.XLMRobertaConfig(**shape)
    kind = ("Bert" if bert else "XLMRoberta") + ("ForSequenceClassification" if ranks else "Model")

    def build():
        network = getattr(transformers, kind)(config)
        fill_weights(network, 1)
        return network.eval()
    with in_double_precision():
        expected = scores(build(), tokenizer) if ranks else vectors(build(), tokenizer)
    network = build()
    network.save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    if not bert:
        convert(folder, llama_cpp)
        (folder / "sentencepiece.bpe.model").unlink()
    (folder / "expected.json").write_text(json.dumps(expected))
    print(name, sum(file.stat().st_size for file in folder.iterdir()) // 1000, "kB", np.round(expected.get("scores", []), 3))


def main() -> None:
    parser = argparse.ArgumentParser(description="Makes the golden data of encoders with a Unigram vocabulary, and of those that rank.")
    for name in ["out", "llama_cpp"]:
        parser.add_argument(name, type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    llama_cpp = LlamaCpp(arguments.llama_cpp)
    for name in ["xlm_roberta", "xlm_roberta_rank", "bert_rank"]:
        make(name, arguments.out, llama_cpp)


if __name__ == "__main__":
    main()
