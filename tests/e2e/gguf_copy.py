"""Copies of GGUF files by the gguf package, with other tensors or in several parts."""
import gguf


def copy(source, out, change=lambda tensor: (tensor.data, tensor.tensor_type), fields={}, **options):
    """`change(tensor)` gives data and type; `fields` are integers instead of the file's or beside them; `options` are GGUFWriter's."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(out, reader.fields["general.architecture"].contents(), **options)
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture" or field.name in fields:
            continue
        kind = field.types[0]
        writer.add_key_value(field.name, field.contents(), kind, sub_type=field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None)
    for name, number in fields.items():
        writer.add_uint32(name, number)
    for tensor in reader.tensors:
        data, kind = change(tensor)
        writer.add_tensor(tensor.name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return out
