"""The families of make_architectures.py with recurrent layers."""

import math

import transformers

VISIBLE_EPSILON = 0.01  # so that ignoring the norm's epsilon shows in the logits
SHAPE = dict(num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128, hidden_size=32)
DELTA_NET = dict(linear_key_head_dim=16, linear_value_head_dim=16, linear_num_key_heads=2, linear_conv_kernel_dim=4)
QWEN = SHAPE | DELTA_NET | dict(
    head_dim=16, intermediate_size=56, rms_norm_eps=VISIBLE_EPSILON, tie_word_embeddings=False, num_hidden_layers=4)
QWEN_EXPERTS = dict(
    num_experts=8, num_experts_per_tok=2, moe_intermediate_size=16, shared_expert_intermediate_size=48)
MAMBA = dict(mamba_d_state=24, mamba_n_groups=2, mamba_n_heads=4, mamba_d_head=16, mamba_d_conv=4)


def rope(**more) -> dict:
    return dict(rope_parameters=dict(rope_type="default", rope_theta=10000.0, **more))


def lfm2() -> list[tuple[str, type, dict]]:
    kinds = ["conv", "full_attention", "conv", "full_attention"]
    shape = SHAPE | rope() | dict(num_hidden_layers=4, layer_types=kinds, norm_eps=VISIBLE_EPSILON, conv_L_cache=3)
    return [
        ("lfm2", transformers.Lfm2Config, shape | dict(
            intermediate_size=72, block_auto_adjust_ff_dim=False, tie_word_embeddings=True)),
        # Layer 0 is dense.
        ("lfm2moe", transformers.Lfm2MoeConfig, shape | dict(
            intermediate_size=72, moe_intermediate_size=16, num_dense_layers=1, num_experts=8, num_experts_per_tok=3,
            use_expert_bias=True, norm_topk_prob=True, tie_word_embeddings=True)),
    ]


def qwen_hybrids() -> list[tuple[str, type, dict]]:
    """A key head has two value heads, or three: orders of heads that differ are seen."""
    sections = rope(partial_rotary_factor=0.5, mrope_section=[2, 1, 1], mrope_interleaved=True)
    return [
        ("qwen3next", transformers.Qwen3NextConfig, QWEN | QWEN_EXPERTS | rope(partial_rotary_factor=0.5) | dict(
            linear_num_value_heads=4)),
        ("qwen35", transformers.Qwen3_5TextConfig, QWEN | sections | dict(linear_num_value_heads=6)),
        ("qwen35moe", transformers.Qwen3_5MoeTextConfig, QWEN | QWEN_EXPERTS | sections | dict(
            linear_num_value_heads=6)),
    ]


def granite_hybrids() -> list[tuple[str, type, dict]]:
    scales = dict(embedding_multiplier=3.0, residual_multiplier=0.6, attention_multiplier=0.2, logits_scaling=2.5)
    shape = SHAPE | MAMBA | scales | dict(
        num_hidden_layers=4, layer_types=["mamba", "attention", "mamba", "mamba"], rms_norm_eps=VISIBLE_EPSILON,
        mamba_expand=2, mamba_chunk_size=8, mamba_conv_bias=True, position_embedding_type=None, tie_word_embeddings=True,
        intermediate_size=16, shared_intermediate_size=48)
    return [
        ("granitehybrid", transformers.GraniteMoeHybridConfig, shape | dict(
            num_local_experts=6, num_experts_per_tok=3)),
        ("granitehybrid_dense", transformers.GraniteMoeHybridConfig, shape | dict(
            num_local_experts=0, num_experts_per_tok=0)),
    ]


def nemotron_h() -> list[tuple[str, type, dict]]:
    """Squared ReLU without a gate: true zeros. Blocks have one part each."""
    shape = SHAPE | dict(
        head_dim=16, ssm_state_size=24, mamba_num_heads=8, mamba_head_dim=16, n_groups=2, conv_kernel=4, chunk_size=8,
        layer_norm_epsilon=VISIBLE_EPSILON, intermediate_size=96, tie_word_embeddings=False, use_conv_bias=True)
    return [
        ("nemotron_h_moe", transformers.NemotronHConfig, shape | dict(
            layers_block_type=["linear_attention", "moe", "linear_attention", "full_attention", "moe"],
            n_routed_experts=8, num_experts_per_tok=3, moe_intermediate_size=16, n_shared_experts=1,
            moe_shared_expert_intermediate_size=48, norm_topk_prob=True, routed_scaling_factor=2.5, n_group=1,
            topk_group=1)),
        ("nemotron_h", transformers.NemotronHConfig, shape | dict(
            layers_block_type=["linear_attention", "mlp", "linear_attention", "full_attention", "mlp"])),
    ]


def hybrid_models() -> list[tuple[str, type, dict]]:
    return [*lfm2(), *qwen_hybrids(), *granite_hybrids(), *nemotron_h()]


def without_clamp(network) -> None:
    """transformers clamps Nemotron's steps in prompts, and nothing else does (transformers#48989)."""
    for module in network.modules():
        if hasattr(module, "time_step_limit"):
            module.time_step_limit = (0.0, math.inf)
