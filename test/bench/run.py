#!/usr/bin/env python3
"""Speed, as ratios against a floor and peers measured in the same run: `make bench`.

CAY_URL and CAY_API_KEY name a running server (as `cay env` prints them). Every figure is the median of
BENCH_COUNT rounds; peers that are not installed are left out, saying so. The floor is test/bench/floor.c:
the same namespaces and mounts with nothing around them. Prints a table; --json writes the same as JSON."""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scenario"))
from client import Client  # noqa: E402

BUILD = Path(os.environ.get("CAY_BUILD", Path(__file__).resolve().parents[2] / "build"))
COUNT = int(os.environ.get("BENCH_COUNT", "100"))
MIB = 100


def median_ms(seconds):
    return statistics.median(seconds) * 1000


def timed(call, count=COUNT):
    times = []
    for _ in range(count):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return times


def floor(kind=()):
    out = subprocess.run([BUILD / "test/bench/floor", str(COUNT), *kind], capture_output=True, text=True, check=True)
    return [int(line) / 1e6 for line in out.stdout.split()]


class KeepAlive:
    """One connection, as an SDK would keep it."""

    def __init__(self, client):
        self.client, self.connection = client, client.connect()

    def call(self, method, path, body=None, headers=None):
        self.connection.request(method, path, body, headers or {"X-API-Key": self.client.key})
        reply = self.connection.getresponse()
        data = reply.read()
        assert reply.status < 300, (reply.status, data)
        return json.loads(data) if data else None

    def create(self):
        return self.call("POST", "/v2/sandboxes", json.dumps({"templateID": "host"}))["sandboxID"]

    def kill(self, name):
        self.call("DELETE", f"/sandboxes/{name}")


def create_ready(client):
    http, times = KeepAlive(client), []
    for _ in range(COUNT):
        start = time.perf_counter()
        name = http.create()
        times.append(time.perf_counter() - start)
        http.kill(name)
    return times


def at_once(client, n=100):
    """n creates at once: wall, and the time of each."""
    connections, names, times = [KeepAlive(client) for _ in range(n)], [None] * n, [0.0] * n
    for c in connections:
        c.connection.connect()

    def one(i):
        start = time.perf_counter()
        names[i] = connections[i].create()
        times[i] = time.perf_counter() - start

    threads = [threading.Thread(target=one, args=(i,)) for i in range(n)]
    start = time.perf_counter()
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    wall = time.perf_counter() - start
    for c, name in zip(connections, names):
        c.kill(name)
    return wall, sorted(times)


def exec_true(client):
    with client.create() as box:
        return timed(lambda: box.run("/bin/true", args=[]))


def files(client):
    data = os.urandom(1 << 20) * MIB
    with client.create() as box:
        up = timed(lambda: box.write("/tmp/f", data), 3)
        down = timed(lambda: box.read("/tmp/f"), 3)
    return MIB / statistics.median(up), MIB / statistics.median(down)


PEERS = {
    "bwrap": ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "true"],
    "unshare": ["unshare", "-fmpinuC", "true"],
    "runsc": ["runsc", "--network=none", "--ignore-cgroups", "do", "true"],
}


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--json", help="also write the figures to this file")
    args = options.parse_args()
    client = Client(os.environ["CAY_URL"], os.environ["CAY_API_KEY"])
    rows, base = [], median_ms(floor())
    fork = median_ms(floor(("fork",)))

    def row(name, value, unit, ratio=None, against=""):
        rows.append({"what": name, "value": round(value, 3), "unit": unit,
                     "ratio": ratio and round(ratio, 2), "against": against})
        print(f"{name:44} {value:10.2f} {unit:8}" + (f" {ratio:7.2f} x {against}" if ratio else ""), flush=True)

    row("floor: namespaces, mounts, exec", base, "ms")
    row("floor: fork and exec", fork, "ms")
    value = median_ms(create_ready(client))
    row("create to ready through the API", value, "ms", value / base, "the floor")
    value = median_ms(exec_true(client))
    row("run of true in a sandbox", value, "ms", value / fork, "fork and exec")
    wall, times = at_once(client)
    row("100 creates at once: wall", wall * 1000, "ms")
    row("100 creates at once: p50", times[49] * 1000, "ms")
    row("100 creates at once: p99", times[98] * 1000, "ms")
    up, down = files(client)
    row(f"upload of {MIB} MiB", up, "MiB/s")
    row(f"download of {MIB} MiB", down, "MiB/s")
    for name, command in PEERS.items():
        if not shutil.which(command[0]):
            print(f"{name}: not installed, left out")
            continue
        rounds = 5 if name == "runsc" else COUNT
        ended = subprocess.run(command, capture_output=True)
        if ended.returncode != 0:
            print(f"{name}: does not run here ({ended.stderr.decode().strip()[:80]}), left out")
            continue
        value = median_ms(timed(lambda c=command: subprocess.run(c, check=True, capture_output=True), rounds))
        row(f"{name}: whole process with true", value, "ms", value / base, "the floor")
    if args.json:
        Path(args.json).write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
