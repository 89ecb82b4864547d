"""`thermocline bench --flash`: the device behind a file, measured with the real system under it."""
import contextlib
import ctypes
import json
import os
import shutil
import struct
import subprocess

import pytest
from conftest import THERMOCLINE, TIDEPOOL_FOLDER, run

CHUNKS = [4096 << i for i in range(9)]
DEPTHS = [1, 4, 16, 32, 64, 128, 256]
SYS_IO_URING_SETUP = 425


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Curves are remembered here, and nothing else's are found."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("THERMOCLINE_FLASH_IO", raising=False)
    return tmp_path / "cache/thermocline/flash"


@pytest.fixture
def blocks(tmp_path):
    """A file large enough to be measured as it is."""
    path = tmp_path / "some blocks.bin"
    path.write_bytes(os.urandom(20 << 20))
    return path


def bench(*args, deny_io_uring=False):
    result = subprocess.run([THERMOCLINE, "bench", "--flash", *map(str, args), "--json"], capture_output=True, timeout=120,
                            preexec_fn=forbid_io_uring if deny_io_uring else None)
    assert result.returncode == 0, result.stderr.decode()
    report = json.loads(result.stdout)
    check(report)
    return report


def check(report):
    """Checks the contents of a report, and the relations of its numbers."""
    assert report["chunk_bytes"] == CHUNKS and report["depths"] == DEPTHS
    assert report["sequential_bytes_per_s"] > 0 and report["alignment"] >= 512
    for chunk, rates, best in zip(CHUNKS, report["reads_per_s"], report["best"], strict=True):
        assert len(rates) == len(DEPTHS) and rates[0] > 0
        assert best["chunk_bytes"] == chunk
        assert best["gb_s"] == pytest.approx(max(rates) * chunk / 1e9, rel=1e-6)
        assert best["read_s"] == pytest.approx(1 / max(rates), rel=1e-6)
        enough = next(d for d, rate in zip(DEPTHS, rates) if rate >= 0.95 * max(rates))
        assert best["depth"] == enough


def forbid_io_uring():
    """From here on io_uring_setup fails with EPERM, as in a container."""
    libc = ctypes.CDLL(None, use_errno=True)
    statements = [(0x20, 0, 0, 0), (0x15, 0, 1, SYS_IO_URING_SETUP), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7FFF0000)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *s) for s in statements))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(statements), ctypes.addressof(code)))
    if libc.prctl(38, 1, 0, 0, 0) != 0 or libc.prctl(22, 2, program, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "seccomp")


def test_a_file_is_measured_and_the_device_remembered(blocks, cache):
    report = bench(blocks)
    assert report["measured_by"] == str(blocks) and report["file_bytes"] == 20 << 20
    remembered = [json.loads(p.read_text()) for p in cache.iterdir()]
    assert [r["reads_per_s"] for r in remembered] == [report["reads_per_s"]]


def test_the_table(blocks):
    text = run("bench", "--flash", blocks).stdout.decode()
    assert str(blocks) in text and "best depth" in text and "one pass through the file" in text
    rows = [line for line in text.splitlines() if line.startswith(("4 KiB", "512 KiB", "1 MiB"))]
    assert len(rows) == 3 and all(len(row.split()) == 2 + len(DEPTHS) + 2 for row in rows)


def test_the_bundle_file_stands_for_the_model(tmp_path, blocks):
    model = tmp_path / "model.gguf"
    model.write_bytes(b"x")
    blocks.rename(tmp_path / "model.gguf.tcb")
    assert bench(model)["measured_by"] == str(model) + ".tcb"


def test_small_models_and_folders_are_measured_by_a_temporary_file(tmp_path):
    for name in ("tidepool copy.gguf", ""):
        folder = tmp_path / f"models {bool(name)}"
        shutil.copytree(TIDEPOOL_FOLDER, folder)
        if name:
            shutil.copy(folder / "config.json", folder / name)
        before = sorted(os.listdir(folder))
        report = bench(folder / name)
        assert report["measured_by"] == f"a temporary file of 256 MiB in {folder}" and report["file_bytes"] == 256 << 20
        assert sorted(os.listdir(folder)) == before


def test_the_curve_is_drawn(tmp_path, blocks):
    plot = tmp_path / "curve.svg"
    bench(blocks, "--plot", plot)
    text = plot.read_text()
    assert text.startswith("<svg") and "depth 256" in text and "512 KiB" in text
    assert b"--flash" in run("bench", "tidepool", "--plot", plot, check=False).stderr


def test_files_that_are_not_there():
    result = run("bench", "--flash", "/no/such/file", check=False)
    assert result.returncode == 1 and b"/no/such/file" in result.stderr


def test_the_environment_chooses_the_way(blocks, monkeypatch):
    monkeypatch.setenv("THERMOCLINE_FLASH_IO", "pread")
    assert bench(blocks)["method"] == "pread"
    monkeypatch.setenv("THERMOCLINE_FLASH_IO", "aio")
    result = run("bench", "--flash", blocks, check=False)
    assert result.returncode == 1 and b"aio" in result.stderr and b"pread" in result.stderr


def test_where_io_uring_is_denied_threads_read(blocks, monkeypatch):
    try:
        assert bench(blocks, deny_io_uring=True)["method"] == "pread"
    except subprocess.SubprocessError as error:
        pytest.skip(f"seccomp is not allowed here: {error}")
    monkeypatch.setenv("THERMOCLINE_FLASH_IO", "io_uring")
    result = subprocess.run([THERMOCLINE, "bench", "--flash", str(blocks)], capture_output=True, timeout=60, preexec_fn=forbid_io_uring)
    assert result.returncode == 1 and b"io_uring_setup: Operation not permitted" in result.stderr


@contextlib.contextmanager
def loop_disk(folder, block_bytes):
    """A mounted ext4 on a loop device with logical blocks of this size."""
    image, mount = folder / "disk.img", folder / "disk"
    mount.mkdir()
    with open(image, "wb") as file:
        file.truncate(64 << 20)

    def command(*args):
        return subprocess.run(args, capture_output=True, text=True, timeout=60)

    if os.getuid() != 0 or any(shutil.which(c) is None for c in ("losetup", "mkfs.ext4", "mount")):
        pytest.skip("a loop device needs root, losetup, mkfs.ext4 and mount")
    attached = command("losetup", "-f", "--show", "-b", str(block_bytes), str(image))
    if attached.returncode != 0:
        pytest.skip(f"no loop device: {attached.stderr.strip()}")
    device = attached.stdout.strip()
    try:
        assert command("mkfs.ext4", "-q", "-b", "4096", device).returncode == 0
        mounted = command("mount", device, str(mount))
        if mounted.returncode != 0:
            pytest.skip(f"mount is not allowed: {mounted.stderr.strip()}")
        try:
            yield mount
        finally:
            unmounted = command("umount", str(mount))
            if unmounted.returncode != 0:
                command("umount", "-l", str(mount))
            assert unmounted.returncode == 0, unmounted.stderr
    finally:
        command("losetup", "-d", device)


@pytest.mark.parametrize("method", ["io_uring", "pread"])
def test_a_disk_with_large_logical_blocks(tmp_path, blocks, method, monkeypatch):
    """Reads in multiples of 512 fail there. Unmounting fails if anything of ours still holds the file."""
    if method == "pread":
        monkeypatch.setenv("THERMOCLINE_FLASH_IO", "pread")
    with loop_disk(tmp_path, 4096) as disk:
        shutil.copy(blocks, disk / "blocks.bin")
        os.sync()
        report = bench(disk / "blocks.bin")
    assert report["direct"] and report["alignment"] == 4096
    assert "loop" in report["device"]


