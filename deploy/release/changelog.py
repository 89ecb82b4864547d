#!/usr/bin/env python3
"""Debian's changelog as Markdown, for a release's page: changelog.py FILE > CHANGELOG.md"""
import re
import sys
from email.utils import parsedate_to_datetime
from pathlib import Path


def markdown(text):
    sections = []
    for match in re.finditer(r"^\S+ \(([^)]+)\)[^\n]*\n(.*?)^ -- .*?>  ([^\n]+)$", text, re.M | re.S):
        version, body, date = match.groups()
        lines = [re.sub(r"^  (\* )?", lambda m: "- " if m[1] else "", line) for line in body.strip("\n").splitlines()]
        sections.append(f"## {version} ({parsedate_to_datetime(date):%Y-%m-%d})\n\n" + "\n".join(lines).rstrip() + "\n")
    if not sections:
        raise SystemExit("changelog.py: there is no entry `NAME (VERSION) ...` that ends with ` -- NAME <ADDRESS>  DATE`")
    return "# Changes\n\n" + "\n".join(sections)


if __name__ == "__main__":
    print(markdown(Path(sys.argv[1]).read_text()), end="")
