"""Safetensors files of float32 and bytes, read and written without the package of that name."""
import json

import numpy


def save(path, tensors):
    """`tensors`: name to array."""
    header, data = {}, b""
    for name, array in tensors.items():
        kind = {"uint8": "U8", "float32": "F32"}[array.dtype.name]
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [len(data), len(data) + array.nbytes]}
        data += array.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def load(path):
    """Name to array, all of them float32."""
    blob = path.read_bytes()
    size = int.from_bytes(blob[:8], "little")
    tensors = {}
    for name, entry in json.loads(blob[8:8 + size]).items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            tensors[name] = numpy.frombuffer(blob[8 + size:][begin:end], numpy.float32).reshape(entry["shape"])
    return tensors
