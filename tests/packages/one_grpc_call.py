"""One chat over gRPC with the daemon at ADDRESS: one_grpc_call.py ADDRESS"""
import sys

import grpc
from grpc_client import chat, pb, read, stubs

with grpc.insecure_channel(sys.argv[1]) as channel:
    answer = read(stubs.InferenceStub(channel).Generate(chat("Tell me a story about an owl.", stop=pb.Stop(max_tokens=16)), timeout=300))
print(answer.text)
assert answer.text and len(answer.finished) == 1
