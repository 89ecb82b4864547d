"""The gRPC interface's stubs, made from proto/ by grpcio-tools, and shared parts of its tests."""
import importlib
import sys
import tempfile
from types import SimpleNamespace

import grpc
import httpx
import pytest
from conftest import ROOT, Daemon
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from grpc_tools import protoc
from prometheus_client.parser import text_string_to_metric_families

_folder = tempfile.mkdtemp(prefix="thermocline-stubs-")
assert protoc.main(["", f"-I{ROOT / 'proto'}", f"--python_out={_folder}", f"--grpc_python_out={_folder}", "thermocline/v1/inference.proto"]) == 0
sys.path.insert(0, _folder)
pb = importlib.import_module("thermocline.v1.inference_pb2")
stubs = importlib.import_module("thermocline.v1.inference_pb2_grpc")

SERVICE = "thermocline.v1.Inference"


def channel(daemon, **options):
    return grpc.insecure_channel(f"127.0.0.1:{daemon.grpc_port}", options=list(options.items()))


@pytest.fixture(scope="module")
def daemon():
    with Daemon("grpc.address=127.0.0.1:0") as d:
        yield d


@pytest.fixture(scope="module")
def stub(daemon):
    with channel(daemon) as c:
        yield stubs.InferenceStub(c)


def chat(*contents, **fields):
    """A GenerateRequest with one user's message, or several in turn with the assistant's."""
    messages = [pb.ChatMessage(role=("user", "assistant")[i % 2], content=text) for i, text in enumerate(contents)]
    return pb.GenerateRequest(chat=pb.Chat(messages=messages), **fields)


def begun(call):
    """`call`, once it has said something: until then its generation may wait in the queue, though `started` has come."""
    for event in call:
        if event.HasField("delta"):
            return call
    raise AssertionError("the stream ended")


def read(stream):
    """All events of a stream: its texts by choice, the event `started` and the events `finished`."""
    events = list(stream)
    texts = {}
    for event in events:
        if event.HasField("delta"):
            texts[event.delta.choice_index] = texts.get(event.delta.choice_index, "") + event.delta.text
    return SimpleNamespace(events=events, texts=texts, text=texts.get(0, ""), started=events[0].started,
                           finished=[e.finished for e in events if e.HasField("finished")])


def refusal(call, *args, **kwargs):
    """Calls and fails: the code, ErrorInfo's reason and metadata, RetryInfo's seconds (None: none)."""
    try:
        answer = call(*args, **kwargs)
        if hasattr(answer, "__next__"):
            answer = list(answer)
    except grpc.RpcError as error:
        result = SimpleNamespace(code=error.code(), message=error.details(), reason=None, metadata={}, retry_s=None)
        status = rpc_status.from_call(error)
        for detail in status.details if status else []:
            info, retry = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
            if detail.Unpack(info):
                assert info.domain == "thermocline"
                result.reason, result.metadata = info.reason, dict(info.metadata)
            elif detail.Unpack(retry):
                result.retry_s = retry.retry_delay.seconds
        return result
    raise AssertionError(f"the call succeeded: {answer}")


def metric(daemon, name, **labels):
    """The sum of a metric's samples that have `labels`."""
    families = text_string_to_metric_families(httpx.get(daemon.url + "/metrics").text)
    return sum(s.value for f in families for s in f.samples if s.name == "thermocline_" + name and labels.items() <= s.labels.items())


def idle(daemon):
    return metric(daemon, "num_requests_running") == 0 and metric(daemon, "num_requests_waiting") == 0
