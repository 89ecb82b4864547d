"""PowerInfer (Song et al.): locality of neurons, placement, what each part is worth, predictors."""
import numpy as np
from common import LLAMA_7B, Paper, ROOT, plt, read_trace

paper = Paper("powerinfer")


def counts(tools, text, name):
    """[L, F] tokens that activated each neuron."""
    trace = tools.work / f"{name}.counts.trace"
    tools.run("profile", tools.tidepool(), "--text", text, "--tokens", 6000, "--side-car", tools.work / f"{name}.tcp", "--record-trace", trace)
    sets = read_trace(trace)
    out = np.zeros((len(sets[0]), 1024))
    for token in sets:
        for layer, neurons in enumerate(token):
            out[layer, neurons] += 1
    return out / len(sets)


@paper.figure("Fig. 4")
def locality(tools):
    """Share of all activations that the most active neurons have, in a layer and in the model; Tidepool (trained)."""
    frequency = counts(tools, tools.story_text(), "stories")
    found = {}
    for name, values in (("layer 3", frequency[3]), ("model", frequency.ravel())):
        ordered = np.sort(values)[::-1]
        share = np.cumsum(ordered) / ordered.sum()
        plt.plot(np.arange(1, len(share) + 1) / len(share), share, label=name)
        found[name] = {"neurons_for_80%": round(float(np.searchsorted(share, 0.8) + 1) / len(share), 3)}
    plt.xlabel("share of neurons")
    plt.ylabel("share of activations")
    plt.legend(frameon=False)
    tools.save("powerinfer-fig4")
    return found


@paper.figure("Fig. 5")
def frequencies(tools):
    """Activation frequency by layer, and the hottest neurons' overlap between two kinds of text; Tidepool (trained)."""
    stories, oz = counts(tools, tools.story_text(), "stories"), counts(tools, ROOT / "tests/data/wizard_of_oz.txt", "oz")
    plt.imshow(np.sort(stories, axis=1)[:, ::-1], aspect="auto", vmin=0, vmax=1, cmap="magma")
    plt.xlabel("neurons, the hottest first")
    plt.ylabel("layer")
    plt.colorbar(label="share of tokens")
    tools.save("powerinfer-fig5")
    top = lambda row: set(np.argsort(row)[::-1][:len(row) // 5])
    return {"active": [round(float(row.mean()), 3) for row in stories],
            "overlap of the hottest fifth": [round(len(top(a) & top(b)) / len(top(a)), 3) for a, b in zip(stories, oz)]}


@paper.figure("Fig. 9, Table 6")
def predictors(tools):
    """Ranks that layers need for a recall of 0.95, and their share of the model; Tidepool (trained)."""
    layers = tools.json("train-predictor", tools.tidepool(), "--text", tools.story_text(), "--tokens", 8000, "--recall", 0.95, "--side-car", tools.work / "ranks.tcp")["layers"]
    ranks, active = [layer["rank"] for layer in layers], [layer["active_share"] for layer in layers]
    plt.scatter([100 * (1 - a) for a in active], ranks)
    plt.xlabel("sparsity of the layer, %")
    plt.ylabel("rank")
    tools.save("powerinfer-fig9")
    parameters = sum(rank * (256 + 1024) for rank in ranks)
    return {"rank": ranks, "sparsity": [round(1 - a, 3) for a in active], "of_the_model": round(parameters / 6.4e6, 4)}


@paper.figure("Fig. 10, 11, 12, 13")
def planned_speeds(tools):
    """Tokens/s and the hot side's load that the plan finds for PCs like the paper's; 7B's shape (synthetic), Q4_0 and f16. A model of the machine, not a run."""
    found = {}
    for machine in ("desktop-24gb", "desktop-8gb"):
        for kind in ("f16", "q4_0"):
            model = tools.synth(f"pi-{kind}", LLAMA_7B, type=kind, active=0.1)
            size = model.stat().st_size
            for share in (0.1, 0.4, 0.7):
                report = tools.json("plan", model, "--machine", machine, "--active", 0.1, "--hot-memory", int(share * size), "--context", 512)
                alone = tools.json("plan", model, "--machine", machine, "--active", 0.1, "--hot-memory", 0, "--context", 512)
                found[f"{machine}, {kind}, {int(100 * share)}% of the model on the GPU"] = {
                    "hot_load": round(report["load_share"], 2), "over_the_cpu_alone": round(report["tokens_per_s"] / alone["tokens_per_s"], 2)}
    return found


@paper.figure("Fig. 12, 15")
def breakdown(tools):
    """What each part is worth between two partitions of the CPU (synthetic, 7B's shape, Q4_0, 10% active): the hot side's load and tokens/s."""
    model = tools.synth("pi-q4_0", LLAMA_7B, type="q4_0", active=0.1)
    columns = tools.synth("pi-columns", LLAMA_7B, type="q4_0", active=0.1, down="columns")
    if not model.with_name(model.name + ".tcp").exists():
        tools.run("profile", model, "--text", tools.words(), "--tokens", 1500, "--window", 128)
        tools.run("calibrate", model, "--text", tools.words(), "--tokens", 600, "--window", 128)
    hot = ["--hot-memory", "60M", "--hot-threads", 1, "--ffn-mode", "sign"]
    speeds = tools.speeds({"dense": [columns, "--ffn-mode", "dense"], "+PO, one side": [model, "--ffn-mode", "sign"],
                           "+Engine, random": [model, *hot, "--placement", "random"], "+Engine, whole layers": [model, *hot, "--placement", "naive"],
                           "+Policy": [model, *hot]})
    return {name: {"tokens_per_s": round(s["tokens_per_s"], 1), "hot_load": round(s["hot"]["active_share"], 3) if s["hot"] and s["hot"]["used"] else None} for name, s in speeds.items()}


@paper.figure("Fig. 16")
def operators(tools):
    """Time of one network by the share of active neurons, against the dense one; 4096 x 4096 gate, up and down (synthetic, f16 and Q4_0)."""
    found = {}
    for kind in ("f16", "q4_0"):
        found[kind] = {}
        for active in (0.02, 0.05, 0.1, 0.2, 0.4, 0.6):
            model = tools.synth(f"op-{kind}-{active}", {"hidden-size": 4096, "intermediate-size": 4096, "heads": 32, "kv-heads": 32}, type=kind, active=active, reuse=max(0.4, min(0.9, active + 0.3)))
            runs = {run["phase"]: run for run in tools.json("bench", model, "--ffn-modes", "dense,exact", "--repetitions", 5, "--prefill", 16, "--device", "cpu")["runs"]}
            ms = lambda phase: 1e3 / runs[phase]["tokens_per_s"]["median"] / tools.args.layers
            found[kind][str(active)] = {"dense_ms": round(ms("ffn dense"), 3), "exact_ms": round(ms("ffn exact"), 3), "ratio": round(ms("ffn dense") / ms("ffn exact"), 2)}
        plt.plot([100 * float(a) for a in found[kind]], [v["ratio"] for v in found[kind].values()], "o-", label=kind)
    plt.xlabel("% of neurons active")
    plt.ylabel("times faster than dense")
    plt.legend(frameon=False)
    tools.save("powerinfer-fig16")
    return found


@paper.figure("Fig. 17")
def overhead(tools):
    """Share of a token that prediction takes; 7B's shape (synthetic, Q4_0, 10% active)."""
    model = tools.synth("pi-q4_0", LLAMA_7B, type="q4_0", active=0.1)
    lowrank = tools.synth("pi-lowrank", LLAMA_7B, type="q4_0", active=0.1, format="powerinfer", rank=1024)
    found = {}
    for mode, path in (("sign", model), ("lowrank", lowrank)):
        runs = {run["phase"]: run for run in tools.json("bench", path, "--ffn-modes", mode, "--ffn-mode", mode, "--repetitions", 5, "--prefill", 16, "--device", "cpu")["runs"]}
        s = lambda phase: 1 / runs[phase]["tokens_per_s"]["median"]
        found[mode] = {"predict_ms": round(1e3 * s(f"predict {mode}"), 3), "token_ms": round(1e3 * s(f"decode {mode}"), 3), "share": round(s(f"predict {mode}") / s(f"decode {mode}"), 3)}
    return found


@paper.figure("Table 5")
def tasks(tools):
    """Time of a token by kind of prompt, average and P95 of single tokens; SmolLM2 135M (trained), streamed by the daemon to one client."""
    prompts = {"story": "Once upon a time", "dialogue": "\"Who are you?\" said the owl.", "oz": "Dorothy lived in the midst of the great Kansas prairies", "numbers": "1 2 3 4 5 6 7 8"}
    found = {}
    for name, prompt in prompts.items():
        ms = tools.token_ms(tools.smollm(), prompt, range(8))
        found[name] = {"average_ms": round(float(np.mean(ms)), 4), "p95_ms": round(float(np.percentile(ms, 95)), 4)}
    return found


@paper.figure("Table 7")
def accuracy(tools):
    """Choices answered rightly with and without predictors; Tidepool (trained), or --model."""
    model = tools.args.model or tools.tidepool()
    car = [] if tools.args.model else ["--side-car", tools.work / "ranks.tcp"]
    ask = lambda *args: tools.json("eval", model, "--task", tools.choices(), *args)
    return {"original": round(100 * ask("--ffn-mode", "exact")["acc"], 2), "low-rank predictors": round(100 * ask("--ffn-mode", "lowrank", *car)["acc"], 2)}


if __name__ == "__main__":
    paper.main()
