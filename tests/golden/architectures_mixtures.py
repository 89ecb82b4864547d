"""The mixtures of make_architectures.py that came after the first ones. Hidden and expert sizes are multiples of 16."""

import transformers

VISIBLE_EPSILON = 0.01  # so that ignoring the norm's epsilon shows in the logits
SHAPE = dict(num_attention_heads=4, num_key_value_heads=2, hidden_size=32, max_position_embeddings=128,
             rms_norm_eps=VISIBLE_EPSILON, tie_word_embeddings=False)
PLAIN = dict(rope_type="default", rope_theta=10000.0)


def windowed() -> list[tuple[str, type, dict]]:
    """Of four layers the last sees everything."""
    layers = ["sliding_attention"] * 3 + ["full_attention"]
    yarn = dict(rope_type="yarn", rope_theta=500000.0, factor=4.0, original_max_position_embeddings=32)
    cohere = {key: value for key, value in SHAPE.items() if key != "tie_word_embeddings"} | dict(
        head_dim=16, intermediate_size=16, prefix_dense_intermediate_size=48, num_hidden_layers=5, num_experts=6,
        num_experts_per_tok=2, num_shared_experts=1, sliding_window=8, logit_scale=0.7, first_k_dense_replace=1)
    return [
        ("mellum", transformers.MellumConfig, SHAPE | dict(
            head_dim=16, intermediate_size=48, moe_intermediate_size=16, num_hidden_layers=4, num_experts=8,
            num_experts_per_tok=2, sliding_window=8, layer_types=layers,
            rope_parameters=dict(full_attention=yarn, sliding_attention=PLAIN))),
        # The layer that sees everything is not rotated.
        ("exaone_moe", transformers.ExaoneMoeConfig, SHAPE | dict(
            head_dim=16, intermediate_size=48, moe_intermediate_size=16, num_hidden_layers=4, num_experts=8,
            num_experts_per_tok=2, num_shared_experts=1, sliding_window=8, sliding_window_pattern=4,
            first_k_dense_replace=1, routed_scaling_factor=2.5, rope_parameters=PLAIN)),
        # The dense layer before the others is rotated, and has no window.
        ("cohere2_moe", transformers.Cohere2MoeConfig, cohere | dict(expert_selection_fn="sigmoid")),
        ("cohere2_moe_softmax", transformers.Cohere2MoeConfig, {
            **{key: value for key, value in cohere.items() if key != "rms_norm_eps"},
            "layer_norm_eps": VISIBLE_EPSILON, "expert_selection_fn": "softmax"}),
    ]


def latent() -> list[tuple[str, type, dict]]:
    """Layer 0 is dense but in Mistral's; the latent's norm has epsilon 1e-6."""
    shape = SHAPE | dict(
        num_key_value_heads=4, num_hidden_layers=2, intermediate_size=48, moe_intermediate_size=16, n_shared_experts=1,
        kv_lora_rank=32, q_lora_rank=16, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=32, rms_norm_eps=1e-6)
    indexed = shape | dict(first_k_dense_replace=1, index_topk=64, index_head_dim=16, index_n_heads=4,
                           routed_scaling_factor=2.5)
    yarn = dict(rope_type="yarn", rope_theta=10000.0, factor=8.0, beta_fast=32.0, beta_slow=1.0,
                original_max_position_embeddings=16, mscale=1.0, mscale_all_dim=1.0)
    return [
        # Positions from 16 on have hotter queries.
        ("mistral4", transformers.Mistral4Config, shape | dict(
            n_routed_experts=6, num_experts_per_tok=2, first_k_dense_replace=0,
            rope_parameters=yarn | dict(llama_4_scaling_beta=0.3))),
        ("glm_moe_dsa", transformers.GlmMoeDsaConfig, indexed | dict(
            n_routed_experts=8, num_experts_per_tok=3, rope_parameters=PLAIN)),
        ("deepseek_v32", transformers.DeepseekV32Config, indexed | dict(
            n_routed_experts=8, num_experts_per_tok=3, n_group=4, topk_group=2, rope_parameters=yarn)),
    ]


def more_mixtures() -> list[tuple[str, type, dict]]:
    return [
        # Half of a head is rotated; one norm is over all heads.
        ("minimax_m2", transformers.MiniMaxM2Config, SHAPE | dict(
            head_dim=16, intermediate_size=16, num_hidden_layers=2, num_local_experts=8, num_experts_per_tok=3,
            rope_parameters=dict(PLAIN, partial_rotary_factor=0.5))),
        *windowed(), *latent(),
    ]
