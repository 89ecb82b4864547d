"""The attacks of a hostile key, all at once; each attack was once a bug (docs/reliability.md)."""
import collections
import contextlib
import http.client
import itertools
import json
import os
import socket
import threading
import time

import grpc

BODY = (4 << 20) - 4096
GRAMMARS = ("root ::= s\ns ::= [a-z ,.A-Z{}] | s s | s s s", "root ::= s\ns ::= c t\nc ::= [a-z {}]\nt ::= \"\" | s t",
            "root ::= s\ns ::= [a-z {}] | [a-z ] s s")
STORY = [{"role": "user", "content": "Tell me a story."}]


class Attacker:
    def __init__(self, port, grpc_port, key, victims_prompts, seconds):
        self.port, self.grpc_port, self.key, self.victims_prompts = port, grpc_port, key, victims_prompts
        self.end = time.monotonic() + seconds
        self.counts = collections.defaultdict(collections.Counter)
        self.told, self.sent = 0, []
        self.number = itertools.count()

    def post(self, path, body, timeout=60):
        """The status and the answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        with contextlib.closing(connection):
            connection.request("POST", path, body if isinstance(body, str) else json.dumps(body), {"authorization": f"Bearer {self.key}"})
            answer = connection.getresponse()
            return answer.status, answer.read()

    def connect(self, path, length):
        client = socket.create_connection(("127.0.0.1", self.port), 20)
        client.sendall(f"POST {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {self.key}\r\ncontent-length: {length}\r\n\r\n".encode())
        return client

    # One attempt each; what is returned is counted.

    def tokens_of(self, prompt):
        rendered = json.loads(self.post("/apply-template", {"messages": [{"role": "user", "content": prompt}]})[1])["prompt"]
        return json.loads(self.post("/tokenize", {"content": rendered, "parse_special": True})[1])["tokens"]

    def prefixes(self):
        """Requests other clients' prompts in their own words: only prefixes that this key has sent itself may be cached."""
        tokens = self.tokens_of(self.victims_prompts[next(self.number) % len(self.victims_prompts)])
        status, answer = self.post("/v1/completions", {"prompt": tokens, "max_tokens": 1})
        own = max((common(tokens, sent) for sent in self.sent), default=0)
        self.sent.append(tokens)
        if status == 200 and json.loads(answer)["usage"]["prompt_tokens_details"]["cached_tokens"] > own:
            self.told += 1
        return status

    def ambiguous_grammars(self):
        n = next(self.number)
        grammar = GRAMMARS[n % len(GRAMMARS)].format(chr(0x100 + n % 5000))
        return self.post("/completion", {"prompt": "owl", "grammar": grammar, "n_predict": 200, "temperature": 1})[0]

    def sampling(self):
        return self.post("/completion", {"prompt": "owl", "n_predict": 200, "temperature": 2, "top_p": 0.999999, "top_k": 0, "ignore_eos": True})[0]

    def long_texts(self):
        return self.post("/tokenize", {"content": "owl and fox " * (BODY // 12)})[0]

    def values(self):
        kinds = ('{"messages":[' + "[]," * (BODY // 3) + "[]]}", '{"prompt":[' + "1," * (BODY // 2) + "1]}",
                 '{"messages":' + json.dumps(STORY) + ',"chat_template_kwargs":{"a":[' + "[]," * (BODY // 3) + "[]]}}",
                 '{"content":"' + "a" * BODY + '"}')
        n = next(self.number) % len(kinds)
        return self.post(("/v1/chat/completions", "/v1/completions", "/v1/chat/completions", "/tokenize")[n], kinds[n])[0]

    def unfinished(self):
        with self.connect("/v1/chat/completions", BODY) as client:
            client.sendall(b"x" * (BODY - 1000))
            client.settimeout(10)
            return client.recv(1 << 16).split(b" ")[1].decode()

    def early_bytes(self):
        body = json.dumps({"messages": STORY, "max_tokens": 400, "stream": True}).encode()
        with self.connect("/v1/chat/completions", len(body)) as client:
            client.sendall(body + b"G" * (64 << 10))
            client.settimeout(20)
            client.recv(1)  # it is being answered
        return "left"

    def slow_reader(self):
        body = json.dumps({"content": "owl " * 200_000}).encode()
        with self.connect("/tokenize", len(body)) as client:
            client.sendall(body)
            end = min(self.end, time.monotonic() + 20)
            while time.monotonic() < end and client.recv(300):
                time.sleep(0.2)
        return "read"

    def joined_control_tokens(self):
        parameters = {"type": "object", "properties": {"|im_end|": {"type": "string"}}}
        tools = [{"type": "function", "function": {"name": "f", "parameters": parameters}}]
        return self.post("/v1/chat/completions", {"messages": STORY, "tools": tools, "max_tokens": 8})[0]

    def metadata(self):
        with grpc.insecure_channel(f"127.0.0.1:{self.grpc_port}") as channel:
            call = channel.unary_unary("/thermocline.v1.Inference/GetModel")
            try:
                call(b"", metadata=[("authorization", f"Bearer {self.key}"), ("x-large", "y" * (64 << 10))], timeout=20)
                return "taken"
            except grpc.RpcError as error:
                return error.code().name

    def run(self, attempt):
        name = attempt.__name__
        while time.monotonic() < self.end:
            try:
                self.counts[name][attempt()] += 1
            except (OSError, http.client.HTTPException, IndexError) as error:
                self.counts[name][type(error).__name__] += 1
                time.sleep(0.05)


def common(a, b):
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))


def attack(port, grpc_port, key, own_prompt, victims_prompts, seconds, only, results):
    """Attacks prefixes first, then runs all attacks (or `only` some) at once for `seconds`; `results` gets the outcomes."""
    os.nice(19)
    a = Attacker(port, grpc_port, key, victims_prompts, seconds)
    a.sent.append(a.tokens_of(own_prompt))
    for _ in range(2 * len(victims_prompts)):
        a.counts["prefixes"][a.prefixes()] += 1
    crowd = {a.ambiguous_grammars: 16, a.sampling: 15, a.long_texts: 8, a.values: 8, a.unfinished: 8, a.early_bytes: 4, a.slow_reader: 4,
             a.joined_control_tokens: 2, a.metadata: 1}
    threads = [threading.Thread(target=a.run, args=(attempt,)) for attempt, times in crowd.items() for _ in range(times)
               if not only or attempt.__name__ in only]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name, counts in a.counts.items():
        results[name] = dict(counts)
    results["prefixes told"] = a.told
