"""Several models of one daemon: chosen by the name in a request, loaded when wanted, put to sleep for others."""
import concurrent.futures
import hashlib
import re
import subprocess
import time

import httpx
import pytest

from conftest import BIN, Daemon, refusal, wait_until
from daemon_client import value
from several_models import ask, configuration, MIB, states, states_while_loading, text_of, truths


MIB = 1 << 20


@pytest.fixture(scope="module")
def truth(smollm):
    return truths(smollm)


@pytest.fixture(scope="module")
def several(tmp_path_factory, smollm):
    with Daemon(config=configuration(tmp_path_factory.mktemp("several"), smollm)) as d:
        yield d


def test_each_name_is_answered_by_its_model(several, truth):
    assert states(several) == {"tide": "ready", "smol": "sleeping", "experts": "sleeping"}
    for name in ("tide", "smol", "experts", "smol", "tide"):
        answer = ask(several, name)
        assert text_of(answer) == truth[name] and answer.json()["model"] == name
    assert text_of(ask(several, "GPT-4o:latest")) == truth["tide"]
    assert states(several) == {"tide": "ready", "smol": "ready", "experts": "ready"}
    listed = {m["id"]: m["status"]["value"] for m in httpx.get(several.url + "/v1/models").json()["data"]}
    assert listed == {"tide": "loaded", "gpt-4o": "loaded", "smol": "loaded", "experts": "loaded"}
    assert httpx.get(several.url + "/v1/models/smol").json()["context_length"] == 2048


def test_an_unknown_name_is_told_the_known_ones(several):
    answer = ask(several, "nobody")
    assert answer.status_code == 404 and "'tide', 'gpt-4o', 'smol', 'experts'" in answer.json()["error"]["message"]


def test_metrics_have_the_model(several):
    ask(several, "smol")
    text = httpx.get(several.url + "/metrics").text
    assert re.search(r'thermocline_state\{state="ready",model="smol"\} 1', text), text[:500]
    assert text.count("# TYPE thermocline_prompt_tokens_total ") == 1
    assert 'thermocline_generation_tokens_total{model="smol"}' in text and "process_resident_memory_bytes{" not in text


def test_ollama_s_keep_alive_and_list(several):
    body = {"model": "experts", "prompt": "An owl", "stream": False, "options": {"num_predict": 2}, "keep_alive": "1h30m"}
    assert httpx.post(several.url + "/api/generate", json=body, timeout=60).status_code == 200
    running = {m["name"]: m["expires_at"] for m in httpx.get(several.url + "/api/ps").json()["models"]}
    left = time.mktime(time.strptime(running["experts:latest"], "%Y-%m-%dT%H:%M:%SZ")) - time.mktime(time.gmtime())
    assert 5300 < left <= 5401 and running["tide:latest"].startswith("9999")
    tags = {m["name"] for m in httpx.get(several.url + "/api/tags").json()["models"]}
    assert tags == {"tide:latest", "gpt-4o:latest", "smol:latest", "experts:latest"}
    assert httpx.post(several.url + "/api/generate", json={"model": "experts", "keep_alive": 0}, timeout=60).json()["done_reason"] == "unload"
    wait_until(lambda: states(several)["experts"] == "sleeping", 20)
    body["keep_alive"] = 0
    assert httpx.post(several.url + "/api/generate", json=body, timeout=60).status_code == 200
    wait_until(lambda: states(several)["experts"] == "sleeping", 20)


def test_models_are_loaded_and_unloaded_by_llama_server_s_routes(several):
    assert httpx.post(several.url + "/models/load", json={"model": "experts"}).json() == {"success": True}
    wait_until(lambda: states(several)["experts"] == "ready", 30)
    assert httpx.post(several.url + "/models/unload", json={"model": "experts"}).json() == {"success": True}
    wait_until(lambda: states(several)["experts"] == "sleeping", 20)
    assert httpx.post(several.url + "/models/load", json={"model": "nobody"}).status_code == 404


def test_requests_for_a_sleeping_model_share_one_load_and_others_go_on(several, truth):
    httpx.post(several.url + "/models/unload", json={"model": "smol"})
    wait_until(lambda: states(several)["smol"] == "sleeping", 20)
    before = several.text().count("the model smol is awake")
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda name: text_of(ask(several, name)), ["smol"] * 8 + ["tide"] * 4))
    assert answers == [truth["smol"]] * 8 + [truth["tide"]] * 4
    assert len(several.logged("the model smol is awake", before + 1)) == before + 1


def test_a_client_that_leaves_while_its_model_wakes_leaves_nothing(several):
    httpx.post(several.url + "/models/unload", json={"model": "smol"})
    wait_until(lambda: states(several)["smol"] == "sleeping", 20)
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(several.url + "/v1/chat/completions", json={"model": "smol", "messages": [{"role": "user", "content": "Hi"}]}, timeout=0.02)
    wait_until(lambda: states(several)["smol"] == "ready", 30)
    httpx.post(several.url + "/models/unload", json={"model": "smol"})
    wait_until(lambda: states(several)["smol"] == "sleeping", 20)  # nobody holds it


def test_requests_count_for_their_model(several):
    route = {"api": "/v1/chat/completions", "code": "200"}
    count = lambda: {m: value(several, "requests_total", model=m, **route) for m in ("tide", "smol")}  # noqa: E731
    assert text_of(ask(several, "smol")) and text_of(ask(several, "tide"))
    before = count()
    for _ in range(3):
        assert text_of(ask(several, "smol"))
    wait_until(lambda: count() == {"tide": before["tide"], "smol": before["smol"] + 3}, 20)
    assert any("route=/v1/chat/completions" in line for line in several.logged("model=smol"))


def test_operators_see_each_model(several):
    assert text_of(ask(several, "smol"))
    names = {model: several.admin.get("/v1/status", params={"model": model}).json() for model in ("gpt-4o", "smol", "")}
    assert [names[m]["model"] for m in names] == ["tide", "smol", "tide"] and names["smol"]["architecture"] == "llama"
    assert several.admin.get("/v1/status?model=nobody").status_code == 404
    assert several.admin.get("/admin/predictors?x=1&model=smol").json()["layers"]
    body = {"model": "smol", "stream": True, "max_tokens": 1500, "ignore_eos": True, "messages": [{"role": "user", "content": "Hi"}]}
    with httpx.stream("POST", several.url + "/v1/chat/completions", json=body, timeout=60, headers={"x-request-id": "of-smol"}) as answer:
        lines = answer.iter_lines()
        next(lines)
        [running] = several.admin.get("/admin/requests").json()["requests"]
        assert (running["id"], running["model"]) == ("of-smol", "smol")
        assert several.admin.post("/admin/cancel", json={"id": "of-smol"}).status_code == 200
        assert any('"cause":"api"' in line for line in lines)


def test_a_key_may_be_limited_to_models(tmp_path, smollm, truth):
    from grpc_client import channel, chat, pb, read, refusal, stubs
    keys = {"guest": ":models=smol,experts", "ops": ":admin", "nobody": ":models=elsewhere", "warden": ":admin:models=smol"}
    lines = [subprocess.run([str(BIN / "thermoclined"), "--hash-key", name], input=f"key-of-{name}-0123456".encode(), capture_output=True, check=True).stdout.decode().strip()
             for name in keys]
    (tmp_path / "keys").write_text("".join(line + right + "\n" for line, right in zip(lines, keys.values())))
    path = configuration(tmp_path, smollm, server={"api_keys_file": tmp_path / "keys"}, grpc={"address": "127.0.0.1:0"})
    bearer = lambda name: {"authorization": f"Bearer key-of-{name}-0123456"}  # noqa: E731
    with Daemon(config=path) as d, channel(d) as c:
        client = {name: httpx.Client(base_url=d.url, headers=bearer(name), timeout=120) for name in keys}
        chat_by = lambda who, model: client[who].post("/v1/chat/completions", json={  # noqa: E731
            "model": model, "messages": [{"role": "user", "content": "Who lives in the sea?"}], "max_tokens": 8, "temperature": 0})
        assert text_of(chat_by("guest", "smol")) == text_of(chat_by("guest", "")) == truth["smol"]  # its first one
        for name in ("tide", "gpt-4o", "nobody"):
            refused = chat_by("guest", name)
            assert refused.status_code == 404 and "tide" not in refused.text.replace(f"'{name}'", ""), refused.text
        assert text_of(chat_by("ops", "tide")) == truth["tide"]
        ids = lambda who: [m["id"] for m in client[who].get("/v1/models").json()["data"]]  # noqa: E731
        assert ids("guest") == ["smol", "experts"] and ids("ops") == ["tide", "gpt-4o", "smol", "experts"]
        assert client["guest"].get("/v1/models/tide").status_code == 404 and client["guest"].get("/v1/models/smol").status_code == 200
        for route in ("/api/tags", "/api/ps"):
            assert "tide" not in client["guest"].get(route).text and "smol" in client["guest"].get(route).text
        for route, body in (("/api/show", {"model": "tide"}), ("/api/generate", {"model": "tide", "prompt": "x"}), ("/api/embed", {"model": "tide", "input": "x"}),
                            ("/v1/messages", {"model": "tide", "max_tokens": 2, "messages": [{"role": "user", "content": "x"}]}), ("/tokenize", {"model": "tide", "content": "x"}),
                            ("/v1/embeddings", {"model": "tide", "input": "x"}), ("/completion", {"model": "tide", "prompt": "x"}), ("/v1/responses", {"model": "tide", "input": "x"})):
            assert client["guest"].post(route, json=body).status_code == 404, route
        assert client["guest"].get("/props?model=tide").status_code == 404 and "tidepool" not in client["guest"].get("/props").text
        # A body that names another model, or the key's own, or escapes the name, shows nothing of the others.
        for route in ("/props", "/v1/status", "/slots", "/tokenizer_info", "/health", "/health/ready"):
            for target, body in ((route, {"model": "nobody"}), (route, {"model": "tide"}), (f"{route}?model=experts", {"model": "tide"}), (route, {})):
                answer = client["guest"].request("GET", target, json=body)
                assert "tide" not in answer.text.replace("'tide'", ""), (target, body, answer.text)
        for text in ('{"mod\\u0065l": "tide", "prompt": "x"}', '{"model": "smol", "model": "tide", "prompt": "x"}'):
            answer = client["guest"].post("/v1/completions", content=text)
            assert answer.status_code in (400, 404) and "gpt-4o" not in answer.text, answer.text
        for route in ("/props", "/v1/status", "/slots", "/tokenizer_info"):
            assert client["nobody"].get(route).status_code == 404, route
        assert ids("nobody") == [] and client["nobody"].get("/health/ready").status_code == 200
        stub, metadata = stubs.InferenceStub(c), list(bearer("guest").items())
        ask_by = lambda model: stub.Generate(chat("Who lives in the sea?", model=model, sampling=pb.Sampling(temperature=0), stop=pb.Stop(max_tokens=8)), metadata=metadata)  # noqa: E731
        assert refusal(lambda: ask_by("tide")).reason == "MODEL_NOT_FOUND" and read(ask_by("")).text == truth["smol"]
        assert refusal(stub.Tokenize, pb.TokenizeRequest(text="x", model="tide"), metadata=metadata).reason == "MODEL_NOT_FOUND"
        # An operator's key may be limited, too.
        with httpx.stream("POST", d.url + "/v1/chat/completions", headers=bearer("ops") | {"x-request-id": "of-tide"}, timeout=60, json={
                "model": "tide", "stream": True, "max_tokens": 2000, "ignore_eos": True, "messages": [{"role": "user", "content": "Hi"}]}) as answer:
            lines = answer.iter_lines()
            next(lines)
            assert refusal(stub.Cancel, pb.CancelRequest(request_id="of-tide"), metadata=list(bearer("warden").items())).reason == "REQUEST_NOT_FOUND"
        for route in ("/models/load", "/models/unload"):
            refused = client["warden"].post(route, json={"model": "tide"})
            assert refused.status_code == 404 and "experts" not in refused.text, refused.text
            assert client["warden"].post(route, json={"model": "smol"}).status_code == 200
        for each in client.values():
            each.close()


def test_a_key_without_the_model_of_the_daemon_sees_none(tmp_path):
    line = subprocess.run([str(BIN / "thermoclined"), "--hash-key", "guest"], input=b"key-of-guest-0123456", capture_output=True, check=True).stdout.decode().strip()
    (tmp_path / "keys").write_text(line + ":models=elsewhere\n")
    with Daemon(f"server.api_keys_file={tmp_path / 'keys'}") as d, httpx.Client(base_url=d.url, headers={"authorization": "Bearer key-of-guest-0123456"}) as client:
        for route in ("/props", "/v1/status", "/slots"):
            assert client.get(route).status_code == 404, route
        assert client.post("/v1/completions", json={"prompt": "x", "max_tokens": 1}).status_code == 404
        assert client.post("/tokenize", json={"content": "x"}).status_code == 404


def test_grpc_calls_name_their_model(tmp_path, smollm, truth):
    from grpc_client import channel, chat, pb, read, refusal, stubs
    path = configuration(tmp_path, smollm)
    path.write_text(path.read_text() + "grpc:\n  address: 127.0.0.1:0\n")
    with Daemon(config=path) as d, channel(d) as c:
        stub = stubs.InferenceStub(c)
        ask_by = lambda model: read(stub.Generate(chat("Who lives in the sea?", model=model, sampling=pb.Sampling(temperature=0), stop=pb.Stop(max_tokens=8)), timeout=120))  # noqa: E731
        for model, name in (("experts", "experts"), ("smol", "smol"), ("gpt-4o", "tide"), ("", "tide")):
            answer = ask_by(model)
            assert answer.started.model == name and answer.text == truth[name]
        sizes = {m: len(stub.Tokenize(pb.TokenizeRequest(text="a grey heron", model=m), timeout=60).token_ids) for m in ("tide", "smol")}
        assert stub.CountTokens(pb.CountTokensRequest(text="a grey heron", model="smol"), timeout=60).context_length == 2048 and len(sizes) == 2
        assert stub.GetModel(pb.GetModelRequest(model="smol")).architecture == "llama" and stub.GetModel(pb.GetModelRequest()).name == "tide"
        assert refusal(lambda: ask_by("nobody")).reason == "MODEL_NOT_FOUND"
        # The first model sleeps, too, and a call wakes it.
        assert d.admin.post("/models/unload", json={"model": "tide"}).json() == {"success": True}
        wait_until(lambda: states(d)["tide"] == "sleeping", 20)
        assert stub.GetStats(pb.GetStatsRequest(model="smol")).state == pb.STATE_READY
        assert ask_by("tide").text == truth["tide"]


def test_a_request_at_the_start_loads_no_model_twice(tmp_path, smollm):
    path = tmp_path / "slow.yaml"
    path.write_text(f"models:\n  - path: {smollm}\n    name: smol\n    pinned: true\n  - path: tidepool\n    name: tide\n")
    with Daemon(config=path, wait=False) as d:
        wait_until(lambda: d.port is not None, 20)
        assert states_while_loading(d) == "loading"
        assert text_of(ask(d, "smol")) and text_of(ask(d, "tide")) and text_of(ask(d, "smol"))
        assert len(d.logged("the model smol is awake")) == 1


def test_a_drain_ends_all_models(tmp_path, smollm):
    with Daemon(config=configuration(tmp_path, smollm)) as d:
        text_of(ask(d, "smol"))
        with httpx.stream("POST", d.url + "/v1/chat/completions", json={"model": "smol", "stream": True, "max_tokens": 60, "ignore_eos": True,
                          "messages": [{"role": "user", "content": "Hi"}]}, timeout=60) as answer:
            lines = answer.iter_lines()
            next(lines)
            d.process.terminate()
            assert any(line == "data: [DONE]" for line in lines)
        assert d.process.wait(30) == 0


def test_only_an_operator_puts_models_to_sleep(tmp_path, smollm):
    keys = tmp_path / "keys"
    keys.write_text("".join(f"{name}:{hashlib.sha256(f'{name}-0123456789abcdef'.encode()).hexdigest()}{rights}\n" for name, rights in (("eve", ""), ("root", ":admin"))))
    keys.chmod(0o600)
    with Daemon(config=configuration(tmp_path, smollm, server={"api_keys_file": keys})) as d:
        def unload(name):
            return httpx.post(d.url + "/models/unload", json={"model": "tide"}, headers={"authorization": f"Bearer {name}-0123456789abcdef"}).status_code
        assert unload("eve") == 403 and states(d)["tide"] == "ready"
        assert unload("root") == 200
        wait_until(lambda: states(d)["tide"] == "sleeping", 20)
