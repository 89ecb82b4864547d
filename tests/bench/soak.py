"""A soak: the daemon under a mixed load for an hour, and whether it is at the end what it was at the beginning.

    python3 tests/bench/soak.py BIN [MODEL] [--minutes 60] [--set KEY=VALUE ...]

Seven instances of `thermocline-load` ask at once: chats in open loop over HTTP and over gRPC, conversations, long prompts beside short
ones, clients that leave, clients that read slowly, and wrong requests. The load is a fraction of what two cores can do. It fails if
a request that should succeed does not, a wrong one is not refused, memory (resident and swapped) grows by more than `--growth` in an
hour, or a request, a queue entry, a connection or a file descriptor is left behind. The slope is least squares over the last three quarters of
the run, with its standard error from the residuals of one-minute means; the raw readings go to `--readings FILE`.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import threading
import time
import urllib.request
from pathlib import Path

LOADS = {
    "chat": ["-r", "2", "--arrival", "gamma", "--burstiness", "0.5"],
    "chat over gRPC": ["-r", "1", "--api", "grpc"],
    "conversations": ["-c", "2", "-w", "multi-turn", "--think-time", "1s", "--max-tokens", "24", "--prompt-tokens", "24"],
    "long beside short": ["-r", "0.5", "-w", "long-beside-short", "--long-prompt-tokens", "350"],
    "clients that leave": ["-r", "1", "-w", "cancel-storm", "--share", "0.7"],
    "slow readers": ["-c", "2", "-w", "slow-readers", "--share", "0.5", "--max-tokens", "200"],
    "wrong requests": ["-r", "1", "-w", "malformed", "--share", "0.8"],
}


def start(a):
    settings = [f"model.path={a.model}", "server.port=0", "grpc.address=127.0.0.1:0", "log.access=false", *a.set]
    daemon = subprocess.Popen([Path(a.bin) / "thermoclined", *sum((["--set", s] for s in settings), [])], stderr=subprocess.PIPE, text=True)
    http = grpc = None
    for line in daemon.stderr:
        if match := re.search(r"listening on http://([^ /]+:\d+)/", line):
            http = match[1]
        if match := re.search(r"listening for gRPC on ([^\"\s]+:\d+)", line):
            grpc = match[1]
        if " ready: " in line:
            return daemon, http, grpc
    raise SystemExit("the daemon ended")


def memory(pid):
    """Resident and swapped bytes."""
    fields = dict(re.findall(r"^(VmRSS|VmSwap):\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.M))
    return 1024 * int(fields["VmRSS"]), 1024 * int(fields["VmSwap"])


def gauges(http):
    text = urllib.request.urlopen(f"http://{http}/metrics", timeout=30).read().decode()
    return {name: float(value) for name, value in re.findall(r"^thermocline_(requests_\w+|connections_\w+|sequences_\w+)(?:\{\})? ([\d.e+]+)$", text, re.M)}


def slope(readings):
    """(bytes an hour, standard error) of one-minute means in the last three quarters of (seconds, bytes)."""
    end = readings[-1][0]
    minutes = {}
    for t, value in readings:
        if t >= end / 4:
            minutes.setdefault(int(t // 60), []).append(value)
    x, y = [m / 60 for m in minutes], [statistics.mean(v) for v in minutes.values()]
    if len(x) < 3:
        return float("nan"), float("nan")
    fit = statistics.linear_regression(x, y)
    residual = sum((b - fit.intercept - fit.slope * a) ** 2 for a, b in zip(x, y)) / (len(x) - 2)
    return fit.slope, (residual / sum((a - statistics.mean(x)) ** 2 for a in x)) ** 0.5


def begin(a, http, grpc, minutes):
    tool = str(Path(a.bin) / "thermocline-load")
    return {name: subprocess.Popen([tool, grpc if "grpc" in more else f"http://{http}", "-d", f"{minutes}m", "--seed", str(seed), "--json", "--metrics-url",
                                    f"http://{http}/metrics", *more], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            for seed, (name, more) in enumerate(LOADS.items(), 1)}


def watch(daemon, processes, readings):
    began = time.monotonic()
    while any(p.poll() is None for p in processes):
        if daemon.poll() is not None:
            raise SystemExit(f"the daemon ended with {daemon.returncode}")
        readings.append((time.monotonic() - began, *memory(daemon.pid)))
        time.sleep(5)


def open_files(daemon, at_most):
    """Once what the last clients left has been closed."""
    for _ in range(300):
        count = len(os.listdir(f"/proc/{daemon.pid}/fd"))
        if count <= at_most:
            break
        time.sleep(0.1)
    return count


def report_load(name, process, faults):
    out = process.communicate(timeout=600)[0]
    run = json.loads(out)
    requests = run["requests"]
    wrong = {k: v for k, v in requests.items() if v and k in ("error", "timeout", "rate_limited", "unavailable")}
    print(f"| {name} | {requests['total']} | {requests['ok']} | {requests['cancelled']} | {requests['refused']} | {sum(wrong.values())} |", flush=True)
    if process.returncode or wrong or requests["total"] == 0:
        faults.append(f"{name}: exit status {process.returncode}, {wrong}, {run['errors']}")


def idle(http, faults):
    """Nothing may be running, queued or begun once the clients have gone."""
    left = {}
    for _ in range(300):
        left = {k: v for k, v in gauges(http).items() if k in ("requests_running", "requests_queued") and v}
        if not left:
            return
        time.sleep(0.1)
    faults.append(f"left behind: {left}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("bin")
    parser.add_argument("model", nargs="?", default="tidepool")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--growth", type=float, default=1, help="MiB an hour beyond two standard errors")
    parser.add_argument("--readings", help="JSONL of seconds, resident and swapped bytes")
    parser.add_argument("--set", action="append", default=[], help="a key of the daemon's configuration")
    a = parser.parse_args()
    daemon, http, grpc = start(a)
    threading.Thread(target=daemon.stderr.read, daemon=True).start()
    faults, readings, processes = [], [], {}
    try:
        processes = begin(a, http, grpc, 0.2)  # what the first requests open stays open
        watch(daemon, processes.values(), [])
        idle(http, faults)
        files = open_files(daemon, 0)
        processes = begin(a, http, grpc, a.minutes)
        watch(daemon, processes.values(), readings)
        print("| load | requests | answered | left, as they should | refused, as they should | faults |\n|---|---|---|---|---|---|")
        for name, process in processes.items():
            report_load(name, process, faults)
        idle(http, faults)
        now = open_files(daemon, files)
    finally:
        for process in processes.values():
            if process.poll() is None:
                process.terminate()
        daemon.terminate()
        code = daemon.wait(60)
    if now > files:
        faults.append(f"{now} open files, {files} at the beginning")
    if code:
        faults.append(f"the daemon's exit status is {code}")
    mib = 1 << 20
    for name, column in (("resident", 1), ("swapped", 2)):
        values = [(r[0], r[column]) for r in readings]
        grows, error = slope(values)
        print(f"{name}: {values[0][1] / mib:.1f} MiB at first, {max(v for _, v in values) / mib:.1f} at most, {values[-1][1] / mib:.1f} at the end; "
              f"slope {grows / mib:+.3f} MiB/h, standard error {error / mib:.3f}")
        if grows - 2 * error > a.growth * mib:
            faults.append(f"{name} memory grows by {grows / mib:.2f} MiB an hour")
    print(f"open files: {files} at the beginning, {now} at the end")
    if a.readings:
        Path(a.readings).write_text("".join(json.dumps(r) + "\n" for r in readings))
    raise SystemExit("\n".join(faults) if faults else 0)


if __name__ == "__main__":
    main()
