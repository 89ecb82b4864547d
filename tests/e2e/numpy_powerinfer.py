"""PowerInfer's files by the `gguf` package, and a forward pass of their sparse graphs in float64 NumPy.

Written from the format's and the models' definitions, apart from the C++ code: the oracle for both.
"""
import gguf
import numpy as np

D, F, R, LAYERS, HEADS, VOCABULARY = 64, 96, 32, 2, 4, 272
KV_HEADS = {"llama": 2, "bamboo": 2, "falcon": 1, "opt": 4}
POSITIONS = 40  # of OPT's table, less the two rows before position 0
FAMILIES = list(KV_HEADS)


def matrices(family):
    """Names and shapes of a family's matrices."""
    kv = D // HEADS * KV_HEADS[family]
    yield "token_embd.weight", (VOCABULARY, D)
    if family == "opt":
        yield "position_embd.weight", (POSITIONS + 2, D)
    else:
        yield "output.weight", (VOCABULARY, D)
    for i in range(LAYERS):
        shapes = {"attn_output": (D, D), "ffn_up": (F, D), "ffn_down_t": (F, D), "fc1": (R + 32 * i, D), "fc2": (F, R + 32 * i)}
        if family == "falcon":
            shapes["attn_qkv"] = (D + 2 * kv, D)
        else:
            shapes |= {"attn_q": (D, D), "attn_k": (kv, D), "attn_v": (kv, D)}
        if family in ("llama", "bamboo"):
            shapes["ffn_gate"] = (F, D)
        for name, shape in shapes.items():
            yield f"blk.{i}.{name}.weight", shape


def vectors(family):
    """Names and lengths of a family's norms and biases."""
    layer_norm = family in ("falcon", "opt")
    names = ["output_norm"] + [f"blk.{i}.attn_norm" for i in range(LAYERS)]
    if family != "falcon":
        names += [f"blk.{i}.ffn_norm" for i in range(LAYERS)]
    for name in names:
        yield name + ".weight", D
        if layer_norm:
            yield name + ".bias", D
    if family == "opt":
        for i in range(LAYERS):
            for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_down_t"):
                yield f"blk.{i}.{name}.bias", D
            yield f"blk.{i}.ffn_up.bias", F


def random_tensors(family, seed=1):
    """Float32 tensors whose logits are of order one; predictors that pick some 30% of the neurons."""
    rng = np.random.default_rng(seed)
    tensors = {}
    for name, shape in matrices(family):
        values = 1.3 / np.sqrt(shape[1]) * rng.standard_normal(shape)
        if name.endswith("fc2.weight"):
            values -= 0.5 * 1.46 * 1.3 / shape[1]
        tensors[name] = values
    for name, length in vectors(family):
        tensors[name] = (name.endswith("norm.weight") + 0.2 * rng.standard_normal(length))
    return {name: values.astype(np.float32) for name, values in tensors.items()}


def write(path, family, tensors, kind="F16", threshold=None, architecture=None, magic=b"PWRI"):
    """The tensors as a file; matrices in type `kind`."""
    writer = gguf.GGUFWriter(path, architecture or family)
    writer.add_context_length(POSITIONS + 2)
    writer.add_embedding_length(D)
    writer.add_feed_forward_length(F)
    writer.add_block_count(LAYERS)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS[family])
    if family in ("llama", "bamboo"):
        writer.add_layer_norm_rms_eps(1e-5)
    if family == "falcon":
        writer.add_layer_norm_eps(1e-5)
    if threshold is not None:
        writer.add_float32("powerinfer.sparse_threshold", threshold)
    writer.add_tokenizer_model("llama")
    words = ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)]
    words += [f"w{i}" for i in range(VOCABULARY - len(words))]
    writer.add_token_list(words)
    writer.add_token_scores([-float(i) for i in range(VOCABULARY)])
    writer.add_token_types([2, 3, 3] + [6] * 256 + [1] * (VOCABULARY - 259))
    quantised = gguf.GGMLQuantizationType[kind]
    for name, values in tensors.items():
        if values.ndim == 1:
            writer.add_tensor(name, values)
        else:
            writer.add_tensor(name, gguf.quants.quantize(np.ascontiguousarray(values), quantised), raw_dtype=quantised)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    blob = bytearray(path.read_bytes())
    blob[:4] = magic
    path.write_bytes(blob)
    return path


def reader(path):
    """A GGUFReader of a file of either magic."""
    blob = bytearray(path.read_bytes())
    blob[:4] = b"GGUF"
    copy = path.with_suffix(".as_gguf")
    copy.write_bytes(blob)
    return gguf.GGUFReader(copy)


def stored(path):
    """Every tensor's type and bytes."""
    return {t.name: (t.tensor_type.name, t.data.tobytes()) for t in reader(path).tensors}


def values(path):
    """Every tensor as float32."""
    return {t.name: gguf.quants.dequantize(t.data, t.tensor_type) for t in reader(path).tensors}


class NumpySparse:
    """The sparse graph; without a threshold the dense one of the same activation."""

    def __init__(self, family, tensors):
        self.family, self.kv_heads = family, KV_HEADS[family]
        self.tensors = {name: t.astype(np.float64) for name, t in tensors.items()}
        self.active = []  # share of active neurons in each layer of the last pass

    def linear(self, x, name):
        return x @ self.tensors[name + ".weight"].T + self.tensors.get(name + ".bias", 0)

    def norm(self, x, name):
        if self.family in ("falcon", "opt"):
            x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5)
        return x * self.tensors[name + ".weight"] + self.tensors.get(name + ".bias", 0)

    def rotate(self, x):  # [T, heads, Dh]
        if self.family == "opt":
            return x
        count, _, dim = x.shape
        angles = np.arange(count)[:, None] * 10000.0 ** (-np.arange(0, dim, 2) / dim)[None]
        cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
        out = np.empty_like(x)
        halves = self.family == "falcon"
        a, b = (np.s_[..., :dim // 2], np.s_[..., dim // 2:]) if halves else (np.s_[..., 0::2], np.s_[..., 1::2])
        out[a], out[b] = x[a] * cos - x[b] * sin, x[a] * sin + x[b] * cos
        return out

    def attention(self, x, layer):
        prefix, dim = f"blk.{layer}.attn_", D // HEADS
        if self.family == "falcon":
            q, k, v = np.split(self.linear(x, prefix + "qkv"), [D, D + dim * self.kv_heads], -1)
        else:
            q, k, v = (self.linear(x, prefix + name) for name in "qkv")
        q, k, v = (part.reshape(len(x), -1, dim) for part in (q, k, v))
        k, v = (np.repeat(part, HEADS // self.kv_heads, 1) for part in (self.rotate(k), v))
        scores = np.einsum("thd,shd->hts", self.rotate(q), k) / np.sqrt(dim)
        scores += np.triu(np.full((len(x), len(x)), -np.inf), 1)
        p = np.exp(scores - scores.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        return self.linear(np.einsum("hts,shd->thd", p, v).reshape(len(x), D), prefix + "output")

    def ffn(self, x, predictor_input, layer, threshold):
        prefix = f"blk.{layer}."
        up = self.linear(x, prefix + "ffn_up")
        if self.family in ("llama", "bamboo"):
            gate = np.maximum(self.linear(x, prefix + "ffn_gate"), 0)
            h = gate * (np.maximum(up, 0) if self.family == "bamboo" else up)
        else:
            h = np.maximum(up, 0)
        if threshold is not None:
            inner = np.maximum(predictor_input @ self.tensors[prefix + "fc1.weight"].T, 0)
            active = inner @ self.tensors[prefix + "fc2.weight"].T >= threshold
            self.active.append(active.mean())
            h = np.where(active, h, 0)
        return h @ self.tensors[prefix + "ffn_down_t.weight"] + self.tensors.get(prefix + "ffn_down_t.bias", 0)

    def logits(self, tokens, threshold=None):
        """[T, V] for one sequence."""
        self.active = []
        x = self.tensors["token_embd.weight"][tokens]
        if self.family == "opt":
            x = x + self.tensors["position_embd.weight"][2:2 + len(tokens)]
        for layer in range(LAYERS):
            normed = self.norm(x, f"blk.{layer}.attn_norm")
            attention = self.attention(normed, layer)
            if self.family == "falcon":  # parallel: one norm, and the predictor sees the layer's input
                x = x + attention + self.ffn(normed, x, layer, threshold)
            else:
                middle = x + attention
                x = middle + self.ffn(self.norm(middle, f"blk.{layer}.ffn_norm"), middle, layer, threshold)
        head = "token_embd" if self.family == "opt" else "output"
        return self.norm(x, "output_norm") @ self.tensors[head + ".weight"].T
