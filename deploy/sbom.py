#!/usr/bin/env python3
"""What the programs are made of, as a CycloneDX document: the libraries that they load, the headers and the compiler that they were
built with, each with its version and licences as Debian's or Ubuntu's packages have them.

    deploy/sbom.py [BIN] [--root SYSTEM] > sbom.json      BIN: the folder of the programs [build/release/bin]

`--licences` prints a table instead. `--root` names the folder of the system that the programs were built against, where that is not
this one: build/arm64-root for 64-bit Arm. No program is run.
"""
import argparse
import json
import re
import subprocess
import sys
import uuid
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "deploy/release"))
from system_files import libraries, output, package_of  # noqa: E402

PROGRAMS = ("thermocline", "thermoclined", "thermocline-load")


def packages(files, system):
    """Installed packages with these files."""
    names = set()
    for path in files:
        name = package_of(path, system)
        if name is None:
            raise SystemExit(f"{path} is of no package: the document would not be whole")
        names.add(name)
    return sorted(names)


# Whose copyright files are prose; their main licence, which is that of what is loaded.
IN_PROSE = {"libc-ares2": "MIT", "libc6": "LGPL-2.1-or-later", "libgcrypt20": "LGPL-2.1-or-later", "g++": "GPL-3.0-or-later",
            "libgcc-s1": "GPL-3.0-or-later WITH GCC-exception-3.1", "libstdc++6": "GPL-3.0-or-later WITH GCC-exception-3.1"}


def licences(package, system):
    """Short names in the package's copyright file, as far as that can be read by machines."""
    path = Path(f"{system}/usr/share/doc/{package.split(':')[0]}/copyright")
    text = path.read_text(errors="replace") if path.exists() else ""
    names = {name.strip().rstrip(",") for line in re.findall(r"^License:[ \t]*(\S.*)$", text, re.M) for name in re.split(r",? (?:and|or) |, ", line)}
    if not names and package.split(":")[0] in IN_PROSE:
        return [IN_PROSE[package.split(":")[0]]]
    return sorted(names) or ["see /usr/share/doc/" + package.split(":")[0] + "/copyright"]


def database(system):
    return f"--admindir={system / 'var/lib/dpkg'}"


def component(package, kind, from_system):
    name, version, source, homepage = output("dpkg-query", database(from_system), "-W", "-f=${Package}\t${Version}\t${source:Package}\t${Homepage}", package).split("\t")
    system = dict(line.split("=", 1) for line in (from_system / "etc/os-release").read_text().splitlines() if "=" in line)
    distribution = system["ID"].strip('"')
    entry = {"type": "library", "bom-ref": f"{name}@{version}", "name": name, "version": version, "scope": kind,
             "purl": f"pkg:deb/{distribution}/{name}@{version.replace('+', '%2B').replace(':', '%3A')}?distro={distribution}-{system['VERSION_ID'].strip(chr(34))}",
             "licenses": [{"license": {"name": licence}} for licence in licences(package, from_system)],
             "properties": [{"name": "source package", "value": source}]}
    if homepage:
        entry["externalReferences"] = [{"type": "website", "url": homepage}]
    return entry


def installed(package, system):
    return subprocess.run(["dpkg-query", database(system), "-W", package], capture_output=True).returncode == 0


def document(folder, system):
    programs = [folder / name for name in PROGRAMS if (folder / name).exists()]
    if not programs:
        raise SystemExit(f"there are no programs in {folder}: build them, or name their folder")
    components = [component(p, "required", system) for p in packages(libraries(programs, system).values(), system)]
    known = {c["name"] for c in components}
    # Of these nothing is loaded, but their headers, or their output, are in the programs.
    built_with = output(str(ROOT / "deploy/install-deps.sh"), "--list").split()
    components += [component(p, "excluded", system) for p in built_with if installed(p, system) and p not in known]
    version = re.search(r"^project\(thermocline VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text(), re.M)[1]
    hashes = [{"type": "application", "bom-ref": p.name, "name": p.name, "hashes": [{"alg": "SHA-256", "content": output("sha256sum", str(p)).split()[0]}]} for p in programs]
    identity = uuid.uuid5(uuid.NAMESPACE_URL, "".join(h["hashes"][0]["content"] for h in hashes))
    return {"bomFormat": "CycloneDX", "specVersion": "1.5", "serialNumber": f"urn:uuid:{identity}", "version": 1,
            "metadata": {"component": {"type": "application", "bom-ref": "thermocline@" + version, "name": "thermocline", "version": version, "licenses": [{"license": {"id": "Apache-2.0"}}], "components": hashes}},
            "components": components,
            "dependencies": [{"ref": "thermocline@" + version, "dependsOn": [c["bom-ref"] for c in components if c["scope"] == "required"]}]}


def main(arguments):
    parser = argparse.ArgumentParser(description="A bill of materials of the programs, as CycloneDX.")
    parser.add_argument("bin", nargs="?", type=Path, default=ROOT / "build/release/bin", help="the folder of the programs")
    parser.add_argument("--root", type=Path, default=Path("/"), help="the system that they were built against")
    parser.add_argument("--licences", action="store_true", help="a table instead")
    given = parser.parse_args(arguments)
    made = document(given.bin, given.root)
    if not given.licences:
        print(json.dumps(made, indent=2))
        return
    for c in made["components"]:
        print(f"{c['name']:34} {c['version']:34} {'loaded' if c['scope'] == 'required' else 'built with':11} {', '.join(entry['license']['name'] for entry in c['licenses'])[:90]}")


if __name__ == "__main__":
    main(sys.argv[1:])
