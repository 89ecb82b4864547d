#!/usr/bin/env python3
"""Measures the English of comments: tests/lint/prose.py [FOLDER ...] [--list]

A comment is a sentence, or a noun phrase with its noun. One that begins with What, Whether, Of or their kin is a clause without a
subject, which a reader has to solve. Well-read code bases have such openers in 0.1% (LevelDB) to 0.7% (gemma.cpp) of their comments,
and "what" as a pronoun 0.7 to 3.9 times in 10,000 words. --list prints the comments that begin so.
"""
import pathlib
import re
import sys
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = ("engine", "server", "kernels", "loadtest", "tests", "tools")
SUFFIXES = (".h", ".cc", ".cu", ".cuh")
OPENERS = re.compile(r"(What|Whether|Who|Whose|Of|How|Those|That|Where|Else|Nobody|Nothing|None)\b")
# Words of our own for which the field has terms: the KV cache, a new tenant, prefill, a random source, tokenises, a socket.
BANNED = re.compile(r"\b(keys and values|stranger|newcomer|Chance|ReadTokens|ReadChunk|makes tokens of|whoever|reads the prompt|door|farewell|"
                    r"books of|who leaves|gives way|told of|is let in|says nothing|no whole)")
NO_PROSE = re.compile(r"\s*//\s*(NOLINT|clang-format|namespace|=====|-----)")


class Block(NamedTuple):
    path: pathlib.Path
    line: int
    text: str

    def __str__(self):
        return f"{self.path.relative_to(ROOT)}:{self.line}: {self.text[:140]}"


def blocks(path):
    """The comments of a file: lines of // that stand together, or one behind a statement."""
    lines, start = [], 0
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
        whole = re.match(r"\s*//+!?\s?(.*)", line)
        if whole and not NO_PROSE.match(line):
            start = start if lines else number
            lines.append(whole[1])
            continue
        if lines:
            yield Block(path, start, " ".join(lines).strip())
            lines = []
        behind = re.search(r";\s*//+\s?(\S.*)", line)
        if not whole and behind and "NOLINT" not in behind[1]:
            yield Block(path, number, behind[1].strip())
    if lines:
        yield Block(path, start, " ".join(lines).strip())


def comments(folders=FOLDERS):
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in SUFFIXES:
                yield from blocks(path)


def openers(found):
    return [b for b in found if OPENERS.match(b.text)]


def whats(found):
    """Uses of "what" in 10,000 words."""
    words = sum(len(b.text.split()) for b in found)
    return 1e4 * sum(len(re.findall(r"\bwhat\b", b.text, re.I)) for b in found) / max(1, words)


def banned(found):
    return [b for b in found if BANNED.search(b.text)]


def main():
    folders = [a for a in sys.argv[1:] if not a.startswith("--")] or FOLDERS
    for group in (*([f] for f in folders), folders):
        found = list(comments(group))
        name = "all" if group is folders else group[0]
        print(f"{name:10} {len(found):6} comments, openers {100 * len(openers(found)) / max(1, len(found)):4.1f}%, what {whats(found):4.1f} in 10,000 words, banned {len(banned(found))}")
    if "--list" in sys.argv:
        print(*openers(found), *banned(found), sep="\n")


if __name__ == "__main__":
    main()
