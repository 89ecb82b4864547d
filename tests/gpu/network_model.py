#!/usr/bin/env python3
"""What a layer's feed-forward network should take on a GPU: a table for docs/device.md, from bytes, waits and launches.

    python3 tests/gpu/network_model.py                      # 7B shapes, Q4_0, a tenth of the neurons active

A kernel takes the longer of its bytes at the bandwidth that kernels reach, and of the loads that wait for one another on its
longest path: those that miss L2, and those that hit it. A launch in a graph adds a gap. These are estimates: no GPU has run
the kernels.
"""
import argparse
from dataclasses import dataclass

REACHED = 0.85  # of the bandwidth, by a kernel that only reads
# name: GB/s; ns of a load that misses L2 and of one that hits it; us between two nodes of a graph. Data sheets and measurements
# by others, as in sass_report.py, rounded up.
GPUS = {"RTX 4090": (1008, 600, 280, 1.2), "H100 SXM": (3350, 700, 270, 1.3), "Orin AGX 64": (204, 700, 350, 2.5)}


@dataclass
class Kernel:
    name: str
    bytes: float
    misses: int  # loads of memory that wait for others
    hits: int  # loads, fences and atomic operations of L2 that do

    def us(self, gb_s, miss, hit, gap):
        return gap + max(self.bytes / (REACHED * gb_s * 1e3), (self.misses * miss + self.hits * hit) / 1e3)


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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hidden-size", type=int, default=4096)
    parser.add_argument("--intermediate-size", type=int, default=11008)
    parser.add_argument("--active", type=float, default=0.10)
    parser.add_argument("--predicted", type=float, default=0.12)
    o = parser.parse_args()
    print("| network | launches | MB |" + "".join(f" {gpu}, us |" for gpu in GPUS) + "\n|---|---|---|" + "---|" * len(GPUS))
    for name, kernels in networks(o.hidden_size, o.intermediate_size, o.active, o.predicted).items():
        times = "".join(f" {sum(k.us(*figures) for k in kernels):.0f} |" for figures in GPUS.values())
        print(f"| {name} | {len(kernels)} | {sum(k.bytes for k in kernels) / 1e6:.1f} |{times}")


if __name__ == "__main__":
    main()
