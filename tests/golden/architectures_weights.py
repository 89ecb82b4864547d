"""Weights, precision and routing of the tiny models of make_architectures.py."""

import contextlib
from collections.abc import Iterator

import numpy as np
import torch

MATRIX_GAIN = 1.3
EMBEDDING_SCALE = 0.5
NORM_SPREAD = 0.2
BIAS_SCALE = 0.2
CLAMPED_GAIN = 2.5  # of gpt-oss's gates and ups: some of them lie beyond its limit of 7
CLAMPED_DOWN_GAIN = 0.15  # and the products of large gates and ups come back to order one


@contextlib.contextmanager
def in_double_precision() -> Iterator[None]:
    """Makes transformers compute in double precision even where its code asks for float32.

    Norms, rotary tables and the softmax convert to `torch.float32` or call `.float()`; inside this
    context these names mean double precision.
    """
    single, to_single = torch.float32, torch.Tensor.float
    torch.float32 = torch.float = torch.float64
    torch.Tensor.float = torch.Tensor.double
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.float32 = torch.float = single
        torch.Tensor.float = to_single
        torch.set_default_dtype(single)


def gpt_oss_scale(name: str, shape: tuple[int, ...]) -> float:
    """Of the tensors of gpt-oss's experts. Matrices lie as [expert, input, output]."""
    return {"gate_up_proj": CLAMPED_GAIN / np.sqrt(shape[1]), "gate_up_proj_bias": CLAMPED_GAIN,
            "down_proj": CLAMPED_DOWN_GAIN / np.sqrt(shape[1]), "down_proj_bias": BIAS_SCALE}[name]


def random_weight(module: torch.nn.Module, name: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Float32 values for the parameter `name` of `module`."""
    values = rng.standard_normal(shape)
    if name == "A_log":
        values = np.log(rng.uniform(0.1, 4, shape))
    elif name in ("dt_bias", "D") or isinstance(module, torch.nn.Conv1d):
        values = 0.5 * values
    elif name in ("bias", "e_score_correction_bias", "expert_bias"):
        values = BIAS_SCALE * values
    elif name == "layer_scalar":
        values = rng.uniform(0.6, 1.1, shape)
    elif type(module).__name__ == "GptOssExperts":
        values = gpt_oss_scale(name, shape) * values
    elif name == "sinks":
        pass  # as scores, of order one
    elif isinstance(module, torch.nn.Embedding):
        values = EMBEDDING_SCALE * values
    elif len(shape) >= 2:  # three dimensions: the matrices of all experts
        values = MATRIX_GAIN / np.sqrt(shape[-1]) * values
    else:
        stores_less_one = any(part in type(module).__name__ for part in ("1P", "CenteredRMSNorm"))
        centre = 0.0 if stores_less_one else 1.0
        values = centre + NORM_SPREAD * values
    return values.astype(np.float32)


@contextlib.contextmanager
def routing_margins() -> Iterator[list[float]]:
    """Collects, of every choice of experts, how far the last one chosen lies above the next."""
    margins: list[float] = []
    topk = torch.Tensor.topk

    def measured(scores, k, *args, **kwargs):
        if k < scores.shape[-1]:
            best = torch.sort(scores, dim=-1, descending=True).values
            margins.append((best[..., k - 1] - best[..., k]).min().item())
        return topk(scores, k, *args, **kwargs)

    function = torch.topk
    torch.Tensor.topk = torch.topk = measured
    try:
        yield margins
    finally:
        torch.Tensor.topk, torch.topk = topk, function


def saved_tensors(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """The parameters of `module` itself, and the bias of a router or a layer's scale, which may be buffers."""
    yield from module.named_parameters(recurse=False)
    for name, buffer in module.named_buffers(recurse=False):
        if name in ("e_score_correction_bias", "expert_bias", "layer_scalar"):
            yield name, buffer


def fill_weights(network: torch.nn.Module, seed: int) -> None:
    """Sets every tensor; a tied one keeps the values of its first place, the embedding."""
    rng = np.random.default_rng(seed)
    seen = set()
    for module in network.modules():
        for name, tensor in saved_tensors(module):
            if tensor not in seen:
                seen.add(tensor)
                values = random_weight(module, name, tuple(tensor.shape), rng)
                tensor.data.copy_(torch.from_numpy(values))
