"""Files of a Debian system that programs need: the shared libraries, by their ELF headers, and the packages they belong to.

Reads headers with readelf and never runs a program, so that the system may be one for another processor.
"""
import re
import subprocess
from pathlib import Path

FOLDERS = {"X86-64": "x86_64-linux-gnu", "AArch64": "aarch64-linux-gnu"}


def output(*command):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=True).stdout


def needed(path):
    """Names of the libraries that the file asks for."""
    return re.findall(r"\(NEEDED\).*\[(.*)\]", output("readelf", "-dW", path))


def interpreter(program):
    """The path of the loader, which the kernel starts for the program."""
    return re.search(r"program interpreter: (/[^]]+)\]", output("readelf", "-lW", program))[1]


def machine_of(path):
    """The processor of a program or library, a key of FOLDERS."""
    return re.search(r"Machine: +(?:Advanced Micro Devices )?(\S+)", output("readelf", "-h", path))[1]


def find(name, machine, system_root, beside=None):
    """The path of a library: in `beside`, if it is there, else in the system."""
    places = [system_root / folder / FOLDERS[machine] for folder in ("usr/lib", "lib")] + [system_root / folder for folder in ("lib64", "usr/lib64", "lib", "usr/lib")]
    for place in ([beside] if beside else []) + places:
        if (place / name).exists():
            return place / name
    raise SystemExit(f"{name} is not below {system_root}: install the package that has it there")


def libraries(programs, system_root=Path("/"), beside=None):
    """Paths of all libraries that the programs load, by name; those found in the folder `beside` hide the system's."""
    machine = machine_of(programs[0])
    found, todo = {}, list(programs)
    while todo:
        for name in needed(todo.pop()):
            if name not in found:
                found[name] = find(name, machine, system_root, beside)
                todo.append(found[name])
    return dict(sorted(found.items()))


def package_of(path, system_root=Path("/")):
    """The installed package that has the file; None if there is none."""
    real = Path("/") / path.resolve().relative_to(system_root.resolve())
    spellings = [str(real), str(real).removeprefix("/usr"), "/" + str(path.relative_to(system_root))]
    for spelling in spellings:  # the package may know the file by another name of its folder
        result = subprocess.run(["dpkg-query", f"--admindir={system_root}/var/lib/dpkg", "-S", spelling], capture_output=True, text=True)
        if result.returncode == 0:
            return result.stdout.split(": ")[0].split(",")[0]
    return None
