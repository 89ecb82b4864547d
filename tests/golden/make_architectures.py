#!/usr/bin/env python3
"""Makes the golden data of the architecture tests: tiny random models and their logits.

This script is not part of the build or of the tests.  It is run by hand to regenerate the data:

    python make_architectures.py OUT LLAMA_CPP [NAME...]

OUT is the folder to fill, LLAMA_CPP is a llama.cpp source tree (its `conversion` package and
`gguf-py` write the GGUF files), and the NAMEs restrict the run to some of the models.

For every model in MODELS it writes OUT/NAME/
    config.json, model.safetensors   the Hugging Face model as transformers saves it, float32
    tokens.json                      the input: a list of T token ids
    logits.npy                       float32 [T, vocabulary]: the logits of all positions
    model.gguf                       the same model in F32 as llama.cpp's converter writes it

The weights are random but fixed (numpy's PCG64, seed 1 unless a model has another), and scaled so
that activations and logits are of order one and each tensor has a visible effect.  The logits come
from the "eager" attention of transformers, computed entirely in double precision (see
`in_double_precision`) and rounded once.

Made with Python 3.11.7, torch 2.15.0 (CPU), transformers 5.23.0, safetensors 0.8.0, numpy 2.4.6, and
the llama.cpp source inside llama_cpp_python 0.3.36 (gguf 0.19.0).
"""

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import transformers

from architectures_dense import bitnet, dense_models, minicpm_as_granite, save_as_internlm2, save_as_minicpm
from architectures_gated import gated_models, muse_glimmer_network
from architectures_hybrid import hybrid_models, without_clamp
from architectures_mixtures import more_mixtures
from architectures_gguf import VOCABULARY, LlamaCpp, convert, write_bamboo_gguf, write_bitnet_gguf, write_opt_gguf, write_persimmon_gguf
from architectures_weights import fill_weights, in_double_precision, routing_margins

WEIGHT_SEED = 1
TOKEN_SEED = 2
TOKEN_COUNT = 40
FIRST_ORDINARY_TOKEN = 4  # <unk> <s> </s> and the newline byte come first

ROUTING_MARGIN = 1e-3  # between the last expert chosen and the next, in what chooses: floats agree on the choice
HYBRID_SEEDS = {"qwen3next": 68, "qwen35moe": 22, "nemotron_h_moe": 5}  # another: experts that tie
MIXTURE_SEEDS = {"minimax_m2": 3, "gemma4_moe": 239, "laguna": 2}
VISIBLE_EPSILON = 0.01  # some models use it so that ignoring the norm's epsilon shows in the logits


# ---------------------------------------------------------------------------------------------
# The models


@dataclass(frozen=True)
class Model:
    """One golden model: the transformers configuration, and how its GGUF file is made."""

    name: str
    config_class: type
    config: dict
    write_gguf: Callable  # (folder, llama.cpp's modules) -> None
    is_bamboo: bool = False
    disguise: Callable | None = None  # (folder): makes it another family's, which computes the same
    weight_seed: int = WEIGHT_SEED


def llama_rope_config(**rope) -> dict:
    """A small GQA Llama whose head_dim is not hidden_size / heads, with the given rope settings."""
    return dict(
        hidden_size=32, intermediate_size=56, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, rms_norm_eps=1e-5, tie_word_embeddings=False, **rope)


def all_models() -> list[Model]:
    llama, mistral = transformers.LlamaConfig, transformers.MistralConfig
    falcon = transformers.FalconConfig
    heads = dict(num_hidden_layers=2, num_attention_heads=4)
    grouped = dict(**heads, num_key_value_heads=2)
    llama3_rope = dict(rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0)
    return [
        Model("llama2", llama, dict(
            hidden_size=48, intermediate_size=72, **heads, num_key_value_heads=4, rms_norm_eps=1e-5,
            max_position_embeddings=128, tie_word_embeddings=False), convert),
        Model("llama3", llama, dict(
            hidden_size=64, intermediate_size=48, **grouped, rms_norm_eps=1e-5,
            max_position_embeddings=128, tie_word_embeddings=True,
            rope_parameters=dict(**llama3_rope, original_max_position_embeddings=16)), convert),
        # Here some rotation frequencies are kept, some blended and some divided by the factor.
        Model("llama3_bands", llama, llama_rope_config(
            max_position_embeddings=256,
            rope_parameters=dict(**llama3_rope, original_max_position_embeddings=32)) | dict(head_dim=32), convert),
        Model("llama_linear", llama, llama_rope_config(
            max_position_embeddings=128,
            rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=4.0)), convert),
        # TOKEN_COUNT is factor * max_position_embeddings: one base serves the whole extended window.
        Model("llama_ntk", llama, llama_rope_config(
            max_position_embeddings=20,
            rope_parameters=dict(rope_type="dynamic", rope_theta=10000.0, factor=2.0)), convert),
        Model("llama_yarn", llama, llama_rope_config(
            max_position_embeddings=64,
            rope_parameters=dict(rope_type="yarn", rope_theta=100.0, factor=4.0,
                                 original_max_position_embeddings=16)), convert),
        Model("llama_yarn_explicit", llama, llama_rope_config(
            max_position_embeddings=64,
            rope_parameters=dict(rope_type="yarn", rope_theta=100.0, factor=4.0, beta_fast=2.0, beta_slow=0.5,
                                 attention_factor=1.25, original_max_position_embeddings=16)), convert),
        Model("llama_bias", llama, dict(
            hidden_size=40, intermediate_size=72, **grouped, head_dim=16, rms_norm_eps=VISIBLE_EPSILON,
            max_position_embeddings=128, attention_bias=True, mlp_bias=True,
            tie_word_embeddings=False), convert),
        Model("llama_relu", llama, dict(
            hidden_size=48, intermediate_size=72, **grouped, rms_norm_eps=1e-5,
            max_position_embeddings=128, hidden_act="relu", tie_word_embeddings=True), convert),
        Model("mistral", mistral, dict(
            hidden_size=40, intermediate_size=72, **grouped, head_dim=10, rms_norm_eps=1e-5,
            max_position_embeddings=128, sliding_window=8, tie_word_embeddings=False), convert),
        Model("qwen2", transformers.Qwen2Config, dict(
            hidden_size=48, intermediate_size=80, **grouped, rms_norm_eps=1e-6,
            max_position_embeddings=128, tie_word_embeddings=True,
            rope_parameters=dict(rope_type="default", rope_theta=1000000.0)), convert),
        Model("qwen3", transformers.Qwen3Config, dict(
            hidden_size=32, intermediate_size=72, **grouped, head_dim=32, rms_norm_eps=VISIBLE_EPSILON,
            max_position_embeddings=128, tie_word_embeddings=False,
            rope_parameters=dict(rope_type="default", rope_theta=1000000.0)), convert),
        Model("opt", transformers.OPTConfig, dict(
            hidden_size=40, word_embed_proj_dim=40, ffn_dim=112, **heads, max_position_embeddings=64,
            do_layer_norm_before=True, activation_function="relu", tie_word_embeddings=True,
            dropout=0.0), write_opt_gguf),
        Model("persimmon", transformers.PersimmonConfig, dict(
            hidden_size=40, intermediate_size=112, num_hidden_layers=2, num_attention_heads=4,
            max_position_embeddings=128, hidden_act="relu2", qk_layernorm=True, layer_norm_eps=VISIBLE_EPSILON,
            rope_parameters=dict(rope_type="default", rope_theta=25000.0, partial_rotary_factor=0.4),
            tie_word_embeddings=False), write_persimmon_gguf),
        Model("falcon7", falcon, dict(
            hidden_size=40, **heads, multi_query=True, parallel_attn=True, new_decoder_architecture=False,
            bias=False, alibi=False, activation="gelu", layer_norm_epsilon=VISIBLE_EPSILON,
            tie_word_embeddings=True), convert),
        Model("falcon40", falcon, dict(
            hidden_size=40, **heads, num_kv_heads=2, new_decoder_architecture=True, bias=False, alibi=False,
            activation="relu", tie_word_embeddings=False), convert),
        Model("bamboo", mistral, dict(
            hidden_size=48, intermediate_size=80, **grouped, head_dim=12, rms_norm_eps=1e-5,
            max_position_embeddings=128, sliding_window=None, hidden_act="relu",
            tie_word_embeddings=False), write_bamboo_gguf, is_bamboo=True),
        Model("nemotron", transformers.NemotronConfig, dict(
            hidden_size=48, intermediate_size=112, **grouped, head_dim=12, norm_eps=VISIBLE_EPSILON,
            max_position_embeddings=128, hidden_act="relu2", partial_rotary_factor=0.5,
            tie_word_embeddings=False), convert),
        Model("phi2", transformers.PhiConfig, dict(
            hidden_size=40, intermediate_size=160, num_hidden_layers=2, num_attention_heads=2,
            max_position_embeddings=128, hidden_act="gelu_new", partial_rotary_factor=0.5,
            layer_norm_eps=VISIBLE_EPSILON, resid_pdrop=0.0, tie_word_embeddings=False), convert),
        *mixtures(),
        *(Model(name, config_class, config, convert, weight_seed=MIXTURE_SEEDS.get(name, WEIGHT_SEED))
          for name, config_class, config in more_mixtures()),
        *(Model(name, config_class, config, convert, weight_seed=MIXTURE_SEEDS.get(name, WEIGHT_SEED))
          for name, config_class, config in [*dense_models(), *gated_models()]),
        *(Model(name, config_class, config, convert, weight_seed=HYBRID_SEEDS.get(name, WEIGHT_SEED))
          for name, config_class, config in hybrid_models()),
        Model("bitnet", transformers.BitNetConfig, bitnet(), write_bitnet_gguf),
        Model("minicpm", transformers.GraniteConfig, minicpm_as_granite(), convert, disguise=save_as_minicpm),
        Model("internlm2", llama, dict(
            hidden_size=40, intermediate_size=72, **grouped, head_dim=10, rms_norm_eps=VISIBLE_EPSILON,
            max_position_embeddings=128, tie_word_embeddings=False), convert, disguise=save_as_internlm2),
    ]


def mixtures() -> list[Model]:
    """Mixtures of experts. Hidden and expert sizes are multiples of 16."""
    shape = dict(num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128)
    granite = dict(
        **shape, hidden_size=32, intermediate_size=16, num_local_experts=6, num_experts_per_tok=3,
        rms_norm_eps=1e-5, embedding_multiplier=3.0, residual_multiplier=0.6, attention_multiplier=0.2,
        logits_scaling=2.5, tie_word_embeddings=True)
    theta = dict(rope_type="default", rope_theta=1000000.0)
    return [
        Model("mixtral", transformers.MixtralConfig, dict(
            **shape, hidden_size=48, intermediate_size=32, num_local_experts=4, num_experts_per_tok=2,
            rms_norm_eps=1e-5, sliding_window=None, tie_word_embeddings=False), convert),
        Model("qwen2moe", transformers.Qwen2MoeConfig, dict(
            **shape, hidden_size=32, intermediate_size=96, moe_intermediate_size=16,
            shared_expert_intermediate_size=48, num_experts=6, num_experts_per_tok=3, norm_topk_prob=False,
            rms_norm_eps=1e-6, rope_parameters=theta, tie_word_embeddings=False), convert, weight_seed=8),
        Model("qwen3moe", transformers.Qwen3MoeConfig, dict(
            **shape, hidden_size=32, head_dim=16, intermediate_size=96, moe_intermediate_size=16, num_experts=8,
            num_experts_per_tok=2, norm_topk_prob=True, rms_norm_eps=VISIBLE_EPSILON, rope_parameters=theta,
            tie_word_embeddings=True), convert),
        # As in the published one, and as llama.cpp requires, there are as many heads of keys as of queries.
        Model("olmoe", transformers.OlmoeConfig, dict(
            **(shape | dict(num_key_value_heads=4)), hidden_size=48, intermediate_size=16, num_experts=6,
            num_experts_per_tok=3, norm_topk_prob=False, rms_norm_eps=1e-5, tie_word_embeddings=False),
            convert, weight_seed=5),
        Model("granitemoe", transformers.GraniteMoeConfig, granite, convert, weight_seed=2),
        Model("granitemoe_shared", transformers.GraniteMoeSharedConfig, dict(
            **granite, shared_intermediate_size=48), convert),
        # Layer 0 is dense. The converter takes intermediate_size / num_key_value_heads for the shared experts' width.
        Model("ernie4_5_moe", transformers.Ernie4_5_MoeConfig, dict(
            **(shape | dict(num_hidden_layers=3)), hidden_size=32, intermediate_size=64, moe_intermediate_size=16,
            moe_num_experts=6, moe_k=2, moe_num_shared_experts=2, moe_layer_start_index=1, moe_layer_end_index=2,
            rms_norm_eps=1e-5, tie_word_embeddings=True), convert),
        # Layer 0 has the window. The correction range of yarn is not made whole.
        Model("gpt_oss", transformers.GptOssConfig, dict(
            **(shape | dict(max_position_embeddings=131072)), hidden_size=32, head_dim=16, intermediate_size=16,
            num_local_experts=6, num_experts_per_tok=3, sliding_window=8, swiglu_limit=7.0, rms_norm_eps=1e-5,
            tie_word_embeddings=False,
            rope_parameters=dict(rope_type="yarn", rope_theta=150000.0, factor=32.0, beta_fast=32.0, beta_slow=1.0,
                                 truncate=False, original_max_position_embeddings=4096)), convert),
        *latent_mixtures(),
        Model("glm4_moe", transformers.Glm4MoeConfig, dict(
            **shape, hidden_size=32, head_dim=16, intermediate_size=80, moe_intermediate_size=16, n_routed_experts=6,
            n_shared_experts=1, num_experts_per_tok=2, first_k_dense_replace=1, norm_topk_prob=True,
            routed_scaling_factor=2.5, use_qk_norm=True, attention_bias=True, num_mtp_layers=0,
            rms_norm_eps=VISIBLE_EPSILON, tie_word_embeddings=False,
            rope_parameters=dict(theta, partial_rotary_factor=0.5)), convert),
    ]


def latent_mixtures() -> list[Model]:
    """DeepSeek's: keys and values come from a latent vector. Layer 0 is dense; the latent's norm has epsilon 1e-6."""
    shape = dict(
        num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=2560,
        hidden_size=32, intermediate_size=48, moe_intermediate_size=16, first_k_dense_replace=1, moe_layer_freq=1,
        kv_lora_rank=32, qk_nope_head_dim=16, qk_rope_head_dim=8, rms_norm_eps=1e-6, tie_word_embeddings=False)
    yarn = dict(rope_type="yarn", rope_theta=10000.0, factor=40.0, beta_fast=32.0, beta_slow=1.0,
                original_max_position_embeddings=64)
    return [
        Model("deepseek_v2_lite", transformers.DeepseekV2Config, dict(
            **shape, q_lora_rank=None, v_head_dim=16, n_routed_experts=6, n_shared_experts=2, num_experts_per_tok=3,
            scoring_func="softmax", topk_method="greedy", n_group=1, topk_group=1, norm_topk_prob=False,
            routed_scaling_factor=1.5, rope_parameters=dict(**yarn, mscale=0.707, mscale_all_dim=0.707)),
            convert, weight_seed=6),
        Model("deepseek_v3", transformers.DeepseekV3Config, dict(
            **shape, q_lora_rank=16, v_head_dim=32, n_routed_experts=8, n_shared_experts=1, num_experts_per_tok=3,
            scoring_func="sigmoid", topk_method="noaux_tc", n_group=4, topk_group=2, norm_topk_prob=True,
            routed_scaling_factor=2.5, num_mtp_layers=0,
            rope_parameters=dict(**yarn, mscale=1.0, mscale_all_dim=1.0)), convert, weight_seed=8),
        Model("glm4_moe_lite", transformers.Glm4MoeLiteConfig, dict(
            **(shape | dict(qk_nope_head_dim=24)), q_lora_rank=16, v_head_dim=32, n_routed_experts=8,
            n_shared_experts=1, num_experts_per_tok=2, norm_topk_prob=True, routed_scaling_factor=1.8,
            rope_parameters=dict(rope_type="default", rope_theta=10000.0)), convert, weight_seed=9),
    ]


# ---------------------------------------------------------------------------------------------
# Weights and logits


def use_drelu(network: torch.nn.Module) -> None:
    """Turns the MLPs of a Mistral network into Bamboo's: both the gate and the up half pass a ReLU."""
    for layer in network.model.layers:
        mlp = layer.mlp
        mlp.forward = lambda x, m=mlp: m.down_proj(torch.relu(m.gate_proj(x)) * torch.relu(m.up_proj(x)))


def build(model: Model) -> torch.nn.Module:
    """The network of `model` in torch's default precision, with its weights."""
    config = model.config_class(
        vocab_size=VOCABULARY, bos_token_id=1, eos_token_id=2, pad_token_id=None, **model.config)
    how = dict(attn_implementation="eager", experts_implementation="eager", dtype=torch.get_default_dtype())
    if model.config_class is transformers.Mistral4Config:  # of which Auto does not know
        network = transformers.Mistral4ForCausalLM._from_config(config, **how)
    elif model.config_class is transformers.MuseGlimmerTextConfig:
        network = muse_glimmer_network(config, **how)
    else:
        network = transformers.AutoModelForCausalLM.from_config(config, **how)
    fill_weights(network, model.weight_seed)
    if model.is_bamboo:
        use_drelu(network)
    without_clamp(network)
    return network.eval()


def logits_of(network: torch.nn.Module, tokens: list[int]) -> np.ndarray:
    with torch.no_grad():
        return network(torch.tensor([tokens]), use_cache=False).logits[0].numpy()


def random_tokens() -> list[int]:
    rng = np.random.default_rng(TOKEN_SEED)
    return rng.integers(FIRST_ORDINARY_TOKEN, VOCABULARY, TOKEN_COUNT).tolist()


# ---------------------------------------------------------------------------------------------
# Files


def save_huggingface(model: Model, network: torch.nn.Module, folder: Path) -> None:
    network.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    if model.disguise is not None:
        model.disguise(folder)
    if model.is_bamboo:
        path = folder / "config.json"
        config = json.loads(path.read_text())
        config |= dict(model_type="bamboo", architectures=["BambooForCausalLM"])
        path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def make(model: Model, out: Path, llama_cpp: LlamaCpp) -> None:
    folder = out / model.name
    folder.mkdir(parents=True, exist_ok=True)
    tokens = random_tokens()
    with in_double_precision(), routing_margins() as margins:
        logits = logits_of(build(model), tokens)
    assert logits.dtype == np.float64
    assert all(margin > ROUTING_MARGIN for margin in margins), f"{model.name}: another weight_seed: {min(margins)}"
    network = build(model)
    rounding = np.abs(logits_of(network, tokens) - logits).max()

    save_huggingface(model, network, folder)
    (folder / "tokens.json").write_text(json.dumps(tokens) + "\n")
    np.save(folder / "logits.npy", logits.astype(np.float32))
    model.write_gguf(folder, llama_cpp)
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(f"{model.name:20} logits {logits.shape} std {logits.std():.3f} max {np.abs(logits).max():.2f}, "
          f"float32 differs by {rounding:.1e}, {size // 1000} kB")


# ---------------------------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(description="Makes the golden data of the architecture tests.")
    parser.add_argument("out", type=Path)
    parser.add_argument("llama_cpp", type=Path)
    parser.add_argument("names", nargs="*", help="the models to make (default: all)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    llama_cpp = LlamaCpp(arguments.llama_cpp)
    models = all_models()
    unknown = set(arguments.names) - {model.name for model in models}
    if unknown:
        parser.error(f"no such model: {' '.join(sorted(unknown))}")
    for model in models:
        if not arguments.names or model.name in arguments.names:
            make(model, arguments.out, llama_cpp)


if __name__ == "__main__":
    main()
