"""A GGUF encoder with the vocabulary of a golden one, whose long texts take seconds: many heads, and a context of 8,192 tokens."""
import pathlib

import gguf
import numpy as np

VOCABULARY = pathlib.Path(__file__).parent.parent / "golden" / "encoders" / "nomic_bert" / "model.gguf"


def write(path, layers=4, heads=32, dim=8, ffn=64, context=8192):
    source = gguf.GGUFReader(VOCABULARY)
    tokens = source.fields["tokenizer.ggml.tokens"].contents()
    width = heads * dim
    writer = gguf.GGUFWriter(path, "nomic-bert")
    writer.add_context_length(context)
    writer.add_embedding_length(width)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(ffn)
    writer.add_head_count(heads)
    writer.add_layer_norm_eps(0.01)
    writer.add_causal_attention(False)
    writer.add_uint32("nomic-bert.pooling_type", 1)
    writer.add_rope_freq_base(1000.0)
    writer.add_uint32("tokenizer.ggml.token_type_count", 2)
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_types(source.fields["tokenizer.ggml.token_type"].contents())
    for name, token in (("bos", 2), ("unknown", 1), ("seperator", 3), ("padding", 0), ("mask", 4)):  # GGUF spells it so
        writer.add_uint32(f"tokenizer.ggml.{name}_token_id", token)
    random = np.random.default_rng(0)

    def matrix(*shape, kind=np.float16):
        return (random.standard_normal(shape) * 0.05).astype(kind)

    def norm(name):
        writer.add_tensor(name + ".weight", np.ones(width, np.float32))
        writer.add_tensor(name + ".bias", np.zeros(width, np.float32))

    writer.add_tensor("token_embd.weight", matrix(len(tokens), width, kind=np.float32))
    writer.add_tensor("token_types.weight", matrix(2, width, kind=np.float32))
    norm("token_embd_norm")
    for layer in range(layers):
        block = f"blk.{layer}."
        norm(block + "attn_output_norm")
        norm(block + "layer_output_norm")
        for name, shape in dict(attn_qkv=(3 * width, width), attn_output=(width, width), ffn_gate=(ffn, width), ffn_up=(ffn, width),
                                ffn_down=(width, ffn)).items():
            writer.add_tensor(f"{block}{name}.weight", matrix(*shape))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
