"""No request is served without a key, and no secret leaks: every route, every method, every place where one could show."""
import itertools
import json
import os
import re
import socket
import stat
import subprocess

import httpx
import pytest
from conftest import BIN, ROOT, Daemon, wait_until

KEYS = {"alice": "alices-key-0123456789", "ops": "the-operators-key-0123"}
PROMPT = "a sentence that nobody else may read"
METHODS = ("GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE", "CONNECT", "PROPFIND")
OPEN = {("GET", "/"), ("HEAD", "/"), ("GET", "/health/live"), ("HEAD", "/health/live")}


def routes():
    tables = "".join(path.read_text() for path in sorted(ROOT.glob("server/*/routes.cc")))
    found = re.findall(r'\{"([A-Z]+)",\s*"(/[^"]*)"', tables)
    assert len(found) > 40
    return found


@pytest.fixture(scope="module")
def key_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("keys") / "keys"
    lines = []
    for name, mark in (("alice", ""), ("ops", ":admin")):
        out = subprocess.run([str(BIN / "thermoclined"), "--hash-key", name], input=KEYS[name].encode() + b"\n", capture_output=True, check=True)
        lines.append(out.stdout.decode().strip() + mark + "\n")
    path.write_text("".join(lines))
    return path


@pytest.fixture(scope="module")
def locked(key_file):
    with Daemon(f"server.api_keys_file={key_file}", "log.level=debug", "grpc.address=127.0.0.1:0", "grpc.reflection=true") as d:
        yield d


def ask(d, method, path, headers=()):
    """The status of a request as it is written here; 0: none came."""
    with socket.create_connection(("127.0.0.1", d.port), timeout=20) as s:
        lines = [f"{method} {path} HTTP/1.1", "Host: localhost", "Connection: close", "Content-Length: 0", *headers]
        s.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        out = s.recv(65536)
        return int(out.split()[1]) if out else 0


WRONG = [[], ["Authorization: Bearer wrong"], ["Authorization: Bearer "], [f"Authorization: Bearer {KEYS['alice'][:-1]}"], [f"Authorization: Bearer {KEYS['alice'].upper()}"],
         [f"Authorization: Bearer {KEYS['alice']} "[:-2]], ["x-api-key: wrong"], [f"Cookie: key={KEYS['alice']}"]]


@pytest.mark.parametrize("headers", WRONG, ids=range(len(WRONG)))
def test_every_method_of_every_route_without_a_right_key(locked, headers):
    paths = sorted({path for _, path in routes()} | {"/nowhere", "/admin", "/admin/", "/v1/", "//v1/models", "/v1//models", "/V1/models", "/v1/models/", "/metrics/", "/health/live/..", "*"})
    for method, path in itertools.product(METHODS, paths):
        code = ask(locked, method, path.replace("{id}", "tidepool"), headers)
        if (method, path) in OPEN:
            assert code == 200, (method, path)
        else:
            if path in {p for _, p in OPEN}:
                assert code in (204, 400, 401, 405), (method, path, code)
                continue
            assert code in (400, 401, 405), (method, path, code)
            assert code == 401 or method in ("TRACE", "CONNECT", "OPTIONS", "PROPFIND") or path == "*", (method, path, code)


def test_a_key_of_lower_rights(locked):
    key = [f"Authorization: Bearer {KEYS['alice']}"]
    admin = [(method, path) for method, path in routes() if path.startswith("/admin/")]
    assert len(admin) >= 7
    for method, path in admin:
        assert ask(locked, method, path, key) == 403, (method, path)
        for spelled in (path.upper(), path + "/", "/" + path, "/." + path, path.replace("/", "%2F"), "/v1/.." + path, path + "?x", path.replace("a", "%61", 1)):
            assert ask(locked, method, spelled, key) in (400, 403, 404, 405), spelled
    assert ask(locked, "GET", "/admin/requests", [f"Authorization: Bearer {KEYS['ops']}"]) == 200


def test_grpc_without_a_right_key(locked):
    """Health and the interface's description are public (docs/grpc.md)."""
    import grpc
    wait_until(lambda: locked.grpc_port)
    channel = grpc.insecure_channel(f"127.0.0.1:{locked.grpc_port}")
    for metadata in ((), (("authorization", "Bearer wrong"),), (("authorization", KEYS["alice"]),)):
        for method in ("Generate", "Tokenize", "Detokenize", "CountTokens", "GetModel", "GetStats", "Cancel"):
            call = channel.unary_unary(f"/thermocline.v1.Inference/{method}")
            with pytest.raises(grpc.RpcError) as error:
                call(b"", metadata=metadata, timeout=20)
            assert error.value.code() == grpc.StatusCode.UNAUTHENTICATED, method


NAMES = ["../../../../etc/passwd", "..%2f..%2f..%2fetc%2fpasswd", "%2e%2e/%2e%2e/etc/passwd", "/etc/passwd", "file:///etc/passwd", "..\\..\\windows\\win.ini", "sha256:../../etc/passwd",
         "tidepool/../../../etc/passwd", "tidepool\x00.gguf", "....//....//etc/passwd", "~root/.ssh/id_rsa", "$(id)", "`id`", "|id", "\\\\host\\share"]


@pytest.mark.parametrize("name", NAMES)
def test_names_are_not_paths(locked, name):
    """CVE-2024-37032, CVE-2026-7020: a name is compared, never opened."""
    http = httpx.Client(base_url=locked.url, headers={"authorization": "Bearer " + KEYS["alice"]}, timeout=30)
    bodies = {"/v1/chat/completions": {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1}, "/v1/completions": {"prompt": "a", "max_tokens": 1}, "/v1/messages": {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1},
              "/v1/responses": {"input": "a", "max_output_tokens": 1}, "/api/generate": {"prompt": "a", "stream": False}, "/api/chat": {"messages": [], "stream": False}, "/api/show": {}, "/api/pull": {}, "/v1/embeddings": {"input": "a"}}
    for path, body in bodies.items():
        response = http.post(path, json={**body, "model": name})
        assert response.status_code in (400, 404, 501), (path, response.status_code, response.text)
        assert "root:" not in response.text
    for field in ("lora", "adapter", "grammar_file", "prompt_cache", "path", "filename"):
        response = http.post("/v1/completions", json={"prompt": "a", "max_tokens": 1, field: name})
        assert response.status_code in (200, 400) and "root:" not in response.text
    for path in ("/v1/models/", "/v1/responses/", "/", "/v1/files/"):
        assert ask(locked, "GET", path + name.replace("\x00", "%00").replace(" ", "%20"), [f"Authorization: Bearer {KEYS['alice']}"]) in (400, 404, 405, 501)


def test_there_is_nothing_to_upload_to_and_nothing_to_convert(locked):
    """CVE-2026-7482, GO-2025-4251, CVE-2024-45436: files come from the operator's command line alone."""
    http = httpx.Client(base_url=locked.url, headers={"authorization": "Bearer " + KEYS["ops"]}, timeout=30)
    for path in ("/api/create", "/api/push", "/api/blobs/sha256:0", "/upload", "/convert", "/load", "/unload", "/v1/files", "/v1/fine_tuning/jobs", "/lora-adapters", "/slots/0", "/pause", "/sleep", "/invocations", "/score", "/models/delete", "/shutdown"):
        for method in ("POST", "PUT", "DELETE"):
            assert http.request(method, path, json={"action": "save", "filename": "../x"}).status_code in (404, 405, 501), path


def test_it_listens_where_it_was_told_and_nowhere_else(locked):
    """CVE-2024-42479: no port that nobody knows of."""
    own = {os.readlink(f"/proc/{locked.process.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{locked.process.pid}/fd")}
    ports = []
    for table in ("tcp", "tcp6"):
        for line in open(f"/proc/net/{table}").readlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in own:
                ports.append(int(fields[1].split(":")[1], 16))
    assert set(ports) == {locked.port, locked.grpc_port}
    udp = [line for table in ("udp", "udp6") for line in open(f"/proc/net/{table}").readlines()[1:] if f"socket:[{line.split()[9]}]" in own]
    assert not udp
    assert stat.S_IMODE(os.stat(locked.admin_socket).st_mode) == 0o600


def test_secrets_show_nowhere(locked, key_file, tmp_path):
    """Keys, prompts and answers: not in logs, however much these say, nor in errors, metrics, descriptions or a core."""
    secrets = [*KEYS.values(), PROMPT, "wrong-key-of-a-stranger"]
    bearer = {"authorization": "Bearer " + KEYS["alice"]}
    seen = []
    http = httpx.Client(base_url=locked.url, timeout=60)
    seen.append(http.post("/v1/chat/completions", headers={"authorization": "Bearer wrong-key-of-a-stranger"}, json={"messages": []}).text)
    seen.append(http.post(f"/v1/chat/completions?api_key={KEYS['alice']}", json={"messages": []}).text)
    answer = http.post("/v1/chat/completions", headers=bearer, json={"messages": [{"role": "user", "content": PROMPT}], "max_tokens": 30}).json()["choices"][0]["message"]["content"]
    for body in ({"messages": [{"role": "user", "content": PROMPT}], "max_tokens": -1}, {"messages": [{"role": "user", "content": PROMPT * 400}]}, {"messages": [{"role": PROMPT, "content": "a"}]}, {"messages": [{"role": "user", "content": PROMPT}], "stop": [""], "grammar": "root ::="}):
        http.post("/v1/chat/completions", headers=bearer, json=body)
    for path in ("/metrics", "/v1/status", "/openapi.json", "/v1/models", "/props", "/slots", "/api/ps"):
        seen.append(http.get(path, headers=bearer).text)
    seen.append(locked.admin.get("/admin/requests").text)
    wait_until(lambda: locked.text().count("access ") > 10)
    seen.append(locked.text())
    seen.append(" ".join(open(f"/proc/{locked.process.pid}/{name}").read() for name in ("cmdline", "environ", "comm")))
    for text in seen:
        for secret in secrets + [answer]:
            assert secret not in text, secret
    paths = [str(key_file), str(ROOT / "config/models"), os.path.dirname(locked.admin_socket)]
    for text in seen[:2]:
        assert not any(path in text for path in paths)
    limits = open(f"/proc/{locked.process.pid}/limits").read()
    assert re.search(r"Max core file size +0 +0 ", limits), "a crash would leave its memory on the disk"


def test_errors_name_no_paths(locked):
    """CVE-2025-23319: errors reveal no usable details."""
    bearer = {"authorization": "Bearer " + KEYS["alice"]}
    http = httpx.Client(base_url=locked.url, headers=bearer, timeout=30)
    bad = ["{", "[]", '{"messages":3}', '{"messages":[{"role":"user","content":"a"}],"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"type":"nothing"}}}}', json.dumps({"prompt": "a", "logit_bias": {"x": 1}})]
    for (method, path), body in itertools.product([r for r in routes() if r[0] == "POST"], bad):
        text = http.post(path, content=body).text
        assert not re.search(r"/work/|/tmp/|/home/|/usr/|\.cc\b|\.h:\d|0x[0-9a-f]{8}|std::", text), (path, text)


def test_counts_of_layers_are_for_operators(locked):
    """They told which of 80 prompts another key had sent."""
    def metrics(name):
        return httpx.get(locked.url + "/metrics", headers={"Authorization": f"Bearer {KEYS[name]}"}).text

    def of_layers(name):
        return [line for line in metrics(name).splitlines() if re.search(r'[{,]layer="', line)]
    assert of_layers("ops") and not of_layers("alice")
    assert "generation_tokens_total" in metrics("alice")
