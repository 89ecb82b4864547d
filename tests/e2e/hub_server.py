"""A server on loopback that answers as the Hugging Face hub, its storage and Ollama's registry do, with faults on demand."""
import hashlib
import http.server
import json
import threading
import time

COMMIT = "c" * 40


def sha256(data):
    return hashlib.sha256(data).hexdigest()


class Hub:
    """`repos`: name -> {path: bytes}. `blobs`: files of the other host by path. `faults`: path -> a list of faults, one for each request.
    The hub is 127.0.0.1 and redirects to its storage, which is `localhost`: another host for the client."""

    def __init__(self):
        self.repos, self.blobs, self.manifests, self.faults, self.requests, self.tree_edits = {}, {}, {}, {}, [], {}
        hub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args):
                pass

            def do_GET(self):
                try:
                    hub.answer(self)
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self.storage = f"http://localhost:{self.port}"

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def seen(self, part):
        return [r for r in self.requests if part in r["path"]]

    def answer(self, handler):
        path = handler.path.split("?")[0]
        self.requests.append({"path": path, "host": handler.headers["Host"], "token": handler.headers["Authorization"], "range": handler.headers["Range"]})
        faults = self.faults.get(path, [])
        fault = (faults.pop(0) if len(faults) > 1 else faults[0]) if faults else None
        if isinstance(fault, int):
            return self.send(handler, fault, b"no", {"Retry-After": "1"} if fault == 429 else {})
        if fault == "loop":
            return self.send(handler, 302, b"", {"Location": path})
        parts = path.strip("/").split("/")
        if parts[0] == "v2" and "manifests" in parts:
            manifest = self.manifests.get("/".join(parts[1:-2]) + ":" + parts[-1])
            return self.send(handler, 404, b"") if manifest is None else self.send(handler, 200, json.dumps(manifest).encode())
        if parts[0] == "v2":
            return self.send(handler, 307, b"", {"Location": f"{self.storage}/storage/{parts[-1]}"})
        if parts[0] == "api":
            return self.answer_api(handler, parts, fault)
        if parts[0] == "storage" or fault is not None:
            return self.send_file(handler, self.blobs["/".join(parts[1:])], fault)
        repo, name = "/".join(parts[:2]), "/".join(parts[4:])
        data = self.repos[repo][name]
        self.blobs[sha256(data)] = data
        return self.send(handler, 302, b"", {"Location": f"{self.storage}/storage/{sha256(data)}"})

    def answer_api(self, handler, parts, fault):
        repo = "/".join(parts[2:4])
        if fault == "huge":
            handler.send_response(200)
            handler.end_headers()
            while True:
                handler.wfile.write(b"[" * 65536)
        if repo not in self.repos:
            return self.send(handler, 404, b"{}")
        if parts[4] == "refs":
            return self.send(handler, 200, json.dumps({"branches": [{"name": "main", "ref": "refs/heads/main", "targetCommit": COMMIT}], "tags": []}).encode())
        tree = []
        for path, data in self.repos[repo].items():
            entry = {"type": "file", "path": path, "size": len(data), "oid": hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()}
            if path.endswith((".gguf", ".safetensors")):
                entry["lfs"] = {"oid": sha256(data), "size": len(data), "pointerSize": 135}
            entry.update(self.tree_edits.get(path, {}))
            tree.append(entry)
        return self.send(handler, 200, json.dumps(tree).encode())

    def send(self, handler, status, body, headers=()):
        handler.send_response(status)
        for name, value in dict(headers).items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    def send_file(self, handler, data, fault):
        """Faults: "break" (half of it), "endless" (more than promised), "no range" (200 for a range), "slow", ("etag", TAG), "no length"."""
        etag = f'"{fault[1]}"' if isinstance(fault, tuple) else f'"{sha256(data)[:16]}"'
        begin = 0
        wanted = handler.headers["Range"]
        if wanted and fault != "no range" and handler.headers.get("If-Range", etag) == etag:
            begin = int(wanted.removeprefix("bytes=").rstrip("-"))
        body = data[begin:]
        handler.send_response(206 if begin else 200)
        if begin:
            handler.send_header("Content-Range", f"bytes {begin}-{len(data) - 1}/{len(data)}")
        handler.send_header("ETag", etag)
        if fault not in ("endless", "no length"):
            handler.send_header("Content-Length", str(len(body)))
        else:
            handler.send_header("Connection", "close")
            handler.close_connection = True
        handler.end_headers()
        if fault == "break":
            handler.wfile.write(body[: len(body) // 2])
            handler.wfile.flush()
            handler.close_connection = True
            handler.connection.close()
            return
        if fault == "slow":
            handler.wfile.write(body[: len(body) // 2])
            handler.wfile.flush()
            time.sleep(1.5)
            body = body[len(body) // 2 :]
        handler.wfile.write(body)
        while fault == "endless":
            handler.wfile.write(b"x" * 65536)
