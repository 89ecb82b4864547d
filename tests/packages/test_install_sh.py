"""deploy/install.sh with small releases made here: the systems and files that it refuses, and the files that it leaves.

test_release.py installs the real programs.
"""
import hashlib
import http.server
import os
import platform
import subprocess
import tarfile
import threading
from functools import partial
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
INSTALL = ROOT / "deploy/install.sh"
PROGRAMS = ("thermocline", "thermoclined", "thermocline-load")


def make_release(folder, version, machine=None, says=None, glibc="2.17"):
    """A release whose programs are scripts that print their version."""
    name = f"thermocline-{version}-linux-{machine or platform.machine()}"
    tree = folder / "made" / name
    for part in ("bin", "share/thermocline", "share/man/man1", "share/bash-completion/completions", "etc/thermocline", "lib/systemd/system"):
        (tree / part).mkdir(parents=True)
    for program in PROGRAMS:
        (tree / "bin" / program).write_text(says or f"#!/bin/sh\necho {program} {version}\n")
        (tree / "bin" / program).chmod(0o755)
    (tree / "share/thermocline/requirements").write_text(f"machine {machine}\nglibc {glibc}\n")
    (tree / f"share/man/man1/thermocline-{version}.1.gz").write_text("page")
    (tree / "etc/thermocline/thermocline.yaml").write_text(f"# {version}\n")
    (tree / "lib/systemd/system/thermocline.service").write_text("[Service]\n")
    (tree / "install.sh").write_bytes(INSTALL.read_bytes())
    path = folder / f"{name}.tar.xz"
    with tarfile.open(path, "w:xz") as tar:
        tar.add(tree, name)
    (folder / "SHA256SUMS").write_text(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n")
    return path


def install(*arguments, fakes=None, **more):
    """Runs install.sh under dash, with programs of `fakes` (name: script) before those of the system."""
    environment = dict(os.environ)
    if fakes:
        folder = more["cwd"] / "fakes"
        folder.mkdir(exist_ok=True)
        for name, script in fakes.items():
            (folder / name).write_text(script)
            (folder / name).chmod(0o755)
        environment["PATH"] = f"{folder}:{environment['PATH']}"
    return subprocess.run(["sh", str(INSTALL), *map(str, arguments)], capture_output=True, text=True, timeout=60, env=environment, **more)


def left(prefix):
    """Files, folders and links below the prefix."""
    return sorted(str(p.relative_to(prefix)) for p in prefix.rglob("*")) if prefix.exists() else []


def version_of(prefix, program="thermoclined"):
    return subprocess.run([prefix / "bin" / program, "--version"], capture_output=True, text=True, check=True).stdout.split()[-1]


@pytest.fixture
def release(tmp_path):
    folder = tmp_path / "release"
    folder.mkdir()
    make_release(folder, "0.1.0")
    return folder


def test_install_twice_and_remove(release, tmp_path):
    prefix = tmp_path / "a prefix"
    seen = []
    for _ in range(2):
        result = install(release, "--prefix", prefix)
        assert result.returncode == 0, result.stderr
        seen.append(left(prefix))
    assert seen[0] == seen[1] and not [name for name in seen[0] if ".new" in name or ".current" in name]
    for program in PROGRAMS:
        assert version_of(prefix, program) == "0.1.0"
    assert f"{prefix}/bin/thermoclined --config {prefix}/etc/thermocline/thermocline.yaml" in result.stdout
    (prefix / "bin/another").write_text("not of the release")
    removed = subprocess.run(["sh", prefix / "lib/thermocline-release/current/install.sh", "--remove", "--prefix", prefix], capture_output=True, text=True)
    assert removed.returncode == 0 and str(prefix / "etc/thermocline") in removed.stdout
    files = [name for name in left(prefix) if not (prefix / name).is_dir()]
    assert files == ["bin/another", "etc/thermocline/thermocline.yaml"]
    assert install("--remove", "--prefix", prefix).returncode == 1


def test_an_upgrade_keeps_the_configuration_and_replaces_the_rest(release, tmp_path):
    prefix, newer = tmp_path / "prefix", tmp_path / "newer"
    newer.mkdir()
    make_release(newer, "0.2.0")
    assert install(release, "--prefix", prefix).returncode == 0
    (prefix / "etc/thermocline/thermocline.yaml").write_text("# mine\n")
    assert install(newer, "--prefix", prefix).returncode == 0
    assert version_of(prefix) == "0.2.0" and (prefix / "etc/thermocline/thermocline.yaml").read_text() == "# mine\n"
    assert not [name for name in left(prefix) if "0.1.0" in name]


def test_a_tampered_archive_is_refused(release, tmp_path):
    archive = next(release.glob("*.tar.xz"))
    archive.write_bytes(archive.read_bytes() + b"x")
    result = install(release, "--prefix", tmp_path / "prefix")
    assert result.returncode == 1 and "SHA-256" in result.stderr and archive.name in result.stderr
    assert left(tmp_path / "prefix") == []


@pytest.mark.parametrize("fakes, words", [
    ({"uname": '#!/bin/sh\nif [ "$1" = -m ]; then echo riscv64; else echo Linux; fi\n'}, ["riscv64", platform.machine()]),
    ({"getconf": '#!/bin/sh\nif [ "$1" = LONG_BIT ]; then echo 32; fi\n'}, ["32 bits"]),
    ({"getconf": '#!/bin/sh\nif [ "$1" = LONG_BIT ]; then echo 64; else echo glibc 2.31; fi\n'}, ["glibc 2.31", "glibc 2.35"]),
    ({"getconf": '#!/bin/sh\nif [ "$1" = LONG_BIT ]; then echo 64; else exit 1; fi\n'}, ["no glibc", "2.35"]),
])
def test_a_system_that_cannot_run_it_is_refused(tmp_path, fakes, words):
    make_release(tmp_path, "0.1.0", glibc="2.35")
    result = install(tmp_path, "--prefix", tmp_path / "prefix", fakes=fakes, cwd=tmp_path)
    assert result.returncode == 1
    for word in words:
        assert word in result.stderr
    assert left(tmp_path / "prefix") == []


def test_glibc_is_compared_by_numbers(tmp_path):
    """2.9 is older than 2.35, and 2.100 is not."""
    make_release(tmp_path, "0.1.0", glibc="2.35")
    for has, code in (("2.9", 1), ("2.34", 1), ("2.35", 0), ("2.100", 0)):
        fake = f'#!/bin/sh\nif [ "$1" = LONG_BIT ]; then echo 64; else echo glibc {has}; fi\n'
        assert install(tmp_path, "--prefix", tmp_path / has, fakes={"getconf": fake}, cwd=tmp_path).returncode == code, has


def test_programs_that_do_not_start_are_not_installed(tmp_path):
    make_release(tmp_path, "0.1.0", says="#!/bin/sh\necho no such library >&2\nexit 127\n")
    result = install(tmp_path, "--prefix", tmp_path / "prefix")
    assert result.returncode == 1 and "no such library" in result.stderr and left(tmp_path / "prefix") == []


def test_a_program_of_somebody_else_stays(release, tmp_path):
    (tmp_path / "prefix/bin").mkdir(parents=True)
    (tmp_path / "prefix/bin/thermocline").write_text("another project's")
    result = install(release, "--prefix", tmp_path / "prefix")
    assert result.returncode == 1 and "prefix/bin/thermocline" in result.stderr
    assert left(tmp_path / "prefix") == ["bin", "bin/thermocline"]


@pytest.mark.parametrize("tool", ["xz", "mv", "ln", "tar", "rm"])
@pytest.mark.parametrize("calls_before", [0, 1])
def test_a_killed_upgrade_leaves_a_whole_installation(release, tmp_path, tool, calls_before):
    prefix, newer = tmp_path / "prefix", tmp_path / "newer"
    newer.mkdir()
    make_release(newer, "0.2.0")
    assert install(release, "--prefix", prefix).returncode == 0
    real = subprocess.run(["which", tool], capture_output=True, text=True, check=True).stdout.strip()
    count = tmp_path / "count"
    kill = f'#!/bin/sh\necho >>{count}\nif [ $(wc -l <{count}) -gt {calls_before} ]; then kill -KILL $PPID; exit 1; fi\nexec {real} "$@"\n'
    killed = install(newer, "--prefix", prefix, fakes={tool: kill}, cwd=tmp_path)
    if (tool, calls_before) not in (("xz", 1), ("tar", 1)):  # called once
        assert killed.returncode == -9
    versions = {version_of(prefix, program) for program in PROGRAMS}
    assert versions in ({"0.1.0"}, {"0.2.0"})
    assert install(newer, "--prefix", prefix).returncode == 0
    assert version_of(prefix) == "0.2.0" and not [name for name in left(prefix) if "0.1.0" in name or ".new" in name]


def test_addresses(release, tmp_path):
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=str(release))
    handler.log_message = lambda *_: None
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for number, address in enumerate((f"http://127.0.0.1:{server.server_port}/", f"file://{release}", release)):
            prefix = tmp_path / str(number)
            result = install(address, "--prefix", prefix)
            assert result.returncode == 0, result.stderr
            assert version_of(prefix) == "0.1.0"
        missing = install(f"http://127.0.0.1:{server.server_port}/elsewhere", "--prefix", tmp_path / "none")
        assert missing.returncode == 1 and "elsewhere/SHA256SUMS" in missing.stderr
        server.shutdown()
    for address, reason in (("http://example.org/release", "not over http"), ("ftp://example.org/release", "begins with https"), (tmp_path / "nothing", "folder of a release")):
        refused = install(address, "--prefix", tmp_path / "none")
        assert refused.returncode == 1 and str(address) in refused.stderr and reason in refused.stderr
    assert left(tmp_path / "none") == []
