"""Gemma 4 in make_architectures.py: heads of two widths, shared keys, embeddings of layers, experts beside a network."""

import transformers

from architectures_gguf import VOCABULARY

VISIBLE_EPSILON = 0.01  # so that ignoring the norm's epsilon shows in the logits
PATTERN = ["sliding_attention", "sliding_attention", "full_attention"]


def shape(layers: int, **more) -> dict:
    return dict(
        hidden_size=32, intermediate_size=48, head_dim=16, global_head_dim=32, num_hidden_layers=layers,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128, rms_norm_eps=VISIBLE_EPSILON,
        sliding_window=8, layer_types=PATTERN * (layers // 3), final_logit_softcapping=8.0, tie_word_embeddings=True,
        hidden_size_per_layer_input=0, vocab_size_per_layer_input=VOCABULARY, rope_parameters=dict(
            full_attention=dict(rope_type="proportional", rope_theta=1000000.0, partial_rotary_factor=0.25),
            sliding_attention=dict(rope_type="default", rope_theta=10000.0))) | more


def gemma4s() -> list[tuple[str, type, dict]]:
    return [
        # As 31B: keys are values where a layer sees everything, and there they have fewer heads.
        ("gemma4", transformers.Gemma4TextConfig, shape(6, attention_k_eq_v=True, num_global_key_value_heads=1)),
        # As E2B: the last three layers read the keys of earlier ones, and their networks are twice as wide.
        ("gemma4_e", transformers.Gemma4TextConfig, shape(
            6, num_kv_shared_layers=3, use_double_wide_mlp=True, hidden_size_per_layer_input=8)),
        # As 26B-A4B.
        ("gemma4_moe", transformers.Gemma4TextConfig, shape(
            3, attention_k_eq_v=True, num_global_key_value_heads=1, enable_moe_block=True, num_experts=6,
            top_k_experts=2, moe_intermediate_size=16)),
    ]
