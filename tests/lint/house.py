"""The folders of the sources (rooms) and which may include which (arrows). `python3 tests/lint/house.py` draws docs/house.svg."""
import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = [p for folder in ("kernels", "engine", "server", "loadtest", "tools", "tests") for p in sorted((ROOT / folder).rglob("*")) if p.suffix in (".h", ".cc", ".cu")]

# Room -> (what it holds, the rooms whose headers it may include). A room comes after all that it includes, so no circle
# can be written down here. CONTRIBUTING.md shows the same table as a picture.
HOUSE = {
    "kernels": ("arithmetic", ""),
    "engine/base": ("status, files, JSON, threads", ""),
    "engine/charts": ("charts as SVG", "engine/base"),
    "engine/hub": ("fetched models found", "engine/base"),
    "engine/api": ("data the engine and server share", "kernels engine/base"),
    "engine/device": ("an accelerator opened", "kernels engine/base"),
    "engine/model": ("what every format is read as", "kernels engine/base engine/api"),
    "engine/model/weights": ("weights, packed for the kernels", "kernels engine/base engine/model"),
    "engine/model/gguf": ("GGUF read and written", "kernels engine/base engine/model engine/model/weights"),
    "engine/model/huggingface": ("Hugging Face folders", "kernels engine/base engine/model"),
    "engine/model/open": ("a model opened by its path", "engine/base engine/hub engine/model engine/model/gguf engine/model/huggingface"),
    "engine/text": ("tokenizers, templates", "engine/base engine/model"),
    "engine/grammar": ("what an answer may be", "engine/base engine/api engine/text"),
    "engine/predictor": ("which neurons are active", "kernels engine/base engine/model engine/model/weights"),
    "engine/placement": ("which tier a neuron is in", "engine/base engine/model engine/model/weights"),
    "engine/store": ("the flash tier", "kernels engine/base engine/api"),
    "engine/nn": ("KV cache, workspace, products", "kernels engine/base engine/model engine/model/weights"),
    "engine/prefix": ("prefixes on flash", "kernels engine/base engine/store engine/nn"),
    "engine/ffn": ("feed-forward networks", "kernels engine/base engine/api engine/model engine/model/weights engine/predictor engine/store engine/nn"),
    "engine/gpu": ("forward pass on a device", "kernels engine/base engine/device engine/model engine/predictor engine/nn engine/ffn"),
    "engine/sampling": ("logits to a token", "engine/base engine/api engine/text engine/grammar"),
    "engine/exec": ("the transformer", "kernels engine/base engine/model/weights engine/store engine/nn engine/ffn engine/gpu"),
    "engine/load": ("a model made ready", "kernels engine/base engine/api engine/device engine/model engine/model/weights engine/model/open engine/text engine/predictor engine/placement engine/store engine/nn engine/ffn engine/gpu engine/sampling engine/exec"),
    "engine/adapt": ("changes while serving", "engine/base engine/api engine/predictor engine/ffn engine/load"),
    "engine/spec": ("speculative decoding", "engine/base engine/api engine/nn engine/sampling engine/exec engine/load"),
    "engine/sched": ("requests and turns", "engine/base engine/api engine/text engine/nn engine/prefix engine/sampling engine/exec engine/load engine/adapt engine/spec"),
    "engine": ("the public face", "engine/base engine/api engine/model/open engine/text engine/grammar engine/store engine/nn engine/prefix engine/load engine/spec engine/sched"),
    "engine/offline": ("trainers, replay, simulator", "kernels engine/base engine/predictor engine/placement engine/store engine/spec"),
    "proto": ("the gRPC interface", ""),
    "server/web": ("the chat page", ""),
    "server/metrics": ("Prometheus", "engine/base engine/api engine"),
    "server/chat": ("tools, reasoning, formats", "engine/base engine/api engine/grammar"),
    "server/net": ("sockets of HTTP and gRPC", "engine/base"),
    "server/core": ("service, generation, keys", "engine/base engine/hub engine/api engine/text engine/sampling engine server/metrics server/chat"),
    "server/protocol": ("fields and errors of the APIs", "engine/base engine/api server/chat server/core"),
    "server/http": ("HTTP and SSE", "engine/base engine/api server/net server/core server/protocol"),
    "server/openai": ("OpenAI's API", "engine/base engine/api engine/text server/core server/protocol server/http"),
    "server/anthropic": ("Anthropic's API", "engine/base server/core server/protocol server/http"),
    "server/ollama": ("Ollama's API", "engine/base engine/text server/core server/protocol server/http"),
    "server/llama": ("llama-server's API", "engine/base engine/text server/core server/protocol server/http"),
    "server/routes": ("every route of the daemon", "engine/base engine/api server/web server/core server/http server/openai server/anthropic server/ollama server/llama"),
    "server/batch": ("files of requests, offline", "engine/base server/core server/http server/routes"),
    "server/grpc": ("gRPC", "proto engine/base engine/api engine/text server/net server/core"),
    "server/daemon": ("the process", "engine/base engine/hub engine/api engine server/metrics server/net server/core server/http server/routes server/grpc"),
    "loadtest/workload": ("requests and their times", "engine/base"),
    "loadtest/measure": ("figures, SLOs", "engine/base loadtest/workload"),
    "loadtest/client": ("HTTP and gRPC clients", "proto engine/base loadtest/workload"),
    "tools": ("the command line", "kernels engine/base engine/hub engine/charts engine/api engine/device engine/model engine/model/weights engine/model/gguf engine/model/open engine/text engine/predictor engine/placement engine/store engine/ffn engine/sampling engine/load engine/spec engine engine/offline server/net server/batch loadtest/client"),
    "loadtest/options": ("the load tester's options", "engine/base loadtest/workload loadtest/measure loadtest/client"),
    "loadtest/report": ("text, JSON, HTML", "engine/charts loadtest/measure loadtest/options"),
    "loadtest/run": ("a load test, from end to end", "engine/base loadtest/workload loadtest/measure loadtest/client loadtest/options loadtest/report"),
}
ARROWS = {room: set(arrows.split()) for room, (_, arrows) in HOUSE.items()}
# A third-party header -> the rooms that may include it.
THIRD_PARTY = {
    "nlohmann/": ["engine/base"], "spdlog/": ["engine/base"], "xxhash.h": ["engine/base"], "immintrin": ["kernels", "engine/base"], "cuda_runtime.h": ["kernels"],
    "unicode/": ["engine/text"], "re2/": ["engine/grammar"], "liburing.h": ["engine/store"], "Eigen/": ["engine/offline"], "histedit.h": ["tools"], "curl/": ["tools"], "CLI/": ["tools", "server/daemon", "loadtest/options"],
    "yaml-cpp/": ["server/daemon"], "prometheus/": ["server/metrics"], "boost/": ["server/batch", "server/core", "server/daemon", "server/http", "server/net", "server/routes", "server/grpc", "loadtest/client", "loadtest/run"],
    "openssl/": ["engine/base", "server/core", "server/http"], "systemd/": ["server/daemon"], "grpc/": ["server/grpc"], "grpcpp/": ["server/grpc", "loadtest/client"], "google/": ["server/grpc"],
}

# A spelling -> the only file of the program that may have it: an idea that once had copies.
ONE_HOME = {
    "random_device": "engine/base/random.cc",
    "14695981039346656037": "none: engine/base/hash.h hashes texts",
    "must be a JSON object, not": "server/protocol/fields.cc",
    "\"x-should-retry\"": "server/http/response.cc",
    "SO_REUSEADDR": "server/net/listening_socket.cc",
    "accept4(": "server/net/acceptor.cc",
}


def room_of(path):
    """The room of a file; None for tests."""
    parts = path.relative_to(ROOT).parts[:-1]
    if ".pb." in path.name:  # made from proto/
        return "proto"
    if parts[0] in ("tests", "kernels", "tools"):
        return None if parts[0] == "tests" else parts[0]
    inner = "/".join(parts[:3])
    return inner if inner in HOUSE else "/".join(parts[:2])


def includes(path, pattern):
    return re.findall(pattern, path.read_text(), re.MULTILINE)


def real_arrows():
    """Room -> room -> the includes that tie them, "file includes header"."""
    arrows = defaultdict(lambda: defaultdict(list))
    for path in SOURCES:
        room = room_of(path)
        if room is None:
            continue
        for header in includes(path, r'^#include "([^"]+)"'):
            target = room_of(ROOT / header)
            if target != room:
                arrows[room][target].append(f"{path.relative_to(ROOT)} includes {header}")
    return arrows


def floors(arrows):
    """Room -> its floor: one above the highest room it includes."""
    floor = {}
    for room in HOUSE:
        floor[room] = max((floor[target] + 1 for target in arrows.get(room, {})), default=0)
    return floor


def essential(arrows):
    """The arrows that no longer way through other rooms implies, so that the picture can be read."""
    below = {}
    for room in HOUSE:
        below[room] = set(arrows.get(room, {})).union(*(below[t] for t in arrows.get(room, {})), set())
    return [(room, target) for room in HOUSE for target in sorted(arrows.get(room, {})) if not any(target in below[other] for other in arrows[room] if other != target)]


def picture():
    """docs/house.svg: a box for each room, floors from the ground up, an arrow for each include that no other arrow implies."""
    arrows = real_arrows()
    floor = floors(arrows)
    rows = defaultdict(list)
    for room in HOUSE:
        rows[floor[room]].append(room)
    width, height, box_w, box_h, step_y = 1180, 92 * (max(rows) + 1), 178, 46, 92
    at = {}
    for y, rooms in rows.items():
        for i, room in enumerate(rooms):
            at[room] = (width * (i + 0.5) / len(rooms), height - step_y * y - step_y / 2)
    lines = {room: sum(len(p.read_text().splitlines()) for p in SOURCES if room_of(p) == room) for room in HOUSE}
    svg = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="13">',
           "<!-- Made by tests/lint/house.py from the real includes. -->", f'<rect width="{width}" height="{height}" fill="#fff"/>']
    for room, target in essential(arrows):
        (x1, y1), (x2, y2) = at[room], at[target]
        svg.append(f'<path d="M{x1:.0f} {y1 + box_h / 2:.0f}C{x1:.0f} {y1 + 70:.0f} {x2:.0f} {y2 - 70:.0f} {x2:.0f} {y2 - box_h / 2:.0f}" fill="none" stroke="#8aa0b4" stroke-width="1.3"/>')
    for room, (x, y) in at.items():
        fill = {"k": "#fbe6d0", "e": "#dcebf7", "s": "#e3f3df", "p": "#eee", "l": "#f3e3f0", "t": "#f7f1cf"}[room[0]]
        size = f" · {lines[room] / 1000:.0f}k" if lines[room] >= 500 else ""
        svg.append(f'<rect x="{x - box_w / 2:.0f}" y="{y - box_h / 2:.0f}" width="{box_w}" height="{box_h}" rx="6" fill="{fill}" stroke="#567"/>'
                   f'<text x="{x:.0f}" y="{y - 3:.0f}" text-anchor="middle" font-weight="bold">{room}{size}</text>'
                   f'<text x="{x:.0f}" y="{y + 14:.0f}" text-anchor="middle" fill="#345" font-size="11">{HOUSE[room][0]}</text>')
    return "\n".join(svg) + "\n</svg>\n"


if __name__ == "__main__":
    (ROOT / "docs/house.svg").write_text(picture())
