#!/usr/bin/env python3
"""The cost of a sandbox that is at its limits for a neighbour: its requests, and what is asked of cay-egress meanwhile.

    test/bench/fairness.py --build=DIR [--write=docs/reports] [--requests=N] [--rounds=N] [--only=LOADS] [--log-mib=N]
                           [--servers-congestion=NAME]

cay-egress alone, in the stand-in internet of test/egress/internet.py. For each load the neighbour's requests are timed quiet
and loaded by turns, in the same run, so that what else the machine does is in both. It is cay-egress that is looked at, not the
scheduler: the load's processes, and the servers that they ask, have one core (all but the last), cay-egress, the neighbour and its
server the other, where the last two have a real-time priority: they wait for cay-egress alone. A second table has the loads that
need most of the processor with all of them on all cores, without priorities. Both have the same load past cay-egress and through a
plain relay on its core. As root."""

import argparse
import contextlib
import json
import os
import pathlib
import platform
import signal
import socket
import ssl
import struct
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
RULES = {"rules": [{"name": "some", "domains": ["v4.example.com"], "paths": ["/", "/0", "/4000"], "ports": [80, 443, 9100, 9101], "action": "allow"}]}
ROUNDS = 9
DOWNLOADS, NEIGHBOURS, CARRIED = 9100, 9101, 9102  # ports
CALLS = 5  # of each kind in a round
CREDENTIALS = 62
HEAD = """# Fairness of the way out

Written by `make bench-fairness`; do not edit. Kernel {kernel}, {cores} cores, load of the machine {load:.1f} at the start, commit {commit}.

A sandbox is at a limit, its neighbour (of another tenant) sends {requests} requests over HTTP, each on a connection of its
own, in {rounds} rounds quiet and {rounds} loaded, by turns. The load's processes, and the servers that it asks, have a core of their
own; cay-egress with all of its threads, the neighbour and its server share the other, where the neighbour and its server
run before all else (SCHED_FIFO): so they wait for cay-egress, and not for their turn at the processor, which a program that computes
keeps for up to {tick} ms at a time (CONFIG_HZ). They do wait for the kernel's thread that delivers packets when there are many of them
(ksoftirqd), which has no priority: the controls tell what that is alone. cay-egress has the priority that cay-keep gives it
(nice {nice}), the load the lowest (nice 19). Calls are those of the operator and cayd while the load lasts: the slowest of {calls} each.

The controls' rows are loads without cay-egress in their way; the neighbour's requests go through it as ever. *Past cay-egress*: what the
load's own programs cost. *Through a plain relay*: one process on the core of cay-egress that carries the same bytes by splice(2), 64 KiB
of each connection in turn. It is what any program costs that carries the load there. *cay-egress*: how much of a
processor it takes while it is loaded. All of them send as {congestion} says, the servers as {servers}: they stand for servers on other machines, and BBR's
timers, which pace what is sent, would run on the core of cay-egress, whose acknowledgements let the servers go on
(--servers-congestion=bbr shows what that costs). *By rounds*: the ratio of p99 in
each round, loaded to quiet, the least, the median and the most: a machine that others use too has moments in which nothing of it
runs, and one of them is enough for the p99 of all rounds together. Load averages are those of the machine at the end of each row.
"""
SHARED = """
## With all of it on the same cores

The loads that need most of the processors, with nothing of them set apart but by nice(1): what cay-egress lets them cost, and what
the scheduler does on {cores} cores, together. The controls are the second alone, with and without a program that carries the load.
"""
COLUMNS = ["| the other is at its limit of | quiet p50 | p99 | loaded p50 | p99 | ratio of p99 | by rounds | ratio of p50 | cay-egress | slowest policy | sealing | audit | load average |",
           "|---|---|---|---|---|---|---|---|---|---|---|---|---|"]
CORES = sorted(os.sched_getaffinity(0))
DAEMON_NICE = -10  # cay-keep's


class Cores:
    """Which ones the load has, and which cay-egress with the neighbour, who runs before it."""

    loud, quiet, first = set(CORES[:-1]) or set(CORES), {CORES[-1]}, True

    @classmethod
    def share(cls):
        cls.loud = cls.quiet = set(CORES)
        cls.first = False

    @classmethod
    def apply(cls, world, loads, relay, neighbours):
        for pids, cores, first in (((loads.pid, *(p.pid for p in world.processes)), cls.loud, False),
                                   ((world.egress.pid, relay.pid), cls.quiet, False),
                                   ((neighbours.pid, os.getpid()), cls.quiet, cls.first)):
            for pid in pids:
                for thread in map(int, os.listdir(f"/proc/{pid}/task")):
                    os.sched_setaffinity(thread, cores)
                    cls.put_first(thread, first)

    @staticmethod
    def put_first(thread, first):
        os.sched_setscheduler(thread, os.SCHED_FIFO if first else os.SCHED_OTHER, os.sched_param(int(first)))


def put_before(pid, nice):
    """Its threads as if it had begun so, but those that gave way."""
    for thread in map(int, os.listdir(f"/proc/{pid}/task")):
        if os.getpriority(os.PRIO_PROCESS, thread) == 0:
            os.setpriority(os.PRIO_PROCESS, thread, nice)


def percentile(values, p):
    return sorted(values)[min(len(values) - 1, int(len(values) * p))]


def request(sandbox, address):
    begun = time.monotonic()
    with sandbox.connect(address, NEIGHBOURS) as c:
        c.sendall(b"GET /0 HTTP/1.1\r\nHost: v4.example.com:%d\r\nConnection: close\r\n\r\n" % NEIGHBOURS)
        data = b""
        while piece := c.recv(65536):
            data += piece
    assert data.startswith(b"HTTP/1.1 200"), data[:200]
    return time.monotonic() - begun


@contextlib.contextmanager
def children(what, count=1):
    """Runs what(number) in so many processes of its own, until the block ends."""
    pids = []
    for number in range(count):
        pid = os.fork()
        if pid == 0:
            Cores.put_first(0, False)
            os.nice(19)
            os.sched_setaffinity(0, Cores.loud)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            try:
                while True:
                    with contextlib.suppress(OSError):
                        what(number)
                    time.sleep(0.01)
            finally:
                os._exit(0)
        pids.append(pid)
    time.sleep(1)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGTERM)
            os.waitpid(pid, 0)
        time.sleep(0.3)


def pipeline(sandbox, address, path):
    """Requests as fast as they are answered, over one connection."""
    batch = b"GET " + path + b" HTTP/1.1\r\nHost: v4.example.com\r\n\r\n"
    with sandbox.connect(address, 80) as c:
        c.settimeout(5)
        c.sendall(batch * 100)
        while data := c.recv(1 << 20):
            c.sendall(batch * data.count(b"HTTP/1.1 "))


def send_bodies(sandbox, address):
    """Requests with bodies of 1 MiB, one after the other."""
    with sandbox.connect(address, 80) as c:
        c.settimeout(10)
        while True:
            c.sendall(b"POST / HTTP/1.1\r\nHost: v4.example.com\r\nContent-Length: 1048576\r\n\r\n" + bytes(1 << 20))
            if not c.recv(1 << 16):
                return


def hold(sandbox, address, count, say=b"", port=80):
    held = []
    with contextlib.suppress(OSError):
        for _ in range(count):
            c = sandbox.connect(address, port)
            c.sendall(say)
            held.append(c)
    time.sleep(3600)


def handshakes(sandbox, address):
    """Of TLS that is read, one after the other."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    while True:
        with sandbox.connect(address, 443) as c, context.wrap_socket(c, server_hostname="v4.example.com"):
            pass


def questions(sandbox):
    """Of DNS, of one name, 64 at a time."""
    from internet import RESOLVER
    packet = struct.pack(">HHHHHH", 0x1234, 0x0100, 1, 0, 0, 0) + b"\x02v4\x07example\x03com\0" + struct.pack(">HH", 1, 1)
    with sandbox.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(1)
        s.connect((RESOLVER, 53))
        while True:
            for _ in range(64):
                s.send(packet)
            with contextlib.suppress(TimeoutError):
                for _ in range(64):
                    s.recv(512)


def download(sandbox, address, header=b"", port=DOWNLOADS):
    """An answer of nothing but the beginning that the credentials have in common; the bytes are taken in the kernel."""
    with sandbox.connect(address, port) as c:
        c.sendall(b"GET /4000 HTTP/1.1\r\nHost: v4.example.com:%d\r\n%b\r\n" % (DOWNLOADS, header))
        assert c.recv(12, socket.MSG_WAITALL) == b"HTTP/1.1 200"
        while c.recv(1 << 20, socket.MSG_TRUNC):
            pass


class Past:
    """Connects to the servers themselves: what a load costs all sandboxes by the processors alone."""

    def __init__(self, world):
        self.world = world

    def connect(self, address, port):
        from internet import inside
        return inside(self.world.host, lambda: socket.create_connection((address, port), 30))


def serve(namespace, build, nice, *what):
    p = subprocess.Popen(["nice", "-n", str(nice), "ip", "netns", "exec", namespace,
                          pathlib.Path(build) / "test/bench/egress_load", *map(str, what)], stdout=subprocess.PIPE)
    assert p.stdout.readline() == b"ready\n"
    return p


def credentials(world, count):
    """Of which each begins as the others do."""
    made = []
    for i in range(count):
        bind = {"domains": ["v4.example.com"], "ports": [DOWNLOADS], "kind": "placeholder", "headers": ["X-Key"], "insecure": True}
        status, text = world.call("POST", "/v1/seal", {"tenant": "tenant1", "name": f"K{i}", "value": "a" * 64 + f"-{i}", "bind": bind})
        assert status == 200, text
        made.append({"name": f"K{i}", "sealed": json.loads(text)["sealed"], "bind": bind})
    return made


def ask_log(world, connection):
    c = connection(world.control, 60)
    with contextlib.closing(c):
        c.request("GET", "/v1/audit?sandbox=none&limit=10000")
        c.getresponse().read()


def timed(what):
    begun = time.monotonic()
    what()
    return (time.monotonic() - begun) * 1000


def calls_of(world, sandbox):
    """Calls of the operator and cayd that are timed meanwhile."""
    seal = {"tenant": "tenant2", "name": "A", "value": "long-enough-value",
            "bind": {"domains": ["a.example.com"], "kind": "header", "header": "X-Key"}}

    def put():
        assert world.put(sandbox, RULES, tenant="tenant2")[0] == 204

    return {"policy": put, "sealing": lambda: world.call("POST", "/v1/seal", seal),
            "audit": lambda: world.audit("tenant=tenant2&limit=100")}


def processor_s(pid):
    """The time that it has had of the processor, user and kernel."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(world, neighbour, address, load, requests, rounds):
    """Times of all requests, quiet and loaded; the ratio of p99 in each round; the slowest calls; the share of a processor."""
    quiet, loaded, ratios, busy, took = [], [], [], 0.0, 0.0
    slowest = dict.fromkeys(calls_of(world, neighbour), 0.0)
    each = max(1, requests // rounds)
    for _ in range(rounds):
        before = [request(neighbour, address) for _ in range(each)]
        with load():
            begun, had = time.monotonic(), processor_s(world.egress.pid)
            during = [request(neighbour, address) for _ in range(each)]
            busy += processor_s(world.egress.pid) - had
            took += time.monotonic() - begun
            for name, call in calls_of(world, neighbour).items():
                slowest[name] = max(slowest[name], *(timed(call) for _ in range(CALLS)))
        ratios.append(percentile(during, 0.99) / percentile(before, 0.99))
        quiet += before
        loaded += during
    return quiet, loaded, sorted(ratios), slowest, busy / took


def fill_log(world, mib):
    line = json.dumps({"time": "2026-01-02T03:04:05.678Z", "event": "request", "sandbox": "x", "tenant": "tenant9",
                       "verdict": "allow", "path": "/" + "p" * 400, "prev": "0" * 64}, separators=(",", ":")) + "\n"
    with open(world.audit_log("tenant9"), "w", encoding="ascii") as f:
        for _ in range(mib * 1024 * 1024 // len(line) // 1000):
            f.write(line * 1000)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--build", required=True)
    p.add_argument("--write")
    p.add_argument("--requests", type=int, default=500)
    p.add_argument("--rounds", type=int, default=ROUNDS)
    p.add_argument("--only", default="", help="loads with this in their names")
    p.add_argument("--servers-congestion", default="reno",
                   help="what the servers send with: they stand for servers on other machines, whose timers do not run on cay-egress's core")
    p.add_argument("--log-mib", type=int, default=175)
    o = p.parse_args()
    os.environ["CAY_BUILD"] = str(pathlib.Path(o.build).resolve())
    sys.path[:0] = [str(ROOT / "test/scenario"), str(ROOT / "test/egress")]
    from test_egress_engine import ZONE, address_of
    from worldlib import make_world
    from internet import WEB, UnixConnection

    text = [HEAD.format(kernel=platform.release(), cores=os.cpu_count(), load=os.getloadavg()[0], requests=o.requests, rounds=o.rounds, nice=DAEMON_NICE, calls=o.rounds * CALLS,
                        servers=o.servers_congestion, congestion=pathlib.Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip(),
                        tick=round(1000 * time.clock_getres(6)),  # CLOCK_MONOTONIC_COARSE
                        commit=subprocess.run(["git", "-C", ROOT, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True,
                                              check=True).stdout.strip()), *COLUMNS]
    world = make_world({name: {**entry, "ttl": 3600} for name, entry in ZONE.items()})
    subprocess.run(["ip", "netns", "exec", world.net, "sysctl", "-qw", f"net.ipv4.tcp_congestion_control={o.servers_congestion}"], check=True)
    servers = [serve(world.net, o.build, 19, "http", DOWNLOADS, "a"), serve(world.host, o.build, 0, "carry", CARRIED, WEB, DOWNLOADS),
               serve(world.net, o.build, 0, "http-alone", NEIGHBOURS)]
    try:
        fill_log(world, o.log_mib)
        world.kill_egress()
        world.start_egress()
        Cores.apply(world, *servers)
        put_before(world.egress.pid, DAEMON_NICE)
        loud, neighbour = world.sandbox(RULES), world.sandbox(RULES, tenant="tenant2")
        there, here = address_of(loud, "v4.example.com"), address_of(neighbour, "v4.example.com")
        searched = world.sandbox(RULES | {"inject": [{"credential": f"K{i}", "domains": ["v4.example.com"], "ports": [DOWNLOADS]}
                                                     for i in range(CREDENTIALS)]},
                                 credentials=credentials(world, CREDENTIALS))
        tunnelled = world.sandbox({"rules": [{"domains": ["v4.example.com"], "action": "allow"}]})
        loads = {
            "refused requests (two pipelined connections)": lambda: children(lambda _: pipeline(loud, there, b"/denied"), 2),
            "allowed requests a second": lambda: children(lambda _: pipeline(loud, there, b"/"), 2),
            "connections (1024, idle)": lambda: children(lambda _: hold(loud, there, 1024)),
            "connections (1024, a request begun)": lambda: children(lambda _: hold(loud, there, 1024, b"GET / HTTP/1.1\r\n")),
            "TLS handshakes (1024, begun)": lambda: children(lambda _: hold(loud, there, 1024, b"\x16\x03\x01\x02\x00\x01", 443)),
            "TLS handshakes that are read, as many as go (4 at a time)": lambda: children(lambda _: handshakes(loud, there), 4),
            "DNS questions, as many as go (2 at a time)": lambda: children(lambda _: questions(loud), 2),
            "bodies (8 at a time, 1 MiB each)": lambda: children(lambda _: send_bodies(loud, there), 8),
            f"downloads (40) that are searched for {CREDENTIALS} credentials with one beginning":
                lambda: children(lambda _: download(searched, address_of(searched, "v4.example.com"), b"X-Key: cay-secret:K0\r\n"), 40),
            "control: downloads (40) past cay-egress, by the same processes": lambda: children(lambda _: download(Past(world), WEB), 40),
            "control: downloads (40) through a plain relay": lambda: children(lambda _: download(Past(world), "127.0.0.1", port=CARRIED), 40),
            "downloads (40) that are tunnelled": lambda: children(lambda _: download(tunnelled, address_of(tunnelled, "v4.example.com")), 40),
            "downloads (40) whose requests are read": lambda: children(lambda _: download(loud, there), 40),
            f"questions about a log of {o.log_mib} MiB (64)": lambda: children(lambda _: ask_log(world, UnixConnection), 64),
        }
        apart = [(name, load) for name, load in loads.items() if o.only in name]
        shared = [(name, load) for name, load in apart if "downloads" in name]
        for i, (name, load) in enumerate(apart + shared):
            if i == len(apart):
                Cores.share()
                Cores.apply(world, *servers)
                text += [SHARED.format(cores=os.cpu_count()), *COLUMNS]
            quiet, loaded, ratios, slowest, busy = measure(world, neighbour, here, load, o.requests, o.rounds)
            q, b = percentile(quiet, 0.99) * 1000, percentile(loaded, 0.99) * 1000
            text.append(f"| {name} | {percentile(quiet, 0.5) * 1000:.2f} ms | {q:.2f} ms | {percentile(loaded, 0.5) * 1000:.2f} ms | "
                        f"{b:.2f} ms | {b / q:.2f} | {ratios[0]:.1f}, **{percentile(ratios, 0.5):.2f}**, {ratios[-1]:.1f} | {percentile(loaded, 0.5) / percentile(quiet, 0.5):.2f} | {busy:.0%} | " + " | ".join(f"{slowest[k]:.0f} ms" for k in ("policy", "sealing", "audit")) + f" | {os.getloadavg()[0]:.1f} |")
            print(text[-1], flush=True)
    finally:
        for server in servers:
            server.kill()
            server.wait()
        world.close()
    result = "\n".join(text) + "\n"
    if o.write:
        (pathlib.Path(o.write) / "fairness.md").write_text(result)
    print(result)


if __name__ == "__main__":
    main()
