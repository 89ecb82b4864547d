"""Rejections of the gRPC interface: fields out of range, oversized prompts and messages, malformed bytes; codes and details."""
import socket

import grpc
import pytest
from conftest import Daemon
from grpc_client import SERVICE, begun, channel, chat, daemon, metric, pb, read, refusal, stub, stubs  # daemon, stub: fixtures

OWL = "Tell me a story about an owl."


WRONG = [
    (dict(sampling=pb.Sampling(temperature=101)), "sampling.temperature"),
    (dict(sampling=pb.Sampling(temperature=float("nan"))), "sampling.temperature"),
    (dict(sampling=pb.Sampling(top_p=-0.1)), "sampling.top_p"),
    (dict(sampling=pb.Sampling(top_k=-1)), "sampling.top_k"),
    (dict(sampling=pb.Sampling(min_p=1.5)), "sampling.min_p"),
    (dict(sampling=pb.Sampling(typical_p=2)), "sampling.typical_p"),
    (dict(sampling=pb.Sampling(repetition_penalty=0)), "sampling.repetition_penalty"),
    (dict(sampling=pb.Sampling(presence_penalty=3)), "sampling.presence_penalty"),
    (dict(sampling=pb.Sampling(frequency_penalty=float("inf"))), "sampling.frequency_penalty"),
    (dict(sampling=pb.Sampling(dry=pb.Dry(base=0.5))), "sampling.dry.base"),
    (dict(sampling=pb.Sampling(dry=pb.Dry(multiplier=1, sequence_breakers=[""]))), "sampling.dry.sequence_breakers"),
    (dict(sampling=pb.Sampling(logit_bias={5: 200})), "sampling.logit_bias[5]"),
    (dict(sampling=pb.Sampling(logit_bias={-1: 1})), "sampling.logit_bias"),
    (dict(sampling=pb.Sampling(logit_bias={2048: 1})), "sampling.logit_bias"),
    (dict(sampling=pb.Sampling(logit_bias={i: 1 for i in range(1025)})), "sampling.logit_bias"),
    (dict(stop=pb.Stop(max_tokens=0)), "stop.max_tokens"),
    (dict(stop=pb.Stop(min_tokens=-1)), "stop.min_tokens"),
    (dict(stop=pb.Stop(min_tokens=5, max_tokens=4)), "stop.min_tokens"),
    (dict(stop=pb.Stop(stop=["x"] * 17)), "stop.stop"),
    (dict(stop=pb.Stop(stop=["x" * 257])), "stop.stop"),
    (dict(stop=pb.Stop(stop_token_ids=range(65))), "stop.stop_token_ids"),
    (dict(response=pb.ResponseOptions(logprobs=True, top_logprobs=21)), "response.top_logprobs"),
    (dict(response=pb.ResponseOptions(top_logprobs=2)), "response.top_logprobs"),
    (dict(n=0), "n"),
    (dict(n=9), "n"),
    (dict(n=2**31 - 1), "n"),
    (dict(priority=11), "priority"),
    (dict(timeout_s=0), "timeout_s"),
    (dict(timeout_s=-1), "timeout_s"),
    (dict(ffn_mode="fast"), "ffn_mode"),
    (dict(ffn_mode="x" * 2000), "ffn_mode"),
    (dict(speculation=pb.Speculation(mode="fast")), "speculation.mode"),
    (dict(speculation=pb.Speculation(draft_tokens=21)), "speculation.draft_tokens"),
    (dict(request_id="no spaces"), "request_id"),
    (dict(request_id="x" * 129), "request_id"),
    (dict(chat=pb.Chat()), "chat.messages"),
    (dict(chat=pb.Chat(messages=[pb.ChatMessage(role="wizard", content="x")])), "chat.messages"),
    (dict(token_ids=pb.TokenIds(ids=[-1])), "token_ids"),
    (dict(token_ids=pb.TokenIds(ids=[2048])), "token_ids"),
    (dict(token_ids=pb.TokenIds()), "token_ids"),
    (dict(input=None), "input"),
]


@pytest.mark.parametrize("fields,field", WRONG, ids=[f"{i}-{field}" for i, (_, field) in enumerate(WRONG)])
def test_every_field_is_checked_by_name(stub, fields, field):
    request = pb.GenerateRequest(**{k: v for k, v in fields.items() if v is not None})
    if not {"chat", "token_ids", "input"} & fields.keys():
        request.text = "x"
    error = refusal(stub.Generate, request)
    assert (error.code, error.reason, error.metadata.get("field")) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD", field), error.message
    assert error.retry_s is None


def test_errors_have_canonical_codes_and_details(stub):
    code = grpc.StatusCode
    too_long = refusal(stub.Generate, pb.GenerateRequest(text="owl " * 600))
    assert (too_long.code, too_long.reason) == (code.INVALID_ARGUMENT, "CONTEXT_LENGTH_EXCEEDED") and "512" in too_long.message
    unknown = refusal(stub.Generate, chat(OWL, model="gpt-4"))
    assert (unknown.code, unknown.reason) == (code.NOT_FOUND, "MODEL_NOT_FOUND") and "tidepool" in unknown.message
    endless = refusal(stub.Generate, chat(OWL, model="🐙" * 3000))  # comes back in trailers, of which a client takes 8 KiB
    assert (endless.code, endless.reason) == (code.NOT_FOUND, "MODEL_NOT_FOUND") and "tidepool" in endless.message
    assert 20 < endless.message.count("🐙") < 100 and "\ufffd" not in endless.message
    not_loaded = refusal(stub.Generate, chat(OWL, ffn_mode="lowrank"))
    assert (not_loaded.code, not_loaded.reason) == (code.FAILED_PRECONDITION, "FAILED_PRECONDITION")
    nobody = refusal(stub.Cancel, pb.CancelRequest(request_id="nobody's"))
    assert (nobody.code, nobody.reason) == (code.NOT_FOUND, "REQUEST_NOT_FOUND")
    token = refusal(stub.Detokenize, pb.DetokenizeRequest(token_ids=[1, 5000]))
    assert (token.code, token.metadata) == (code.INVALID_ARGUMENT, {"field": "token_ids"})
    for call, request in ((stub.Tokenize, pb.TokenizeRequest()), (stub.CountTokens, pb.CountTokensRequest())):
        assert refusal(call, request).metadata == {"field": "input"}


def test_what_is_refused_is_counted_by_its_reason(daemon, stub):
    rejected = lambda reason: metric(daemon, "requests_rejected_total", reason=reason)
    late, too_long = pb.GenerateRequest(text="x", timeout_s=1e-9), pb.GenerateRequest(text="owl " * 600)
    for reason, call, request in (("bad_request", stub.Tokenize, pb.TokenizeRequest()), ("bad_request", stub.Detokenize, pb.DetokenizeRequest(token_ids=[-1])),
                                  ("bad_request", stub.Generate, pb.GenerateRequest()), ("deadline", stub.Generate, late), ("too_long", stub.Generate, too_long)):
        before = rejected(reason), metric(daemon, "requests_rejected_total")
        refusal(call, request)
        assert (rejected(reason), metric(daemon, "requests_rejected_total")) == (before[0] + 1, before[1] + 1), reason


def test_a_prompt_beyond_the_context_is_told_in_numbers(stub):
    owls = "owl " * 600
    tokens = stub.CountTokens(pb.CountTokensRequest(text=owls)).prompt_tokens
    requests = {"text": pb.GenerateRequest(text=owls), "chat": chat(owls), "token_ids": pb.GenerateRequest(token_ids=pb.TokenIds(ids=[5] * 600))}
    for field, request in requests.items():
        error = refusal(stub.Generate, request)
        assert error.reason == "CONTEXT_LENGTH_EXCEEDED" and error.metadata.pop("n_ctx") == "512", field
        told = int(error.metadata.pop("n_prompt_tokens"))
        assert told == {"text": tokens, "token_ids": 600}.get(field, max(told, tokens)) and error.metadata == {"field": field}
    # What cannot fit is not counted: so many there are at least.
    endless = refusal(stub.Generate, pb.GenerateRequest(text="owl " * 500_000))
    assert "at least " + endless.metadata["n_prompt_tokens"] in endless.message


def test_pieces_are_bounded(stub):
    error = refusal(stub.Tokenize, pb.TokenizeRequest(text="a1" * 40_000, with_pieces=True))
    assert error.code == grpc.StatusCode.INVALID_ARGUMENT and error.metadata == {"field": "with_pieces"} and "65536" in error.message
    assert len(stub.Tokenize(pb.TokenizeRequest(text="a1" * 40_000)).token_ids) > 65_536


def test_the_text_of_tokens_is_bounded_like_a_message():
    with Daemon("grpc.address=127.0.0.1:0", "server.body_bytes_max=2000") as d, channel(d) as c:
        stub = stubs.InferenceStub(c)
        answer = stub.Tokenize(pb.TokenizeRequest(text=OWL, with_pieces=True))
        piece, token = max(zip(answer.pieces, answer.token_ids), key=lambda pair: len(pair[0]))
        fit = 2000 // len(piece)
        assert len(stub.Detokenize(pb.DetokenizeRequest(token_ids=[token] * (fit - 1))).text) > 1900
        error = refusal(stub.Detokenize, pb.DetokenizeRequest(token_ids=[token] * (fit + 1)))
        assert (error.code, error.metadata) == (grpc.StatusCode.INVALID_ARGUMENT, {"field": "token_ids"}) and "server.body_bytes_max" in error.message


def test_a_message_that_is_too_large(stub):
    error = refusal(stub.Tokenize, pb.TokenizeRequest(text="x" * (5 << 20)))
    assert error.code == grpc.StatusCode.RESOURCE_EXHAUSTED and error.retry_s is None
    assert stub.CountTokens(pb.CountTokensRequest(text="owl")).fits


def test_bytes_that_are_no_message(daemon, stub):
    with channel(daemon) as c:
        raw = c.unary_stream(f"/{SERVICE}/Generate", request_serializer=lambda b: b, response_deserializer=lambda b: b)
        for payload in (b"\xff" * 100, b"\x1a\x04\xff\xfe\xfd\xfc", b"\x0a\xff\xff\xff\xff\x7f"):  # noise, ill-formed UTF-8, a length beyond the end
            assert refusal(raw, payload).code in (grpc.StatusCode.INTERNAL, grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNIMPLEMENTED)
        unknown = c.unary_unary(f"/{SERVICE}/Nothing", request_serializer=lambda b: b, response_deserializer=lambda b: b)
        assert refusal(unknown, b"").code == grpc.StatusCode.UNIMPLEMENTED
    with socket.create_connection(("127.0.0.1", daemon.grpc_port)) as raw_socket:
        raw_socket.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        raw_socket.settimeout(5)
        raw_socket.recv(100)
    assert stub.CountTokens(pb.CountTokensRequest(text="owl")).fits


def test_more_choices_than_the_queue_takes_are_refused_for_good():
    with Daemon("grpc.address=127.0.0.1:0", "engine.queue_capacity=3") as d, channel(d) as c:
        stub = stubs.InferenceStub(c)
        error = refusal(stub.Generate, chat("Hello", n=4, stop=pb.Stop(max_tokens=1)))
        assert error.code == grpc.StatusCode.INVALID_ARGUMENT and "queue_capacity" in error.message
        assert len(read(stub.Generate(chat("Hello", n=3, stop=pb.Stop(max_tokens=1)))).finished) == 3


@pytest.mark.parametrize("entries", [1, 40])
def test_too_much_metadata_is_one_call_s_fault(entries):
    """A proxy sends many clients' calls by one connection: one with too much metadata must not end the others."""
    with Daemon("grpc.address=127.0.0.1:0") as d, channel(d) as c:
        stub = stubs.InferenceStub(c)
        running = begun(stub.Generate(chat("Count.", stop=pb.Stop(ignore_eos=True, max_tokens=300))))
        for kib in (33, 100, 200):
            metadata = [(f"x-entry-{i}", "y" * (kib * 1024 // entries)) for i in range(entries)]
            error = refusal(stub.CountTokens, pb.CountTokensRequest(text="owl"), metadata=metadata)
            assert (error.code, error.metadata) == (grpc.StatusCode.INVALID_ARGUMENT, {"field": "metadata"}), error.message
        metadata = [(f"x-entry-{i}", "y" * (31 * 1024 // entries)) for i in range(entries)]
        assert stub.CountTokens(pb.CountTokensRequest(text="owl"), metadata=metadata, timeout=20).prompt_tokens > 0
        assert [e for e in running][-1].HasField("finished")
