"""A proxy on loopback between a real client and the daemon. It records every exchange, and may answer one itself."""
import http.client
import json
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "host"}


@dataclass
class Exchange:
    method: str
    path: str
    request: bytes
    status: int = 0
    headers: dict = field(default_factory=dict)
    answer: bytes = b""
    seconds: float = 0
    played: bool = False  # The client got another answer than the daemon's.
    daemon_answer: bytes = b""

    @property
    def body(self):
        return json.loads(self.request or b"{}")

    @staticmethod
    def events_of(answer):
        """The JSON of each server-sent event."""
        lines = answer.decode(errors="replace").splitlines()
        return [json.loads(line[6:]) for line in lines if line.startswith("data: {")]

    @property
    def events(self):
        return self.events_of(self.answer)

    @property
    def daemon_events(self):
        return self.events_of(self.daemon_answer or self.answer)


class RecordingProxy:
    """`play(exchange)` is asked once the daemon has answered. It returns the bytes of a stream that the client gets instead, or
    None. Without it, answers are passed on as they come; with it, a comment line each second until they are whole.
    `script(exchange)` is asked before the daemon. It returns the type and the bytes of the answer, which the daemon then is not asked
    for, or None."""

    def __init__(self, port, play=None, script=lambda exchange: None):
        self.exchanges, self.lock = [], threading.Lock()
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *unused):
                pass

            def handle_any(self):
                size = int(self.headers.get("content-length") or 0)
                exchange = Exchange(self.command, self.path, self.rfile.read(size))
                with proxy.lock:
                    proxy.exchanges.append(exchange)
                begin = time.monotonic()
                try:
                    if scripted := script(exchange):
                        self.send_scripted(exchange, *scripted)
                    else:
                        self.forward(exchange)
                    self.wfile.write(b"0\r\n\r\n")
                except (BrokenPipeError, ConnectionResetError):
                    exchange.status = exchange.status or 499
                exchange.seconds = time.monotonic() - begin

            def forward(self, exchange):
                upstream = http.client.HTTPConnection("127.0.0.1", port, timeout=1800)
                headers = {k: v for k, v in self.headers.items() if k.lower() not in HOP_BY_HOP}
                upstream.request(self.command, self.path, exchange.request or None, headers)
                answer = upstream.getresponse()
                exchange.status, exchange.headers = answer.status, dict(answer.getheaders())
                self.begin(answer.status, [(k, v) for k, v in answer.getheaders() if k.lower() not in HOP_BY_HOP])
                streamed = "event-stream" in (answer.getheader("content-type") or "")
                waiting = play is not None and streamed
                told = time.monotonic()
                while piece := answer.read1(65536):
                    exchange.answer += piece
                    if not waiting:
                        self.send_piece(piece)
                    elif time.monotonic() > told + 1:
                        self.send_piece(b": waiting\n\n")
                        told = time.monotonic()
                upstream.close()
                if waiting:
                    exchange.daemon_answer = exchange.answer
                    exchange.answer = play(exchange) or exchange.answer
                    exchange.played = exchange.answer is not exchange.daemon_answer
                    self.send_piece(exchange.answer)

            def send_scripted(self, exchange, kind, answer):
                exchange.status, exchange.answer, exchange.played = 200, answer, True
                self.begin(200, [("content-type", kind)])
                self.send_piece(answer)

            def begin(self, status, headers):
                self.send_response(status)
                for name, value in headers:
                    self.send_header(name, value)
                self.send_header("transfer-encoding", "chunked")
                self.end_headers()

            def send_piece(self, piece):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                self.wfile.flush()

            do_GET = do_POST = do_HEAD = do_DELETE = handle_any

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def of(self, path):
        return [e for e in self.exchanges if e.path.split("?")[0] == path]

    def close(self):
        self.server.shutdown()
        self.server.server_close()
