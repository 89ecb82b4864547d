"""A chat over gRPC. The modules below `thermocline` are stubs, made from the description of the interface in ../proto:

    pip install grpcio grpcio-tools
    python -m grpc_tools.protoc -I../proto --python_out=. --grpc_python_out=. thermocline/v1/inference.proto
    python grpc_chat.py "Tell me a story about a boat."

gRPC is off by default. This daemon has it: thermoclined --set grpc.address=127.0.0.1:50051
"""
import os
import sys

import grpc
from thermocline.v1 import inference_pb2 as pb
from thermocline.v1 import inference_pb2_grpc

question = " ".join(sys.argv[1:]) or "Tell me a story about an owl."
metadata = [("authorization", f"Bearer {os.environ.get('THERMOCLINE_KEY', 'none')}")]
request = pb.GenerateRequest(chat=pb.Chat(messages=[pb.ChatMessage(role="user", content=question)]), stop=pb.Stop(max_tokens=300))

with grpc.insecure_channel(os.environ.get("THERMOCLINE_GRPC", "127.0.0.1:50051")) as channel:
    for event in inference_pb2_grpc.InferenceStub(channel).Generate(request, metadata=metadata, timeout=300):
        if event.HasField("delta"):
            print(event.delta.text, end="", flush=True)
        elif event.HasField("finished"):
            usage = event.finished.usage
            print(f"\n\n{usage.prompt_tokens} tokens in the prompt, {usage.completion_tokens} in the answer")
