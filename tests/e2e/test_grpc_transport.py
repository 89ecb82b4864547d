"""The gRPC interface around its methods: health, reflection, TLS, keys, Unix socket, slow readers, addresses."""
import contextlib
import errno
import hashlib
import json
import os
import socket
import stat
import subprocess
import threading
import time
import types

import grpc
import httpx
import pytest
from conftest import BIN, Daemon, wait_until
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_client import SERVICE, begun, channel, chat, idle, metric, pb, read, refusal, stubs
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
ANY_PORT = "grpc.address=127.0.0.1:0"


def count(stub, **kwargs):
    return stub.CountTokens(pb.CountTokensRequest(text="owl"), timeout=20, **kwargs).prompt_tokens


def test_health_from_loading_to_drain(smollm):
    with Daemon(ANY_PORT, f"model.path={smollm}", "model.verify=true", wait=False) as d:
        wait_until(lambda: d.grpc_port is not None)
        with channel(d) as c:
            health, stub = health_pb2_grpc.HealthStub(c), stubs.InferenceStub(c)
            seen = {name: [] for name in ("", SERVICE)}

            def watch(name):
                try:
                    for answer in health.Watch(health_pb2.HealthCheckRequest(service=name)):
                        seen[name].append(answer.status)
                except grpc.RpcError:
                    pass  # the daemon ends

            for name in seen:
                threading.Thread(target=watch, args=(name,), daemon=True).start()
            loading = refusal(stub.Generate, chat("Hello"))
            assert (loading.code, loading.reason) == (grpc.StatusCode.UNAVAILABLE, "LOADING") and loading.retry_s >= 1
            assert stub.GetStats(pb.GetStatsRequest()).state == pb.STATE_LOADING
            assert refusal(stub.GetModel, pb.GetModelRequest()).reason == "LOADING"
            assert metric(d, "requests_rejected_total", reason="loading") == 2
            assert d.ready.wait(60)
            for name in seen:
                wait_until(lambda: seen[name] == [NOT_SERVING, SERVING])
                assert health.Check(health_pb2.HealthCheckRequest(service=name)).status == SERVING
            assert refusal(health.Check, health_pb2.HealthCheckRequest(service="other")).code == grpc.StatusCode.NOT_FOUND
            call = begun(stub.Generate(chat("Count.", stop=pb.Stop(ignore_eos=True, max_tokens=300))))
            d.terminate()  # while an answer runs
            for name in seen:
                wait_until(lambda: seen[name] == [NOT_SERVING, SERVING, NOT_SERVING])
            assert read(call).finished[0].usage.completion_tokens == 300
            assert d.wait() == 0, d.text()  # though the watchers never leave


def reflected(channel, version):
    """gRPC's own client of reflection, which speaks v1alpha; v1 has the same messages under another name."""
    database = ProtoReflectionDescriptorDatabase(channel)
    method = f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo"
    call = channel.stream_stream(method, reflection_pb2.ServerReflectionRequest.SerializeToString, reflection_pb2.ServerReflectionResponse.FromString)
    database._stub = types.SimpleNamespace(ServerReflectionInfo=call)
    return database, call


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
def test_reflection(version):
    with Daemon(ANY_PORT) as d, channel(d) as c:
        database, call = reflected(c, version)
        assert {SERVICE, "grpc.health.v1.Health", f"grpc.reflection.{version}.ServerReflection"} <= set(database.get_services())
        questions = [reflection_pb2.ServerReflectionRequest(host="h", **q) for q in (
            {"file_by_filename": "thermocline/v1/inference.proto"}, {"file_by_filename": "nowhere.proto"}, {"all_extension_numbers_of_type": f"{SERVICE}Nothing"},
            {"file_containing_extension": reflection_pb2.ExtensionRequest(containing_type="google.protobuf.MethodOptions", extension_number=99)}, {})]
        answers = list(call(iter(questions)))
        assert [a.error_response.error_code for a in answers] == [0, 5, 5, 5, 12]
        assert [a.original_request for a in answers] == questions and len(answers[0].file_descriptor_response.file_descriptor_proto) >= 1
        service = DescriptorPool(database).FindServiceByName(SERVICE)
        assert [m.name for m in service.methods] == ["Generate", "Tokenize", "Detokenize", "CountTokens", "GetModel", "GetStats", "Cancel"]
        assert service.methods_by_name["Generate"].input_type.fields_by_name["sampling"].message_type.fields_by_name["temperature"].has_presence
    with Daemon(ANY_PORT, "grpc.reflection=false") as d, channel(d) as c:
        assert refusal(reflected(c, version)[0].get_services).code == grpc.StatusCode.UNIMPLEMENTED
        assert count(stubs.InferenceStub(c)) > 0


def key_line(name, key, extra=""):
    return f"{name}:{hashlib.sha256(key.encode()).hexdigest()}{extra}\n"


ADA, BOB, ROOT_KEY = "ada-key-0123456789abcdef", "bob-key-0123456789abcdef", "root-key-0123456789abcdef"


def bearer(key):
    return [("authorization", "Bearer " + key)]


def test_keys(tmp_path, smollm):
    keys = tmp_path / "keys"
    keys.write_text(key_line("ada", ADA) + key_line("bob", BOB) + key_line("root", ROOT_KEY, ":admin"))
    keys.chmod(0o600)
    with Daemon(ANY_PORT, f"model.path={smollm}", f"server.api_keys_file={keys}", "metrics.require_key=false") as d, channel(d) as c:
        stub, code = stubs.InferenceStub(c), grpc.StatusCode
        requests = {"Generate": chat("x"), "Tokenize": pb.TokenizeRequest(text="x"), "Detokenize": pb.DetokenizeRequest(), "CountTokens": pb.CountTokensRequest(text="x"),
                    "GetModel": pb.GetModelRequest(), "GetStats": pb.GetStatsRequest(), "Cancel": pb.CancelRequest(request_id="x")}
        assert set(requests) == {m.name for m in pb.DESCRIPTOR.services_by_name["Inference"].methods}
        for name, request in requests.items():
            for metadata in ([], bearer("wrong-key-0123456789abcd"), [("authorization", ADA)], bearer(""), bearer(ADA) + bearer(ADA)):
                error = refusal(getattr(stub, name), request, metadata=metadata)
                assert (error.code, error.reason) == (code.UNAUTHENTICATED, "INVALID_API_KEY"), name
        assert metric(d, "requests_rejected_total", reason="auth") == 5 * len(requests)
        for scheme in ("bearer ", "BEARER ", "Bearer   "):  # as HTTP takes it
            assert count(stub, metadata=[("authorization", scheme + ADA)]) > 0
        assert count(stub, metadata=bearer(ADA)) > 0
        # Health needs no key: probes have none.
        assert health_pb2_grpc.HealthStub(c).Check(health_pb2.HealthCheckRequest()).status == SERVING
        # One's own generations, or everybody's for an administrator.
        for other, may in ((BOB, False), (ADA, True), (ROOT_KEY, True)):
            call = stub.Generate(chat("Write an essay.", request_id="ada-1", stop=pb.Stop(ignore_eos=True)), metadata=bearer(ADA))
            next(call)
            cancel = lambda: stub.Cancel(pb.CancelRequest(request_id="ada-1"), metadata=bearer(other))
            if may:
                cancel()
                assert refusal(lambda: call).code != code.OK
            else:
                assert refusal(cancel).code == code.NOT_FOUND and call.is_active()
                call.cancel()
                wait_until(lambda: stub.GetStats(pb.GetStatsRequest(), metadata=bearer(ADA)).queue.running == 0)
        assert ADA not in d.text() and ADA[-12:] not in d.text()  # four characters may stand in a random id


def certificate(folder, name):
    """A new self-signed pair in place of the old one, changed as one: a folder behind a link."""
    made = folder / name
    made.mkdir()
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1",
                    "-keyout", str(made / "key.pem"), "-out", str(made / "cert.pem")], check=True, capture_output=True)
    link = folder / "link"
    link.symlink_to(made)
    os.replace(link, folder / "now")
    return (made / "cert.pem").read_bytes()


def test_tls_and_new_certificates(tmp_path):
    first = certificate(tmp_path, "first")
    now = tmp_path / "now"
    settings = [ANY_PORT, f"server.tls_certificate={now / 'cert.pem'}", f"server.tls_key={now / 'key.pem'}"]

    def works(d, root):
        credentials = grpc.ssl_channel_credentials(root)
        with grpc.secure_channel(f"127.0.0.1:{d.grpc_port}", credentials) as c:
            try:
                return count(stubs.InferenceStub(c)) > 0
            except grpc.RpcError as error:
                assert error.code() == grpc.StatusCode.UNAVAILABLE
                return False

    with Daemon(*settings) as d:
        assert works(d, first)
        with channel(d) as c:  # without TLS
            assert refusal(stubs.InferenceStub(c).CountTokens, pb.CountTokensRequest(text="owl"), timeout=5).code == grpc.StatusCode.UNAVAILABLE
        second = certificate(tmp_path, "second")
        wait_until(lambda: works(d, second))
        assert not works(d, first)


@pytest.mark.parametrize("emptied", ["cert.pem", "key.pem"])
def test_an_empty_certificate_or_key_does_not_end_the_daemon(tmp_path, emptied):
    """gRPC's library aborts when it reads an empty one, as a renewal on a full disk leaves it."""
    root = certificate(tmp_path, "first")
    now = tmp_path / "now"
    with Daemon(ANY_PORT, f"server.tls_certificate={now / 'cert.pem'}", f"server.tls_key={now / 'key.pem'}") as d:
        whole = (now / emptied).read_bytes()
        for bytes_left in (0, len(whole) // 2):
            (now / emptied).write_bytes(whole[:bytes_left])
            with pytest.raises(subprocess.TimeoutExpired):
                d.process.wait(7)  # the library looks every 5 s
            with grpc.secure_channel(f"127.0.0.1:{d.grpc_port}", grpc.ssl_channel_credentials(root)) as c:
                assert count(stubs.InferenceStub(c)) > 0
            assert d.process.poll() is None, d.text()


@pytest.mark.parametrize("file", ["cert.pem", "key.pem"])
def test_a_certificate_of_another_key_is_not_taken_up(tmp_path, file):
    """A renewal writes one file before the other: every handshake failed until both were there."""
    root = certificate(tmp_path, "first")
    now, other = tmp_path / "now", tmp_path / "other"
    other.mkdir()
    certificate(other, "second")
    with Daemon(ANY_PORT, f"server.tls_certificate={now / 'cert.pem'}", f"server.tls_key={now / 'key.pem'}") as d:
        (now / file).write_bytes((other / "now" / file).read_bytes())
        with pytest.raises(subprocess.TimeoutExpired):
            d.process.wait(7)  # the library looks every 5 s
        with grpc.secure_channel(f"127.0.0.1:{d.grpc_port}", grpc.ssl_channel_credentials(root)) as c:
            assert count(stubs.InferenceStub(c)) > 0


def test_unix_socket(tmp_path):
    path = tmp_path / "grpc.socket"
    with Daemon(f"grpc.address=unix:{path}") as d:
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        with grpc.insecure_channel(f"unix:{path}") as c:
            assert read(stubs.InferenceStub(c).Generate(chat("Tell me a story about an owl.", stop=pb.Stop(max_tokens=5)))).text
        second = subprocess.run([BIN / "thermoclined", "--set", "server.port=0", "--set", f"grpc.address=unix:{path}"], capture_output=True, timeout=30)
        assert second.returncode == 1 and b"grpc.address" in second.stderr
        with grpc.insecure_channel(f"unix:{path}") as c:
            assert count(stubs.InferenceStub(c)) > 0
    with socket.socket(socket.AF_UNIX) as left:  # as a daemon that was killed leaves it
        left.bind(str(path))
    with Daemon(f"grpc.address=unix:{path}"), grpc.insecure_channel(f"unix:{path}") as c:
        assert count(stubs.InferenceStub(c)) > 0


@pytest.mark.parametrize("address", ["50051", "localhost:", "127.0.0.1:65536", "127.0.0.1:-1", "unix:", "unix:/" + "x" * 107, ":50051", "192.0.2.1:50051", "0.0.0.0:50051"])
def test_bad_addresses(address):
    result = subprocess.run([BIN / "thermoclined", "--set", "server.port=0", "--set", f"grpc.address={address}"], capture_output=True, timeout=30)
    assert result.returncode == 78 and b"grpc.address" in result.stderr


def test_other_hosts_come_in_only_by_a_proxy_or_by_a_word(tmp_path):
    """gRPC 1.51 bounds neither streams that are reset at once nor CONTINUATION frames (CVE-2023-44487, CVE-2024-27316), with a key or without."""
    keys = tmp_path / "keys"
    keys.write_text(key_line("ada", ADA))
    keys.chmod(0o600)
    settings = [f"server.api_keys_file={keys}", "grpc.address=0.0.0.0:50051"]
    check = lambda *more: subprocess.run([BIN / "thermoclined", "--check", "--set", *settings, *more], capture_output=True, text=True, timeout=30)
    refused = check()
    assert refused.returncode == 78 and "CONTINUATION" in refused.stderr and "grpc.insecure_http2" in refused.stderr
    assert check("grpc.insecure_http2=true").returncode == 0


def test_a_port_that_is_taken(tmp_path):
    """Not an error of the configuration: systemd restarts the daemon until the port is free."""
    with Daemon(ANY_PORT) as d, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(5)
        result = subprocess.run([BIN / "thermoclined", "--set", "server.port=0", "--set", f"grpc.address=127.0.0.1:{d.grpc_port}"],
                                env={**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify")}, capture_output=True, timeout=30)
        assert result.returncode == 1 and b"grpc.address" in result.stderr
        said = dict(line.split("=", 1) for line in systemd.recv(65536).decode().splitlines())
        assert said["ERRNO"] == str(errno.EADDRNOTAVAIL) and "grpc.address" in said["STATUS"]


def test_off_by_default():
    with Daemon() as d:
        assert d.grpc_port is None and "gRPC" not in d.text()


def test_compressed_messages_are_refused_before_they_are_unpacked():
    """A message of a few hundred KB would take the memory of its unpacked form before its key is checked."""
    unpacked_mb = 256
    with Daemon(ANY_PORT) as d:
        most_mb = lambda: next(int(line.split()[1]) >> 10 for line in open(f"/proc/{d.process.pid}/status") if line.startswith("VmHWM"))
        before = most_mb()
        for algorithm in ("gzip", "deflate"):
            compression = {"gzip": grpc.Compression.Gzip, "deflate": grpc.Compression.Deflate}[algorithm]
            with grpc.insecure_channel(f"127.0.0.1:{d.grpc_port}", compression=compression, options=[("grpc.max_send_message_length", -1)]) as c:
                for text in ("owl" * 100, "a" * (unpacked_mb << 20)):
                    error = refusal(stubs.InferenceStub(c).CountTokens, pb.CountTokensRequest(text=text), timeout=30)
                    assert error.code == grpc.StatusCode.UNIMPLEMENTED and f"Compression algorithm '{algorithm}' is disabled" in error.message, error.message
        assert most_mb() - before < unpacked_mb // 4
        with channel(d) as c:
            assert count(stubs.InferenceStub(c)) > 0


@pytest.mark.parametrize("level", ["debug", "info"])
def test_what_protobuf_says_is_in_the_log(level):
    with Daemon(ANY_PORT, "log.format=json", f"log.level={level}") as d, channel(d) as c:
        raw = c.unary_unary(f"/{SERVICE}/CountTokens", request_serializer=lambda b: b, response_deserializer=lambda b: b)
        refusal(raw, b"\x0a\x08secret\xff\xfe")
        assert count(stubs.InferenceStub(c)) > 0
        d.terminate()
        assert d.wait() == 0
        lines = [json.loads(line) for line in d.log]  # each is one
        said = [line for line in lines if "CountTokensRequest.text" in line["message"]]
        assert [line["level"] for line in said] == ["debug"] * (level == "debug") and "secret" not in d.text()


def test_a_client_that_never_reads_is_cut_off(smollm):
    with Daemon(ANY_PORT, f"model.path={smollm}", "server.write_timeout_s=1") as d:
        # Windows that take little: what the daemon writes soon waits.
        small = {"grpc.http2.bdp_probe": 0, "grpc.http2.lookahead_bytes": 1024}
        with channel(d, **small) as idle_channel, channel(d) as c:
            call = stubs.InferenceStub(idle_channel).Generate(chat("Write a very long essay.", n=8, stop=pb.Stop(ignore_eos=True), response=pb.ResponseOptions(logprobs=True, top_logprobs=20)))
            next(call)
            other = stubs.InferenceStub(c)
            assert read(other.Generate(chat("Hello", stop=pb.Stop(max_tokens=3)))).text  # others go on
            wait_until(lambda: metric(d, "requests_cancelled_total", cause="slow_reader") > 0, 60)
            wait_until(lambda: idle(d))
            assert refusal(lambda: call).code == grpc.StatusCode.CANCELLED


def test_connections_are_counted_and_those_that_say_nothing_are_closed():
    """Strangers take no more than their places, HTTP goes on, and the places are free again."""
    def still_open(connections):
        n = 0
        for s in connections:
            s.setblocking(False)
            try:
                while s.recv(65536):
                    pass
            except BlockingIOError:
                n += 1
            except OSError:
                pass
        return n

    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"
    with Daemon(ANY_PORT, "server.connections_max=20", "server.connections_per_address_max=12", "server.read_timeout_s=10", "server.idle_timeout_s=10") as d:
        strangers = []
        began = time.monotonic()
        for address in ("127.0.0.2", "127.0.0.3"):
            for i in range(30):
                s = socket.create_connection(("127.0.0.1", d.grpc_port), source_address=(address, 0))
                strangers.append(s)
                with contextlib.suppress(ConnectionError):
                    s.sendall(preface if i % 2 else b"")
        # Of each address 18 are turned away; four of the first make way for the second.
        wait_until(lambda: metric(d, "requests_rejected_total", reason="connections") >= 40)
        if time.monotonic() - began < 9:  # none was closed for its silence yet
            assert still_open(strangers[:30]) == 8 and still_open(strangers[30:]) == 12
            assert metric(d, "requests_rejected_total", reason="connections") == 40
        assert len(os.listdir(f"/proc/{d.process.pid}/fd")) < 100
        assert httpx.get(d.url + "/health/ready", timeout=20).status_code == 200
        with channel(d) as c:
            grpc.channel_ready_future(c).result(60)  # it tries until there is a place
            assert count(stubs.InferenceStub(c)) == 2
        wait_until(lambda: still_open(strangers) == 0, 60)
