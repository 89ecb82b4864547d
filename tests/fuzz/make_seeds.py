"""Writes the corpora's seeds: small real files, as programs write them, and requests as clients send them.

    python3 tests/fuzz/make_seeds.py build/release/bin
"""
import json
import math
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"
CUT = b"\n--8<--\n"
TINY = ["--layers", "2", "--hidden-size", "32", "--intermediate-size", "64", "--heads", "2", "--kv-heads", "2", "--vocab", "260", "--context", "64"]


def seed(target, name, data):
    (CORPUS / target).mkdir(parents=True, exist_ok=True)
    (CORPUS / target / name).write_bytes(data if isinstance(data, bytes) else data.encode())


def models(run, folder):
    run("synth", folder / "q4_0.gguf", *TINY, "--type", "q4_0")
    whole = (folder / "q4_0.gguf").read_bytes()
    seed("model_file", "q4_0.gguf", whole)
    seed("model_file", "vocabulary_only.gguf", whole[:8] + bytes(8) + whole[16:8192])  # says that it has no tensors
    run("synth", folder / "experts.gguf", *TINY, "--type", "q8_0", "--experts", "2", "--experts-used", "1")
    seed("model_file", "experts.gguf", (folder / "experts.gguf").read_bytes())
    run("synth", folder / "powerinfer.gguf", *TINY, "--format", "powerinfer", "--type", "q4_0")
    seed("model_file", "powerinfer.gguf", (folder / "powerinfer.gguf").read_bytes())
    dim, hidden, layers, heads, vocab, context = 8, 16, 1, 2, 32, 8
    floats = vocab * dim + layers * (2 * dim + 4 * dim * dim + 3 * dim * hidden) + dim + context * dim // heads
    seed("model_file", "llama2c.bin", struct.pack("<7i", dim, hidden, layers, heads, heads, vocab, context) + bytes(4 * floats))


def safetensors(tensors):
    """Tensors of zeros: name -> shape (of f16), or (type, bytes of an element, shape). With a fourth item that is their bytes."""
    header, body = {}, b""
    for name, tensor in tensors.items():
        dtype, size, shape, *data = tensor if isinstance(tensor, tuple) else ("F16", 2, tensor)
        data = data[0] if data else bytes(size * math.prod(shape))
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


PACKINGS = {"gptq": {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": False, "sym": False},
            "awq": {"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemm", "zero_point": True},
            "fp8": {"quant_method": "fp8", "weight_block_size": [32, 32]},
            "compressed": {"quant_method": "compressed-tensors", "format": "pack-quantized",
                           "config_groups": {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": 32}}}}}


def packing(method, rows, cols):
    """The tensors that stand for a weight of that shape, in groups of 32 columns."""
    groups = cols // 32
    return {"gptq": {"qweight": ("I32", 4, [cols // 8, rows]), "qzeros": ("I32", 4, [groups, rows // 8]), "scales": [groups, rows], "g_idx": ("I32", 4, [cols])},
            "awq": {"qweight": ("I32", 4, [cols, rows // 8]), "qzeros": ("I32", 4, [groups, rows // 8]), "scales": [groups, rows]},
            "fp8": {"weight": ("F8_E4M3", 1, [rows, cols]), "weight_scale_inv": ("F32", 4, [rows // 32, groups])},
            "compressed": {"weight_packed": ("I32", 4, [rows, cols // 8]), "weight_scale": [rows, groups], "weight_shape": ("I64", 8, [2], struct.pack("<2q", rows, cols))}}[method]


def folders():
    d, f, v = 32, 64, 8
    layer = {"self_attn.q_proj": [d, d], "self_attn.k_proj": [d, d], "self_attn.v_proj": [d, d], "self_attn.o_proj": [d, d],
             "mlp.gate_proj": [f, d], "mlp.up_proj": [f, d], "mlp.down_proj": [d, f], "input_layernorm": [d], "post_attention_layernorm": [d]}
    tensors = {f"model.layers.0.{name}.weight": shape for name, shape in layer.items()}
    tensors |= {"model.embed_tokens.weight": [v, d], "model.norm.weight": [d], "lm_head.weight": [v, d]}
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": d, "intermediate_size": f, "num_hidden_layers": 1,
              "num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": v, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
              "hidden_act": "silu", "rope_theta": 10000.0, "tie_word_embeddings": False, "torch_dtype": "float16"}
    words = ["<unk>", "<s>", "</s>", "a", "b", "ab", "c", "d"]
    tokenizer = {"version": "1.0", "added_tokens": [{"id": i, "content": w, "special": True} for i, w in enumerate(words[:3])],
                 "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}, "decoder": {"type": "ByteLevel"},
                 "model": {"type": "BPE", "unk_token": None, "vocab": {w: i for i, w in enumerate(words)}, "merges": ["a b"]}}
    more = {"bos_token": "<s>", "eos_token": "</s>", "chat_template": "{{ messages[0].content }}"}
    parts = [json.dumps(x).encode() for x in (config, tokenizer, more)]
    seed("model_folder", "llama", CUT.join([*parts, safetensors(tensors)]))
    for method, quantization in PACKINGS.items():
        packed = {name: shape for name, shape in tensors.items() if "proj" not in name}
        for name, shape in tensors.items():
            if "proj" in name:
                packed |= {name.removesuffix("weight") + suffix: each for suffix, each in packing(method, *shape).items()}
        config_of = json.dumps(config | {"quantization_config": quantization}).encode()
        seed("model_folder", method, CUT.join([config_of, *parts[1:], safetensors(packed)]))
    seed("tokenizer_file", "tokenizer.json", b"\x02" + CUT.join(parts[1:]))
    piece = lambda text, score, kind: b"\x0a" + bytes([len(text) + 9]) + b"\x0a" + bytes([len(text)]) + text + b"\x15" + struct.pack("<f", score) + b"\x18" + bytes([kind])  # noqa: E731
    pieces = [(b"<unk>", 0, 2), (b"<s>", 0, 3), (b"</s>", 0, 3), *((b"<0x%02X>" % i, 0, 6) for i in range(256)), (b"\xe2\x96\x81", -1, 1), (b"a", -2, 1)]
    seed("tokenizer_file", "tokenizer.model", b"\x00" + b"".join(piece(*p) for p in pieces))
    texts = [b"<unk>", b"\n<s>\n", b"\n</s>\n", *(b"<0x%02X>" % i for i in range(20)), b" ", b"a", b"b", b"ab", b"c", b"d", b"e", b"f", b"g"]
    seed("tokenizer_file", "llama2c", b"\x01" + struct.pack("<i", 6) + b"".join(struct.pack("<fi", 0.5, len(t)) + t for t in texts[:32]))


def texts():
    for which, text in enumerate(["Hello, w\u00f6rld 123!", "  don't\n\n\tx=1.5e3", "\u65e5\u672c\u8a9e \u0627\u0644 \U0001f600", "<s>[INST] a</s>", "a\u0300\u0301 \u200b\ufeff"]):
        seed("tokenizer_text", f"text{which}", bytes([which * 3]) + text.encode())
    seed("chat_template", "chatml", "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m.content | trim + '<|im_end|>' }}{% endfor %}{% if add_generation_prompt %}assistant{% endif %}")
    seed("chat_template", "tools", "{%- macro f(x, y=1) -%}{{ x | tojson(indent=2) }}{%- endmacro -%}{%- set ns = namespace(n=0) -%}{%- for t in tools -%}{%- set ns.n = ns.n + loop.index0 -%}{{ f(t.function, y=2) }}{%- endfor -%}"
         "{{ messages[1:] | selectattr('role', 'equalto', 'tool') | list | length }}{{ 'a,b'.split(',')[-1].upper() if ns.n is defined and not enable_thinking else raise_exception('x') }}")
    schema = {"type": "object", "properties": {"a": {"type": "string", "minLength": 1, "maxLength": 5, "pattern": "^[a-z]+$"}, "b": {"type": "integer", "minimum": -3, "maximum": 99},
              "c": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/t"}]}, "d": {"enum": [1, "x", None, [1]]}}, "required": ["a"], "additionalProperties": False,
              "$defs": {"t": {"type": "array", "items": {"$ref": "#/$defs/t"}, "minItems": 1, "maxItems": 3, "prefixItems": [{"const": 2}]}}}
    seed("grammar", "schema", b"\x00" + json.dumps(schema).encode())
    seed("grammar", "schema2", b"\x00" + json.dumps({"type": ["number", "string"], "format": "date-time", "allOf": [{"multipleOf": 0.5}, {"not": {"const": 3}}]}).encode())
    seed("grammar", "gbnf", b"\x01" + b'root ::= (item | "x" [a-z\\x41-\\u0042]{2,3})* end\nitem ::= "a"+ ("b" | item)? # note\nend ::= <end> | [^\\n"]\n')
    seed("grammar", "pattern", b"\x02" + rb"^(a|b{2,4}?|[^\d\-x]\w+(?=c)|(?:\u00e4.)*)$")


def requests():
    chat = {"model": "m", "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": "hi"}]}], "temperature": 0.5, "top_p": 0.9, "stop": ["a"], "logit_bias": {"5": -1},
            "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}], "tool_choice": "auto", "response_format": {"type": "json_object"}, "stream": True, "n": 2,
            "stream_options": {"include_usage": True}, "logprobs": True, "top_logprobs": 2, "x_thermocline": {"ffn_mode": "dense", "kl_max": 0.1, "draft_tokens": 2}}
    bodies = [chat, {"prompt": ["a", "b"], "max_tokens": 3, "echo": True, "logprobs": 1, "suffix": "c"}, {"input": [{"role": "user", "content": "x"}, {"type": "function_call_output", "call_id": "c", "output": "1"}], "instructions": "i"},
              {"input": ["a", [1, 2]], "encoding_format": "base64", "dimensions": 3}, {"query": "q", "documents": ["a", {"text": "b"}], "top_n": 1},
              {"model": "m", "max_tokens": 5, "system": [{"type": "text", "text": "s"}], "messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "x"}]}], "tools": [{"name": "f", "input_schema": {}}]},
              {"model": "m", "messages": [{"role": "user", "content": "x", "images": []}], "options": {"num_predict": 3, "temperature": 0}, "format": "json", "keep_alive": "5m"},
              {"model": "m", "prompt": "p", "raw": True, "suffix": "s", "context": [1]}, {"model": "m", "input": ["a"]}, {"model": "m", "prompt": "a"},
              {"prompt": [1, "a"], "n_predict": 3, "n_probs": 2, "grammar": "root ::= \"a\"", "samplers": ["top_k"], "cache_prompt": True}, {"input_prefix": "a", "input_suffix": "b", "input_extra": [{"text": "x", "filename": "f"}]}]
    for which, body in enumerate(bodies):
        seed("requests", f"route{which}", bytes([which]) + json.dumps(body).encode())
    post = lambda path, body, extra="": f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{extra}Content-Length: {len(body)}\r\n\r\n{body}"  # noqa: E731
    seed("http", "chat", post("/v1/chat/completions", json.dumps(chat)))
    seed("http", "pipelined", "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\nGET /v1/models HTTP/1.1\r\nHost: a.example\r\nOrigin: http://b.example\r\n\r\n" + post("/tokenize", '{"content": "a"}'))
    seed("http", "chunked", "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nContent-Type: application/json\r\n\r\n5\r\n{\"pro\n--8<--\n\r\n0\r\n\r\n")
    seed("http", "both_framings", post("/v1/completions", '{"prompt": "a"}', "Transfer-Encoding: chunked\r\n"))
    seed("http", "two_lengths", post("/v1/completions", '{"prompt": "a"}', "Content-Length: 3\r\n"))
    seed("http", "http2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    seed("http", "websocket", "GET /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: AAAA\r\nSec-WebSocket-Version: 13\r\n\r\n")
    seed("http", "tls", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
    seed("http", "expect", post("/v1/embeddings", '{"input": "a"}', "Expect: 100-continue\r\nAuthorization: Bearer x\r\n"))
    seed("http", "options", "OPTIONS /v1/models HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\nAccess-Control-Request-Method: POST\r\n\r\n")
    seed("http", "old", "GET /metrics HTTP/1.0\r\n\r\n")
    text = lambda n, s: bytes([n << 3 | 2, len(s)]) + s  # noqa: E731
    seed("grpc", "text", text(4, b"Once") + text(12, b"dense") + b"\x48\x02" + text(8, b"\x08\x01\x10\x02") + b"\x79" + struct.pack("<d", 0.1))
    seed("grpc", "chat", text(5, text(1, text(1, b"user") + text(2, b"hi"))) + text(7, b"\x08\x05"))


def side_files(run, folder):
    model, tcp = folder / "rows.gguf", folder / "rows.tcp"
    run("synth", model, *TINY, "--type", "q4_0", "--down", "rows")
    words = folder / "words.txt"
    words.write_text("once upon a time there was a king who had a ship and a dog " * 40)
    run("profile", model, "--text", words, "--tokens", "200", "--window", "32", "--side-car", tcp, "--record-trace", folder / "trace")
    seed("side_files", "side_car", b"\x00" + tcp.read_bytes())
    run("pack", model, "--out", folder / "rows.tcb", "--order", "none")
    seed("side_files", "bundle", b"\x01" + (folder / "rows.tcb").read_bytes()[:60000])
    run("imatrix", model, "--text", words, "--tokens", "64", "--window", "32", "-o", folder / "im.gguf")
    seed("side_files", "importance", b"\x04" + (folder / "im.gguf").read_bytes())
    seed("side_files", "trace", b"\x03" + (folder / "trace").read_bytes()[:20000])
    seed("side_files", "placement", b'\x02{"format": "thermocline placement", "version": 1, "model_hash": "", "machine_key": "", "layers": [{"gpu": [0, 1], "ram": [2]}]}')
    seed("side_files", "keys", b"\x05# people\nann:" + b"a" * 64 + b"\nbob:" + b"0" * 64 + b" priority=3 tokens_per_minute=5\n")
    seed("config", "thermocline.yaml", (Path(__file__).parents[2] / "config/thermocline.yaml").read_bytes() + CUT + b"engine.threads=3\nserver.port=0")
    seed("config", "anchors", b"server: &a {host: 127.0.0.1}\nb: *a\nengine:\n  threads: [1, 2]\n" + CUT + b"x\nengine.kl_max=nan")


def tool_calls():
    """The first byte: the format of the template, and whether a limit cut the answer."""
    rome = '{"name": "get_weather", "arguments": {"city": "Rome"}}'
    answers = {"object": rome, "fence": f"Sure.\n```json\n{rome}\n```", "python": "[get_weather(city='Rome', more={'a': [True, None]}), now()]",
               "tags": "<tool_call>\n<function=get_weather>\n<parameter=city>\nRome\n</parameter>\n</function>\n</tool_call>", "invoke": '<invoke name="get_weather"><parameter name="city">Rome</parameter></invoke>',
               "marks": f'<think>x</think>[TOOL_CALLS]get_weather[ARGS]{{"city": "Rome"}}<|python_tag|>{rome}; {rome}', "tool_code": "```tool_code\nprint(get_weather(city=\"Rome\"))\n```"}
    for index, (name, answer) in enumerate(answers.items()):
        seed("tool_calls", name, bytes([index]) + answer.encode())


def main():
    program = Path(sys.argv[1]) / "thermocline"
    run = lambda *args: subprocess.run([program, *map(str, args)], check=True, capture_output=True)  # noqa: E731
    with tempfile.TemporaryDirectory() as folder:
        models(run, Path(folder))
        folders()
        texts()
        requests()
        tool_calls()
        side_files(run, Path(folder))


if __name__ == "__main__":
    main()
