"""Writes block_codecs.bin: random GGUF blocks and their floats by the gguf package's numpy code.

Per type of TYPES, in this order: its blocks' bytes, then the f32 of all their columns. Run by hand, with `gguf`
installed; the same gguf and numpy give the same file.
"""
from pathlib import Path

import gguf
import numpy as np

# Type -> (number of blocks, byte offsets of its f16 scales).
TYPES = {"Q5_0": (16, [0]), "Q5_1": (16, [0, 2]), "IQ4_NL": (16, [0]), "Q2_K": (8, [80, 82]), "Q3_K": (8, [108]), "Q4_K": (8, [0, 2]),
         "Q5_K": (8, [0, 2]), "Q6_K": (8, [208]), "IQ4_XS": (8, [0]), "MXFP4": (16, []), "TQ2_0": (8, [64]), "TQ1_0": (8, [52]),
         "IQ2_XXS": (8, [0]), "IQ2_XS": (8, [0]), "IQ2_S": (8, [0]), "IQ3_XXS": (8, [0]), "IQ3_S": (8, [0])}
# The first blocks' scales; the others' are random. Two subnormal ones, and the ends of what weights use.
EDGES = np.array([0.0, -0.0, 2.0**-24, -(2.0**-16), 1000.0], np.float16)


def main():
    random = np.random.default_rng(1)
    with open(Path(__file__).parent / "block_codecs.bin", "wb") as file:
        for name, (num_blocks, offsets) in TYPES.items():
            kind = gguf.GGMLQuantizationType[name]
            blocks = random.integers(0, 256, (num_blocks, gguf.GGML_QUANT_SIZES[kind][1]), np.uint8)
            for offset in offsets:
                scales = np.concatenate([EDGES, random.normal(0, 0.02, num_blocks - len(EDGES)).astype(np.float16)])
                blocks[:, offset:offset + 2] = scales.view(np.uint8).reshape(-1, 2)
            file.write(blocks.tobytes())
            file.write(gguf.quants.dequantize(blocks, kind).astype(np.float32).tobytes())


if __name__ == "__main__":
    main()
