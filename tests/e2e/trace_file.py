"""Traces of neurons, or experts, read by the definition of their format (engine/store/trace.h)."""
import struct
from pathlib import Path

import numpy as np


def read_trace(path):
    """[tokens][layers] arrays of neurons."""
    data = Path(path).read_bytes()
    assert data[:8] == b"TCTRACE1"
    layers, _, length = struct.unpack_from("<III", data, 8)
    at, sets = 20 + length, []

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
    while at < len(data):
        neurons = np.empty(varint(), np.int64)
        for i in range(len(neurons)):
            neurons[i] = varint() if i == 0 else neurons[i - 1] + 1 + varint()
        sets.append(neurons)
    return [sets[i:i + layers] for i in range(0, len(sets) - layers + 1, layers)]
