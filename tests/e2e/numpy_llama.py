"""A llama forward pass in float64 NumPy, from a GGUF file read by the `gguf` package.

Written from the model's definition, apart from the C++ code: the oracle for its logits.
"""
import gguf
import numpy as np


class NumpyLlama:
    def __init__(self, path):
        reader = gguf.GGUFReader(path)
        field = lambda name: reader.fields[name].contents()
        optional = lambda name, absent: reader.fields[name].contents() if name in reader.fields else absent
        self.tensors = {t.name: t for t in reader.tensors}
        self.layers = field("llama.block_count")
        self.heads = field("llama.attention.head_count")
        self.kv_heads = optional("llama.attention.head_count_kv", self.heads)
        self.eps = field("llama.attention.layer_norm_rms_epsilon")
        self.theta = optional("llama.rope.freq_base", 10000.0)
        self.relu = optional("thermocline.activation", "silu") == "relu"

    def weight(self, name):
        t = self.tensors[name + ".weight"]
        return gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float64)

    def norm(self, x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.eps) * self.weight(name)

    def rope(self, x):  # [T, heads, Dh], pairs (2i, 2i+1)
        t, _, dim = x.shape
        angles = np.arange(t)[:, None] * self.theta ** (-np.arange(0, dim, 2) / dim)[None]
        cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
        even, odd = x[..., 0::2], x[..., 1::2]
        out = np.empty_like(x)
        out[..., 0::2] = even * cos - odd * sin
        out[..., 1::2] = even * sin + odd * cos
        return out

    def attention(self, x, layer):
        t, d = x.shape
        project = lambda name, heads: (x @ self.weight(f"blk.{layer}.attn_{name}").T).reshape(t, heads, -1)
        q, k, v = self.rope(project("q", self.heads)), self.rope(project("k", self.kv_heads)), project("v", self.kv_heads)
        group = self.heads // self.kv_heads
        k, v = np.repeat(k, group, 1), np.repeat(v, group, 1)
        scores = np.einsum("thd,shd->hts", q, k) / np.sqrt(q.shape[-1])
        scores += np.triu(np.full((t, t), -np.inf), 1)
        p = np.exp(scores - scores.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        return np.einsum("hts,shd->thd", p, v).reshape(t, -1) @ self.weight(f"blk.{layer}.attn_output").T

    def ffn(self, x, layer):
        gate = x @ self.weight(f"blk.{layer}.ffn_gate").T
        gate = np.maximum(gate, 0) if self.relu else gate / (1 + np.exp(-gate))
        h = gate * (x @ self.weight(f"blk.{layer}.ffn_up").T)
        neuron_major = f"blk.{layer}.ffn_down_t"
        return h @ (self.weight(neuron_major) if neuron_major + ".weight" in self.tensors else self.weight(f"blk.{layer}.ffn_down").T)

    def hidden(self, tokens):
        """[T, D] for one sequence: the last layer's, behind the final norm."""
        x = self.weight("token_embd")[tokens]
        for layer in range(self.layers):
            x = x + self.attention(self.norm(x, f"blk.{layer}.attn_norm"), layer)
            x = x + self.ffn(self.norm(x, f"blk.{layer}.ffn_norm"), layer)
        return self.norm(x, "output_norm")

    def logits(self, tokens):
        """[T, V] for one sequence."""
        head = "output" if "output.weight" in self.tensors else "token_embd"
        return self.hidden(tokens) @ self.weight(head).T
