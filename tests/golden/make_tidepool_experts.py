"""Makes config/models/tidepool-experts.gguf: a small mixture of ReLU experts whose router reads the residual before attention.

    make_tidepool_experts.py train DATA CHECKPOINT --cpu-minutes 75
    make_tidepool_experts.py export CHECKPOINT tests/golden/models/tidepool/target FOLDER
    thermocline convert FOLDER config/models/tidepool-experts.gguf --quantize q8_0 --name "Tidepool Experts"

DATA holds tokens.u16: the text that Tidepool learnt from, in its tokens. All experts of a layer lie side by side in one gate,
one up and one down matrix; the weights of those not chosen are zero, so training costs what a dense layer of this width costs.
Needs torch, numpy and safetensors in an environment of its own.
"""
import argparse
import json
import math
import pathlib
import shutil
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from safetensors.torch import save_file


class Rope:
    def __init__(self, head_dim, positions, base=10000.0):
        angles = torch.arange(positions).float()[:, None] / base ** (torch.arange(0, head_dim, 2).float() / head_dim)
        self.cos, self.sin = angles.cos()[None, None], angles.sin()[None, None]

    def __call__(self, x):  # in halves, as Hugging Face's
        tokens, half = x.shape[2], x.shape[3] // 2
        cos, sin = self.cos[:, :, :tokens].to(x.dtype), self.sin[:, :, :tokens].to(x.dtype)
        a, b = x[..., :half], x[..., half:]
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c, width = c, c["experts"] * c["width"]
        self.head_dim = c["dim"] // c["heads"]
        self.n1, self.n2 = nn.Parameter(torch.ones(c["dim"])), nn.Parameter(torch.ones(c["dim"]))
        self.q, self.k, self.v, self.o = (nn.Linear(c["dim"], n * self.head_dim, False) for n in (c["heads"], c["kv"], c["kv"], c["heads"]))
        self.router = nn.Linear(c["dim"], c["experts"], False)
        self.g, self.u, self.d = nn.Linear(c["dim"], width, False), nn.Linear(c["dim"], width, False), nn.Linear(width, c["dim"], False)

    def route(self, x):
        """Weights of all experts, [B, T, E], zero where not chosen; and the loss that balances their use."""
        z = F.linear(x.float(), self.router.weight.float())
        top = z.topk(self.c["used"], -1)
        p = torch.sigmoid(top.values)
        weights = torch.zeros_like(z).scatter(-1, top.indices, p / p.sum(-1, keepdim=True))
        used = (weights.detach() > 0).float().mean((0, 1))
        return weights, (used * torch.softmax(z, -1).mean((0, 1))).sum() * self.c["experts"] / self.c["used"], used

    def forward(self, x, rope):
        batch, tokens, dim = x.shape
        weights, balance, used = self.route(x)
        h = F.rms_norm(x, (dim,), self.n1, 1e-5)
        q, k, v = (w(h).view(batch, tokens, -1, self.head_dim).transpose(1, 2) for w in (self.q, self.k, self.v))
        q, k, share = rope(q), rope(k), self.c["heads"] // self.c["kv"]
        y = F.scaled_dot_product_attention(q, k.repeat_interleave(share, 1), v.repeat_interleave(share, 1), is_causal=True)
        x = x + self.o(y.transpose(1, 2).reshape(batch, tokens, dim))
        h = F.rms_norm(x, (dim,), self.n2, 1e-5)
        g, chosen = F.relu(self.g(h)), weights.repeat_interleave(self.c["width"], -1)
        active = ((g > 0) & (chosen > 0)).float().mean() * self.c["experts"] / self.c["used"]
        return x + self.d(g * self.u(h) * chosen.to(g.dtype)), balance, (g.float() * (chosen > 0)).mean(), active, used


class Mixture(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.emb, self.n = nn.Embedding(c["vocab"], c["dim"]), nn.Parameter(torch.ones(c["dim"]))
        self.b = nn.ModuleList(Block(c) for _ in range(c["layers"]))
        self.rope = Rope(c["dim"] // c["heads"], c["seq"])
        for name, p in self.named_parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02 / (math.sqrt(2 * c["layers"]) if name.endswith(("o.weight", "d.weight")) else 1))

    def forward(self, ids):
        x, rest = self.emb(ids), []
        for block in self.b:
            x, *more = block(x, self.rope)
            rest.append(more)
        balance, l1, active, used = (torch.stack(v) for v in zip(*rest))
        return F.linear(F.rms_norm(x, x.shape[-1:], self.n, 1e-5), self.emb.weight), balance.mean(), l1.mean(), active, used


def train(a):
    torch.set_num_threads(a.threads)
    torch.manual_seed(1)
    c = {k: getattr(a, k) for k in ("dim", "layers", "heads", "kv", "experts", "used", "width", "seq", "vocab")}
    m = Mixture(c)
    if a.resume:
        m.load_state_dict(torch.load(a.resume)["w"])
    print(sum(x.numel() for x in m.parameters()) / 1e6, "M parameters", flush=True)
    tokens = torch.from_numpy(np.fromfile(a.data + "/tokens.u16", dtype=np.uint16).astype(np.int64))
    held, tokens = tokens[-200_000:], tokens[:-200_000]
    matrices, rest = [x for x in m.parameters() if x.dim() == 2], [x for x in m.parameters() if x.dim() < 2]
    opt = torch.optim.AdamW([dict(params=matrices, weight_decay=0.05), dict(params=rest, weight_decay=0.0)], lr=a.lr, betas=(0.9, 0.95), fused=True)
    f, step, run, lam = torch.compile(m), 0, None, 0.0
    f(tokens[None, :a.seq].repeat(a.batch, 1))
    cpu, draw = time.process_time(), torch.Generator().manual_seed(5)
    while True:
        minutes = (time.process_time() - cpu) / 60
        x = min(1.0, minutes / a.cpu_minutes)
        for group in opt.param_groups:
            group["lr"] = a.lr * min(1, (step + 1) / 100) * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * x)))
        b = torch.stack([tokens[j:j + a.seq + 1] for j in torch.randint(0, len(tokens) - a.seq - 1, (a.batch,), generator=draw)])
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits, balance, l1, active, used = f(b[:, :-1])
        ce = F.cross_entropy(logits.float().view(-1, a.vocab), b[:, 1:].reshape(-1))
        # the penalty grows until the active share reaches the target, then holds it there
        if x > 0.1:
            lam = min(a.l1, max(0.0, lam + a.l1 * 0.01 * (1 if active.mean().item() > a.target else -1)))
        opt.zero_grad(set_to_none=True)
        (ce + 0.01 * balance + lam * l1).backward()
        nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        opt.step()
        step += 1
        run = ce.item() if run is None else 0.98 * run + 0.02 * ce.item()
        if step in (1, 2, 10) or step % 100 == 0:
            spread = [f"{u.min():.2f}-{u.max():.2f}" for u in used]
            print(f"{minutes:.1f} cpu min step {step} ce {run:.4f} balance {balance.item():.3f} lam {lam:.4f} active {[round(v, 2) for v in active.tolist()]} used {spread}", flush=True)
        if step % 200 == 0 or x >= 1:
            torch.save(dict(w=m.state_dict(), cfg=c), a.out)
        if x >= 1:
            break
    with torch.no_grad():
        losses = [F.cross_entropy(m(held[None, j:j + a.seq])[0][0], held[j + 1:j + a.seq + 1]).item() for j in range(0, 100 * a.seq, a.seq)]
    print("held-out ce", sum(losses) / len(losses))



def export(a):
    """A checkpoint as a Hugging Face folder in bf16."""
    saved, tidepool, out = torch.load(a.checkpoint), pathlib.Path(a.tokenizer), pathlib.Path(a.out)
    c, w = saved["cfg"], saved["w"]
    out.mkdir(parents=True, exist_ok=True)
    rows = lambda name: w[name].to(torch.bfloat16).contiguous()
    tensors = {"model.embed_tokens.weight": rows("emb.weight"), "model.norm.weight": rows("n")}
    for i in range(c["layers"]):
        p, b = f"model.layers.{i}.", f"b.{i}."
        tensors |= {p + "input_layernorm.weight": rows(b + "n1"), p + "post_attention_layernorm.weight": rows(b + "n2"),
                    p + "block_sparse_moe.primary_router.weight": rows(b + "router.weight")}
        tensors |= {p + f"self_attn.{x}_proj.weight": rows(b + f"{x}.weight") for x in "qkvo"}
        for e in range(c["experts"]):
            part = slice(e * c["width"], (e + 1) * c["width"])
            q = p + f"block_sparse_moe.experts.{e}."
            tensors |= {q + "gate.weight": rows(b + "g.weight")[part].contiguous(), q + "up.weight": rows(b + "u.weight")[part].contiguous(),
                        q + "down.weight": rows(b + "d.weight")[:, part].contiguous()}
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    (out / "config.json").write_text(json.dumps({
        "architectures": ["SmallThinkerForCausalLM"], "model_type": "smallthinker", "hidden_size": c["dim"], "num_hidden_layers": c["layers"],
        "num_attention_heads": c["heads"], "num_key_value_heads": c["kv"], "head_dim": c["dim"] // c["heads"],
        "moe_num_primary_experts": c["experts"], "moe_num_active_primary_experts": c["used"], "moe_ffn_hidden_size": c["width"],
        "moe_primary_router_apply_softmax": False, "norm_topk_prob": True, "rope_layout": [1] * c["layers"],
        "sliding_window_layout": [0] * c["layers"], "sliding_window_size": c["seq"], "vocab_size": c["vocab"],
        "max_position_embeddings": c["seq"], "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": True,
        "bos_token_id": 1, "eos_token_id": [2, 6], "torch_dtype": "bfloat16"}, indent=1) + "\n")
    for name in ("tokenizer.model", "tokenizer_config.json"):
        shutil.copy(tidepool / name, out / name)



def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    p = commands.add_parser("train")
    p.add_argument("data")
    p.add_argument("out")
    for key, value in dict(dim=256, layers=6, heads=8, kv=4, experts=16, used=4, width=64, seq=512, batch=16, vocab=2048, threads=2).items():
        p.add_argument("--" + key, type=int, default=value)
    p.add_argument("--cpu-minutes", type=float, default=90)
    p.add_argument("--lr", type=float, default=3e-3)
    p.add_argument("--l1", type=float, default=0.02)
    p.add_argument("--resume", default=None, help="a checkpoint to go on from; --lr then falls from where it is")
    p.add_argument("--target", type=float, default=0.25, help="active share of the neurons of chosen experts")
    p.set_defaults(run=train)
    p = commands.add_parser("export")
    for name in ("checkpoint", "tokenizer", "out"):
        p.add_argument(name)
    p.set_defaults(run=export)
    a = parser.parse_args()
    a.run(a)


if __name__ == "__main__":
    main()
