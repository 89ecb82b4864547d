"""The ways in: TLS, Unix sockets, sockets that were open before the daemon; many idle streams."""
import json
import os
import signal
import socket
import ssl
import stat
import subprocess
import time

import httpx
import openai
import pytest
from conftest import BIN, Daemon, wait_until

STORY = [{"role": "user", "content": "Tell me a story about an owl."}]
LIVE = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


def test_trailers_and_chunk_extensions_are_bounded(daemon):
    head = b'POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n'
    for hostile in (b'f\r\n{"content":"a"}\r\n0\r\n' + b"A: b\r\n" * 1_000_000, b"f;" + b"a" * 6_000_000):
        with socket.create_connection(("127.0.0.1", daemon.port), timeout=20) as s:
            try:
                s.sendall(head + hostile)
            except OSError:
                pass  # it has had enough
            assert s.recv(65536).startswith(b"HTTP/1.1 431")
        assert httpx.get(daemon.url + "/health/live", timeout=5).status_code == 200
    trailer = head + b'f\r\n{"content":"a"}\r\n0\r\nA: b\r\n\r\n'
    with socket.create_connection(("127.0.0.1", daemon.port), timeout=20) as s:
        s.sendall(trailer)
        assert s.recv(65536).startswith(b"HTTP/1.1 200")


def make_certificate(folder, name, kind="rsa:2048"):
    """A self-signed certificate for localhost; paths of certificate and key."""
    certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
    subprocess.run(["openssl", "req", "-x509", "-newkey", kind, "-nodes", "-days", "2", "-subj", f"/CN={name}", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
                    "-keyout", key, "-out", certificate], check=True, capture_output=True)
    return certificate, key


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    return {name: make_certificate(folder, name) for name in ("first", "second")}


@pytest.fixture(scope="module")
def secure(certificates):
    certificate, key = certificates["first"]
    with Daemon(f"server.tls_certificate={certificate}", f"server.tls_key={key}") as d:
        d.context = ssl.create_default_context(cafile=certificate)
        d.base = f"https://localhost:{d.port}"
        yield d


def test_clients_speak_tls(secure):
    with httpx.Client(verify=secure.context) as http:
        client = openai.OpenAI(base_url=secure.base + "/v1", api_key="none", max_retries=0, http_client=http)
        whole = client.chat.completions.create(model="tidepool", messages=STORY, temperature=0).choices[0].message.content
        chunks = client.chat.completions.create(model="tidepool", messages=STORY, temperature=0, stream=True)
        assert "".join(c.choices[0].delta.content or "" for c in chunks) == whole
        large = http.post(secure.base + "/v1/chat/completions", content=b" " * 3_000_000)
        assert large.status_code == 400
        metrics = http.get(secure.base + "/metrics")
        assert metrics.status_code == 200 and len(metrics.text) > 10_000


def handshake(d, context, data=LIVE):
    with socket.create_connection(("127.0.0.1", d.port), timeout=10) as raw, context.wrap_socket(raw, server_hostname="localhost") as s:
        s.sendall(data)
        out = b""
        while piece := s.recv(65536):  # an end without close_notify raises
            out += piece
        return out, s.version(), s.selected_alpn_protocol()


def test_versions_and_protocols(secure, certificates):
    def context(minimum=ssl.TLSVersion.TLSv1_2, maximum=ssl.TLSVersion.TLSv1_3, alpn=(), ciphers=None):
        c = ssl.create_default_context(cafile=certificates["first"][0])
        if ciphers:
            c.set_ciphers(ciphers)
        c.minimum_version, c.maximum_version = minimum, maximum
        c.set_alpn_protocols(list(alpn))
        return c
    out, version, alpn = handshake(secure, context(alpn=["h2", "http/1.1"]))
    assert b'"live"' in out and version == "TLSv1.3" and alpn == "http/1.1"
    out, version, alpn = handshake(secure, context(maximum=ssl.TLSVersion.TLSv1_2))
    assert b'"live"' in out and version == "TLSv1.2" and alpn is None
    for refused in (context(ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1, ciphers="DEFAULT@SECLEVEL=0"), context(alpn=["h2"]),
                    context(maximum=ssl.TLSVersion.TLSv1_2, ciphers="AES128-SHA")):
        with pytest.raises((ssl.SSLError, ConnectionResetError)):
            handshake(secure, refused)


def test_a_tls_port_survives_what_is_no_tls(secure):
    for data in (LIVE, b"\x16\x03\x01\xff\xff" + b"\0" * 100, b"", os.urandom(500)):
        with socket.create_connection(("127.0.0.1", secure.port), timeout=10) as s:
            s.sendall(data)
    assert b'"live"' in handshake(secure, secure.context)[0]


def test_a_client_that_answers_no_close_notify_keeps_no_socket(certificates):
    """Connections closed for others once lived on for 2 s without being counted."""
    certificate, key = certificates["first"]
    context = ssl.create_default_context(cafile=certificate)
    with Daemon(f"server.tls_certificate={certificate}", f"server.tls_key={key}", "server.connections_max=16", "server.connections_per_address_max=0") as d:
        sockets = lambda: len(os.listdir(f"/proc/{d.process.pid}/fd"))
        before, most, held = sockets(), 0, []
        for _ in range(120):
            held.append(context.wrap_socket(socket.create_connection(("127.0.0.1", d.port), timeout=20), server_hostname="localhost"))
            most = max(most, sockets() - before)
        assert 8 < most < 32, most
        for s in held:
            s.close()


def test_a_client_that_leaves_by_tls_stops_its_work(smollm, certificates):
    certificate, key = certificates["first"]
    with Daemon(f"model.path={smollm}", f"server.tls_certificate={certificate}", f"server.tls_key={key}") as d:
        context = ssl.create_default_context(cafile=certificate)
        body = json.dumps({"messages": STORY, "stream": True, "logit_bias": {"2": -100}}).encode()
        running = lambda: d.admin.get("/v1/status").json()["running"]
        for polite in (True, False):
            s = context.wrap_socket(socket.create_connection(("127.0.0.1", d.port), timeout=20), server_hostname="localhost")
            s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            assert s.recv(4096)
            assert running() == 1
            if polite:
                s.shutdown(socket.SHUT_RDWR)
            s.close()
            wait_until(lambda: running() == 0)


def test_requests_sent_early_by_tls(secure):
    """The next request is there before the last answer is whole."""
    body = json.dumps({"messages": STORY, "stream": True, "max_tokens": 60, "temperature": 0}).encode()
    chat = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    out, _, _ = handshake(secure, secure.context, chat + chat + LIVE)
    assert out.count(b"HTTP/1.1 200 OK") == 3 and out.count(b"data: [DONE]") == 2 and b'"live"' in out


def subject(d):
    with socket.create_connection(("127.0.0.1", d.port), timeout=10) as raw:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with context.wrap_socket(raw) as s:
            pem = ssl.DER_cert_to_PEM_cert(s.getpeercert(binary_form=True))
    return subprocess.run(["openssl", "x509", "-noout", "-subject"], input=pem.encode(), capture_output=True, check=True).stdout.decode().strip().split("=")[-1].strip()


def test_certificates_are_reloaded(tmp_path, certificates):
    certificate, key = tmp_path / "crt", tmp_path / "key"

    def install(first, second):
        certificate.write_bytes(certificates[first][0].read_bytes())
        key.write_bytes(certificates[second][1].read_bytes())

    install("first", "first")
    with Daemon(f"server.tls_certificate={certificate}", f"server.tls_key={key}") as d:
        assert subject(d) == "first"
        context = ssl.create_default_context(cafile=certificates["first"][0])
        with socket.create_connection(("127.0.0.1", d.port), timeout=10) as raw, context.wrap_socket(raw, server_hostname="localhost") as old:
            install("second", "second")
            d.process.send_signal(signal.SIGHUP)
            wait_until(lambda: subject(d) == "second")
            old.sendall(LIVE)  # what is open goes on
            assert old.recv(4096).startswith(b"HTTP/1.1 200")
        install("first", "second")  # not the key of that certificate
        d.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "is not reloaded" in d.text())
        assert "server.tls_key" in d.text() and subject(d) == "second"
        certificate.write_text("nonsense")
        refused = d.admin.post("/admin/reload", headers={"content-type": "application/json"})
        assert refused.status_code == 400 and "server.tls_certificate" in refused.json()["error"]["message"]
        # A pipe that nobody writes to, and a chain that no client takes.
        chain = certificates["first"][0].read_bytes() * 200
        for file, make in ((key, lambda: os.mkfifo(key)), (certificate, lambda: certificate.write_bytes(chain))):
            install("second", "second")
            file.unlink()
            make()
            refused = d.admin.post("/admin/reload", headers={"content-type": "application/json"})
            assert refused.status_code == 400 and "server.tls_" in refused.json()["error"]["message"], refused.text
            file.unlink()
        assert subject(d) == "second"


def test_another_path_of_a_certificate_does_not_reach_grpc(tmp_path, certificates):
    config = tmp_path / "c.yaml"
    write = lambda name: config.write_text("server: {tls_certificate: %s, tls_key: %s}\ngrpc: {address: '127.0.0.1:0'}\n" % certificates[name])
    write("first")
    with Daemon(config=config) as d:
        if d.grpc_port is None:
            pytest.skip("built without gRPC")
        write("second")
        d.process.send_signal(signal.SIGHUP)
        wait_until(lambda: subject(d) == "second")
        wait_until(lambda: "gRPC goes on with the certificate" in d.text())


def test_bad_certificates_end_the_start(tmp_path, certificates):
    start = lambda certificate, key, *more: subprocess.run([str(BIN / "thermoclined"), "--set", f"server.tls_certificate={certificate}", "--set", f"server.tls_key={key}",
                                                            "--set", "server.port=0", *more], capture_output=True, timeout=20)
    first, second = certificates["first"], certificates["second"]
    for check in ([], ["--check"]):
        assert start(first[0], second[1], *check).returncode == 78
        result = start("/nowhere.crt", first[1], *check)
        assert result.returncode == 78 and b"/nowhere.crt" in result.stderr
    assert start(*first, "--check").returncode == 0


def unix_client(path):
    return httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), base_url="http://anything.example", timeout=30)


def test_unix_sockets(tmp_path):
    path = tmp_path / "socket"
    with Daemon("server.host=", f"server.unix_socket={path}", "server.unix_socket_mode=0600") as d:
        assert d.port is None
        assert stat.S_IMODE(path.stat().st_mode) == 0o600 and stat.S_IMODE(os.stat(d.admin_socket).st_mode) == 0o600
        with unix_client(path) as http:
            assert http.get("/v1/models").status_code == 200  # no pages, no Host to check
            assert http.post("/v1/chat/completions", json={"messages": STORY, "max_tokens": 3}).json()["usage"]["completion_tokens"] == 3
            assert http.get("/admin/requests").status_code == 404  # that is the other socket
        out = subprocess.run(["curl", "-sS", "--unix-socket", path, "http://x/health/ready"], capture_output=True, timeout=20).stdout
        assert json.loads(out)["status"] == "ready"
        wait_until(lambda: f"tenant=uid:{os.getuid()}" in d.text())
    assert not path.exists() and not os.path.exists(d.admin_socket)


def start_on(path):
    return subprocess.run([str(BIN / "thermoclined"), "--set", "server.host=", "--set", f"server.unix_socket={path}"], capture_output=True, timeout=20)


def test_socket_files_left_behind(tmp_path):
    path = tmp_path / "socket"
    with Daemon(f"server.unix_socket={path}") as d:
        busy = start_on(path)
        assert busy.returncode == 1 and b"another process" in busy.stderr
        d.process.kill()
        assert d.wait() == -signal.SIGKILL
    assert path.exists()
    with Daemon(f"server.unix_socket={path}"), unix_client(path) as http:
        assert http.get("/health/ready").status_code == 200
    path.write_text("precious")
    refused = start_on(path)
    assert refused.returncode == 1 and b"no socket" in refused.stderr and path.read_text() == "precious"
    assert subprocess.run([str(BIN / "thermoclined"), "--set", "server.host="], capture_output=True, timeout=20).returncode == 78


@pytest.mark.parametrize("setting", ["server.unix_socket", "server.admin_socket"])
def test_a_check_refuses_a_place_where_no_socket_can_be(tmp_path, setting):
    start = lambda path, *more: subprocess.run([str(BIN / "thermoclined"), "--set", "server.host=", "--set", f"{setting}={path}", *more], capture_output=True, timeout=20)
    (tmp_path / "file").write_text("precious")
    for path, why in ((tmp_path / "none" / "socket", b"no folder"), (tmp_path / "file" / "socket", b"no folder"), (tmp_path / "file", b"no socket")):
        started, checked = start(path), start(path, "--check")
        assert started.returncode == 1 and why in started.stderr
        assert checked.returncode == 78 and why in checked.stderr and setting.encode() in checked.stderr
    assert start(tmp_path / "socket", "--check").returncode == 0 and os.listdir(tmp_path) == ["file"]
    with Daemon("server.host=" if setting == "server.unix_socket" else "server.port=0", f"server.unix_socket={tmp_path / 'socket'}"):
        assert start(tmp_path / "socket", "--check").returncode == 0  # of a daemon that runs


@pytest.mark.parametrize("setting", ["server.unix_socket=", "server.admin_socket=", "grpc.address=unix:"])
def test_a_path_too_long_for_a_socket_is_refused_by_a_check(setting):
    check = lambda length: subprocess.run([str(BIN / "thermoclined"), "--check", "--set", setting + "/" + "x" * (length - 1)], capture_output=True, timeout=20)
    assert check(107).returncode == 0
    refused = check(108)
    assert refused.returncode == 78 and setting.split("=")[0].encode() in refused.stderr and b"at most 107 bytes" in refused.stderr


def listening_socket(family=socket.AF_INET, address=("127.0.0.1", 0)):
    s = socket.socket(family)
    s.bind(address)
    s.listen()
    return s


def passed(names, sockets, *settings):
    """A daemon that finds `sockets` open, as systemd leaves them: from descriptor 3 on, LISTEN_PID its own."""
    fds = [s.fileno() for s in sockets]
    moves = "; ".join(f"exec {3 + i}<&{fd}" for i, fd in enumerate(fds))
    env = {**os.environ, "LISTEN_FDS": str(len(fds)), "LISTEN_FDNAMES": ":".join(names)}
    return Daemon(*settings, env=env, pass_fds=fds, before=["bash", "-c", f'{moves}; export LISTEN_PID=$$; exec "$@"', "bash"])


def test_sockets_that_systemd_opened(tmp_path, certificates):
    high = lambda s: socket.socket(fileno=os.dup2(s.detach(), free.pop()))
    free = [41, 40, 39]
    http, https, admin = map(high, (listening_socket(), listening_socket(), listening_socket(socket.AF_UNIX, str(tmp_path / "admin"))))
    port, secure_port = http.getsockname()[1], https.getsockname()[1]
    waiting = socket.create_connection(("127.0.0.1", port))  # came before the daemon did
    waiting.sendall(LIVE)
    certificate, key = certificates["first"]
    with passed(["http", "https", "admin"], [http, https, admin], f"server.tls_certificate={certificate}", f"server.tls_key={key}", "server.port=1") as d:
        assert b'"live"' in waiting.recv(4096)
        assert httpx.get(f"http://127.0.0.1:{port}/health/ready").status_code == 200
        assert httpx.get(f"https://localhost:{secure_port}/health/ready", verify=ssl.create_default_context(cafile=certificate)).status_code == 200
        with unix_client(tmp_path / "admin") as operator:
            assert operator.get("/admin/requests").status_code == 200
        assert httpx.get(f"http://127.0.0.1:{port}/admin/requests").status_code == 404
    assert (tmp_path / "admin").exists()  # not the daemon's to remove
    again = socket.create_connection(("127.0.0.1", port))  # between two daemons clients wait
    again.sendall(LIVE)
    with passed(["thermocline.socket"], [http], "server.host=127.0.0.1"):
        assert b'"live"' in again.recv(4096)
    for s in (http, https, admin, waiting, again):
        s.close()


def test_systemd_socket_activate(tmp_path):
    """systemd's own tool starts the daemon at the first connection."""
    probe = listening_socket()
    port = probe.getsockname()[1]
    probe.close()
    process = subprocess.Popen(["systemd-socket-activate", "-l", f"127.0.0.1:{port}", "--fdname=http", str(BIN / "thermoclined"), "--set", "server.port=1"], stderr=subprocess.DEVNULL)
    try:
        def ready():
            try:
                return httpx.get(f"http://127.0.0.1:{port}/health/ready", timeout=30).status_code == 200
            except httpx.ConnectError:
                return False
        wait_until(ready, 60)
    finally:
        process.terminate()
        process.wait(20)


def test_passed_sockets_do_not_let_strangers_in(tmp_path):
    s = listening_socket(address=("0.0.0.0", 0))
    env = {**os.environ, "LISTEN_FDS": "1"}
    command = f'exec 3<&{s.fileno()}; export LISTEN_PID=$$; exec "$@"'
    result = subprocess.run(["bash", "-c", command, "bash", str(BIN / "thermoclined")], env=env, pass_fds=[s.fileno()], capture_output=True, timeout=20)
    assert result.returncode == 78 and b"server.api_keys_file" in result.stderr
    s.close()


def resident_bytes(pid):
    return int(next(line.split()[1] for line in open(f"/proc/{pid}/status") if line.startswith("VmRSS"))) * 1024


def http_seconds(pid):
    """CPU time of the threads that serve connections."""
    total = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        name, fields = open(f"/proc/{pid}/task/{task}/stat").read().split("(", 1)[1].rsplit(") ", 1)
        if name.startswith("http-"):
            total += sum(map(int, fields.split()[11:13])) / os.sysconf("SC_CLK_TCK")
    return total


def test_idle_streams_cost_little(smollm):
    """1,000 streams that wait for their turn: at most 64 MiB, and next to no work but for the few that are served."""
    count = 1000
    with Daemon(f"model.path={smollm}", "server.connections_max=1100", "server.connections_per_address_max=0", f"engine.queue_capacity={count + 50}") as d:
        body = json.dumps({"messages": STORY, "stream": True, "logit_bias": {"2": -100}}).encode()
        request = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        waiting = lambda: sum(d.admin.get("/v1/status").json()[key] for key in ("running", "waiting"))
        open_stream = lambda: socket.create_connection(("127.0.0.1", d.port), timeout=60)
        begun = [open_stream() for _ in range(20)]  # as many as the engine begins at once, and their keys and values
        for s in begun:
            s.sendall(request)
        wait_until(lambda: waiting() == 20)
        time.sleep(3)
        before = resident_bytes(d.process.pid)
        idle = [open_stream() for _ in range(count)]
        for s in idle:
            s.sendall(request)
        wait_until(lambda: waiting() == count + 20, 60)
        grown = resident_bytes(d.process.pid) - before
        spent = http_seconds(d.process.pid)
        time.sleep(3)
        spent = http_seconds(d.process.pid) - spent
        assert grown <= 64 << 20, grown
        assert spent <= 0.15, spent  # 5% of the time: 20 answers are written, too
        for s in begun + idle:
            s.close()
        wait_until(lambda: waiting() == 0, 60)
        print(f"{grown / count / 1024:.1f} KiB each, {spent / 3:.2%} of a core")
