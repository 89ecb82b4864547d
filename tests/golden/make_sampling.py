"""Writes sampling.json: distributions of the next token by an implementation apart from ours.

Each step as its definition says: typical sampling as transformers' TypicalLogitsWarper, DRY by
comparing every place of the text with its end, token by token.

    python3 tests/golden/make_sampling.py > tests/golden/sampling.json
"""
import json

import numpy as np

V = 24


def dry(logits, tokens, p):
    if p["dry_penalty_last_n"] == 0:
        return logits
    if p["dry_penalty_last_n"] > 0:
        tokens = tokens[-p["dry_penalty_last_n"]:]
    longest = {}
    for i in range(len(tokens) - 1):  # does the text that ends at i end as the whole text does?
        following = tokens[i + 1]
        if following in p["dry_breakers"]:
            continue
        n = 0
        while n < 50 and i - n >= 0 and tokens[i - n] == tokens[-1 - n] and tokens[-1 - n] not in p["dry_breakers"]:
            n += 1
        longest[following] = max(n, longest.get(following, 0))
    out = logits.copy()
    for token, n in longest.items():
        if n >= p["dry_allowed_length"]:
            out[token] -= p["dry_multiplier"] * p["dry_base"] ** (n - p["dry_allowed_length"])
    return out


def softmax(logits):
    e = np.exp(logits - logits.max())
    return e / e.sum()


def leave(logits, keep):
    return np.where(keep, logits, -np.inf)


def top_k(logits, k):
    return leave(logits, np.isin(np.arange(V), np.argsort(-logits, kind="stable")[:k])) if k else logits


def smallest_set(logits, order, mass):
    cumulative = softmax(logits)[order].cumsum()
    return leave(logits, np.isin(np.arange(V), order[: (cumulative < mass).sum() + 1]))


def typical(logits, mass):
    p = softmax(logits)
    surprise = -np.log(np.where(p > 0, p, 1))
    entropy = (p * surprise).sum()
    distance = np.where(p > 0, np.abs(surprise - entropy), np.inf)
    return smallest_set(logits, np.argsort(distance, kind="stable"), mass)


def distribution(logits, tokens, p):
    x = logits.astype(np.float64)
    for token, bias in p["logit_bias"]:
        x[token] += bias
    if p["dry_multiplier"] > 0:
        x = dry(x, tokens, p)
    if len(tokens) - p["prompt_tokens"] < p["min_tokens"]:
        x[p["end_tokens"]] = -np.inf
    x = top_k(x / p["temperature"], p["top_k"])
    if p["typical_p"] < 1:
        x = typical(x, p["typical_p"])
    if p["top_p"] < 1:
        x = smallest_set(x, np.argsort(-x, kind="stable"), p["top_p"])
    probabilities = softmax(x)
    return softmax(leave(x, probabilities >= p["min_p"] * probabilities.max()))


def main():
    rng = np.random.default_rng(9)
    cases = []
    for i in range(120):
        # Few tokens, so that the text repeats itself; in part of the cases it is one long loop.
        alphabet = int(rng.integers(2, 6))
        tokens = rng.integers(0, alphabet, int(rng.integers(1, 80))).tolist()
        if i % 4 == 0:
            tokens = (tokens[:3] * 40)[: int(rng.integers(60, 120))]
        logits = np.round(rng.normal(0, rng.choice([0.5, 2, 4]), V), 3).astype(np.float32)
        p = dict(
            prompt_tokens=int(rng.integers(0, len(tokens) + 1)),
            temperature=float(rng.choice([0.5, 1, 1.5])),
            top_k=int(rng.choice([0, 0, 3, 12])),
            typical_p=float(rng.choice([1, 0.2, 0.5, 0.9, 0.95])),
            top_p=float(rng.choice([1, 1, 0.5, 0.9])),
            min_p=float(rng.choice([0, 0, 0.05, 0.3])),
            logit_bias=[[int(rng.integers(V)), float(rng.choice([-2, 3]))]] if i % 3 == 0 else [],
            dry_multiplier=float(rng.choice([0, 0.8, 1.5])),
            dry_base=float(rng.choice([1, 1.05, 1.75])),
            dry_allowed_length=int(rng.choice([1, 2, 4])),
            dry_penalty_last_n=int(rng.choice([-1, -1, 0, 20, 60])),
            dry_breakers=sorted(rng.choice(V, int(rng.integers(0, 4)), replace=False).tolist()),
            min_tokens=int(rng.choice([0, 10, 40])),
            end_tokens=sorted(rng.choice(V, 2, replace=False).tolist()),
        )
        if i % 5 == 1:  # a breaker that is in the text
            p["dry_breakers"] = sorted({*p["dry_breakers"], alphabet - 1})
        expected = distribution(logits, tokens, p)
        cases.append(dict(tokens=tokens, logits=[float(f"{x:.3f}") for x in logits], **p,
                          expected={int(t): float(f"{expected[t]:.9g}") for t in np.flatnonzero(expected)}))
    print("[\n" + ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases) + "\n]")


if __name__ == "__main__":
    main()
