#!/usr/bin/env python3
"""A container image of the daemon, as an archive of an OCI layout, made without a container engine.

    oci_image.py TREE ARCHIVE --version V --machine x86_64|aarch64 --revision COMMIT [--system-root FOLDER]

TREE is an installation as deploy/release.sh stages it. The image has two layers: the C library and the few other libraries
of the system that the programs load, with roots of certificates; and the programs. There is no shell and no package manager
in it. The same files give the same bytes: entries are sorted, owners are numbers, times are SOURCE_DATE_EPOCH.
*Source:* the OCI image specification 1.1, https://github.com/opencontainers/image-spec
"""
import argparse
import gzip
import hashlib
import io
import json
import os
import tarfile
from datetime import datetime, timezone
from pathlib import Path

from system_files import interpreter, libraries, package_of

USER = 10001  # as deploy/docker/Dockerfile has it
STATE = "var/lib/thermocline"
# An address that is not loopback needs keys or server.insecure: publish the port on 127.0.0.1, or give keys.
ENTRYPOINT = ["/usr/bin/thermoclined", "--config", "/etc/thermocline/thermocline.yaml", "--set", "server.host=0.0.0.0",
              "--set", "server.insecure=true", "--set", "server.allowed_hosts=localhost"]


class Layer:
    """Files by their path in the image."""

    def __init__(self, when):
        self.when, self.entries = when, {}

    def folder(self, path, mode=0o755, owner=0):
        parent = os.path.dirname(path)
        if parent and parent not in self.entries:
            self.folder(parent)
        self.entries[path] = (tarfile.DIRTYPE, mode, owner, b"", "")

    def file(self, path, held, mode=0o644):
        if os.path.dirname(path) and os.path.dirname(path) not in self.entries:
            self.folder(os.path.dirname(path))
        self.entries[path] = (tarfile.REGTYPE, mode, 0, held, "")

    def link(self, path, target):
        self.entries[path] = (tarfile.SYMTYPE, 0o777, 0, b"", target)

    def tar(self):
        return archive([(path, *self.entries[path]) for path in sorted(self.entries)], self.when)


def archive(entries, when):
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for path, kind, mode, owner, data, target in entries:
            entry = tarfile.TarInfo(path)
            entry.type, entry.mode, entry.uid, entry.gid, entry.linkname, entry.mtime = kind, mode, owner, owner, target, when
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return held.getvalue()


def system_layer(tree, system_root, when):
    layer = Layer(when)
    for path, mode, owner in (("etc", 0o755, 0), ("proc", 0o755, 0), ("run", 0o755, 0), ("tmp", 0o1777, 0), ("usr/bin", 0o755, 0), (STATE, 0o750, USER)):
        layer.folder(path, mode, owner)
    for name in ("bin", "lib", "lib64"):  # one home for programs and libraries, as in Debian
        layer.folder(f"usr/{name}")
        layer.link(name, f"usr/{name}")
    programs = sorted((tree / "bin").iterdir())
    loader, packages = interpreter(programs[0]), set()
    for name, path in libraries(programs, system_root, tree / "lib/thermocline").items():
        if path.parent == tree / "lib/thermocline":
            continue
        # The folder by which programs and the loader's defaults know it, without the link from /lib to /usr/lib.
        place = "usr/" + str(path.relative_to(system_root)).removeprefix("usr/")
        if "/" + name == loader[loader.rindex("/"):]:
            place = "usr" + loader  # where the kernel looks for it
        layer.file(place, path.read_bytes(), 0o755)
        packages.add((package_of(path, system_root) or "").split(":")[0])
    for package in sorted(packages - {""}):
        notice = system_root / f"usr/share/doc/{package}/copyright"
        if notice.exists():
            layer.file(f"usr/share/doc/{package}/copyright", notice.read_bytes())
    roots = sorted((system_root / "usr/share/ca-certificates/mozilla").glob("*.crt"))
    if not roots:
        raise SystemExit(f"oci_image.py: no roots of certificates below {system_root}: install ca-certificates there")
    layer.file("etc/ssl/certs/ca-certificates.crt", b"".join(path.read_bytes() for path in roots))
    layer.file("etc/os-release", (system_root / "etc/os-release").read_bytes())
    layer.file("etc/passwd", f"root:x:0:0:root:/:/sbin/nologin\nthermocline:x:{USER}:{USER}::/{STATE}:/sbin/nologin\n".encode())
    layer.file("etc/group", f"root:x:0:\nthermocline:x:{USER}:\n".encode())
    layer.file("etc/nsswitch.conf", b"passwd: files\ngroup: files\nhosts: files dns\n")
    return layer


def program_layer(tree, when):
    layer = Layer(when)
    for folder in ("bin", "lib/thermocline", "share/thermocline"):
        for path in (tree / folder).rglob("*"):
            if path.is_file():
                layer.file(f"usr/{path.relative_to(tree)}", path.read_bytes(), 0o755 if folder == "bin" else 0o644)
    layer.file("etc/thermocline/thermocline.yaml", (tree / "etc/thermocline/thermocline.yaml").read_bytes())
    layer.file("usr/share/doc/thermocline/copyright", (tree / "share/doc/thermocline/copyright").read_bytes())
    layer.file("usr/share/doc/thermocline/LICENSE", (tree / "LICENSE").read_bytes())
    return layer


def image(tree, version, machine, revision, system_root, when):
    """The blobs of an image by their digests, and its index."""
    blobs, layers, identities = {}, [], []

    def blob(held, kind):
        digest = "sha256:" + hashlib.sha256(held).hexdigest()
        blobs[digest] = held
        return {"mediaType": kind, "digest": digest, "size": len(held)}

    for layer in (system_layer(tree, system_root, when), program_layer(tree, when)):
        tar = layer.tar()
        identities.append("sha256:" + hashlib.sha256(tar).hexdigest())
        layers.append(blob(gzip.compress(tar, 6, mtime=0), "application/vnd.oci.image.layer.v1.tar+gzip"))
    created = datetime.fromtimestamp(when, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    platform = {"architecture": {"x86_64": "amd64", "aarch64": "arm64"}[machine], "os": "linux"}
    labels = {"org.opencontainers.image.title": "thermocline", "org.opencontainers.image.version": version, "org.opencontainers.image.revision": revision,
              "org.opencontainers.image.created": created, "org.opencontainers.image.licenses": "Apache-2.0",
              "org.opencontainers.image.description": "serves language models on one machine with low latency"}
    config = {"created": created, **platform,
              "config": {"User": f"{USER}:{USER}", "ExposedPorts": {"8080/tcp": {}, "9090/tcp": {}}, "Env": ["PATH=/usr/bin", f"HOME=/{STATE}"],
                         "Entrypoint": ENTRYPOINT, "Volumes": {f"/{STATE}": {}}, "WorkingDir": f"/{STATE}", "Labels": labels, "StopSignal": "SIGTERM"},
              "rootfs": {"type": "layers", "diff_ids": identities},
              "history": [{"created": created, "created_by": "deploy/release/oci_image.py: libraries of the system"},
                          {"created": created, "created_by": "deploy/release/oci_image.py: thermocline"}]}
    manifest = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "config": blob(json.dumps(config, sort_keys=True).encode(), "application/vnd.oci.image.config.v1+json"),
                "layers": layers, "annotations": labels}
    entry = blob(json.dumps(manifest, sort_keys=True).encode(), manifest["mediaType"])
    entry |= {"platform": platform, "annotations": {"org.opencontainers.image.ref.name": version, "io.containerd.image.name": f"docker.io/library/thermocline:{version}"}}
    return blobs, {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [entry]}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tree", type=Path)
    parser.add_argument("archive", type=Path)
    for name in ("version", "machine", "revision"):
        parser.add_argument("--" + name, required=True)
    parser.add_argument("--system-root", type=Path, default=Path("/"))
    given = parser.parse_args()
    when = int(os.environ["SOURCE_DATE_EPOCH"])
    blobs, index = image(given.tree, given.version, given.machine, given.revision, given.system_root, when)
    layout = Layer(when)
    layout.file("oci-layout", b'{"imageLayoutVersion": "1.0.0"}')
    layout.file("index.json", json.dumps(index, sort_keys=True).encode())
    for digest, held in blobs.items():
        layout.file("blobs/" + digest.replace(":", "/"), held)
    given.archive.write_bytes(layout.tar())


if __name__ == "__main__":
    main()
