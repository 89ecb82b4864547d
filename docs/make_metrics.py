#!/usr/bin/env python3
"""Writes the tables of docs/metrics.md anew: python3 docs/make_metrics.py build/release/bin/thermoclined"""
import pathlib
import re
import subprocess
import sys

page = pathlib.Path(__file__).with_name("metrics.md")
tables = subprocess.run([sys.argv[1], "--metrics-doc"], capture_output=True, check=True, text=True).stdout
between = re.compile(r"(?<=-->\n).*(?=<!-- end of the tables -->)", re.DOTALL)
text, count = between.subn(lambda _: tables, page.read_text())
assert count == 1, "docs/metrics.md has lost the marks of its tables"
page.write_text(text)
