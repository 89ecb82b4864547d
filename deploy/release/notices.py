#!/usr/bin/env python3
"""Copies the copyright notices of the packages whose libraries an installation brings along, and the licences that they refer to.

    notices.py LIBRARY_FOLDER OUT [SYSTEM]       SYSTEM: the folder of the system that the libraries were copied from [/]
"""
import re
import shutil
import sys
from pathlib import Path

from system_files import find, machine_of, package_of


def main(folder, out, system=Path("/")):
    out.mkdir(parents=True, exist_ok=True)
    texts, common = "", system / "usr/share/common-licenses"
    for library in sorted(folder.iterdir()):
        origin = find(library.name, machine_of(library), system)
        package = package_of(origin, system)
        if package is None:
            raise SystemExit(f"notices.py: {origin} is of no package, so its licence is unknown: install the package that has it")
        name = package.split(":")[0]
        if not (out / name).exists():
            shutil.copyfile(system / f"usr/share/doc/{name}/copyright", out / name)
            texts += (out / name).read_text(errors="replace")
    for licence in sorted(set(re.findall(r"/usr/share/common-licenses/([A-Za-z]+(?:-[0-9]+(?:\.[0-9]+)?)?)", texts))):
        if (common / licence).exists():
            shutil.copyfile(common / licence, out / f"common-{licence}")


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        raise SystemExit("usage: notices.py LIBRARY_FOLDER OUT [SYSTEM]")
    main(*map(Path, sys.argv[1:]))
