"""Branch prediction of a hybrid model (Zhang et al.): lengths of correct drafts, throughput by draft length, modes side by side."""
import json

from common import Paper, plt

paper = Paper("branch_prediction")
SAMPLING = ["--temperature", 0.8, "--seed", 1]


def spec(tools, *args, modes="sync,branch"):
    report = tools.json("bench", "tidepool", "--spec", "--draft", "tidepool-draft", "--spec-modes", modes, "--ffn-mode", "dense", *args)
    return report, {mode["mode"]: mode for mode in report["modes"]}


@paper.figure("Fig. 3, 4")
def lengths(tools):
    """How many drafted tokens are right: by independence, as measured, and phi fitted to that; Tidepool and its draft (trained), n = 15."""
    report, _ = spec(tools, "--draft-tokens", 15, "--draft-fixed", *SAMPLING, modes="sync")
    n = report["histogram_n"]
    measured, phi = report["accepted_histogram"], report["phi_histogram"]
    for alpha in (0.5, 0.7, 0.9):
        plt.plot([alpha**k * (1 - alpha) for k in range(n)] + [alpha**n], ":", label=f"independent, alpha {alpha}")
    plt.bar(range(n + 1), measured, color="#8bc", label="measured")
    plt.plot(phi, "ko-", ms=3, label="phi")
    plt.xlabel("drafted tokens that are right")
    plt.legend(frameon=False)
    tools.save("branch_prediction-fig3-4")
    return {"measured": [round(x, 3) for x in measured], "phi": [round(x, 3) for x in phi], "phi_of": report["pair"]["phi"]}


@paper.figure("Fig. 5, 6, 7")
def simulated(tools):
    """Simulated throughput by draft length n, with and without branches, a draft that takes 1/8 of the target's time, both with processors of their own."""
    found, (_, axes) = {}, plt.subplots(1, 3, figsize=(9.5, 3), sharey=True)
    for axis, p in zip(axes, (0.5, 0.7, 0.9)):
        modes = simulate(tools, "--draft-token-ms", 1, "--verify-ms", ",".join(["8"] * 16), "--acceptance", p, "--separate")
        for name, mode in modes.items():
            if name in ("sync", "branch", "exhaustive"):
                axis.plot([at["n"] for at in mode["by_n"]][1:], [at["tokens_per_s"] / 125 for at in mode["by_n"]][1:], "o-", ms=3, label=name)
        found[f"p = {p}"] = {name: {"best_n": mode["best_n"], "speedup": round(mode["tokens_per_s"] / 125, 2)} for name, mode in modes.items()}
        axis.set(title=f"p = {p}", xlabel="n")
    axes[0].set(ylabel="times the target alone")
    axes[0].legend(frameon=False)
    tools.save("branch_prediction-fig5-7")
    return found


def simulate(tools, *args):
    return {mode["mode"]: mode for mode in tools.json("plan", "--draft", *args)["modes"]}


def of(modes):
    return {name: {"tokens_per_s": round(m["tokens_per_s"]["median"], 1), "ratio": round(m["ratio"]["median"], 2), "acceptance": m["acceptance"] and round(m["acceptance"], 3),
                   "wasted_share": m["wasted_share"] and round(m["wasted_share"], 3), "text_equal": m["text_equal"]} for name, m in modes.items()}


@paper.figure("Fig. 8, 9, Tables 3, 4, 5")
def throughput(tools):
    """Tokens/s of each mode and whether the texts are the target's; Tidepool and its draft (trained), measured; then simulated with targets that are 4 and 16 times slower and with processors of their own."""
    found = {}
    for name, sampling in (("greedy", []), ("temperature 0.8", SAMPLING)):
        report, modes = spec(tools, *sampling, "--record-rounds", modes="sync,branch,exhaustive")
        found[f"measured, {name}"] = of(modes)
        path = tools.work / "spec.json"
        path.write_text(json.dumps(report))
        for slower in (4, 16):
            for where in ([], ["--separate"]):
                simulated = simulate(tools, "--draft-times", path, "--target-speedup", 1 / slower, *where)
                off = simulated["off"]["tokens_per_s"]
                found[f"simulated, {name}, target {slower} times slower{', own processors' if where else ''}"] = {
                    mode: {"speedup": round(m["tokens_per_s"] / off, 2), "n": m["best_n"]} for mode, m in simulated.items()}
    return found


@paper.figure("Fig. 10")
def by_length(tools):
    """Measured tokens/s by the length of a draft; Tidepool and its draft (trained), mode dense."""
    found = {}
    for n in (1, 2, 4, 6, 8, 10, 12, 15, 16, 18, 20):
        _, modes = spec(tools, "--draft-tokens", n, "--draft-fixed", *SAMPLING)
        found[str(n)] = {name: round(m["ratio"]["median"], 2) for name, m in modes.items() if name != "off"}
    for name in ("sync", "branch"):
        plt.plot([int(n) for n in found], [ratios[name] for ratios in found.values()], "o-", label=name)
    plt.xlabel("n")
    plt.ylabel("times the target alone")
    plt.legend(frameon=False)
    tools.save("branch_prediction-fig10")
    return found


@paper.figure("Fig. 11, 12")
def exhaustive(tools):
    """Exhaustive drafting against branches: tokens/s and drafted tokens that were wasted; Tidepool and its draft (trained), mode dense."""
    found = {}
    for n in (2, 4, 8):
        _, modes = spec(tools, "--draft-tokens", n, "--draft-fixed", *SAMPLING, modes="branch,exhaustive")
        found[f"n = {n}"] = of(modes)
    return found


if __name__ == "__main__":
    paper.main()
