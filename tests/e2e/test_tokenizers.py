"""Token ids equal those of sentencepiece, tokenizers and the vectors that come with llama.cpp's vocabularies."""
import functools
import json
import subprocess

import gguf
import pytest
import sentencepiece
from conftest import ROOT, STORIES, THERMOCLINE, TIDEPOOL_FOLDER, run, run_json
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

DATA = sorted((ROOT / "tests/data").glob("*.*"))
GOLDEN = ROOT / "tests/golden"
HARD = (ROOT / "tests/golden/hard_cases.txt").read_text(encoding="utf-8").split("\n")


def lines_of(path):
    return [line for line in path.read_text(encoding="utf-8").split("\n") if line]


def encode_lines(model, lines):
    return json.loads(run("tokenize", model, "--json-input", stdin=json.dumps(lines).encode()).stdout)["tokens"]


def check_lines(model, lines, encode):
    for line, got in zip(lines, encode_lines(model, lines), strict=True):
        assert got == encode(line), line


@pytest.mark.parametrize("model,spm", [("tidepool", f"{TIDEPOOL_FOLDER}/tokenizer.model"), (TIDEPOOL_FOLDER, f"{TIDEPOOL_FOLDER}/tokenizer.model")])
def test_sentencepiece_on_every_line(model, spm):
    oracle = sentencepiece.SentencePieceProcessor(model_file=spm)
    for path in DATA:
        check_lines(model, lines_of(path), oracle.encode)
    check_lines(model, [line for line in HARD if line], oracle.encode)


def test_llama2c_tokenizer_is_its_sentencepiece_model():
    oracle = sentencepiece.SentencePieceProcessor(model_file=STORIES.replace("stories260K.bin", "tok512.model"))
    # The .bin has lost the flag that collapses spaces; on lines without such runs the two agree.
    plain = [line for path in DATA for line in lines_of(path) if "  " not in line and line == line.strip(" ")]
    assert len(plain) > 1000
    check_lines(STORIES, plain, oracle.encode)


def test_decoding_gives_the_text_back(smollm):
    for model in ("tidepool", smollm):
        for line, tokens in zip(HARD, encode_lines(model, HARD)):
            # SentencePiece writes spaces as U+2581, so a literal one comes back as a space.
            expected = line.replace("\u2581", " ") if model == "tidepool" else line
            assert run_json("tokenize", model, "--detokenize", stdin=json.dumps(tokens).encode())["text"] == expected


def test_line_mode_equals_one_by_one():
    lines = ["Hello, world!", "", "  two"]
    out = run("tokenize", "tidepool", "--lines", "--json", stdin="\n".join(lines).encode()).stdout
    assert [json.loads(line)["tokens"] for line in out.splitlines()] == encode_lines("tidepool", lines)


@functools.cache
def byte_level_vocabulary(path):
    reader = gguf.GGUFReader(path)
    tokens = reader.fields["tokenizer.ggml.tokens"].contents()
    merges = [tuple(m.split(" ")) for m in reader.fields["tokenizer.ggml.merges"].contents()]
    return {t: i for i, t in enumerate(tokens)}, merges


def byte_level_oracle(path, steps):
    vocab, merges = byte_level_vocabulary(path)
    oracle = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    oracle.pre_tokenizer = pre_tokenizers.Sequence(steps)
    oracle.decoder = decoders.ByteLevel()
    return oracle


def test_byte_level_bpe_on_every_line(smollm):
    oracle = byte_level_oracle(smollm, [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    for path in DATA:
        check_lines(smollm, lines_of(path), lambda line: oracle.encode(line).ids)
    check_lines(smollm, [line for line in HARD if line], lambda line: oracle.encode(line).ids)


LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def test_llama3_pattern_on_every_line(peer):
    path = peer / "models/ggml-vocab-llama-bpe.gguf"
    oracle = byte_level_oracle(path, [pre_tokenizers.Split(Regex(LLAMA3), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    reader = gguf.GGUFReader(path)
    oracle.model.ignore_merges = True
    assert reader.fields["tokenizer.ggml.pre"].contents() == "llama-bpe"
    for data in DATA[:2]:
        check_lines(path, lines_of(data), lambda line: oracle.encode(line).ids)


def relabelled(path, old, new, out):
    """A vocabulary under another pre-tokenizer's name. The file has no tensors, whose places would move."""
    def text(name):
        return len(name).to_bytes(8, "little") + name.encode()
    blob = path.read_bytes()
    key = text("tokenizer.ggml.pre") + (8).to_bytes(4, "little")
    assert blob.count(key + text(old)) == 1
    out.write_bytes(blob.replace(key + text(old), key + text(new)))
    return out


SEED = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
SHORT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
KIMI = rf"[\p{{Han}}]+|[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{SHORT}|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{SHORT}" + \
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


@pytest.mark.parametrize("name,pattern", [("glm4", LLAMA3), ("seed-coder", SEED), ("kimi-k2", KIMI)])
def test_patterns_without_a_vocabulary_of_their_own(peer, name, pattern, tmp_path):
    """Published patterns over Llama 3's tokens, against the tokenizers library."""
    source = peer / "models/ggml-vocab-llama-bpe.gguf"
    path = relabelled(source, "llama-bpe", name, tmp_path / "v.gguf")
    oracle = byte_level_oracle(source, [pre_tokenizers.Split(Regex(pattern), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    oracle.model.ignore_merges = name == "glm4"
    for lines in (lines_of(DATA[0])[:400], [line for line in HARD if line]):
        check_lines(path, lines, lambda line: oracle.encode(line).ids)


ASIAN = "[一-鿿㐀-䶿豈-﫿぀-ゟ゠-ヿ･-ﾟ⼀-⿟เ-๿຀-໿ក-៿က-႟ꩠ-ꩿꧠ-꧿가-힯ᄀ-ᇿ]+"
WORDS = r'''[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+'''
QWEN2 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


# llama.cpp's patterns of afmoe group numbers from their ends, by a function of its own.
@pytest.mark.parametrize("name,patterns", [("afmoe", [r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))", ASIAN, WORDS]), ("laguna", [r"[^\n]+|[\n]+", QWEN2])])
def test_patterns_in_turn(peer, name, patterns, tmp_path):
    source = peer / "models/ggml-vocab-llama-bpe.gguf"
    path = relabelled(source, "llama-bpe", name, tmp_path / "v.gguf")
    splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns]
    oracle = byte_level_oracle(source, [*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    for lines in (lines_of(DATA[0])[:400], [line for line in HARD if line], ["1234567 12 1 1a22345 ½½½½ ⅫⅫⅫⅫ 東京12345 ไทย๑๒๓๔ a\n\n b"]):
        check_lines(path, lines, lambda line: oracle.encode(line).ids)


def byte_level_folder(smollm, steps, folder):
    """Tidepool with a part of SmolLM2's tokenizer and other steps before it, and that tokenizer by the tokenizers library."""
    import shutil
    oracle = byte_level_oracle(smollm, steps)
    shutil.copytree(TIDEPOOL_FOLDER, folder)
    (folder / "tokenizer.model").unlink()
    config = json.loads((folder / "config.json").read_text())
    # Tidepool's weights have 2,048 rows: keep the first tokens only.
    full = json.loads(oracle.to_str())
    vocab = {t: i for t, i in full["model"]["vocab"].items() if i < config["vocab_size"]}
    merges = [m for m in full["model"]["merges"] if all(p in vocab for p in m) and "".join(m) in vocab]
    full["model"].update(vocab=vocab, merges=merges)
    full["added_tokens"] = [dict(id=i, content=t, special=True, single_word=False, lstrip=False, rstrip=False, normalized=False)
                            for t, i in vocab.items() if i < 17]
    (folder / "tokenizer.json").write_text(json.dumps(full))
    return Tokenizer.from_str(json.dumps(full))


def test_a_folder_with_tokenizer_json_gives_the_same_ids(smollm, tmp_path):
    """The same tokenizer through tokenizer.json: its pre-tokenizer is recognised, its added tokens are special."""
    steps = [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    small = byte_level_folder(smollm, steps, tmp_path / "hf")
    run("convert", tmp_path / "hf", tmp_path / "bpe.gguf")
    plain = [line for line in lines_of(DATA[0])[:300] if "<|" not in line]
    check_lines(tmp_path / "hf", plain, lambda line: small.encode(line).ids)
    check_lines(tmp_path / "bpe.gguf", plain, lambda line: small.encode(line).ids)


WORD_UPPER, WORD_LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
TAIL = r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
TEKKEN = rf"[^\r\n\p{{L}}\p{{N}}]?{WORD_UPPER}*{WORD_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{WORD_UPPER}+{WORD_LOWER}*|\p{{N}}|{TAIL}"
GPT4O = rf"[^\r\n\p{{L}}\p{{N}}]?{WORD_UPPER}*{WORD_LOWER}+{SHORT}|[^\r\n\p{{L}}\p{{N}}]?{WORD_UPPER}+{WORD_LOWER}*{SHORT}|\p{{N}}{{1,3}}|{TAIL}"
# As published: with line ends themselves instead of escapes.
DEEPSEEK = [r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", WORDS.replace(r"\r", "\r").replace(r"\n", "\n")]
PUBLISHED = {"qwen2": [QWEN2], "tekken": [TEKKEN], "gpt-4o": [GPT4O], "deepseek-v3": DEEPSEEK, "seed-coder": [SEED], "llama-bpe": [LLAMA3],
             "cohere2moe": [r"\d{1,3}(?=(?:\d{3})*\b)", GPT4O], "laguna": [r"[^\n]+|[\n]+", QWEN2]}


@pytest.mark.parametrize("name", PUBLISHED)
def test_folders_with_the_patterns_that_families_publish(smollm, name, tmp_path):
    splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in PUBLISHED[name]]
    small = byte_level_folder(smollm, [*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)], tmp_path / "hf")
    lines = [line for line in lines_of(DATA[0])[:200] if "<|" not in line] + ["It's 1234567 o'clock, 12 — ДОМ дом 東京 x\t\ty"]
    check_lines(tmp_path / "hf", lines, lambda line: small.encode(line).ids)
    run("convert", tmp_path / "hf", tmp_path / "bpe.gguf")
    assert gguf.GGUFReader(tmp_path / "bpe.gguf").fields["tokenizer.ggml.pre"].contents() == name
    check_lines(tmp_path / "bpe.gguf", lines, lambda line: small.encode(line).ids)


VOCABULARIES = ["llama-spm", "llama-bpe", "qwen2", "qwen35", "phi-3", "falcon", "gpt-2", "deepseek-llm", "deepseek-coder", "starcoder", "mpt",
                "command-r", "refact", "gemma-4"]


@pytest.mark.parametrize("name", VOCABULARIES)
def test_vectors_of_real_vocabularies(peer, name):
    path = peer / f"models/ggml-vocab-{name}.gguf"
    texts = (peer / f"models/ggml-vocab-{name}.gguf.inp").read_bytes().decode().split("\n__ggml_vocab_test__\n")
    expected = (peer / f"models/ggml-vocab-{name}.gguf.out").read_text().split("\n")
    assert len(texts) > 40
    for text, ids, got in zip(texts, expected, encode_lines(path, texts)):
        assert got == [int(i) for i in ids.split()], text


def test_a_vocabulary_without_vectors_round_trips(peer):
    """gpt-neox comes without expected ids."""
    path = peer / "models/ggml-vocab-gpt-neox.gguf"
    tokens = run_json("tokenize", path, stdin="Hello, 123 world\n\n  x".encode())["tokens"]
    assert run_json("tokenize", path, "--detokenize", stdin=json.dumps(tokens).encode())["text"] == "Hello, 123 world\n\n  x"


def test_control_tokens_in_text():
    text = b"<|user|>Hi<|end|></s>"
    plain = run_json("tokenize", "tidepool", stdin=text)["tokens"]
    assert all(t > 6 for t in plain)
    special = run_json("tokenize", "tidepool", "--special", "--bos", stdin=text)["tokens"]
    assert special[:2] == [1, 4] and special[-2:] == [6, 2]


def test_unpaired_bytes_are_read_as_replacement_characters():
    got = run_json("tokenize", "tidepool", stdin=b"a\xc3(\xff")["tokens"]
    assert got == run_json("tokenize", "tidepool", stdin="a\ufffd(\ufffd".encode())["tokens"]


def test_a_file_without_vocabulary_says_so(tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "empty.gguf", "llama")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    result = subprocess.run([THERMOCLINE, "tokenize", tmp_path / "empty.gguf"], input=b"x", capture_output=True)
    assert result.returncode == 1 and b"holds no tokenizer" in result.stderr


@pytest.mark.parametrize("file", ["", "model.gguf"], ids=["folder", "gguf"])
def test_unigram_on_every_line(file):
    """Against the tokenizers library, whose normalizer looks at clusters of characters where SentencePiece's looks at the longest match."""
    folder = GOLDEN / "encoders/xlm_roberta"
    oracle = Tokenizer.from_file(str(folder / "tokenizer.json"))
    lines = [line for path in DATA for line in lines_of(path)[:1500] + HARD if line and "<" not in line]
    lines += ["ﬁne ① ｆｕｌｌ　ｗｉｄｔｈ x\u200by ½ … ™ Å", "  a   b  ", "日本語 テスト 한국어", "a\tb\u00a0c", "😀😀 ok"]
    check_lines(folder / file, lines, lambda line: oracle.encode(line, add_special_tokens=False).ids)


@pytest.mark.parametrize("change", [lambda m: m[:8], lambda m: b"\xff\xff\xff\x7f" + m[4:], lambda m: m[:4] + b"\xff" * (len(m) - 4), lambda m: m[:4] + m[5:] + b"x"],
                         ids=["short", "large", "ones", "moved"])
def test_a_damaged_map_of_normalization_does_no_harm(change, tmp_path):
    import base64
    import shutil
    folder = tmp_path / "m"
    shutil.copytree(GOLDEN / "encoders/xlm_roberta", folder, ignore=shutil.ignore_patterns("*.gguf"))
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    steps = tokenizer["normalizer"]["normalizers"]
    steps[0]["precompiled_charsmap"] = base64.b64encode(change(base64.b64decode(steps[0]["precompiled_charsmap"]))).decode()
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    result = run("tokenize", folder, "--json-input", stdin=json.dumps(["ﬁne ① text", "日本語 and more"]).encode(), check=False)
    assert result.returncode == 0 or b"precompiled map" in result.stderr, result.stderr
