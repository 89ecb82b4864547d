#!/usr/bin/env python3
"""What a layer's feed-forward network should take on a GPU: a table for docs/device.md, from bytes, waits and launches.

    python3 tests/gpu/network_model.py                      # 7B shapes, Q4_0, a tenth of the neurons active

A kernel takes the longest of its bytes at the bandwidth that kernels reach; of the loads that wait for one another on its
longest path: those that miss L2, and those that hit it; of its instructions at the rate that kernels reach; and of one
warp's instructions. A launch adds a gap. Of a prompt's 16 tokens more neurons are active for any than for one (--union).
These are estimates; docs/device.md has what an H200 measured.
"""
import argparse
from dataclasses import dataclass

REACHED = 0.85  # of the bandwidth, by a kernel that only reads
ISSUED = 0.6  # of a multiprocessor's four instructions in a cycle, by a kernel with enough warps
CYCLES = 2  # of an instruction of a warp that is alone on its scheduler
LAUNCH = 2.0  # us between two launches without a graph
# Instructions of warps, counted in the machine code for sm_90, Q4_0: of the dense product for 16 rows, 16 tokens and 32 columns;
# of chosen rows for the same; of the down projection for 32 rows, 16 tokens and 32 columns, maxima and sums.
DENSE, ROWS, SUMS = 79, 92, 370


@dataclass
class Gpu:
    gb_s: float
    miss: float  # ns of a load that misses L2
    hit: float  # ns of one that hits it
    gap: float  # us between two nodes of a graph
    processors: int
    ghz: float


# Data sheets and measurements by others, as in sass_report.py, rounded up.
GPUS = {"RTX 4090": Gpu(1008, 600, 280, 1.2, 128, 2.5), "H100 SXM": Gpu(3350, 700, 270, 1.3, 132, 1.75),
        "Orin AGX 64": Gpu(204, 700, 350, 2.5, 16, 1.3)}


@dataclass
class Kernel:
    name: str
    bytes: float
    misses: int  # loads of memory that wait for others
    hits: int  # loads, fences and atomic operations of L2 that do
    instructions: float = 0  # of all warps
    longest: float = 0  # of one warp

    def us(self, gpu, gap):
        rate = ISSUED * 4 * gpu.processors * gpu.ghz * 1e3  # of all warps in a us
        return gap + max(self.bytes / (REACHED * gpu.gb_s * 1e3), (self.misses * gpu.miss + self.hits * gpu.hit) / 1e3,
                         self.instructions / rate, self.longest * CYCLES / (gpu.ghz * 1e3))


def networks(hidden, neurons, active, predicted):
    row = hidden * 18 / 32  # bytes, Q4_0
    dense = neurons * row
    return {
        "dense": [Kernel("gate", dense, 2, 1), Kernel("up", dense, 2, 1), Kernel("activation", 0, 0, 2), Kernel("down", dense, 2, 1)],
        "sparse, by signs": [
            Kernel("input's signs", 0, 0, 2),
            # Input, planes and thresholds; then the list: fence, ticket, masks, ids.
            Kernel("prediction", neurons * hidden / 8, 1, 6),
            # Count, id, slot, gate's row; id, slot, up's row; then the list.
            Kernel("gate and up", (predicted + active) * neurons * row, 2, 9),
            # Start, id, slot and h, scales, levels; fence, ticket; three rounds of four runs.
            Kernel("down", active * neurons * row, 2, 8)],
        "sparse, exact": [Kernel("list of all", 0, 0, 4), Kernel("gate and up", (1 + active) * neurons * row, 2, 9),
                          Kernel("down", active * neurons * row, 2, 8)],
    }


def prompts(hidden, neurons, active, predicted):
    """For 16 tokens; `active`, `predicted`: for any of them."""
    row = hidden * 18 / 32
    units = neurons / 16 * hidden / 32  # of the instructions counted above
    steps = hidden / 256

    def dense(name):
        return Kernel(name, neurons * row, 2, 1, units * DENSE, hidden / 32 * DENSE)

    def rows(share, passes):
        return Kernel("gate and up", share * neurons * row, 2, 9, share * units * ROWS, passes * steps * 8 * ROWS / 2)

    down = [Kernel("down", active * neurons * row, 2, 4, active * units / 2 * SUMS, active * 32 * SUMS), Kernel("runs added", 0, 0, 4)]
    return {
        "dense": [dense("gate"), dense("up"), Kernel("activation", 0, 0, 2), dense("down")],
        "sparse, by signs": [Kernel("input's signs", 0, 0, 2), Kernel("prediction", neurons * hidden / 8, 1, 6, neurons * hidden / 32 / 32 * 16 * 4),
                             rows(predicted + active, 2)] + down,
        "sparse, exact": [Kernel("list of all", 0, 0, 4), rows(1 + active, 2)] + down,
    }


def table(title, all_kernels, times, gap):
    print(f"\n| {title} | launches | MB |" + "".join(f" {gpu}, us |" for gpu in GPUS) + "\n|---|---|---|" + "---|" * len(GPUS))
    for name, kernels in all_kernels.items():
        us = "".join(f" {times * sum(k.us(g, gap or g.gap) for k in kernels):.0f} |" for g in GPUS.values())
        print(f"| {name} | {times * len(kernels)} | {times * sum(k.bytes for k in kernels) / 1e6:.1f} |{us}")


def dense_prompt(kernels, groups):
    """The weights are read once, by the first of the groups of 16 tokens: the others find them in L2."""
    return [Kernel(k.name, k.bytes, k.misses, k.hits, groups * k.instructions, k.longest) for k in kernels]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hidden-size", type=int, default=4096)
    parser.add_argument("--intermediate-size", type=int, default=11008)
    parser.add_argument("--active", type=float, default=0.10)
    parser.add_argument("--predicted", type=float, default=0.12)
    parser.add_argument("--union", type=float, nargs="*", default=[0.3, 0.8], help="active for any of 16 tokens; 0.8: as if they had nothing in common")
    o = parser.parse_args()
    shape = o.hidden_size, o.intermediate_size
    table("a token", networks(*shape, o.active, o.predicted), 1, None)
    for union in o.union:
        # As many more predicted as active.
        prompt = prompts(*shape, union, min(1, union * o.predicted / o.active))
        table(f"16 tokens, {union:.0%} active for any", prompt, 1, LAUNCH)
        sparse = {name: kernels for name, kernels in prompt.items() if name != "dense"}
        table(f"512 tokens, {union:.0%} active for any of 16", sparse, 32, LAUNCH)
    table("512 tokens", {"dense": dense_prompt(prompt["dense"], 32)}, 1, LAUNCH)


if __name__ == "__main__":
    main()
