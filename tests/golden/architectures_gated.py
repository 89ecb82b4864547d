"""The families of make_architectures.py whose attention's output has a gate of its own, and Llama 4."""

import torch
import transformers

VISIBLE_EPSILON = 0.01  # so that ignoring the norm's epsilon shows in the logits
SHAPE = dict(num_attention_heads=4, num_key_value_heads=2, head_dim=16, hidden_size=32, max_position_embeddings=128,
             rms_norm_eps=VISIBLE_EPSILON, tie_word_embeddings=False)
PLAIN = dict(rope_type="default", rope_theta=10000.0)
WINDOWS = ["sliding_attention"] * 3 + ["full_attention"]


def muse_glimmer() -> dict:
    """The last layer sees everything and is not rotated. The text part of a multimodal model, whose other part is tiny."""
    return SHAPE | dict(intermediate_size=48, num_hidden_layers=4, sliding_window=8, rope_parameters=PLAIN, qk_scale_factor=2.5,
                        output_multiplier=0.7, final_logit_softcapping=3.0)


def muse_glimmer_network(config: transformers.MuseGlimmerTextConfig, **how) -> torch.nn.Module:
    """Auto does not know the text part alone."""
    vision = dict(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2, pos_emb_height=2, pos_emb_width=2)
    whole = transformers.MuseGlimmerConfig(text_config=config.to_dict(), vision_config=vision, out_hidden_size=32, projector_hidden_size=8)
    return transformers.MuseGlimmerForConditionalGeneration._from_config(whole, **how)


def gated_models() -> list[tuple[str, type, dict]]:
    mixture = dict(intermediate_size=48, moe_intermediate_size=16, num_experts=8, num_experts_per_tok=3)
    yarn = dict(rope_type="yarn", rope_theta=500000.0, factor=4.0, original_max_position_embeddings=32, partial_rotary_factor=0.5,
                beta_fast=32.0, beta_slow=1.0, attention_factor=1.0)
    return [
        ("muse_glimmer", transformers.MuseGlimmerTextConfig, muse_glimmer()),
        ("afmoe", transformers.AfmoeConfig, SHAPE | mixture | dict(
            num_hidden_layers=4, num_dense_layers=1, num_shared_experts=1, route_scale=2.5, sliding_window=8,
            global_attn_every_n_layers=4, mup_enabled=True, rope_parameters=PLAIN)),
        # Layers with a window have more heads of queries, whole rotation and no scaling.
        ("laguna", transformers.LagunaConfig, SHAPE | mixture | dict(
            num_hidden_layers=4, shared_expert_intermediate_size=32, sliding_window=8, layer_types=["full_attention"] + WINDOWS[:3],
            num_attention_heads_per_layer=[4, 8, 8, 8], gating=True, moe_routed_scaling_factor=2.5,
            rope_parameters=dict(full_attention=yarn, sliding_attention=PLAIN))),
        # A gate for each element, and no window.
        ("laguna_wide", transformers.LagunaConfig, SHAPE | mixture | dict(
            num_hidden_layers=2, shared_expert_intermediate_size=16, sliding_window=0, gating="per-element", moe_routed_scaling_factor=1.5,
            rope_parameters=dict(full_attention=yarn))),
        # One of two layers has experts; each fourth is not rotated, and its queries are hotter from position 8 on.
        ("llama4", transformers.Llama4TextConfig, SHAPE | dict(
            intermediate_size=16, intermediate_size_mlp=48, num_hidden_layers=4, num_local_experts=6, num_experts_per_tok=1,
            interleave_moe_layer_step=2, attention_chunk_size=16, floor_scale=8, attn_scale=0.3, rope_parameters=PLAIN)),
        ("apertus", transformers.ApertusConfig, {key: value for key, value in SHAPE.items() if key != "head_dim"} | dict(
            intermediate_size=56, num_hidden_layers=2, rope_parameters=dict(
                rope_type="llama3", rope_theta=10000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                original_max_position_embeddings=32))),
    ]
