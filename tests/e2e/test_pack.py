"""The bundle file as `thermocline pack` writes it, whatever happens meanwhile; traces and their replay."""
import json
import shutil
import signal
import struct
import subprocess
import xml.etree.ElementTree

import gguf
import numpy as np
import pytest
from conftest import ROOT, THERMOCLINE, run, run_json

OZ = ROOT / "tests/data/wizard_of_oz.txt"
CASTAGNOLI = [0] * 256
for byte in range(256):
    crc = byte
    for _ in range(8):
        crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    CASTAGNOLI[byte] = crc


def crc32c(data):
    crc = 0xFFFFFFFF
    for each in data:
        crc = crc >> 8 ^ CASTAGNOLI[(crc ^ each) & 255]
    return crc ^ 0xFFFFFFFF


class Bundle:
    """A bundle file, read by its grammar."""

    def __init__(self, path):
        self.data = path.read_bytes()
        magic, version, header_bytes, file_bytes, self.at = struct.unpack_from("<8sIIQQ", self.data)
        assert (magic, version, file_bytes, self.at % 4096) == (b"TCBUNDLE", 1, len(self.data), 0)
        self.header = json.loads(self.data[32:32 + header_bytes])
        self.arrays = (32 + header_bytes + 63) // 64 * 64

    def array(self, layer, name):
        where = self.header["layers"][layer][name]
        return np.frombuffer(self.data, np.uint32, where["count"], self.arrays + where["at"])

    def neuron(self, layer, neuron, size):
        layout, place = self.header["layout"], int(self.array(layer, "position")[neuron])
        groups = -(-self.header["intermediate_size"] // layout["neurons_per_group"])
        group, within = divmod(place, layout["neurons_per_group"])
        at = self.at + (layer * groups + group) * layout["group_stride"] + within * size
        return self.data[at:at + size]


@pytest.fixture
def tidepool(tmp_path):
    path = tmp_path / "tidepool.gguf"
    shutil.copy(ROOT / "config/models/tidepool.gguf", path)
    return path


@pytest.fixture(scope="module")
def synthetic(tmp_path_factory):
    """A model of many layers: packing it takes long enough to be ended."""
    path = tmp_path_factory.mktemp("synthetic") / "deep.gguf"
    run("synth", path, "--layers", 60, "--hidden-size", 256, "--intermediate-size", 1024, "--heads", 4, "--kv-heads", 4,
        "--vocab", 512, "--type", "f16", "--down", "rows")
    return path


def test_every_neuron_is_found_with_its_crc(synthetic, tmp_path):
    out = tmp_path / "deep.tcb"
    report = run_json("pack", synthetic, "--out", out, "--group-bytes", 10000)
    assert (report["kind"], report["neurons_per_group"], report["group_stride"]) == ("neurons", 6, 12288)
    assert report["padding_share"] == pytest.approx(1 - 1024 * 1536 / (171 * 12288))
    bundle = Bundle(out)
    tensors = {t.name: t.data for t in gguf.GGUFReader(synthetic).tensors}
    for layer in (0, 31, 59):
        assert sorted(bundle.array(layer, "position")) == list(range(1024))
        rows = [tensors[f"blk.{layer}.ffn_{name}.weight"] for name in ("gate", "up", "down_t")]
        for neuron in range(0, 1024, 41):
            parts = [row[neuron].tobytes() for row in rows]
            assert bundle.neuron(layer, neuron, 1536) == b"".join(parts)
            assert bundle.array(layer, "head_crc")[neuron] == crc32c(parts[0])
            assert bundle.array(layer, "rest_crc")[neuron] == crc32c(parts[1] + parts[2])


def test_neurons_that_fire_together_lie_together(tidepool):
    report = run_json("pack", tidepool, "--text", OZ, "--tokens", 3000, "--group-bytes", 4096)
    assert report["held_out_tokens"] > 500 and len(report["run_lengths"]) == 6
    for layer in report["run_lengths"]:
        assert layer["coactivation"] > 1.15 * layer["random"] and layer["coactivation"] > layer["frequency"]
    bundle = Bundle(tidepool.with_name("tidepool.gguf.tcb"))
    assert bundle.header["order"].startswith("coactivation") and bundle.header["profiled_tokens"] > 2900
    # The first places are the most active neurons, by frequency.
    counts, position = bundle.array(1, "activations"), bundle.array(1, "position")
    places = np.argsort(position)
    assert counts[places[0]] == counts.max()
    # A profile gives the order by frequency; nothing gives the model's, with a warning.
    run("profile", tidepool, "--text", OZ, "--tokens", 500)
    assert "frequency" in run_json("pack", tidepool)["order"]
    bare = run("pack", tidepool, "--order", "none", "--json")
    assert json.loads(bare.stdout)["order"] == "as in the model"
    tidepool.with_name("tidepool.gguf.tcp").unlink()
    assert "--text FILE or --trace TRACE" in run("pack", tidepool).stderr.decode()


def test_two_packs_give_equal_bytes(tidepool, tmp_path):
    for name, threads in (("a", 1), ("b", 2)):
        run("pack", tidepool, "--text", OZ, "--tokens", 1000, "--out", tmp_path / name, "--threads", threads)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def layers_done(part):
    """The number of complete layers in a part file; -1 before it has a header."""
    try:
        with open(part, "rb") as file:
            magic, layers = struct.unpack("<8sI", file.read(12))
    except (FileNotFoundError, struct.error):
        return -1
    return layers if magic == b"TCBPART1" else -1


def kill_midway(args, part):
    process = subprocess.Popen([THERMOCLINE, *map(str, args)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None and layers_done(part) < 2:
        pass
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, "it ended before it was killed"
    return layers_done(part)


def test_a_killed_pack_goes_on(synthetic, tmp_path):
    out, part, whole = tmp_path / "m.tcb", tmp_path / "m.tcb.part", tmp_path / "whole.tcb"
    run("pack", synthetic, "--out", whole)
    out.write_bytes(b"TCBUNDLE, an old one")
    done = kill_midway(["pack", synthetic, "--out", out], part)
    assert 2 <= done < 60
    assert out.read_bytes() == b"TCBUNDLE, an old one"
    report = run_json("pack", synthetic, "--out", out)
    assert report["resumed_layers"] == done
    assert out.read_bytes() == whole.read_bytes() and not part.exists()
    # With other settings it begins anew.
    kill_midway(["pack", synthetic, "--out", out], part)
    assert run_json("pack", synthetic, "--out", out, "--group-bytes", 4096)["resumed_layers"] == 0
    assert Bundle(out).header["layout"]["group_stride"] == 4096


def test_two_packs_at_once_are_refused(synthetic, tmp_path):
    out = tmp_path / "m.tcb"
    process = subprocess.Popen([THERMOCLINE, "pack", str(synthetic), "--out", str(out)], stdout=subprocess.DEVNULL)
    try:
        while process.poll() is None and layers_done(tmp_path / "m.tcb.part") < 0:
            pass
        process.send_signal(signal.SIGSTOP)
        second = run("pack", synthetic, "--out", out, check=False)
        assert second.returncode == 1 and "another process is writing it" in second.stderr.decode()
    finally:
        process.send_signal(signal.SIGCONT)
    assert process.wait() == 0
    Bundle(out)


def test_a_full_disk_leaves_the_old_file(synthetic, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", disk], capture_output=True).returncode != 0:
        pytest.skip("a small file system cannot be mounted here (needs root)")
    try:
        out = disk / "m.tcb"
        out.write_bytes(b"TCBUNDLE, an old one")
        failed = run("pack", synthetic, "--out", out, check=False)
        message = failed.stderr.decode()
        assert failed.returncode == 1 and f"{out}.part: takes 97083392 bytes" in message and "free" in message
        assert out.read_bytes() == b"TCBUNDLE, an old one" and [p.name for p in disk.iterdir()] == ["m.tcb"]
    finally:
        subprocess.run(["umount", disk], check=True)


def test_what_cannot_be_packed_is_said(tidepool, tmp_path):
    columns = tmp_path / "columns.gguf"
    run("convert", tidepool, columns, "--down", "columns", "--quantize", "f16")
    for args, text in (([columns], "--down rows"), ([tidepool, "--order", "coactivation"], "needs --trace or --text"),
                       ([tidepool, "--trace", tidepool], "not a trace"), ([tidepool, "--out", tidepool], "is not a bundle file"),
                       ([tidepool, "--order", "frequency"], "thermocline profile"), ([tmp_path / "none"], "none")):
        failed = run("pack", *args, check=False)
        assert failed.returncode == 1 and text in failed.stderr.decode(), failed.stderr.decode()
    assert not list(tmp_path.glob("*.tcb*"))


def test_a_model_without_zeros_is_packed_by_layers(tmp_path):
    model = tmp_path / "silu.gguf"
    run("convert", "tidepool", model, "--quantize", "q8_0", "--down", "columns")
    report = run_json("pack", model, "--activation", "silu")
    bundle = Bundle(tmp_path / "silu.gguf.tcb")
    assert report["kind"] == bundle.header["kind"] == "layers"
    size = bundle.header["image_bytes"]
    assert len(bundle.data) == bundle.at + 6 * size and report["bytes"] == len(bundle.data)
    for layer in range(6):
        image = bundle.data[bundle.at + layer * size:][:size]
        assert bundle.array(layer, "image_crc")[0] == crc32c(image[:1 << 20])


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trace")
    shutil.copy(ROOT / "config/models/tidepool.gguf", folder / "t.gguf")
    run("profile", folder / "t.gguf", "--text", OZ, "--tokens", 1500, "--record-trace", folder / "t.trace")
    return folder / "t.trace"


def test_replay(trace, tmp_path):
    picture = tmp_path / "replay.svg"
    report = run_json("plan", "--replay", trace, "--memory", "20%,0.5,100%", "--plot", picture)
    assert report["tokens"] >= 1500 and (report["num_hidden_layers"], report["intermediate_size"]) == (6, 1024)
    assert [row["memory"] for row in report["memory"]] == [0.2, 0.5, 1]
    for row in report["memory"]:
        rates = {name: policy["hit_rate"] for name, policy in row["policies"].items()}
        assert set(rates) == {"lru", "lfu", "slru", "window", "ours", "belady"}
        assert all(0 <= rate <= rates["belady"] for rate in rates.values())
        assert rates["ours"] > rates["lru"] or row["memory"] == 1
    half, full = report["memory"][1]["policies"], report["memory"][2]["policies"]
    assert half["belady"]["hit_rate"] - half["ours"]["hit_rate"] < 0.10
    assert len({policy["hit_rate"] for policy in full.values()}) == 1  # all fit
    xml.etree.ElementTree.parse(picture)
    assert ">-0" not in picture.read_text()
    table = run("plan", "--replay", trace, "--memory", "50%").stdout.decode()
    assert "belady" in table and " 50%" in table
    # The trace orders a bundle file as well.
    assert "coactivation" in run_json("pack", trace.with_name("t.gguf"), "--trace", trace)["order"]


def test_replay_refuses(trace, tmp_path):
    damaged = tmp_path / "d.trace"
    damaged.write_bytes(b"TCTRACE1" + b"\xff" * 40)
    for args, text in ((["--replay", damaged], "layers of"), (["--replay", OZ], "not a trace"), ([], "--replay TRACE"),
                       (["--replay", trace, "--memory", "120%"], "no share"), (["--replay", trace, "--memory", "20%,"], "no share"),
                       (["--replay", trace, "--plot", "x.png"], ".svg")):
        failed = run("plan", *args, check=False)
        assert failed.returncode == 1 and text in failed.stderr.decode(), failed.stderr.decode()
