"""Copies of GGUF files by the gguf package, with other tensors or in several parts."""
import re

import gguf


def copy(source, out, change=lambda tensor: (tensor.data, tensor.tensor_type), fields={}, layers=None, more={}, **options):
    """`change(tensor)` gives data and type; `fields` are integers, floats, texts or lists of integers instead of the file's or beside them; `options` are GGUFWriter's.
    `more`: tensors by name, added to the file's. `layers`: only that many of them, for tests that need a real vocabulary and no real text."""
    reader = gguf.GGUFReader(source)
    architecture = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(out, architecture, **options)
    if layers is not None:
        fields = {f"{architecture}.block_count": layers, **fields}
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture" or field.name in fields:
            continue
        kind = field.types[0]
        writer.add_key_value(field.name, field.contents(), kind, sub_type=field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None)
    for name, value in fields.items():
        if isinstance(value, list):
            writer.add_array(name, value)
        else:
            {int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}[type(value)](name, value)
    for tensor in reader.tensors:
        block = re.match(r"blk\.(\d+)\.", tensor.name)
        if layers is not None and block and int(block[1]) >= layers:
            continue
        data, kind = change(tensor)
        writer.add_tensor(tensor.name, data, raw_dtype=kind)
    for name, data in more.items():
        writer.add_tensor(name, data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return out
