"""A small server with OpenAI's API and the peculiarities of other servers, for tests of thermocline-load."""
import json
import socket
import ssl
import threading
import time


def event(data, end="\r\n\r\n"):
    return "data: " + (data if isinstance(data, str) else json.dumps(data)) + end


def delta(text=None, role=None, finish=None):
    content = {k: v for k, v in (("role", role), ("content", text)) if v is not None}
    return {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": content, "finish_reason": finish}]}


ROLE, CHUNK, STOP = event(delta("", role="assistant")), event(delta(" owl")), event(delta(finish="stop"))
USAGE = event({"choices": [], "usage": {"prompt_tokens": 30, "completion_tokens": 8, "prompt_tokens_details": {"cached_tokens": 3}}})
DONE = event("[DONE]")
STREAM = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


class ForeignServer:
    """Each POST is answered with the pieces of `answer`: strings are sent, numbers are seconds of silence, None drops the
    connection. `model` is what /v1/models says."""

    def __init__(self, *answer, model="foreign", tls=None):
        self.answer, self.model, self.tls = answer, model, tls
        self.requests = []
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = self.listener.getsockname()[1]
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        try:
            if self.tls:
                connection = self.tls.wrap_socket(connection, server_side=True)
            with connection:
                self._answer(connection)
        except (OSError, ssl.SSLError):
            pass

    def _answer(self, connection):
        data = b""
        while b"\r\n\r\n" not in data:
            if not (piece := connection.recv(65536)):
                return
            data += piece
        head, _, body = data.partition(b"\r\n\r\n")
        head = head.decode()
        length = next((int(line.split(":")[1]) for line in head.split("\r\n") if line.lower().startswith("content-length:")), 0)
        while len(body) < length:
            body += connection.recv(65536)
        if head.startswith("GET"):
            listing = json.dumps({"object": "list", "data": [{"id": self.model}]}) if "/v1/models" in head else "no such page"
            status = "200 OK" if "/v1/models" in head else "404 Not Found"
            connection.sendall(f"HTTP/1.1 {status}\r\nContent-Length: {len(listing.encode())}\r\nConnection: close\r\n\r\n{listing}".encode())
            return
        self.requests.append((head, body))
        for piece in self.answer:
            if piece is None:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # a reset
                return
            if isinstance(piece, (int, float)):
                time.sleep(piece)
            else:
                connection.sendall(piece if isinstance(piece, bytes) else piece.encode())

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.listener.close()
