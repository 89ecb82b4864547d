"""The Debian package in a clean root: installed, run by a real systemd, upgraded, purged."""
import gzip
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("THERMOCLINE_BIN", ROOT / "build/release/bin")).parent
MIRROR = os.environ.get("THERMOCLINE_DEBIAN_MIRROR", "http://deb.debian.org/debian")
# What the checks need besides the package itself.
TOOLS = "ca-certificates,curl,dbus,procps,systemd,systemd-sysv"


def shell(*args, timeout=400, **more):
    result = subprocess.run([str(a) for a in args], capture_output=True, text=True, timeout=timeout, **more)
    assert result.returncode == 0, f"{args}\n{result.stdout[-2000:]}\n{result.stderr[-2000:]}"
    return result.stdout


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """The .deb that cpack makes of this build."""
    folder = tmp_path_factory.mktemp("package")
    shell("cpack", "--config", BUILD / "CPackConfig.cmake", "-B", folder, cwd=BUILD)
    [deb] = folder.glob("*.deb")
    return deb


@pytest.fixture(scope="module")
def contents(package, tmp_path_factory):
    folder = tmp_path_factory.mktemp("contents")
    shell("dpkg-deb", "-x", package, folder)
    return folder


def test_name_and_control(package):
    version = re.search(r"project\(thermocline VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
    arch = shell("dpkg", "--print-architecture").strip()
    assert package.name == f"thermocline_{version}_{arch}.deb"
    fields = shell("dpkg-deb", "-f", package)
    assert re.search(r"^Depends: .*libgrpc\+\+1", fields, re.M) and re.search(r"libyaml-cpp", fields)
    newest = re.match(r"thermocline \(([0-9.]+)\)", (ROOT / "deploy/debian/changelog").read_text())[1]
    assert newest == version


def test_lintian_finds_nothing(package):
    result = subprocess.run(["lintian", "--allow-root", "--fail-on", "error,warning", package], capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stdout + result.stderr


def test_each_program_and_subcommand_has_a_man_page(contents):
    pages = {p.name.removesuffix(".1.gz"): gzip.decompress(p.read_bytes()).decode() for p in (contents / "usr/share/man/man1").iterdir()}
    programs = {p.name for p in (contents / "usr/bin").iterdir()}
    help_text = shell(contents / "usr/bin/thermocline", "--help")
    subcommands = re.findall(r"^  ([a-z-]+) ", help_text[help_text.index("Subcommands:"):], re.M)
    assert set(pages) == programs | {f"thermocline-{s}" for s in subcommands} and len(subcommands) > 10
    for name, page in pages.items():
        assert name.replace("-", "\\-") in page or name in page
        assert r"\-\-help" in page, name


def test_examples_are_the_files_of_deploy(contents):
    examples = contents / "usr/share/doc/thermocline/examples"
    for name in ("systemd/jetson.conf", "haproxy/haproxy.cfg", "envoy/envoy.yaml", "kubernetes/statefulset.yaml", "prometheus/rules.yml", "grafana/dashboards"):
        assert (examples / name).exists() or (examples / f"{name}.gz").exists(), name
    assert (examples / "haproxy/haproxy.cfg").read_bytes() == (ROOT / "deploy/haproxy/haproxy.cfg").read_bytes()
    for path in (ROOT / "examples").iterdir():
        if path.suffix in (".py", ".sh", ".jsonl", ".md") and not path.name.endswith(".answers.jsonl"):
            installed = examples / path.name
            assert installed.read_bytes() == path.read_bytes() and os.access(installed, os.X_OK) == os.access(path, os.X_OK), path.name
    proto = "proto/thermocline/v1/inference.proto"  # beside the examples, as in a clone
    assert (examples.parent / proto).read_bytes() == (ROOT / proto).read_bytes()


def test_the_pages_keep_their_places(contents):
    """README.md and docs/README.md are two pages, and a link from one page to another leads to it."""
    pages = contents / "usr/share/doc/thermocline"
    plain = lambda path: gzip.decompress(Path(f"{path}.gz").read_bytes()) if Path(f"{path}.gz").exists() else path.read_bytes()  # noqa: E731
    for name in ("README.md", "SECURITY.md", "docs/README.md", "docs/operations.md", "docs/page.png", "docs/house.svg"):
        assert plain(pages / name) == (ROOT / name).read_bytes(), name


def complete(contents, *words):
    """What bash offers for the last of `words`."""
    script = f"""source {contents}/usr/share/bash-completion/completions/thermocline
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _thermocline "$1"; printf '%s\\n' "${{COMPREPLY[@]}}" """
    env = {**os.environ, "PATH": f"{contents}/usr/bin:{os.environ['PATH']}"}
    return shell("bash", "-c", script, "bash", *words, env=env).split()


def test_completion_offers_what_the_programs_have(contents):
    assert complete(contents, "thermocline", "pr") == ["profile"]
    assert complete(contents, "thermocline", "run", "tide") == ["tidepool", "tidepool-draft", "tidepool-experts"]
    assert complete(contents, "thermocline", "run", "tidepool", "--kv-type", "q") == ["q8_0", "q4_0"]
    assert "--ffn-mode" in complete(contents, "thermocline", "bench", "tidepool", "--ffn")
    assert complete(contents, "thermoclined", "--che") == ["--check"]
    for program in ("thermoclined", "thermocline-load"):
        assert (contents / f"usr/share/bash-completion/completions/{program}").is_symlink()


def test_a_prefix_of_ones_own(tmp_path):
    """`cmake --install` writes nothing outside the prefix, and keeps a configuration that is there."""
    for note in ("first", "# mine\n"):
        shell("cmake", "--install", BUILD, "--prefix", tmp_path / "opt")
        config = tmp_path / "opt/etc/thermocline/thermocline.yaml"
        if note == "first":
            config.write_text("# mine\n")
        else:
            assert config.read_text() == note
    unit = (tmp_path / "opt/lib/systemd/system/thermocline.service").read_text()
    assert f"ExecStart={tmp_path}/opt/bin/thermoclined --config {tmp_path}/opt/etc/thermocline/thermocline.yaml" in unit
    text = shell(tmp_path / "opt/bin/thermocline", "run", "tidepool", "-p", "Once", "-n", "4", "--temperature", "0")
    assert text.strip()


def bump(package, folder):
    """The same package with a later version."""
    tree = folder / "newer"
    shell("dpkg-deb", "-R", package, tree)
    control = tree / "DEBIAN/control"
    control.write_text(re.sub(r"^Version: (.*)$", r"Version: \1+later", control.read_text(), flags=re.M))
    shell("dpkg-deb", "-b", "-Zgzip", "-z1", tree, folder / "newer.deb")
    return folder / "newer.deb"


def test_in_a_clean_root_under_systemd(package, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("debootstrap and systemd-nspawn need root")
    root = tmp_path / "root"
    try:
        shell("debootstrap", "--variant=minbase", f"--include={TOOLS}", "bookworm", root, MIRROR)
        shutil.copy(package, root / "root/first.deb")
        shutil.copy(bump(package, tmp_path), root / "root/newer.deb")
        shutil.copy(Path(__file__).parent / "inside.sh", root / "inside.sh")
        shell("chroot", root, "sh", "-c",
              "export DEBIAN_FRONTEND=noninteractive; apt-get update -qq && apt-get install -y -qq --no-install-recommends /root/first.deb")
        (root / "etc/systemd/system/inside.service").write_text(
            "[Unit]\nAfter=multi-user.target\n[Service]\nType=oneshot\nExecStart=/bin/bash /inside.sh\nTimeoutStartSec=1000\n")
        os.symlink("/etc/systemd/system/inside.service", root / "etc/systemd/system/multi-user.target.wants/inside.service")
        nspawn = ["systemd-nspawn", "-q", "-D", root, "--register=no", "--keep-unit", "--private-network"]
        probe = subprocess.run([*nspawn, "true"], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120)
        if probe.returncode != 0:
            pytest.skip("systemd-nspawn cannot be used here: " + (probe.stderr + probe.stdout).strip()[-300:])
        boot = subprocess.run([*nspawn, "-b"], capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL, timeout=1200)
        assert (root / "results").exists(), (boot.stderr + boot.stdout)[-3000:]
        results, errors = (root / "results").read_text(), (root / "errors").read_text()
    finally:
        shutil.rmtree(root, ignore_errors=True)
    lines = results.splitlines()
    assert lines and lines[-1] == "end", results + errors
    failed = [line for line in lines if not line.startswith("ok ") and line != "end"]
    assert not failed, "\n".join(failed) + "\n" + errors
    assert len(lines) >= 35
