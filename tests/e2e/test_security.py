"""Access: who may connect, from where, and how much they may send."""
import concurrent.futures
import json
import re
import shutil
import socket
import subprocess

import httpx
import openai
import pytest
from conftest import BIN, ROOT, TIDEPOOL_FOLDER, Daemon, wait_until

STORY = [{"role": "user", "content": "Tell me a story about an owl."}]
KEYS = {"alice": "alices-key-0123456789", "ops": "the-operators-key-0123", "batch": "key-of-nightly-batches"}
MARKS = {"alice": "", "ops": ":admin", "batch": ":priority=-5"}


def key_line(name):
    out = subprocess.run([str(BIN / "thermoclined"), "--hash-key", name], input=KEYS[name].encode() + b"\n", capture_output=True, timeout=20)
    assert out.returncode == 0, out.stderr
    return out.stdout.decode().strip() + MARKS[name] + "\n"


@pytest.fixture(scope="module")
def key_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("keys") / "keys"
    path.write_text("# who may come in\n" + "".join(map(key_line, KEYS)))
    return path


@pytest.fixture(scope="module")
def locked(key_file):
    with Daemon(f"server.api_keys_file={key_file}") as d:
        yield d


def bearer(name):
    return {"authorization": "Bearer " + KEYS[name]}


def routes():
    """Every method and path of the tables in server/*/routes.cc."""
    tables = "".join(path.read_text() for path in sorted(ROOT.glob("server/*/routes.cc")))
    found = re.findall(r'\{"(GET|POST|DELETE|PUT)",\s*"(/[^"]*)"', tables)
    assert len(found) > 40
    return found


def test_every_route_but_liveness_and_the_page_asks_for_a_key(locked):
    others = [("GET", "/v1/models/tidepool"), ("GET", "/nowhere"), ("GET", "/admin/nothing"), ("DELETE", "/"), ("OPTIONS", "/v1/models"), ("GET", "/health/live/")]
    http = httpx.Client(base_url=locked.url, timeout=30)
    for method, path in routes() + others:
        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "Basic " + KEYS["alice"]}, {"authorization": KEYS["alice"]}, {"authorization": "Bearer"}):
            response = http.request(method, path, headers=headers)
            if path == "/health/live" or (method, path) == ("GET", "/"):
                assert response.status_code == 200
                continue
            assert response.status_code == 401, (method, path)
            assert response.headers["www-authenticate"] == "Bearer"
            error = response.json()["error"]
            if path.startswith("/api/"):
                assert isinstance(error, str) and "key" in error
            elif path.startswith("/v1/messages"):
                assert error["type"] == "authentication_error" and error["message"]
            else:
                assert error["code"] == "invalid_api_key" and error["type"] == "invalid_request_error" and error["message"]


def test_keys_let_in(locked):
    client = openai.OpenAI(base_url=locked.url + "/v1", api_key=KEYS["alice"], max_retries=0)
    assert client.chat.completions.create(model="tidepool", messages=STORY, max_tokens=3).usage.completion_tokens == 3
    with pytest.raises(openai.AuthenticationError):
        openai.OpenAI(base_url=locked.url + "/v1", api_key=KEYS["alice"] + "x", max_retries=0).models.list()
    assert httpx.get(locked.url + "/metrics", headers=bearer("alice")).status_code == 200
    assert httpx.get(locked.url + "/health/live?x=1").status_code == 200
    twice = [("authorization", "Bearer " + KEYS["alice"]), ("authorization", "Bearer " + KEYS["ops"])]
    assert httpx.get(locked.url + "/v1/models", headers=twice).status_code == 401


def test_admin_routes_want_a_key_that_is_marked(locked):
    url = locked.url + "/admin/requests"
    assert httpx.get(url, headers=bearer("alice")).status_code == 403
    assert httpx.get(url, headers=bearer("ops")).json() == {"requests": []}
    assert locked.admin.get("/admin/requests").status_code == 200  # the socket's mode is the key
    assert locked.admin.get("/v1/models").status_code == 200


def test_logs_name_the_owner_and_never_the_key(locked):
    httpx.get(locked.url + "/v1/models", headers={**bearer("alice"), "x-request-id": "whose-1"})
    httpx.get(locked.url + "/v1/models", headers={"authorization": "Bearer wrong-key-secret"})
    wait_until(lambda: re.search(r"access .*tenant=alice .*id=whose-1", locked.text()))
    wait_until(lambda: "status=401" in locked.text())
    assert not any(key in locked.text() for key in KEYS.values()) and "secret" not in locked.text()


def test_a_body_that_is_announced_to_be_too_large_is_refused_by_name(key_file):
    origin, trace = "https://pages.example.org", "4bf92f3577b34da6a3ce929d0e0e4736"
    with Daemon(f"server.api_keys_file={key_file}", f"server.allowed_origins={origin}") as d:
        def announce(request_id, key=""):
            return exchange(d, f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\nX-Request-Id: {request_id}\r\nOrigin: {origin}\r\n"
                               f"Traceparent: 00-{trace}-00f067aa0ba902b7-01\r\n{key}\r\n".encode())
        assert status(announce("stranger")) == 401
        answer = announce("alice", f"Authorization: Bearer {KEYS['alice']}\r\n")
        assert status(answer) == 413 and b"\r\nConnection: close\r\n" in answer
        for header in ("x-request-id: alice", f"Access-Control-Allow-Origin: {origin}", f"traceparent: 00-{trace}-"):
            assert header.encode() in answer, header
        wait_until(lambda: any("id=alice" in line for line in d.log))
        [line] = [line for line in d.log if "id=alice" in line]
        assert "method=POST route=/v1/completions status=413" in line and "tenant=alice" in line and f"trace={trace}" in line


def test_a_body_of_a_stranger_is_not_read(locked):
    """The refusal comes before the body does."""
    with socket.create_connection(("127.0.0.1", locked.port), timeout=10) as s:
        s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 4000000\r\n\r\n")
        answer = s.recv(65536)
        assert answer.startswith(b"HTTP/1.1 401") and b"Connection: close" in answer


def test_metrics_can_be_open(key_file):
    with Daemon(f"server.api_keys_file={key_file}", "metrics.require_key=false") as d:
        assert httpx.get(d.url + "/metrics").status_code == 200
        assert httpx.get(d.url + "/v1/status").status_code == 401


@pytest.mark.parametrize("name", ["", "a:b", "a b"])
def test_no_key_is_hashed_for_a_name_that_is_none(name):
    out = subprocess.run([str(BIN / "thermoclined"), "--hash-key", name], input=KEYS["alice"].encode() + b"\n", capture_output=True, timeout=20)
    assert out.returncode == 2 and not out.stdout and b"name" in out.stderr


@pytest.mark.parametrize("text", ["", "# none\n", "alice:plain-text-secret-key\n", "alice:" + "g" * 64 + "\n"])
def test_bad_key_files_end_the_start(tmp_path, text):
    path = tmp_path / "keys"
    path.write_text(text)
    for check in ([], ["--check"]):
        result = subprocess.run([str(BIN / "thermoclined"), "--set", f"server.api_keys_file={path}", "--set", "server.port=0", *check], capture_output=True, timeout=20)
        assert result.returncode == 78 and str(path).encode() in result.stderr and b"secret" not in result.stderr


def test_strangers_on_the_network_are_not_let_in_by_accident(key_file):
    start = lambda *settings: subprocess.run([str(BIN / "thermoclined"), "--check", *(x for s in settings for x in ("--set", s))], capture_output=True, timeout=20)
    refused = start("server.host=0.0.0.0")
    assert refused.returncode == 78 and b"server.api_keys_file" in refused.stderr and b"server.insecure" in refused.stderr
    assert start("server.host=0.0.0.0", "server.insecure=true").returncode == 0
    assert start("server.host=0.0.0.0", f"server.api_keys_file={key_file}").returncode == 0


def host_code(d, host, target="/v1/models", version="1.1"):
    with socket.create_connection(("127.0.0.1", d.port), timeout=10) as s:
        s.sendall(f"GET {target} HTTP/{version}\r\n{host}Connection: close\r\n\r\n".encode())
        return int(s.recv(65536).split()[1])


def test_hosts(daemon):
    """A page whose own name points to this address (DNS rebinding) still sends that name."""
    for host in ("localhost", "localhost:8080", "127.0.0.1", f"127.0.0.1:{daemon.port}", "[::1]:80", "LOCALHOST"):
        assert host_code(daemon, f"Host: {host}\r\n") == 200, host
    for host in ("evil.example", f"evil.example:{daemon.port}", "127.0.0.1.evil.example", "localhost.evil.example", "[::2]", "", "127.0.0.2", "0.0.0.0", "[", "localhost@evil"):
        for target in ("/v1/models", "/health/live", "/admin/requests", "/"):
            assert host_code(daemon, f"Host: {host}\r\n", target) == 403, host
    assert host_code(daemon, "") == 400
    assert host_code(daemon, "Host: localhost\r\nHost: localhost\r\n") == 400
    assert host_code(daemon, "", version="1.0") == 200  # before there was Host; no browser speaks it
    assert host_code(daemon, "Host: localhost\r\n", "http://localhost/v1/models") == 200
    assert host_code(daemon, "Host: localhost\r\n", "http://evil.example/v1/models") == 403


def test_origins_are_refused_by_default(daemon):
    url = daemon.url + "/v1/models"
    assert httpx.get(url, headers={"origin": daemon.url}).status_code == 200
    for origin in (daemon.url.replace("http", "chrome-extension"), "http://evil.example", "null", "http://127.0.0.1:1", "https://evil.example:443", ""):
        response = httpx.get(url, headers={"origin": origin})
        assert response.status_code == 403 and "access-control-allow-origin" not in response.headers
        preflight = httpx.options(url, headers={"origin": origin, "access-control-request-method": "POST"})
        assert preflight.status_code == 403 and "access-control-allow-origin" not in preflight.headers
    assert "access-control-allow-origin" not in httpx.get(url).headers


@pytest.fixture(scope="module")
def opened(key_file):
    with Daemon(f"server.api_keys_file={key_file}", "server.allowed_origins=https://chat.example, http://localhost:3000", "server.allowed_hosts=llm.example") as d:
        yield d


def test_allowed_origins_may_call(opened):
    url, origin = opened.url + "/v1/chat/completions", "https://chat.example"
    asked = "authorization,content-type,x-stainless-lang,x-stainless-retry-count"
    preflight = httpx.options(url, headers={"origin": origin, "access-control-request-method": "POST", "access-control-request-headers": asked})
    assert preflight.status_code == 204
    assert preflight.headers["access-control-allow-origin"] == origin and preflight.headers["vary"] == "Origin"
    allowed = {h.strip().lower() for h in preflight.headers["access-control-allow-headers"].split(",")}
    assert set(asked.split(",")) <= allowed and "POST" in preflight.headers["access-control-allow-methods"]
    assert "access-control-allow-credentials" not in preflight.headers
    for stream in (False, True):
        response = httpx.post(url, headers={"origin": origin, **bearer("alice")}, json={"messages": STORY, "max_tokens": 2, "stream": stream}, timeout=30)
        assert response.status_code == 200 and response.headers["access-control-allow-origin"] == origin
        assert "x-request-id" in response.headers["access-control-expose-headers"].lower()
        assert "access-control-allow-credentials" not in response.headers
    refused = httpx.post(url, headers={"origin": origin})  # also a page may know why
    assert refused.status_code == 401 and refused.headers["access-control-allow-origin"] == origin
    assert httpx.get(opened.url + "/v1/models", headers={"origin": "https://other.example", **bearer("alice")}).status_code == 403
    assert httpx.options(url, headers={"origin": "https://chat.example.evil.example", "access-control-request-method": "POST"}).status_code == 403


def test_an_origin_is_allowed_with_its_schemes_default_port(key_file):
    with Daemon(f"server.api_keys_file={key_file}", "server.allowed_origins=https://c.d:443, http://e.f:80") as d:
        for origin in ("https://c.d", "http://e.f"):  # as browsers send it
            answer = httpx.get(d.url + "/v1/models", headers={"origin": origin, **bearer("alice")})
            assert answer.status_code == 200 and answer.headers["access-control-allow-origin"] == origin
        assert httpx.get(d.url + "/v1/models", headers={"origin": "http://c.d", **bearer("alice")}).status_code == 403


def test_allowed_hosts(opened):
    assert httpx.get(opened.url + "/health/live", headers={"host": "llm.example:8080"}).status_code == 200
    assert httpx.get(opened.url + "/health/live", headers={"host": "other.example"}).status_code == 403


@pytest.mark.parametrize("target", [b"/health/live", b"/"])
def test_bodies_without_a_key_are_refused_on_open_routes_too(locked, target):
    """Unfinished ones held the memory of bodies: who had a key got 429."""
    for framing in (b"Content-Length: 600000", b"Transfer-Encoding: chunked"):
        begun = b"GET %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n\r\n" % (target, framing)
        assert status(exchange(locked, begun)) == 401
    assert status(exchange(locked, b"GET %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n" % target)) == 200


def exchange(d, data, source=None):
    """The bytes received until the daemon closes."""
    with socket.create_connection(("127.0.0.1", d.port), timeout=10, source_address=source) as s:
        s.sendall(data)
        out = b""
        try:
            while piece := s.recv(65536):
                out += piece
        except ConnectionResetError:
            pass
        return out


def status(answer):
    return int(answer.split()[1])


def test_limits_of_headers(daemon):
    get = lambda headers, target="/v1/models": status(exchange(daemon, f"GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n".encode()))
    many = lambda n: "".join(f"X-{i}: 1\r\n" for i in range(n))
    assert get(many(98)) == 200 and get(many(99)) == 431
    assert get("X: " + "a" * 31000 + "\r\n") == 200 and get("X: " + "a" * 33000 + "\r\n") == 431
    assert get("", "/v1/models?" + "a" * 8000) == 200 and get("", "/v1/models?" + "a" * 8200) == 414
    assert get(many(10000)) == 431


def test_limits_of_bodies():
    with Daemon("server.body_bytes_max=2000") as d:
        body = lambda n: json.dumps({"messages": STORY, "max_tokens": 1, "user": "x" * n})
        post = lambda text: httpx.post(d.url + "/v1/chat/completions", content=text, headers={"content-type": "application/json"}, timeout=30)
        assert post(body(1800)).status_code == 200
        refused = post(body(2000))
        assert refused.status_code == 413 and refused.json()["error"]["code"] == "body_too_large"
        chunk = b"400\r\n" + b" " * 1024 + b"\r\n"
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        assert status(exchange(d, head + chunk * 4)) == 413


def test_the_text_of_tokens_is_bounded_like_a_body():
    with Daemon("server.body_bytes_max=2000") as d:
        post = lambda path, **body: httpx.post(d.url + path, json=body, timeout=30)
        longest = max(post("/tokenize", content=STORY[0]["content"], with_pieces=True).json()["tokens"], key=lambda token: len(token["piece"]))
        fit = 2000 // len(longest["piece"])
        assert len(post("/detokenize", tokens=[longest["id"]] * (fit - 1)).json()["content"]) > 1900
        refused = post("/detokenize", tokens=[longest["id"]] * (fit + 1))
        assert refused.status_code == 400 and refused.json()["error"]["param"] == "tokens" and "server.body_bytes_max" in refused.json()["error"]["message"]


def test_connections_of_one_address_are_bounded():
    with Daemon("server.connections_per_address_max=3", "server.connections_max=5") as d:
        live = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"

        def connect(source):
            """A connection that was let in: one that has ended may be counted a little longer."""
            while True:
                s = socket.create_connection(("127.0.0.1", d.port), timeout=10, source_address=(source, 0))
                s.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 200)  # answers that it does not read: one that waits for a request makes way
                if b" 200 " in s.recv(4096):
                    return s
                s.close()

        held = [connect("127.0.0.2") for _ in range(3)]
        wait_until(lambda: status(exchange(d, live, ("127.0.0.2", 0))) == 429)
        assert status(exchange(d, live, ("127.0.0.3", 0))) == 200  # others are not affected
        held += [connect("127.0.0.3") for _ in range(2)]
        wait_until(lambda: status(exchange(d, live, ("127.0.0.4", 0))) == 503)
        assert d.admin.get("/health/live").status_code == 200  # the operator always comes in
        rejected = lambda: [float(line.split()[1]) for line in d.admin.get("/metrics").text.splitlines() if 'requests_rejected_total{reason="connections"}' in line]
        before, = rejected()
        assert before >= 2 and status(exchange(d, live, ("127.0.0.4", 0))) == 503 and rejected() == [before + 1]
        # What is turned away is read before the connection closes: the answer is not lost to a reset.
        long = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 200000\r\n\r\n" + b"x" * 200_000
        for _ in range(20):
            assert status(exchange(d, long, ("127.0.0.4", 0))) == 503
        for s in held:
            s.close()
        wait_until(lambda: b" 200 " in exchange(d, live, ("127.0.0.2", 0)))


def test_pipelined_requests_are_answered_in_order_and_bounded(daemon):
    ask = lambda i, close="": f"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: p{i}\r\n{close}\r\n".encode()
    out = exchange(daemon, b"".join(ask(i) for i in range(50)) + ask(50, "Connection: close\r\n"))
    assert re.findall(rb"x-request-id: (p\d+)", out) == [b"p%d" % i for i in range(51)]


def test_slow_headers_and_bodies_share_one_deadline():
    import time
    with Daemon("server.read_timeout_s=2") as d:
        began = time.monotonic()
        with socket.create_connection(("127.0.0.1", d.port), timeout=20) as s:
            s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10000\r\n\r\n")
            s.settimeout(0.2)
            answer = b""
            while not answer and time.monotonic() - began < 15:  # a byte now and then does not help
                s.sendall(b" ")
                try:
                    answer = s.recv(65536)
                except TimeoutError:
                    pass
        assert b" 408 " in answer and 1 < time.monotonic() - began < 8
        wait_until(lambda: httpx.get(d.url + "/health/ready").status_code == 200)


def test_a_template_of_millions_of_steps_does_not_hold_up_the_others(tmp_path):
    folder = shutil.copytree(TIDEPOOL_FOLDER, tmp_path / "model")
    loops = "{% for a in range(1000) %}{% for b in range(1000) %}{% for c in range(5) %}{% endfor %}{% endfor %}{% endfor %}"
    (folder / "chat_template.jinja").write_text("{% if messages[0].content.startswith('long') %}" + loops + "{% endif %}hi")
    with Daemon(f"model.path={folder}", "server.threads=1") as d, concurrent.futures.ThreadPoolExecutor(12) as pool:
        ask = lambda text: httpx.post(d.url + "/v1/chat/completions", json={"messages": [{"role": "user", "content": text}], "max_tokens": 1}, timeout=120)
        assert ask("short").status_code == 200
        long = [pool.submit(ask, "long" + " x" * 200000) for _ in range(12)]
        wait_until(lambda: httpx.get(d.url + "/v1/status").status_code == 200)
        for _ in range(20):
            assert httpx.get(d.url + "/health/live", timeout=60).status_code == 200
        assert ask("short").status_code == 200  # there are threads left for it
        assert not all(request.done() for request in long)
        assert all(request.result().status_code in (200, 400) for request in long)


@pytest.mark.parametrize("form", ["text", "json"])
def test_no_character_that_a_terminal_obeys_is_logged(form):
    """C1 controls, marks of direction and separators of lines came into the log as clients wrote them."""
    hidden = "\u007f\u009b\u061c\u200f\u2028\u202e\u2066"
    with Daemon(f"log.format={form}") as d:
        body = {"prompt": "owl", "max_tokens": 1, f"a{hidden}\u00e9\u3042\U0001f600": 1}
        assert httpx.post(d.url + "/v1/completions", json=body, timeout=60).status_code == 200
        lines = d.logged("is not known here")
    assert len(lines) == 1 and not set(hidden) & set(lines[0]) and "\u00e9\u3042\U0001f600" in lines[0]
    assert all(f"\\u{ord(c):04x}" in lines[0] for c in hidden)


def test_http_1_0_is_told_of_no_interim_answer(daemon):
    with socket.create_connection(("127.0.0.1", daemon.port), 20) as client:
        client.sendall(b"POST /tokenize HTTP/1.0\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 17\r\n\r\n" + b'{"content":"owl"}')
        assert client.recv(1 << 10).startswith(b"HTTP/1.0 200 ")
