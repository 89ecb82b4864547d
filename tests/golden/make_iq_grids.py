"""Writes kernels/layout/iq_grids.h: the points that GGUF's IQ2 and IQ3 types choose among.

They are part of the formats. Run by hand, with `gguf` installed, whose tables are unpacked and packed anew: the numbers of
a point's values among the type's, two bits (IQ2) or three (IQ3) each.
"""
from pathlib import Path

import numpy as np
from gguf import quants

TYPES = {"kIq2XxsGrid": (quants.IQ2_XXS, 2), "kIq2XsGrid": (quants.IQ2_XS, 2), "kIq2SGrid": (quants.IQ2_S, 2),
         "kIq3XxsGrid": (quants.IQ3_XXS, 3), "kIq3SGrid": (quants.IQ3_S, 3)}


def points(kind, bits):
    kind.init_grid()
    grid = kind.grid.reshape(kind.grid_shape)
    number = {float(value): i for i, value in enumerate(kind.grid_map)}
    return [sum(number[float(value)] << bits * i for i, value in enumerate(point)) for point in grid]


def main():
    lines = ["// Points of GGUF's IQ2 and IQ3 types: made by tests/golden/make_iq_grids.py.",
             "// Source: the block formats of ggml's GGUF files.", "#pragma once", "", "#include <cstdint>", "",
             "namespace thermocline::kernels {", "", "// clang-format off"]
    for name, (kind, bits) in TYPES.items():
        numbers = points(kind, bits)
        lines.append(f"inline constexpr std::uint16_t {name}[{len(numbers)}] = {{")
        lines += ["    " + ", ".join(map(str, numbers[i:i + 18])) + "," for i in range(0, len(numbers), 18)]
        lines.append("};")
    lines += ["// clang-format on", "", "}  // namespace thermocline::kernels", ""]
    path = Path(__file__).resolve().parents[2] / "kernels/layout/iq_grids.h"
    path.write_text("\n".join(lines))


if __name__ == "__main__":
    main()
