"""SparseInfer (Shin, Yang, Yi): distributions, precision and recall by layer, operations, latency with each mechanism, accuracy."""
import functools
import json
import subprocess

import numpy as np
from common import LLAMA_7B, LLAMA_13B, Paper, ROOT, plt
from numpy_llama import NumpyLlama

paper = Paper("sparseinfer")
ALPHAS = (1.00, 1.01, 1.02, 1.03)


class Watched(NumpyLlama):
    """Keeps what every layer's network is given."""

    def __init__(self, path):
        super().__init__(path)
        self.weight = functools.cache(self.weight)
        self.inputs = {}

    def ffn(self, x, layer):
        self.inputs[layer] = x
        return super().ffn(x, layer)


def kurtosis(values):
    z = (values - values.mean()) / values.std()
    return float((z ** 4).mean())  # 3: Gaussian; 6: Laplace


def tokens_of(tools, text):
    done = subprocess.run([tools.bin / "thermocline", "tokenize", "tidepool", "--json"], input=text.encode(), capture_output=True, check=True)
    return json.loads(done.stdout)["tokens"]


@paper.figure("Fig. 2")
def distributions(tools):
    """Distribution of X, a row of W_gate, and their products, Tidepool (trained), 200 tokens of a story."""
    model = Watched(ROOT / "config/models/tidepool.gguf")
    model.logits([1] + tokens_of(tools, tools.stories()[0])[:199])
    found, (_, axes) = {}, plt.subplots(1, 3, figsize=(9, 2.8))
    for axis, layer in zip(axes, (0, model.layers // 2, model.layers - 1)):
        x, w = model.inputs[layer], model.weight(f"blk.{layer}.ffn_gate")
        products = (x[:, None, :] * w[None, ::16, :]).ravel()
        values = {"X": x.ravel(), "W": w.ravel(), "product": products}
        found[f"layer {layer}"] = {name: {"kurtosis": round(kurtosis(v), 2), "positive": round(float((v > 0).mean()), 3)} for name, v in values.items()}
        for name, v in values.items():
            axis.hist(np.clip(v / v.std(), -4, 4), 120, density=True, histtype="step", label=name)
        axis.set(title=f"layer {layer}", xlabel="value over its deviation", yticks=[])
    axes[0].legend(frameon=False)
    tools.save("sparseinfer-fig2")
    return found


@paper.figure("Fig. 3")
def precision_and_recall(tools):
    """Precision and recall of the SPARSE class by layer, without calibration, Tidepool (trained) on its own stories."""
    found, (_, axes) = {}, plt.subplots(1, 2, figsize=(8, 3))
    for alpha in ALPHAS:
        layers = tools.json("eval", tools.args.model or "tidepool", "--text", tools.story_text(), "--max-tokens", 2000, "--predictor", "--ffn-mode", "sign",
                            "--ignore-calibration", "--sign-alpha", alpha)["layers"]
        precision = [layer["tn"] / max(1, layer["tn"] + layer["fn"]) for layer in layers]
        recall = [layer["tn"] / max(1, layer["tn"] + layer["fp"]) for layer in layers]
        found[f"alpha {alpha:.2f}"] = {"precision": [round(p, 4) for p in precision], "recall": [round(r, 4) for r in recall],
                                       "recall_of_active": [round(layer["recall"], 4) for layer in layers]}
        axes[0].plot(precision, "o-", label=f"alpha {alpha:.2f}")
        axes[1].plot(recall, "o-")
    axes[0].set(title="precision of the sparse class", xlabel="layer", ylim=(0, 1.02))
    axes[1].set(title="recall of the sparse class", xlabel="layer", ylim=(0, 1.02))
    axes[0].legend(frameon=False)
    tools.save("sparseinfer-fig3")
    return found


@paper.figure("Table I")
def operations(tools):
    """Operations of prediction and of the network, a layer and token, ProSparse-13B's shape (synthetic, 8% active)."""
    model = tools.synth("si-13b", LLAMA_13B, type="q4_0", active=0.08)
    powerinfer = tools.synth("si-13b-lowrank", LLAMA_13B, type="q4_0", active=0.08, format="powerinfer", rank=1024)
    found = {}
    for name, args in {"dense": [model, "--ffn-mode", "dense"], "low-rank predictor, rank 1024": [powerinfer, "--ffn-mode", "lowrank"],
                       "SparseInfer": [model, "--ffn-mode", "sign", "--ignore-calibration"]}.items():
        work = tools.json("run", *args, "-p", "hello", "-n", 24, "--ignore-eos", "--device", "cpu")["work"]
        each = work["tokens"] * work["layers"]
        found[name] = {"prediction": work["predictor_operations"] / each, "network": work["operations"] / each,
                       "predictor_MiB_of_40_layers": 40 * work["predictor_bytes"] / each / 2**20}
    return found


@paper.figure("Fig. 4")
def latency(tools):
    """Time of a token with and without each mechanism, 7B's and 13B's shapes (synthetic, Q4_0, 8% active, 4 layers)."""
    found, (_, axes) = {}, plt.subplots(1, 2, figsize=(9, 3.2), sharey=True)
    for axis, (size, shape) in zip(axes, {"7B": LLAMA_7B, "13B": LLAMA_13B}.items()):
        name = f"si-{size.lower()}"
        model = tools.synth(name, shape, type="q4_0", active=0.08)
        columns = tools.synth(name + "-columns", shape, type="q4_0", active=0.08, down="columns")
        lowrank = tools.synth(name + "-lowrank", shape, type="q4_0", active=0.08, format="powerinfer", rank=1024)
        settings = {"dense": [columns, "--ffn-mode", "dense"], "low rank 1024": [lowrank, "--ffn-mode", "lowrank"]}
        for alpha in ALPHAS:
            base = [model, "--ffn-mode", "sign", "--ignore-calibration", "--sign-alpha", alpha]
            settings |= {f"{alpha:.2f}": [*base, "--no-actual-sparsity", "--no-fusion"], f"{alpha:.2f} +KF": [*base, "--no-actual-sparsity"],
                         f"{alpha:.2f} +AS": [*base, "--no-fusion"], f"{alpha:.2f} +KF+AS": base}
        speeds = tools.speeds(settings)
        found[size] = {key: {"ms": round(1e3 / s["tokens_per_s"], 2), "over_dense": round(s["tokens_per_s"] / speeds["dense"]["tokens_per_s"], 2)} for key, s in speeds.items()}
        axis.bar(list(found[size]), [v["ms"] for v in found[size].values()], color=["#888", "#b85"] + ["#acd", "#8bc", "#69a", "#258"] * 4)
        axis.tick_params(axis="x", rotation=90, labelsize=7)
        axis.set(title=size, ylabel="ms a token (4 layers)")
    tools.save("sparseinfer-fig4")
    return found


@paper.figure("Tables II, III")
def accuracy(tools):
    """Questions answered rightly by alpha; --model: GSM8K, 8 shots, 100 questions. Without: choices among stories' sentences, Tidepool (trained)."""
    model = tools.args.model or tools.tidepool()
    task = ["--task", ROOT / "tests/data/gsm8k_test.jsonl", "--shots", 8, "--limit", 100] if tools.args.model else ["--task", tools.choices()]
    measure = "exact_match" if tools.args.model else "acc"
    ask = lambda *args: tools.json("eval", model, *task, *args)
    loss = lambda *args: tools.json("eval", model, "--text", tools.story_text(), "--max-tokens", 2000, *args)["perplexity"]
    settings = {"baseline": ["--ffn-mode", "exact"]}
    settings |= {f"alpha {alpha:.2f}": ["--ffn-mode", "sign", "--ignore-calibration", "--sign-alpha", alpha, "--sign-alpha-layers", 20] for alpha in (*ALPHAS, 1.1, 1.3)}
    settings |= {"random": ["--ffn-mode", "sign", "--ignore-calibration", "--sign-alpha", 1.0, "--random-predictor"]}
    if not tools.args.model:
        settings |= {"calibrated rows": ["--ffn-mode", "sign", "--side-car", ROOT / "config/models/tidepool.gguf.tcp"]}
    return {name: {measure: round(100 * ask(*args)[measure], 2), "perplexity": round(loss(*args), 3)} for name, args in settings.items()}


if __name__ == "__main__":
    paper.main()
