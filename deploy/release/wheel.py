#!/usr/bin/env python3
"""A Python wheel of the programs: `pip install` puts them into an environment's bin, with their libraries and models.

    wheel.py TREE FOLDER VERSION PLATFORM        PLATFORM: a tag, for example manylinux_2_35_x86_64

TREE is an installation as deploy/release.sh stages it. The distribution is called thermocline-server, because `thermocline`
on PyPI is another project. The programs find lib/thermocline and share/thermocline beside the folder that they lie in.
*Source:* the Binary Distribution Format, https://packaging.python.org/en/latest/specifications/binary-distribution-format/
"""
import base64
import hashlib
import os
import sys
import time
import zipfile
from pathlib import Path

NAME = "thermocline_server"
METADATA = """Metadata-Version: 2.1
Name: thermocline-server
Version: {version}
Summary: Thermocline serves language models on one Linux machine with low latency
License: Apache-2.0
Requires-Python: >=3.8
Classifier: License :: OSI Approved :: Apache Software License
Classifier: Operating System :: POSIX :: Linux
Description-Content-Type: text/markdown

The programs `thermoclined` (the server), `thermocline` (the command line) and `thermocline-load` (the load tester), with the
libraries that they need and a small built-in model. There is no Python module in it.

    thermoclined                                  # serves the built-in model at http://127.0.0.1:8080/
    thermoclined --set model.path=MODEL.gguf
"""
WHEEL = """Wheel-Version: 1.0
Generator: deploy/release/wheel.py
Root-Is-Purelib: false
Tag: py3-none-{platform}
"""


def contents(tree, version, platform):
    """Pairs of a name in the wheel and its bytes, in the order of names, with whether it can be executed."""
    data, info = f"{NAME}-{version}.data", f"{NAME}-{version}.dist-info"
    files = [(f"{data}/scripts/{path.name}", path.read_bytes(), True) for path in (tree / "bin").iterdir()]
    for folder in ("lib/thermocline", "share/thermocline"):
        files += [(f"{data}/data/{path.relative_to(tree)}", path.read_bytes(), False) for path in (tree / folder).rglob("*") if path.is_file()]
    files.append((f"{info}/METADATA", METADATA.format(version=version).encode(), False))
    files.append((f"{info}/WHEEL", WHEEL.format(platform=platform).encode(), False))
    files.append((f"{info}/LICENSE", (tree / "LICENSE").read_bytes(), False))
    files.append((f"{info}/copyright", (tree / "share/doc/thermocline/copyright").read_bytes(), False))
    files.sort()
    record = "".join(f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(held).digest()).decode().rstrip('=')},{len(held)}\n" for name, held, _ in files)
    return [*files, (f"{info}/RECORD", (record + f"{info}/RECORD,,\n").encode(), False)]


def main(tree, folder, version, platform):
    # A zip archive has no times before 1980.
    when = time.gmtime(max(int(os.environ["SOURCE_DATE_EPOCH"]), 315532800))[:6]
    path = Path(folder) / f"{NAME}-{version}-py3-none-{platform}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as wheel:
        for name, held, executable in contents(Path(tree), version, platform):
            entry = zipfile.ZipInfo(name, when)
            entry.create_system = 3  # Unix: the upper half of the attributes is the mode
            entry.external_attr = (0o100755 if executable else 0o100644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, held)


if __name__ == "__main__":
    if len(sys.argv) != 5 or "SOURCE_DATE_EPOCH" not in os.environ:
        raise SystemExit("usage: SOURCE_DATE_EPOCH=SECONDS wheel.py TREE FOLDER VERSION PLATFORM")
    main(*sys.argv[1:])
