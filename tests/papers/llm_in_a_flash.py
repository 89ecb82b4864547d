"""LLM in a flash (Alizadeh et al.): reads by size, neurons that tokens share, what each technique saves, accuracy with predictors."""
import statistics

import numpy as np
from common import Paper, ROOT, plt, read_trace
from sparseinfer import Watched, tokens_of

paper = Paper("llm_in_a_flash")
OPT_7B = {"hidden-size": 4096, "intermediate-size": 16384, "heads": 32, "kv-heads": 32}
RECALLS = (0.80, 0.90, 0.95, 0.97, 0.99)
LEAST, HALF = 0.36, 0.5  # of the networks' weights; below LEAST there is no room for what is on its way


def opt(tools):
    """OPT-6.7B's shape, with two matrices a network, 16 bits, 3% active: with its predictor's thresholds and its bundle file."""
    model = tools.synth("flash-opt-two", OPT_7B, family="opt", type="f16", active=0.03, reuse=0.6)
    if not model.with_name(model.name + ".tcp").exists():
        tools.run("calibrate", model, "--text", tools.words(), "--tokens", 600, "--window", 128)
        tools.run("profile", model, "--text", tools.words(), "--tokens", 600, "--window", 128)
    if not model.with_name(model.name + ".tcb").exists():
        tools.run("pack", model, "--text", tools.words(), "--tokens", 600)
    return model


@paper.figure("Fig. 2b")
def random_reads(tools):
    """Throughput of random reads by size, and reads at once, on this machine's disk."""
    report = tools.json("bench", "--flash", tools.tidepool())
    sizes = [size // 1024 for size in report["chunk_bytes"]]
    for i, depth in enumerate(report["depths"]):
        plt.plot(sizes, [reads[i] * size / 1e9 for reads, size in zip(report["reads_per_s"], report["chunk_bytes"])], "o-", label=f"{depth} at once")
    plt.axhline(report["sequential_bytes_per_s"] / 1e9, ls=":", color="k", label="sequential")
    plt.xscale("log", base=2)
    plt.xlabel("KiB of a read")
    plt.ylabel("GB/s")
    plt.legend(frameon=False, fontsize=7, ncol=2)
    tools.save("llm_in_a_flash-fig2b")
    at = lambda kib, depth: round(report["reads_per_s"][sizes.index(kib)][report["depths"].index(depth)] * kib * 1024 / 1e9, 2)
    return {"GB/s, 32 at once": {f"{kib} KiB": at(kib, 32) for kib in (4, 8, 16, 32, 64, 128)}, "one at a time, 32 KiB": at(32, 1),
            "sequential": round(report["sequential_bytes_per_s"] / 1e9, 2)}


@paper.figure("Fig. 3a")
def preactivations(tools):
    """Preactivations, and those of neurons that signs predict, Tidepool's middle layer (trained)."""
    model = Watched(ROOT / "config/models/tidepool.gguf")
    model.logits([1] + tokens_of(tools, tools.stories()[1])[:199])
    x, w = model.inputs[3], model.weight("blk.3.ffn_gate")
    gate = x @ w.T
    score = np.sign(x) @ np.sign(w).T
    predicted = score >= np.quantile(score, 0.75)
    bins = np.linspace(-4, 4, 120) * gate.std()
    plt.hist(gate.ravel(), bins, histtype="step", label="all")
    plt.hist(gate[predicted], bins, histtype="step", label="predicted: the highest quarter of the sign scores")
    plt.yscale("log")
    plt.legend(frameon=False)
    tools.save("llm_in_a_flash-fig3a")
    missed = gate[~predicted & (gate > 0)]
    return {"active": round(float((gate > 0).mean()), 4), "missed_of_active": round(len(missed) / int((gate > 0).sum()), 4),
            "mean_of_missed_over_mean_of_active": round(float(missed.mean() / gate[gate > 0].mean()), 3)}


def trace_of(tools, model, name, *args, prompt="", tokens=200):
    path = tools.work / f"{name}.trace"
    tools.run("run", model, "-p", prompt, "-n", tokens, "--ignore-eos", "--ffn-mode", "exact", "--device", "cpu", "--record-trace", path, *args)
    return read_trace(path)


@paper.figure("Fig. 4a")
def aggregated_usage(tools):
    """Share of a layer's neurons that the last k tokens needed together: Tidepool (trained), OPT's shape (synthetic)."""
    found = {}
    for name, model, neurons in (("Tidepool", tools.tidepool(), 1024), ("OPT's shape", opt(tools), 16384)):
        trace = trace_of(tools, model, name.split("'")[0], "--temperature", 0.9, "--seed", 5, prompt="" if name == "Tidepool" else "hello")
        layer = len(trace[0]) // 2
        union, curve = set(), []
        for token in trace[:128]:
            union |= set(token[layer])
            curve.append(len(union) / neurons)
        found[name] = {str(k): round(curve[k - 1], 4) for k in (1, 2, 5, 10, 20, 50, 100)}
        plt.plot(range(1, len(curve) + 1), curve, label=name)
    plt.xlabel("tokens k")
    plt.ylabel("share of neurons used")
    plt.legend(frameon=False)
    tools.save("llm_in_a_flash-fig4a")
    return found


@paper.figure("Tables 2, 3, 5")
def techniques(tools):
    """A token's flash bytes, rate and times with each technique; OPT-6.7B's shape (synthetic, f16, 3% active, few layers)."""
    model = opt(tools)
    share = lambda of, *args: [model, "--ffn-memory", of, *args]
    settings = {"naive": share(LEAST, "--ffn-mode", "dense", "--no-read-ahead"), "hybrid": share(HALF, "--ffn-mode", "dense", "--no-read-ahead"),
                "predictor": share(LEAST, "--ffn-mode", "sign", "--no-bundling", "--no-read-ahead"), "predictor, window": share(HALF, "--ffn-mode", "sign", "--no-bundling", "--no-read-ahead"),
                "predictor, window, bundling": share(HALF, "--ffn-mode", "sign", "--no-read-ahead"), "the same, read ahead": share(HALF, "--ffn-mode", "sign"),
                "all in memory": [model, "--ffn-mode", "sign"]}
    runs = {name: [] for name in settings}
    for _ in range(tools.args.rounds):
        for name, args in settings.items():
            runs[name].append(tools.json("run", *args, "-p", "hello", "-n", 40, "--ignore-eos", "--device", "cpu"))
    found = {}
    for name, out in runs.items():
        ms = [1e3 / r["timings"]["decode_tokens_per_s"] for r in out]
        flash = out[0]["flash"]
        per = lambda key: statistics.median(r["flash"][key] for r in out) / 41 if flash else 0
        found[name] = {"MB": round(per("bytes") / 1e6, 1), "reads": round(per("reads")), "wait_ms": round(1e3 * per("wait_s"), 1),
                       "GB/s": round(per("bytes") / per("wait_s") / 1e9, 2) if flash and per("wait_s") > 0 else None,
                       "manage_ms": round(1e3 * (per("manage_s") + per("arrive_s")), 1), "token_ms": round(statistics.median(ms), 1),
                       "deviation_ms": round(statistics.stdev(ms), 1) if len(ms) > 1 else None}
    return found


@paper.figure("Fig. 7")
def memory(tools):
    """A token's time by the share of the networks' weights in memory; OPT's shape (synthetic)."""
    shares = (LEAST, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
    speeds = tools.speeds({f"{share:.2f}": [opt(tools), "--ffn-mode", "sign", "--ffn-memory", share] for share in shares}, tokens=40)
    found = {name: {"ms": round(1e3 / s["tokens_per_s"], 1), "wait_ms": round(s["wait_ms"], 1)} for name, s in speeds.items()}
    plt.plot([100 * share for share in shares], [v["ms"] for v in found.values()], "o-", label="token")
    plt.plot([100 * share for share in shares], [v["wait_ms"] for v in found.values()], "o-", label="of it, waiting for flash")
    plt.xlabel("% of the networks' weights in memory")
    plt.ylabel("ms")
    plt.legend(frameon=False)
    tools.save("llm_in_a_flash-fig7")
    return found


@paper.figure("Fig. 8")
def long_generations(tools):
    """Flash wait of a token by the length of the answer; OPT's shape (synthetic), greedy and sampled."""
    found = {}
    for name, sampling in (("greedy", []), ("sampled", ["--temperature", 0.9, "--top-p", 0.9, "--seed", 1])):
        waits = {n: tools.json("run", opt(tools), "-p", "hello", "-n", n, "--ignore-eos", "--ffn-mode", "sign", "--ffn-memory", HALF, "--device", "cpu", *sampling)["flash"]["wait_s"]
                 for n in (8, 32, 128, 256, 512, 1000)}
        found[name] = {str(n): round(1e3 * wait / n, 2) for n, wait in waits.items()}
        plt.plot(list(waits), list(found[name].values()), "o-", label=name)
    plt.xlabel("tokens")
    plt.ylabel("ms of waiting a token")
    plt.ylim(0)
    plt.legend(frameon=False)
    tools.save("llm_in_a_flash-fig8")
    return found


def calibrated(tools, recall):
    path = tools.work / f"recall-{recall}.tcp"
    if not path.exists():
        tools.run("calibrate", tools.tidepool(), "--text", tools.story_text(), "--recall", recall, "--side-car", path)
    return path


@paper.figure("Fig. 9")
def fired(tools):
    """Neurons that fire and neurons that are predicted, by layer; Tidepool (trained), calibrated for a recall of 0.97."""
    layers = tools.json("eval", tools.tidepool(), "--text", tools.story_text(), "--max-tokens", 2000, "--predictor", "--ffn-mode", "sign", "--side-car", calibrated(tools, 0.97))["layers"]
    rows = {"active": [round(layer["active_share"], 4) for layer in layers], "predicted": [round(layer["predicted_share"], 4) for layer in layers]}
    for name, values in rows.items():
        plt.plot([100 * v for v in values], "o-", label=name)
    plt.xlabel("layer")
    plt.ylabel("% of neurons")
    plt.legend(frameon=False)
    tools.save("llm_in_a_flash-fig9")
    return rows


@paper.figure("Tables 1, 4, Fig. 10, 11")
def accuracy(tools):
    """Choices and perplexity by the predictor's recall; Tidepool (trained)."""
    model, found = tools.tidepool(), {}
    settings = {"without": ["--ffn-mode", "exact"]} | {f"recall {r}": ["--ffn-mode", "sign", "--side-car", calibrated(tools, r)] for r in RECALLS}
    for name, args in settings.items():
        answers = tools.json("eval", model, "--task", tools.choices(), *args)
        loss = tools.json("eval", model, "--text", tools.story_text(), "--max-tokens", 2000, *args)["perplexity"]
        found[name] = {"acc": round(100 * answers["acc"], 2), "acc_norm": round(100 * answers["acc_norm"], 2), "perplexity": round(loss, 4)}
    _, axes = plt.subplots(1, 2, figsize=(8, 3))
    for axis, key in zip(axes, ("acc", "perplexity")):
        axis.plot(RECALLS, [found[f"recall {r}"][key] for r in RECALLS], "o-")
        axis.axhline(found["without"][key], ls=":", color="k")
        axis.set(xlabel="recall of the predictor", title=key)
    tools.save("llm_in_a_flash-fig10-11")
    return found


@paper.figure("Fig. 12")
def friends(tools):
    """How often a neuron's most frequent companions are active with it; Tidepool's layer 3 (trained)."""
    counts = np.zeros((1024, 1024))
    for seed in range(8):
        for token in trace_of(tools, tools.tidepool(), "friends", "--temperature", 0.9, "--seed", seed):
            counts[np.ix_(token[3], token[3])] += 1
    uses = np.diag(counts).copy()
    np.fill_diagonal(counts, 0)
    often = uses >= 20
    together = np.sort(counts[often] / uses[often, None], axis=1)[:, ::-1]
    for k in (1, 4, 8):
        plt.hist(together[:, k - 1], np.linspace(0, 1, 41), histtype="step", label=f"friend {k}")
    plt.xlabel("share of a neuron's tokens")
    plt.legend(frameon=False)
    tools.save("llm_in_a_flash-fig12")
    closest = counts.argmax(1)[often]
    return {"neurons": int(often.sum()), "mean": {f"friend {k}": round(float(together[:, k - 1].mean()), 3) for k in (1, 4, 8)},
            "neurons_that_are_somebodys_closest": int(len(set(closest)))}


@paper.figure("Table 6")
def quantised(tools):
    """Active neurons, in 16 bits and quantised; Tidepool (trained) on its own stories."""
    found = {}
    for kind in ("bf16", "q8_0", "q4_0"):
        path = tools.work / f"tidepool-{kind}.gguf"
        tools.run("convert", ROOT / "tests/golden/models/tidepool/target", path, "--quantize", kind)
        layers = tools.json("profile", path, "--text", tools.story_text(), "--tokens", 4000)["layers"]
        found[kind] = [round(100 * layer["active_share"], 2) for layer in layers] + [round(100 * float(np.mean([layer["active_share"] for layer in layers])), 2)]
    return found


if __name__ == "__main__":
    paper.main()
