#!/usr/bin/env python3
"""The way out against no proxy and against the least that a relay can be, in turns and in one run; as root.

    test/bench/egress.py [--build=DIR]

Direct: from the host's namespace over its veth to the server. Relay and cay-egress: from a sandbox's namespace
over a listener in it, then over the same veth. All of it in the namespaces of test/egress/internet.py. Prints a
table; nothing is asserted. BENCH_ROUNDS (5), BENCH_COUNT (2000), BENCH_MIB (2048) scale it."""

import argparse
import os
import pathlib
import socket
import statistics
import struct
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "test/egress"))
from internet import RESOLVER, WEB, World, inside, listener  # noqa: E402

ROUNDS = int(os.environ.get("BENCH_ROUNDS", "5"))
COUNT = int(os.environ.get("BENCH_COUNT", "2000"))
MIB = int(os.environ.get("BENCH_MIB", "2048"))
HELD = (1, 100, 1000)
PORT, RELAY_PORT, DNS_COUNT = 7100, 4000, 20000


def resident_kib(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    return 0


def pid_of(world):
    """The program itself, below ip and setpriv, which only execute what follows."""
    return world.egress.pid


def dns_per_second(sandbox):
    question = b"\3web\7example\3com\0" + struct.pack(">HH", 1, 1)
    packet = struct.pack(">HHHHHH", 7, 0x0100, 1, 0, 0, 0) + question
    with sandbox.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.connect((RESOLVER, 53))
        s.settimeout(5)
        start, window = time.perf_counter(), 16
        for _ in range(window):
            s.send(packet)
        for _ in range(DNS_COUNT):
            s.recv(512)
            s.send(packet)
        return DNS_COUNT / (time.perf_counter() - start)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    build = parser.parse_args().build
    tool = build / "test/bench/egress_load"
    world = World(build / "src/egress/cay-egress", {"web.example.com": {"a": [[WEB]], "ttl": 60}},
                  arguments=["--egress-connections=16384", "--egress-connections-per-second=100000"])
    helpers = []

    def client(where, *arguments):
        address, port, prefix = where
        done = subprocess.run([*prefix, tool, arguments[0], address, str(port), str(arguments[1])],
                              stdout=subprocess.PIPE, text=True, check=True)
        return [float(line) for line in done.stdout.split()]

    try:
        sandbox = world.sandbox({"rules": [{"domains": ["web.example.com"], "action": "allow"}]})
        helpers.append(subprocess.Popen(["ip", "netns", "exec", world.net, tool, "server", str(PORT)],
                                        stdout=subprocess.PIPE))
        helpers[0].stdout.readline()
        relay = inside(sandbox.name, lambda: listener(socket.SOCK_STREAM, RELAY_PORT))
        helpers.append(subprocess.Popen(["ip", "netns", "exec", world.host, tool, "relay", str(relay.fileno()), WEB,
                                         str(PORT)], pass_fds=(relay.fileno(),)))
        name = sandbox.resolve("web.example.com")[1][0]
        within = ["ip", "netns", "exec", sandbox.name]
        ways = {"direct": (WEB, PORT, ["ip", "netns", "exec", world.host]),
                "splice relay": ("127.0.0.1", RELAY_PORT, within), "cay-egress": (name, PORT, within)}
        rest = resident_kib(pid_of(world))
        figures = {way: {"trips": [], "connects": [], "pull": []} for way in ways}
        for _ in range(ROUNDS):
            for way, where in ways.items():
                figures[way]["trips"] += client(where, "trips", COUNT)
                figures[way]["connects"] += client(where, "connects", max(COUNT // 10, 20))
                figures[way]["pull"] += client(where, "pull", MIB)
        print(f"{'':14}{'round trip us':>18}{'connect+trip us':>20}{'one stream MiB/s':>20}")
        print(f"{'':14}{'p50':>9}{'p99':>9}{'p50':>10}{'p99':>10}{'median':>12}{'best':>8}")
        for way, f in figures.items():
            cells = [statistics.median(f["trips"]), statistics.quantiles(f["trips"], n=100)[98],
                     statistics.median(f["connects"]), statistics.quantiles(f["connects"], n=100)[98],
                     statistics.median(f["pull"]), max(f["pull"])]
            print(f"{way:14}" + "".join(f"{c:{w}.0f}" for c, w in zip(cells, (9, 9, 10, 10, 12, 8))))
        mine, bare = figures["cay-egress"]["pull"], figures["splice relay"]["pull"]
        print(f"stream: {100 * statistics.median(mine) / statistics.median(bare):.0f} % of the bare splice relay")
        print(f"DNS answers per second: {dns_per_second(sandbox):.0f}")
        print(f"resident KiB: {rest} at rest", end="")
        for n in HELD:
            p = subprocess.Popen([*within, tool, "hold", name, str(PORT), str(n)], stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE)
            p.stdout.readline()
            print(f", {resident_kib(pid_of(world))} with {n} connections", end="")
            p.stdin.close()
            p.wait()
        print()
    finally:
        for p in helpers:
            p.kill()
            p.wait()
        world.close()


main()
