"""The files that deploy/release.sh makes, each installed in a clean root: it starts, and it answers.

The portable programs are compiled here unless they are there already: two minutes with the compiler's cache of the release build.
"""
import functools
import hashlib
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import tarfile
import threading
import urllib.request
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MIRROR = os.environ.get("THERMOCLINE_DEBIAN_MIRROR", "http://deb.debian.org/debian")
RELEASE = ROOT / "deploy/release.sh"
PROGRAMS = ("thermocline", "thermoclined", "thermocline-load")
# What the wheel's tag and the packages promise: the symbols of Ubuntu 22.04.
NEWEST = {"GLIBC": (2, 35), "GLIBCXX": (3, 4, 30)}

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="debootstrap and chroot need root")
pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="deploy/release.sh makes a release for x86_64 on x86_64")


def shell(*args, timeout=400, **more):
    result = subprocess.run([str(a) for a in args], capture_output=True, text=True, timeout=timeout, **more)
    assert result.returncode == 0, f"{args}\n{result.stdout[-2000:]}\n{result.stderr[-3000:]}"
    return result.stdout


def sha256(held):
    return hashlib.sha256(held).hexdigest()


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    """A folder with the files of a release; THERMOCLINE_RELEASE names one that is there already."""
    if "THERMOCLINE_RELEASE" in os.environ:
        return Path(os.environ["THERMOCLINE_RELEASE"])
    folder = tmp_path_factory.mktemp("release")
    shell(RELEASE, "--uncommitted", folder, timeout=2900)
    return folder


def only(release, pattern):
    [path] = release.glob(pattern)
    return path


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A system of Debian's essential packages, with the two programs that install.sh takes from others."""
    folder = tmp_path_factory.mktemp("clean") / "root"
    try:
        shell("debootstrap", "--variant=minbase", "--include=xz-utils,curl", "bookworm", folder, MIRROR)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def inside(root, *command, user=None):
    """The command line that runs `command` in the root; its mounts end with it."""
    mounts = 'mkdir -p "$0/dev" && mount --bind /dev "$0/dev" && mount -t proc proc "$0/proc" && exec chroot "$@"'
    words = [f"--userspec={user}"] if user else []
    return ["unshare", "--mount", "sh", "-c", mounts, str(root), *words, str(root), *map(str, command)]


def answers(command, port_word="server.port=0"):
    """Starts the daemon, asks it for a completion over HTTP and stops it; returns the text."""
    with subprocess.Popen([*map(str, command), "--set", port_word, "--set", "grpc.address="], stderr=subprocess.PIPE, text=True) as daemon:
        watch = threading.Timer(120, daemon.kill)
        watch.start()
        try:
            log, url = [], None
            for line in daemon.stderr:
                log.append(line)
                if match := re.search(r"listening on http://[^:]+:(\d+)/", line):
                    url = f"http://127.0.0.1:{match[1]}/"
                if " ready: " in line:
                    break
            assert url and " ready: " in log[-1], "".join(log)
            body = {"prompt": "Once upon a time", "max_tokens": 12, "temperature": 0}
            request = urllib.request.Request(url + "v1/completions", json.dumps(body).encode(), {"content-type": "application/json"})
            with urllib.request.urlopen(request, timeout=60) as answer:
                [choice] = json.load(answer)["choices"]
            daemon.send_signal(signal.SIGTERM)
            daemon.stderr.read()
            assert daemon.wait() == 0, "".join(log)
        finally:
            watch.cancel()
            daemon.kill()
    assert choice["finish_reason"] == "length"
    return choice["text"]


@functools.cache
def expected():
    """The same completion by the programs of the build."""
    daemon = Path(os.environ.get("THERMOCLINE_BIN", ROOT / "build/release/bin")) / "thermoclined"
    return answers([daemon])


def version():
    return re.search(r"project\(thermocline VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())[1]


def test_sums_cover_every_file(release):
    lines = dict(reversed(line.split("  ")) for line in (release / "SHA256SUMS").read_text().splitlines())
    assert set(lines) == {p.name for p in release.iterdir()} - {"SHA256SUMS"} and len(lines) == 7
    for name, digest in lines.items():
        assert sha256((release / name).read_bytes()) == digest, name
    changes = (release / "CHANGELOG.md").read_text()
    assert re.search(rf"^## {re.escape(version())} \(\d{{4}}-\d\d-\d\d\)\n\n- \w", changes, re.M)


def test_the_bill_of_materials_names_these_libraries(release):
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator
    text = (release / "sbom.json").read_text()
    assert JsonStrictValidator(SchemaVersion.V1_5).validate_str(text) is None
    names = {component["name"] for component in json.loads(text)["components"] if component["scope"] == "required"}
    assert {"libc6", "libgrpc++1.51", "libicu72"} <= names


@pytest.fixture(scope="module")
def tree(release, tmp_path_factory):
    """The tarball, unpacked."""
    folder = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(only(release, "thermocline-*-linux-x86_64.tar.xz")) as tar:
        entries = tar.getmembers()
        tar.extractall(folder, filter="data")
    assert {(e.uid, e.gid) for e in entries} == {(0, 0)} and len({e.mtime for e in entries}) == 1
    names = [e.name for e in entries]
    assert names == sorted(names, key=lambda n: n.split("/"))
    [top] = folder.iterdir()
    assert top.name == f"thermocline-{version()}-linux-x86_64"
    return top


def test_no_symbol_is_newer_than_the_tag_says(release, tree):
    assert f"py3-none-manylinux_{NEWEST['GLIBC'][0]}_{NEWEST['GLIBC'][1]}_x86_64.whl" in only(release, "*.whl").name
    files = [*(tree / "bin").iterdir(), *(tree / "lib/thermocline").iterdir()]
    assert len(files) > 50
    needed = shell("objdump", "-T", *files)
    for family, newest in NEWEST.items():
        found = {tuple(map(int, number.split("."))) for number in re.findall(rf"\b{family}_([0-9.]+)", needed)}
        assert found and max(found) <= newest, family
    assert f"glibc {NEWEST['GLIBC'][0]}.{NEWEST['GLIBC'][1]}" in (tree / "share/thermocline/requirements").read_text()


def test_each_library_brings_its_licence(tree):
    notices = {p.name: p.read_text(errors="replace") for p in (tree / "share/thermocline/licences").iterdir()}
    owners = {re.match(r"[^:, ]+", shell("dpkg", "-S", f"*/{p.name}"))[0] for p in (tree / "lib/thermocline").iterdir()}
    assert len(owners) > 30 and owners <= set(notices)
    assert "Apache License" in notices["common-Apache-2.0"] and all(notices.values())


@needs_root
def test_tarball_anywhere(tree, root):
    place = root / "somewhere else"
    shutil.copytree(tree, place)
    for program in PROGRAMS:
        assert shell(*inside(root, f"/somewhere else/bin/{program}", "--version")).split() == [program, version()]
    assert answers(inside(root, "/somewhere else/bin/thermoclined")) == expected()


@needs_root
def test_install_sh(release, root):
    shutil.copytree(release, root / "release")
    said = shell(*inside(root, "sh", "/release/install.sh", "/release"))
    assert f"installed thermocline-{version()}-linux-x86_64 in /usr/local" in said
    assert shell(*inside(root, "thermoclined", "--version")).split()[-1] == version()
    assert answers(inside(root, "thermoclined", "--config", "/etc/thermocline/thermocline.yaml")) == expected()
    tampered = only(root / "release", "*.tar.xz")
    tampered.write_bytes(tampered.read_bytes()[:-1] + b"?")
    refused = subprocess.run(inside(root, "sh", "/release/install.sh", "/release", "--prefix", "/opt/new"), capture_output=True, text=True)
    assert refused.returncode == 1 and "SHA-256" in refused.stderr and not (root / "opt/new").exists()
    shell(*inside(root, "sh", "/release/install.sh", "--remove"))
    assert not [p for p in (root / "usr/local").rglob("*thermocline*")]
    shutil.rmtree(root / "release")


@needs_root
def test_deb(release, root):
    shutil.copy(only(release, "*.deb"), root / "first.deb")
    shell(*inside(root, "dpkg", "-i", "/first.deb"))
    assert shell(*inside(root, "/usr/bin/thermoclined", "--version")).split()[-1] == version()
    assert answers(inside(root, "/usr/bin/thermoclined", "--config", "/etc/thermocline/thermocline.yaml")) == expected()
    shell(*inside(root, "dpkg", "-P", "thermocline"))


@needs_root
def test_wheel(release, root):
    """Made on this system, run where no library of the build is."""
    env = root / "opt/env"
    venv.create(env, with_pip=True)
    said = shell(env / "bin/python", "-m", "pip", "install", "--no-index", only(release, "*.whl"))
    assert f"thermocline-server-{version()}" in said
    for program in PROGRAMS:
        assert shell(*inside(root, f"/opt/env/bin/{program}", "--version")).split() == [program, version()]
    assert answers(inside(root, "/opt/env/bin/thermoclined")) == expected()
    shell(env / "bin/python", "-m", "pip", "uninstall", "-q", "-y", "thermocline-server")
    assert not list(env.rglob("thermocline*"))


@needs_root
def test_image(release, tmp_path):
    """Digests and sizes as the layout says, and the daemon in a root that is its layers alone, as its user."""
    with tarfile.open(only(release, "*.oci.tar")) as tar:
        tar.extractall(tmp_path / "layout", filter="data")
    layout = tmp_path / "layout"

    def blob(descriptor):
        held = (layout / "blobs" / descriptor["digest"].replace(":", "/")).read_bytes()
        assert "sha256:" + sha256(held) == descriptor["digest"] and len(held) == descriptor["size"]
        return held

    assert json.loads((layout / "oci-layout").read_text()) == {"imageLayoutVersion": "1.0.0"}
    [entry] = json.loads((layout / "index.json").read_text())["manifests"]
    manifest = json.loads(blob(entry))
    image = json.loads(blob(manifest["config"]))
    root = tmp_path / "root"
    root.mkdir()
    for descriptor, identity in zip(manifest["layers"], image["rootfs"]["diff_ids"], strict=True):
        (tmp_path / "layer.gz").write_bytes(blob(descriptor))
        shell("gzip", "-dkf", tmp_path / "layer.gz")
        assert "sha256:" + sha256((tmp_path / "layer").read_bytes()) == identity
        shell("tar", "-xpf", tmp_path / "layer", "-C", root)
    config = image["config"]
    assert image["architecture"] == "amd64" and set(config["ExposedPorts"]) == {"8080/tcp", "9090/tcp"}
    assert config["Labels"]["org.opencontainers.image.version"] == version()
    assert not [p for p in (root / "usr/bin").iterdir() if p.name not in PROGRAMS]
    assert not re.match(r"^(0|root)\b", config["User"])
    try:
        assert shell(*inside(root, "/usr/bin/thermoclined", "--version", user=config["User"])).split()[-1] == version()
        assert answers(inside(root, *config["Entrypoint"], user=config["User"])) == expected()
    finally:
        shutil.rmtree(root)


def test_another_run_makes_the_same_tarball_and_wheel(release, tmp_path):
    if "THERMOCLINE_RELEASE" in os.environ:
        pytest.skip("the files of THERMOCLINE_RELEASE may be another commit's")
    shell(RELEASE, "--uncommitted", "--only", "tarball,wheel", tmp_path / "again", timeout=2900, umask=0o077, env={**os.environ, "TZ": "Asia/Tokyo"})
    again = (tmp_path / "again/SHA256SUMS").read_text().splitlines()
    assert len(again) == 2 and set(again) <= set((release / "SHA256SUMS").read_text().splitlines())


def test_uncommitted_changes_and_unknown_parts_are_refused(tmp_path):
    refused = subprocess.run([RELEASE, "--only", "tarball,weel", tmp_path], capture_output=True, text=True)
    assert refused.returncode == 1 and "'weel'" in refused.stderr and not list(tmp_path.iterdir())
    clone = tmp_path / "clone"
    shell("git", "clone", "-q", "--no-hardlinks", ROOT, clone)
    shutil.copy(RELEASE, clone / "deploy/release.sh")
    (clone / "README.md").write_text("changed")
    refused = subprocess.run([clone / "deploy/release.sh", tmp_path / "out"], capture_output=True, text=True)
    assert refused.returncode == 1 and "--uncommitted" in refused.stderr and not (tmp_path / "out").exists()
