"""The dense families of make_architectures.py that differ from llama by more than a shape."""

import json
import math
from pathlib import Path

import numpy
import transformers
from safetensors.numpy import load_file, save_file

from architectures_gemma4 import gemma4s
from architectures_gguf import VOCABULARY

SHAPE = dict(num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128)
VISIBLE_EPSILON = 0.01  # so that ignoring the norm's epsilon shows in the logits


def theta(value: float, **more) -> dict:
    return dict(rope_parameters=dict(rope_type="default", rope_theta=value, **more))


def gemmas() -> list[tuple[str, type, dict]]:
    shape = SHAPE | dict(hidden_size=40, intermediate_size=72, head_dim=16, rms_norm_eps=VISIBLE_EPSILON)
    window = dict(rope_type="default", rope_theta=10000.0)
    return [
        ("gemma", transformers.GemmaConfig, shape),
        # Layer 0 has the window; scores and logits reach their caps.
        ("gemma2", transformers.Gemma2Config, shape | dict(
            sliding_window=8, query_pre_attn_scalar=16, attn_logit_softcapping=3.0, final_logit_softcapping=2.0)),
        # The last layer sees everything, and positions there are four times as dense.
        ("gemma3", transformers.Gemma3TextConfig, shape | dict(
            num_hidden_layers=6, sliding_window=8, query_pre_attn_scalar=16, rope_parameters=dict(
                full_attention=dict(rope_type="linear", rope_theta=1000000.0, factor=4.0),
                sliding_attention=window))),
    ]


def gemma3n() -> tuple[str, type, dict]:
    """Two of three layers have a window, the last three read the keys of the second and third; half of the layers' gates
    are cut."""
    layers = 6
    return ("gemma3n", transformers.Gemma3nTextConfig, dict(
        SHAPE, hidden_size=48, intermediate_size=72, head_dim=16, rms_norm_eps=VISIBLE_EPSILON,
        num_hidden_layers=layers, layer_types=["sliding_attention", "sliding_attention", "full_attention"] * 2,
        sliding_window=8, num_kv_shared_layers=3, laurel_rank=12, altup_num_inputs=4, hidden_size_per_layer_input=8,
        vocab_size_per_layer_input=VOCABULARY, activation_sparsity_pattern=[0.7, 0.6, 0.8] + [0.0] * (layers - 3),
        final_logit_softcapping=8.0, rope_parameters=dict(
            full_attention=dict(rope_type="default", rope_theta=1000000.0),
            sliding_attention=dict(rope_type="default", rope_theta=10000.0))))


def alternating() -> list[tuple[str, type, dict]]:
    """Layers without a window, or without rotation, among others: the fourth."""
    shape = SHAPE | dict(num_hidden_layers=4, hidden_size=32, intermediate_size=56, rms_norm_eps=VISIBLE_EPSILON)
    yarn = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=32)
    cohere = {key: value for key, value in shape.items() if key != "rms_norm_eps"}
    return [
        ("smollm3", transformers.SmolLM3Config, shape | theta(10000.0)),
        ("olmo3", transformers.Olmo3Config, shape | dict(
            sliding_window=8, tie_word_embeddings=False, rope_parameters=dict(
                full_attention=yarn, sliding_attention=dict(rope_type="default", rope_theta=10000.0)))),
        ("exaone4", transformers.Exaone4Config, shape | theta(10000.0) | dict(
            head_dim=16, sliding_window=8, sliding_window_pattern=4, tie_word_embeddings=False)),
        ("cohere2", transformers.Cohere2Config, cohere | theta(10000.0) | dict(
            layer_norm_eps=VISIBLE_EPSILON, sliding_window=8, logit_scale=0.7)),
    ]


def scaled() -> list[tuple[str, type, dict]]:
    shape = SHAPE | dict(hidden_size=48, intermediate_size=72, rms_norm_eps=1e-5, tie_word_embeddings=True)
    return [
        ("granite", transformers.GraniteConfig, shape | theta(10000.0) | dict(
            embedding_multiplier=3.0, residual_multiplier=0.6, attention_multiplier=0.2, logits_scaling=2.5)),
    ]


def long_rope(short: float, long: float, dim: int) -> dict:
    """Divisors that grow with the dimension; contexts of more than 32 tokens have the long ones."""
    def grown(first):
        return [first + 0.5 * i for i in range(dim // 2)]
    return dict(original_max_position_embeddings=32, rope_parameters=dict(
        rope_type="longrope", rope_theta=10000.0, short_factor=grown(short), long_factor=grown(long),
        original_max_position_embeddings=32, partial_rotary_factor=0.75))


def dense_models() -> list[tuple[str, type, dict]]:
    shape = SHAPE | dict(hidden_size=32, intermediate_size=56, tie_word_embeddings=False)
    rms = shape | dict(rms_norm_eps=VISIBLE_EPSILON)
    layer_norm = shape | dict(hidden_size=48)
    return [
        *gemmas(), gemma3n(), *gemma4s(), *alternating(), *scaled(),
        # Squared ReLU without a gate.
        ("arcee", transformers.ArceeConfig, rms | theta(10000.0) | dict(head_dim=16)),
        ("ernie4_5", transformers.Ernie4_5Config, rms | theta(10000.0) | dict(head_dim=16)),
        # Six of eight dimensions of a head are rotated.
        ("phi3", transformers.Phi3Config, rms | long_rope(1.0, 2.0, 6)),
        ("olmo2", transformers.Olmo2Config, rms | theta(10000.0) | dict(num_key_value_heads=4)),
        ("glm4", transformers.Glm4Config, rms | theta(10000.0, partial_rotary_factor=0.5) | dict(
            head_dim=16, attention_bias=True)),
        ("stablelm", transformers.StableLmConfig, layer_norm | theta(10000.0, partial_rotary_factor=0.5) | dict(
            use_qkv_bias=True, layer_norm_eps=VISIBLE_EPSILON)),
        ("starcoder2", transformers.Starcoder2Config, layer_norm | theta(10000.0) | dict(
            use_bias=True, norm_epsilon=VISIBLE_EPSILON, sliding_window=None, tie_word_embeddings=True,
            hidden_act="gelu_pytorch_tanh", residual_dropout=0.0, embedding_dropout=0.0)),
        ("seed_oss", transformers.SeedOssConfig, rms | theta(10000.0) | dict(
            head_dim=16, attention_bias=True, attention_out_bias=False)),
        ("hunyuan_dense", transformers.HunYuanDenseV1Config, rms | dict(
            head_dim=16, max_position_embeddings=32768, rope_parameters=dict(
                rope_type="dynamic", rope_theta=10000.0, factor=1.0, alpha=50.0, beta_fast=32, beta_slow=1, mscale=1.0,
                mscale_all_dim=1.0))),
        # Positions from 16 on have hotter queries.
        ("ministral3", transformers.Ministral3Config, rms | dict(
            head_dim=16, max_position_embeddings=64, rope_parameters=dict(
                rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=16, beta_fast=32.0,
                beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.3))),
    ]


def bitnet() -> dict:
    """Squared ReLU: the norm inside the network sees many zeros. Weights are not ternary here."""
    return SHAPE | theta(10000.0) | dict(
        hidden_size=64, intermediate_size=56, rms_norm_eps=VISIBLE_EPSILON, tie_word_embeddings=True)


def minicpm_as_granite() -> dict:
    """MiniCPM's code is its publisher's; Granite's computes the same under other names."""
    layers, hidden, base = 2, 48, 16
    return SHAPE | dict(
        hidden_size=hidden, intermediate_size=72, num_hidden_layers=layers, rms_norm_eps=1e-5, tie_word_embeddings=False,
        embedding_multiplier=3.0, residual_multiplier=1.4 / math.sqrt(layers), attention_multiplier=(hidden // 4) ** -0.5,
        logits_scaling=hidden / base) | theta(10000.0)


def save_as_minicpm(folder: Path) -> None:
    path = folder / "config.json"
    config = json.loads(path.read_text())
    scale = config.pop("embedding_multiplier")
    for key in ["residual_multiplier", "attention_multiplier", "logits_scaling"]:
        del config[key]
    config |= dict(model_type="minicpm", architectures=["MiniCPMForCausalLM"], scale_emb=scale, scale_depth=1.4,
                   dim_model_base=16)
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


INTERNLM2_NAMES = {
    "model.embed_tokens": "model.tok_embeddings", "lm_head": "output", "input_layernorm": "attention_norm",
    "post_attention_layernorm": "ffn_norm", "self_attn.o_proj": "attention.wo", "mlp.gate_proj": "feed_forward.w1",
    "mlp.up_proj": "feed_forward.w3", "mlp.down_proj": "feed_forward.w2"}


def save_as_internlm2(folder: Path) -> None:
    """A Llama, as InternLM2 names and fuses it: of each kv head its queries, its key, its value."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config |= dict(model_type="internlm2", architectures=["InternLM2ForCausalLM"], bias=False,
                   rope_theta=config.pop("rope_parameters")["rope_theta"])
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    tensors = load_file(folder / "model.safetensors")
    kv, dim = config["num_key_value_heads"], config["head_dim"]
    for layer in range(config["num_hidden_layers"]):
        parts = [tensors.pop(f"model.layers.{layer}.self_attn.{which}_proj.weight") for which in "qkv"]
        heads = [part.reshape(kv, -1, dim, part.shape[1]) for part in parts]
        fused = numpy.concatenate(heads, axis=1).reshape(-1, parts[0].shape[1])
        tensors[f"model.layers.{layer}.attention.wqkv.weight"] = fused
    for old, new in INTERNLM2_NAMES.items():
        tensors = {name.replace(old, new): data for name, data in tensors.items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
