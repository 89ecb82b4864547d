"""A client that sends requests, compares the answers with known ones, and can misbehave."""
import asyncio
import json
import random
import time
from collections import Counter

PROMPTS = [f"{opening} {animal}" for opening in ("Tell me a story about", "Once upon a time there was", "Who knows") for animal in ("an owl", "a fox", "two bears", "the sea")]
LENGTHS = (4, 16, 40)
TIMEOUT = 90  # seconds without an end: a request is lost


class Lost(Exception):
    """Neither an answer nor an error."""


def path_and_body(api, prompt, tokens, stream):
    """A greedy request, and where the text lies: in an answer, in an event."""
    chat = {"messages": [{"role": "user", "content": prompt}], "temperature": 0, "max_tokens": tokens, "stream": stream}
    if api == "chat":
        return "/v1/chat/completions", chat
    if api == "messages":
        return "/v1/messages", chat
    if api == "ollama":
        return "/api/chat", {"messages": chat["messages"], "stream": stream, "options": {"temperature": 0, "num_predict": tokens}}
    return "/v1/completions", {"prompt": prompt, "temperature": 0, "max_tokens": tokens, "stream": stream}


def text_of(api, whole):
    if api == "chat":
        return whole["choices"][0]["message"]["content"]
    if api == "messages":
        return "".join(block["text"] for block in whole["content"])
    return whole["message"]["content"] if api == "ollama" else whole["choices"][0]["text"]


def piece_of(api, event):
    """The text of a stream's event, and True if it is the end of an answer."""
    if api == "messages":
        return event.get("delta", {}).get("text", ""), event.get("type") == "message_stop"
    if api == "ollama":
        return event["message"]["content"], event["done"]
    [choice] = event["choices"]
    text = choice.get("text", "") if api == "completion" else choice["delta"].get("content") or ""
    return text, choice["finish_reason"] is not None


class Connection:
    """One request by HTTP/1.1 on a connection of its own."""

    def __init__(self, port):
        self.port = port

    async def __aenter__(self):
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 20)
        return self

    async def __aexit__(self, *unused):
        self.writer.close()

    async def send(self, path, content):
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
        self.writer.write(head.encode() + content)
        await self.writer.drain()

    async def head(self):
        """The status; 0: the connection ended before."""
        line = await self.reader.readline()
        if not line:
            return 0
        self.chunked = False
        while (header := await self.reader.readline()).strip():
            self.chunked = self.chunked or header.lower().startswith(b"transfer-encoding: chunked")
        return int(line.split()[1])

    async def body(self):
        return await self.reader.read() if not self.chunked else b"".join([piece async for piece in self.pieces()])

    async def pieces(self):
        """A stream's chunks; ends with ConnectionError if the last one is missing."""
        while True:
            size = await self.reader.readline()
            if not size.endswith(b"\r\n"):
                raise ConnectionError
            count = int(size, 16)
            data = await self.reader.readexactly(count + 2)
            if count == 0:
                return
            yield data[:-2]


class Clients:
    """Counts the outcomes of requests: equal, wrong, refused (429, 503), failed (500, a broken connection), lost."""

    def __init__(self, port, golden=None, seed=1):
        self.port, self.golden, self.random = port, golden or {}, random.Random(seed)
        self.became, self.ended_at, self.gaps, self.complaints = Counter(), [], [], []

    async def learn(self):
        """The golden answers, from a daemon that nobody else uses; each twice."""
        for api in ("chat", "messages", "ollama", "completion"):
            for prompt in PROMPTS:
                for tokens in LENGTHS:
                    got = {await self.answer(api, prompt, tokens, stream) for stream in (False, True)}
                    assert len(got) == 1, (api, prompt, got)
                    [self.golden[api, prompt, tokens]] = got
        self.became.clear()

    async def answer(self, api, prompt, tokens, stream, leaves=None, pause=0.0):
        """The text; None: an error was told. `leaves`: after so many events; `pause`: before each read."""
        path, body = path_and_body(api, prompt, tokens, stream)
        async with Connection(self.port) as connection:
            await connection.send(path, json.dumps(body).encode())
            status = await connection.head()
            if status != 200:
                self.became["cut" if status == 0 else str(status)] += 1
                return None
            if not stream:
                return text_of(api, json.loads(await connection.body()))
            return await self.stream(connection, api, leaves, pause)

    async def stream(self, connection, api, leaves, pause):
        text, ended, rest, last, events = "", False, b"", None, 0
        async for piece in connection.pieces():
            rest += piece
            if pause:
                await asyncio.sleep(pause)
            *lines, rest = rest.split(b"\n")
            for line in lines:
                if api != "ollama":
                    if not line.startswith(b"data: ") or line == b"data: [DONE]":
                        continue
                    line = line[6:]
                if not line.strip():
                    continue
                event = json.loads(line)
                if "error" in event:
                    self.became["error event"] += 1
                    return None
                now = time.monotonic()
                said, ends = piece_of(api, event)
                if ended and (said or ends):
                    self.complaints.append((api, "something follows the end"))
                if said and last is not None and not pause and leaves is None:
                    self.gaps.append(now - last)
                last = now if said else last
                text, ended, events = text + said, ended or ends, events + 1
                if leaves is not None and events >= leaves:
                    self.became["left"] += 1
                    return None
        if not ended:
            raise Lost
        return text

    async def ask(self, api=None, stream=None, **habits):
        """One request that is checked."""
        api = api or self.random.choice(["chat", "messages", "ollama", "completion"])
        prompt, tokens = self.random.choice(PROMPTS), self.random.choice(LENGTHS)
        stream = self.random.random() < 0.6 if stream is None else stream
        try:
            got = await asyncio.wait_for(self.answer(api, prompt, tokens, stream, **habits), TIMEOUT)
        except (ConnectionError, asyncio.IncompleteReadError, ValueError, OSError) as error:
            # A cut connection shows: what came has no end. Text that is no JSON does, too.
            self.became["cut" if not isinstance(error, ValueError) else "garbled"] += 1
            return
        except (asyncio.TimeoutError, TimeoutError, Lost):
            self.became["lost"] += 1
            return
        if got is None:
            return
        good = got == self.golden[api, prompt, tokens]
        self.became["equal" if good else "wrong"] += 1
        self.ended_at.append(time.monotonic())
        if not good:
            self.complaints.append((api, prompt, tokens, stream, got))

    async def malformed(self):
        content = self.random.choice([b"{", b"[]" * 1000, b'{"messages":' + b"[" * 5000, b'{"messages":[{"role":"user","content":"\xff"}]}', b'{"messages":[],"max_tokens":-1}'])
        try:
            async with Connection(self.port) as connection:
                await connection.send("/v1/chat/completions", content)
                status = await asyncio.wait_for(connection.head(), TIMEOUT)
                self.became["malformed, refused" if status in (400, 429, 503) else f"malformed, {status}"] += 1
        except (ConnectionError, OSError):
            self.became["malformed, cut"] += 1

    async def until(self, end, habit):
        """One client: asks again and again, with a habit of its own."""
        while time.monotonic() < end:
            if habit == "malformed":
                await self.malformed()
                await asyncio.sleep(0.05)
            elif habit == "leaves":
                await self.ask(stream=True, leaves=self.random.randint(0, 8) + 1)
            elif habit == "slow":
                await self.ask(stream=True, pause=0.2)
            else:
                good = self.became["equal"]
                await self.ask()
                if self.became["equal"] == good:  # refused, or nobody is there
                    await asyncio.sleep(0.05)
            await asyncio.sleep(0.001)


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else 0.0
