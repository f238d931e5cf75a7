#!/usr/bin/env python3
"""The way out beside no proxy at all, the least that a relay can be, and other proxies, in turns and in one run;
as root.

    scripts/bench egress BUILD [--json=FILE] [--write=DIR] [--user=NAME]

All of it in the network namespaces of test/egress/internet.py: the servers in that of the internet, whatever
carries in the host's, clients in a sandbox's (direct, and mitmproxy's, which needs a listener of its own: in the
host's). BENCH_ROUNDS (5), BENCH_COUNT (1000), BENCH_SECONDS (1), BENCH_MIB (512) scale it, BENCH_HELD (1,100,1000)
are the connections at which memory is looked at. Prints tables; nothing is asserted."""

import argparse
import contextlib
import json
import os
import pathlib
import shutil
import socket
import statistics
import subprocess
import sys
import time

import report

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "test/egress"))
from internet import OWN4, RESOLVER, TCP_PORT, WEB, World, inside, listener, run  # noqa: E402

ROUNDS = int(os.environ.get("BENCH_ROUNDS", "5"))
COUNT = int(os.environ.get("BENCH_COUNT", "1000"))
SECONDS = int(os.environ.get("BENCH_SECONDS", "1"))
MIB = int(os.environ.get("BENCH_MIB", "512"))
HELD = [int(n) for n in os.environ.get("BENCH_HELD", "1,100,1000").split(",")]
CONNECTIONS = 32
BUILD = pathlib.Path(os.environ.get("CAY_BUILD", ROOT / "build"))
TOOL = BUILD / "test/bench/egress_load"
NAME, API, KEY = "web.example.com", "api.example.com", "key-0123456789abcdef"
BYTES, HTTPS, KEYED, RELAY, HAPROXY, MITM, UDP = "7100", "7101", "7102", 4000, 4001, 4002, "7103"
MARKS = ("<!-- egress-bench: begin -->", "<!-- egress-bench: end -->")
NODE, FAR, FAR_MIB = 7110, 7111, int(os.environ.get("BENCH_FAR_MIB", "256"))
FAR_ROUNDS = min(ROUNDS, 3)
# Round trip in ms, and megabits a second of the link; 0: as fast as the machine's processors go.
FAR_LINKS = {"0 ms": (0, 0), "40 ms": (40, 0), "100 ms": (100, 0), "40 ms, 200 Mbit/s": (40, 200), "40 ms, 1 Gbit/s": (40, 1000),
             "100 ms, 1 Gbit/s": (100, 1000)}
SLOW = 8  # mitmproxy gets so much less to do: its figures are as steady with it
# Limits that a sandbox has are not what is measured.
LIMITS = ["--egress-connections=16384", "--egress-connections-per-second=100000",
          "--egress-requests-per-second=1000000"]

HAPROXY_CONFIG = """
global
    nbthread 1
    maxconn 4000
defaults
    mode tcp
    option splice-auto
    timeout connect 10s
    timeout client 1h
    timeout server 1h
frontend in
    bind fd@{fd}
    default_backend out
backend out
    server one {address}:{port}
"""


# -- who carries -------------------------------------------------------------------------------------


class Way:
    """How one way is gone: where clients are, what they connect to and say first, whose memory it takes."""

    def __init__(self, name, netns, address, port, *options, process=None, slow=1):
        self.name, self.netns, self.slow, self.process = name, netns, slow, process
        self.address, self.port, self.options = address, str(port), [str(o) for o in options]

    def command(self, mode, *arguments):
        return ["ip", "netns", "exec", self.netns, TOOL, *self.options, mode, self.address, self.port,
                *(str(a) for a in arguments)]

    def run(self, mode, *arguments):
        done = subprocess.run([str(p) for p in self.command(mode, *arguments)], stdout=subprocess.PIPE, text=True,
                              check=True)
        return [float(line) for line in done.stdout.split()]


class Bench:
    def __init__(self, user):
        zone = {name: {"a": [[WEB]], "ttl": 60} for name in (NAME, API)}
        self.world = World(BUILD / "src/egress/cay-egress", zone, user, LIMITS)
        self.stack = contextlib.ExitStack()
        self.stack.callback(self.world.close)

    def __enter__(self):
        with contextlib.ExitStack() as undo:
            undo.push(self.stack)
            self.servers()
            undo.pop_all()
        return self

    def __exit__(self, *_):
        self.stack.close()

    def start(self, netns, *command, until="ready\n", **more):
        """A process in a namespace, ended with the bench."""
        p = subprocess.Popen(["ip", "netns", "exec", netns, *(str(c) for c in command)], stdout=subprocess.PIPE,
                             text=True, **more)
        self.stack.callback(end, p)
        if until and p.stdout.readline() != until:
            raise RuntimeError(f"{command[0]} did not start")
        return p

    def servers(self):
        w = self.world
        self.start(w.net, TOOL, "bytes", BYTES)
        self.start(w.net, TOOL, "https", HTTPS, w.cert, w.key, "-")
        self.start(w.net, TOOL, "https", KEYED, w.cert, w.key, KEY)
        self.plain = w.sandbox({"rules": [{"domains": [NAME], "action": "allow"}]})
        self.fd_relay, self.fd_haproxy = (inside(self.plain.name, lambda p=p: listener(socket.SOCK_STREAM, p))
                                          for p in (RELAY, HAPROXY))
        for port in (RELAY, HAPROXY):  # transparent, as cay-egress is
            run("ip", "netns", "exec", self.plain.name, "nft", "insert", "rule", "inet", "cay", "way", "tcp", "dport",
                port, "redirect", "to", f":{port}")
        self.start(w.host, TOOL, "relay", self.fd_relay.fileno(), WEB, BYTES, pass_fds=(self.fd_relay.fileno(),))
        self.keyed = self.make_keyed()

    def policy(self):
        """The rights of the second sandbox: one host, and a key is put on there."""
        bind = {"domains": [API], "kind": "bearer"}
        status, text = self.world.call("POST", "/v1/seal",
                                       {"tenant": "tenant1", "name": "k", "value": KEY, "bind": bind})
        assert status == 200, text
        sealed = {"name": "k", "sealed": json.loads(text)["sealed"], "bind": bind}
        return ({"rules": [{"domains": [API], "action": "allow"}],
                 "inject": [{"credential": "k", "domains": [API]}]}, {"credentials": [sealed]})

    def make_keyed(self):
        rules, more = self.policy()
        s = self.world.sandbox(rules, **more)
        self.tenant_ca = self.world.dir / "tenant.pem"
        self.tenant_ca.write_text(self.world.call("GET", "/v1/ca/tenant1")[1])
        return s

    def fresh_egress(self):
        """Started anew, so that what was done before does not count."""
        self.world.kill_egress()
        self.world.start_egress()
        rules, more = self.policy()
        for status, text in (self.world.put(self.plain, {"rules": [{"domains": [NAME], "action": "allow"}]}),
                             self.world.put(self.keyed, rules, **more)):
            assert status == 204, text
        return self.world.egress

    def haproxy(self):
        if not shutil.which("haproxy"):
            return "haproxy is not installed"
        config = self.world.dir / "haproxy.cfg"
        config.write_text(HAPROXY_CONFIG.format(fd=self.fd_haproxy.fileno(), address=WEB, port=BYTES))
        p = self.start(self.world.host, "haproxy", "-q", "-db", "-f", config, until=None,
                       pass_fds=(self.fd_haproxy.fileno(),))
        wait_for(p, lambda: inside(self.plain.name, lambda: socket.create_connection(("127.0.0.1", HAPROXY), 5)))
        return p

    def mitmproxy(self, *options):
        if not shutil.which("mitmdump"):
            return "mitmproxy is not installed"
        home = self.world.dir / "mitmproxy"
        p = self.start(self.world.host, "mitmdump", "-q", "--listen-host", "127.0.0.1", "--listen-port", MITM, "--set",
                       f"confdir={home}", "--set", f"ssl_verify_upstream_trusted_ca={self.world.ca}", "--set",
                       "http2=false", "--set", "stream_large_bodies=1m", "--set", "flow_detail=0", *options, until=None,
                       stderr=subprocess.DEVNULL)
        wait_for(p, lambda: inside(self.world.host, lambda: socket.create_connection(("127.0.0.1", MITM), 5)))
        return p

    # the ways of each table; a text in place of one says why it is not there

    def tunnel(self):
        yield Way("direct", self.world.host, WEB, BYTES)
        yield Way("splice relay", self.plain.name, WEB, RELAY)
        process = self.fresh_egress()
        yield Way("cay-egress", self.plain.name, self.plain.resolve(NAME)[1][0], BYTES, process=process)
        p = self.haproxy()
        yield p if isinstance(p, str) else Way("HAProxy", self.plain.name, WEB, HAPROXY, process=p)

    def explicit(self, protocol, mode):
        yield Way("direct", self.world.host, WEB, BYTES)
        yield Way("cay-egress", self.plain.name, "127.0.0.1", TCP_PORT, f"--proxy={protocol}", f"--to={NAME}:{BYTES}",
                  process=self.fresh_egress())
        p = self.mitmproxy("--mode", mode, "--ignore-hosts", ".*")
        yield p if isinstance(p, str) else Way("mitmproxy", self.world.host, "127.0.0.1", MITM, f"--proxy={protocol}",
                                               f"--to={WEB}:{BYTES}", process=p, slow=SLOW)

    def connect(self):
        return self.explicit("connect", "regular")

    def socks5(self):
        return self.explicit("socks5", "socks5")

    def intercepted(self):
        yield Way("direct", self.world.host, WEB, HTTPS, f"--ca={self.world.ca}", f"--name={API}",
                  f"--to={API}:{HTTPS}")
        process = self.fresh_egress()
        yield Way("cay-egress", self.keyed.name, self.keyed.resolve(API)[1][0], KEYED, f"--ca={self.tenant_ca}",
                  f"--name={API}", f"--to={API}:{KEYED}", process=process)
        p = self.mitmproxy("--modify-headers", f"|~q|Authorization|Bearer {KEY}")
        yield p if isinstance(p, str) else Way(
            "mitmproxy", self.world.host, "127.0.0.1", MITM, "--proxy=connect", f"--to={WEB}:{KEYED}",
            f"--ca={self.world.dir}/mitmproxy/mitmproxy-ca-cert.pem", f"--name={API}", process=p, slow=SLOW)


TABLES = {"tunnel": "Transparent tunnel", "connect": "Explicit proxy, CONNECT", "socks5": "Explicit proxy, SOCKS5",
          "intercepted": "Interception, a key put on each request"}


def end(process):
    process.kill()
    process.wait()
    process.stdout.close()


def wait_for(process, connect):
    deadline = time.monotonic() + 30
    while True:
        try:
            return connect().close()
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise
            time.sleep(0.1)


# -- measuring ---------------------------------------------------------------------------------------


def resident_kib(process):
    fields = dict(line.split(":", 1) for line in pathlib.Path(f"/proc/{process.pid}/status").read_text().splitlines())
    return int(fields["VmRSS"].split()[0])


def processor_seconds(process):
    fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def speeds(ways):
    """In turns, so that all of them have the same neighbours."""
    found = {w.name: {"trips": [], "connects": [], "rate": [], "pull": [], "each": []} for w in ways}
    for _ in range(ROUNDS):
        for w in ways:
            f = found[w.name]
            f["trips"] += w.run("trips", COUNT // w.slow)
            f["connects"] += w.run("connects", max(20, COUNT // 10 // w.slow))
            before = w.process and processor_seconds(w.process)
            f["rate"] += w.run("rate", CONNECTIONS, SECONDS)
            if w.process:
                f["each"].append((processor_seconds(w.process) - before) / (f["rate"][-1] * SECONDS) * 1e6)
            f["pull"] += w.run("pull", max(1, MIB // w.slow))
    return {name: figures(f) for name, f in found.items()}


def figures(f):
    each = {"processor_us": statistics.median(f["each"])} if f["each"] else {}
    return {**each, "trip_p50_us": statistics.median(f["trips"]),
            "trip_p99_us": statistics.quantiles(f["trips"], n=100)[98],
            "connect_p50_us": statistics.median(f["connects"]),
            "connect_p99_us": statistics.quantiles(f["connects"], n=100)[98],
            "rate": statistics.median(f["rate"]), "stream_mib_s": statistics.median(f["pull"])}


def memory(way):
    """KiB resident of a program that was just started, and with so many connections of one client."""
    found = {"rest": resident_kib(way.process)}
    p = subprocess.Popen([str(c) for c in way.command("hold")], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                         text=True)
    try:
        for n in HELD:
            p.stdin.write(f"{n}\n")
            p.stdin.flush()
            assert p.stdout.readline() == f"{n}\n", f"{way.name} does not hold {n} connections"
            found[str(n)] = resident_kib(way.process)
    finally:
        p.stdin.close()
        p.wait()
        p.stdout.close()
    return found


def dns(bench):
    """Answers in a second from the sandbox, and of a program that sends back what comes."""
    w = bench.world
    bench.start(bench.plain.name, TOOL, "udp", UDP)
    ways = {"cay-egress": Way("", bench.plain.name, RESOLVER, 53), "echo": Way("", bench.plain.name, OWN4, UDP)}
    found = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, way in ways.items():
            found[name] += way.run("dns", NAME, SECONDS)
    assert w.asked(NAME) <= 4 * ROUNDS * SECONDS + 16, "questions inside led to questions outside"
    return {name: statistics.median(v) for name, v in found.items()}


def measure_table(bench, table):
    found, absent = {}, []
    with contextlib.ExitStack() as processes:  # of this table
        kept, bench.stack = bench.stack, processes
        try:
            ways = [w for w in getattr(bench, table)() if not isinstance(w, str) or absent.append(w)]
            held = {w.name: memory(w) for w in ways if w.process}
            found = speeds([w for w in ways])
        finally:
            bench.stack = kept
    for name, kib in held.items():
        found[name]["resident_kib"] = kib
    direct = found["direct"]
    for f in (f for f in found.values() if f is not direct):
        f["added_p50_us"] = f["trip_p50_us"] - direct["trip_p50_us"]
        f["added_p99_us"] = f["trip_p99_us"] - direct["trip_p99_us"]
    return {"ways": found, "absent": absent}


# -- servers that are far away -----------------------------------------------------------------------


def transfer(netns, *curl):
    """MiB/s of one transfer, from its first request to its end."""
    done = subprocess.run(["ip", "netns", "exec", netns, "curl", "-sS", "--max-time", "120", "-o", "/dev/null", "-w",
                           "%{http_version} %{http_code} %{size_download} %{size_upload} %{time_total} "
                           "%{time_pretransfer}", *map(str, curl)],
                          stdout=subprocess.PIPE, text=True, check=True).stdout.split()
    assert done[1] == "200", done
    return max(int(done[2]), int(done[3])) / (float(done[4]) - float(done[5])) / 2**20


def far(bench):
    """A stream of HTTP/2 and of HTTP/1.1, through a relay that holds each byte for half of a round trip: direct, and
    with its requests read. {link: {what: {way: MiB/s}}}, or why not."""
    if not shutil.which("node"):
        return "node is not installed"
    w, found = bench.world, {}
    bench.start(w.net, "node", ROOT / "test/bench/h2_bytes.mjs", "127.0.0.1", NODE, w.cert, w.key)
    upload = w.dir / "upload"
    bench.fresh_egress()
    ways = {"direct": (w.host, w.ca, WEB), "cay-egress": (bench.keyed.name, bench.tenant_ca, None)}
    for i, (link, (round_trip, mbit)) in enumerate(FAR_LINKS.items()):
        port = FAR + i
        bench.start(w.net, BUILD / "test/bench/far", WEB, port, "127.0.0.1", NODE, round_trip / 2, *([mbit] if mbit else []))
        rows = found[link] = {}
        size = min(FAR_MIB, mbit // 2 or FAR_MIB) * 2**20  # four seconds of a slow link
        upload.write_bytes(bytes(size))
        for what, options in (("HTTP/2 down", ("--http2", f"/{size}")),
                              ("HTTP/2 up", ("--http2", "-T", upload, "/up")),
                              ("HTTP/1.1 down", ("--http1.1", f"/{size}"))):
            speeds = {way: [] for way in ways}
            for _ in range(FAR_ROUNDS):
                for way, (netns, ca, address) in ways.items():
                    to = () if address is None else ("--resolve", f"{API}:{port}:{address}")
                    speeds[way].append(transfer(netns, "--cacert", ca, *to, *options[:-1],
                                                f"https://{API}:{port}{options[-1]}"))
            rows[what] = {way: statistics.median(v) for way, v in speeds.items()}
            print(f"{link:16}, {what:14}" + "".join(f"  {way} {v:8.1f} MiB/s" for way, v in rows[what].items()),
                  flush=True)
    return found


def far_markdown(found):
    lines = ["", "### Servers that are far away, one stream of requests that are read, MiB/s", ""]
    if isinstance(found, str):
        return [*lines, f"Not measured: {found}."]
    lines += ["Where no link is named, client, server, relay and `cay-egress` are bound by the machine's processors alone: what of them",
              "`cay-egress` needs, the others have not.", "", "| round trip | | direct | cay-egress | of direct |", "|---|---|---:|---:|---:|"]
    return lines + [f"| {link} | {what} | {f['direct']:,.1f} | {f['cay-egress']:,.1f} | {f['cay-egress'] / f['direct']:.0%} |"
                    for link, rows in found.items() for what, f in rows.items()]


# -- writing -----------------------------------------------------------------------------------------

ROWS = [("trip_p50_us", "question and answer on a kept connection, p50, µs", 0),
        ("trip_p99_us", "the same, p99, µs", 0),
        ("added_p50_us", "**added to direct, p50, µs**", 0), ("added_p99_us", "**added to direct, p99, µs**", 0),
        ("connect_p50_us", "connect, first question and answer, close: p50, µs", 0),
        ("connect_p99_us", "the same, p99, µs", 0),
        ("rate", f"**questions answered in a second, {CONNECTIONS} connections**", 0),
        ("processor_us", "the program's processor time for each of them, µs", 1),
        ("stream_mib_s", "**one stream, MiB/s**", 0)]


def rows_of(table):
    """(text, {way: text})"""
    ways = table["ways"]
    for key, text, digits in ROWS:
        yield text, {w: f"{f[key]:,.{digits}f}" if key in f else "" for w, f in ways.items()}
    for n in ("rest", *map(str, HELD)):
        what = "at rest" if n == "rest" else f"with {int(n):,} connection{'s' * (n != '1')}"
        yield f"resident {what}, MiB", {w: f"{f['resident_kib'][n] / 1024:.1f}" if "resident_kib" in f else ""
                                        for w, f in ways.items()}


def show(title, table):
    ways = list(table["ways"])
    print(f"\n{title}\n{'':56}" + "".join(f"{w:>14}" for w in ways))
    for text, cells in rows_of(table):
        print(f"{text.replace('*', ''):56}" + "".join(f"{cells[w]:>14}" for w in ways), flush=True)
    for why in table["absent"]:
        print(f"  {why}")


def goals(out, tables, answers):
    tunnel, read = tables["tunnel"]["ways"], tables["intercepted"]["ways"]
    cay, relay, key = tunnel["cay-egress"], tunnel["splice relay"], "stream_mib_s"
    out.row("tunnel_stream", "tunnel: one stream", "MiB/s", cay[key], "splice relay", relay[key], least=0.9)
    if "HAProxy" in tunnel:
        peer = tunnel["HAProxy"]
        out.row("haproxy_stream", "tunnel: one stream", "MiB/s", cay[key], "HAProxy", peer[key], least=1.0)
        out.row("haproxy_rate", "tunnel: questions answered", "/s", cay["rate"], "HAProxy", peer["rate"], least=1.0)
        out.row("haproxy_processor", "tunnel: processor time for a question", "µs", cay["processor_us"], "HAProxy",
                peer["processor_us"], most=1.0)
        out.row("haproxy_trip", "tunnel: question and answer, p50", "µs", cay["trip_p50_us"], "HAProxy",
                peer["trip_p50_us"], most=1.0)
    out.row("intercept_added", "interception: added to direct, p50", "ms", read["cay-egress"]["added_p50_us"] / 1000,
            most_value=0.5)
    if "mitmproxy" in read:
        out.row("mitmproxy_rate", "interception: questions answered", "/s", read["cay-egress"]["rate"], "mitmproxy",
                read["mitmproxy"]["rate"], least=10.0)
    out.row("rest", "resident at rest", "MiB", cay["resident_kib"]["rest"] / 1024, most_value=8.0)
    out.row("dns", "DNS answers", "/s", answers["cay-egress"], "datagrams sent back as they came", answers["echo"])


def version(*command):
    with contextlib.suppress(OSError):
        words = subprocess.run(command, capture_output=True, text=True).stdout.split()
        return next((w for w in words if w[0].isdigit()), "")
    return ""


def markdown(out, tables, versions, distant):
    found = [report.headline(out.head) + f" Medians of {ROUNDS} rounds in turns. "
             + ", ".join(f"{name} {v}" for name, v in versions.items() if v) + "."]
    for name, table in tables.items():
        ways = list(table["ways"])
        found += ["", f"### {TABLES[name]}", "", f"| | {' | '.join(ways)} |", f"|---|{'---:|' * len(ways)}"]
        found += [f"| {text} | {' | '.join(cells[w] for w in ways)} |" for text, cells in rows_of(table)]
        found += [f"\nNot measured: {why}." for why in table["absent"]]
    goals_table = report.markdown({**out.head, "rows": out.rows, "settings": {"count": ROUNDS}}).splitlines()[2:]
    found += far_markdown(distant)
    return "\n".join([*found, "", "### Goals", "", *goals_table]).rstrip()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", type=pathlib.Path, help="write the figures to this file")
    parser.add_argument("--write", type=pathlib.Path, metavar="DIR", help="write page and figures below docs")
    parser.add_argument("--user", default="nobody", help="whom cay-egress runs as")
    parser.add_argument("--only", default=",".join(TABLES), help="tables, with commas; empty: servers far away alone")
    args = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("egress.py: network namespaces need root")
    out = report.Report({"rounds": ROUNDS, "count": COUNT, "seconds": SECONDS, "mib": MIB, "held": HELD})
    versions = {"HAProxy": version("haproxy", "-v"), "mitmproxy": version("mitmdump", "--version")}
    tables = {}
    with Bench(args.user) as bench:
        for name in filter(None, args.only.split(",")):
            tables[name] = measure_table(bench, name)
            show(TABLES[name], tables[name])
        answers = dns(bench)
        print()
        distant = far(bench)
    print()
    if set(tables) == set(TABLES):
        goals(out, tables, answers)
    if isinstance(distant, dict):
        for key, link, least in (("far_stream", "40 ms, 1 Gbit/s", 0.8), ("far_stream_processors", "40 ms", None)):
            f = distant[link]["HTTP/2 down"]
            out.row(key, f"interception: one stream of HTTP/2 at {link}" + ("" if least else ", bound by the processors"), "MiB/s",
                    f["cay-egress"], "direct", f["direct"], **({"least": least} if least else {}))
    found = {**out.json(), "schema": "cay-egress-bench/1", "versions": versions, "tables": tables, "dns": answers, "far": distant}
    for path in filter(None, (args.json, args.write and args.write / "egress-bench.json")):
        path.write_text(json.dumps(found, indent=1) + "\n")
    if args.write:
        report.replace_between(args.write / "egress-benchmarks.md", MARKS, markdown(out, tables, versions, distant))


if __name__ == "__main__":
    main()
