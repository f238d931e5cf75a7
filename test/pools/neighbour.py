#!/usr/bin/env python3
"""The cost for a neighbour while one sandbox does its worst within its limits, a pool at a time.

    test/pools/neighbour.py --build=DIR [--seconds=4] [--only=NAME,NAME] [--write=docs/reports/neighbour-cost.md]

A server in a network namespace of its own, with a stand-in internet behind it; two sandboxes with the usual limits.
In one test/pools/storm.c does one thing with four processes; in the other a program measures open, close, name
look-ups and requests through the way out, while a client outside measures exec and create. Quiet is measured before
each storm, in the same run. As root."""

import argparse
import json
import multiprocessing
import os
import pathlib
import re
import statistics
import struct
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "test/scenario"))

WHAT = ("create", "exec", "open", "close", "dns", "request")
GOAL = 2.0
NOTES = "\n## Notes\n"
# In the neighbour. Open and close are of a device node of its own and of a file of the template that all have.
INSIDE = """
import http.client, json, os, socket, sys, time
end, out, clock = time.monotonic() + float(sys.argv[1]), {k: [] for k in ("open", "close", "dns", "request")}, time.perf_counter
def timed(what, call, *arguments):
    begun = clock()
    try:
        return call(*arguments)
    finally:
        out[what].append(clock() - begun)
def request():
    c = http.client.HTTPConnection("web.example.com", timeout=10)
    c.request("GET", "/")
    c.getresponse().read()
    c.close()
while time.monotonic() < end:
    for path in ("/dev/null", "/usr/bin/env"):
        timed("close", os.close, timed("open", os.open, path, os.O_RDONLY))
    timed("dns", socket.getaddrinfo, "web.example.com", 80)
    timed("request", request)
    time.sleep(0.008)  # three new flows each time: the sandbox may have 500 a second (EGRESS_NEW_PER_SECOND)
print(json.dumps(out))
"""


def from_outside(client, box, seconds, out):
    """exec and create in turn."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        begun = time.perf_counter()
        box.run("/bin/true", args=[])
        out["exec"].append(time.perf_counter() - begun)
        begun = time.perf_counter()
        made = client.create()
        out["create"].append(time.perf_counter() - begun)
        made.kill()
        time.sleep(0.02)


def measure(client, box, seconds):
    out = {"exec": [], "create": []}
    outside = threading.Thread(target=from_outside, args=(client, box, seconds, out))
    outside.start()
    done = box.run("/usr/bin/python3", args=["-c", INSIDE, str(seconds)], timeout=60)
    outside.join()
    assert done.exit_code == 0, done.stderr
    return out | json.loads(done.out)


def summary(times):
    ordered = sorted(times)
    return {"n": len(ordered), "p50_ms": 1000 * statistics.median(ordered),
            "p99_ms": 1000 * ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]}


def storm(attacker, name, seconds, pipe):
    """In a process of its own: what the attacker's client takes of an interpreter is not to be measured. The output is taken
    and not looked at; how the storm ended stands at its end."""
    process = {"cmd": "/tmp/storm", "args": [name, str(seconds + 2)]}
    message = json.dumps({"process": process, "stdin": False}).encode()
    connection, buffer, tail, taken = attacker.client.connect(60), bytearray(1 << 20), b"", 0
    connection.request("POST", "/process.Process/Start", struct.pack(">BI", 0, len(message)) + message, {
        **attacker.headers("user"), "Content-Type": "application/connect+json", "Connect-Protocol-Version": "1"})
    while not tail.endswith(b"\r\n0\r\n\r\n") and (n := connection.sock.recv_into(buffer)) > 0:
        taken, tail = taken + n, (tail + buffer[max(0, n - 4096):n])[-4096:]
    ended = re.search(rb'"status":"([^"]*)"', tail)
    pipe.send({"status": ended[1].decode() if ended else "unknown", "bytes": taken})


def one_storm(client, attacker, neighbour, name, seconds):
    quiet = measure(client, neighbour, seconds)
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=storm, args=(attacker, name, seconds, theirs))
    process.start()
    theirs.close()
    time.sleep(0.5)
    beside = measure(client, neighbour, seconds)
    said = ours.recv()
    process.join()
    return {"name": name, "quiet": {w: summary(quiet[w]) for w in WHAT}, "storm": {w: summary(beside[w]) for w in WHAT},
            "attacker": said}


def ratio(row, what, which):
    return row["storm"][what][which] / max(row["quiet"][what][which], 0.001)


def beyond_spin(row, spin, what):
    """Of the medians: how much longer than beside a program that only computes."""
    return row["storm"][what]["p50_ms"] / max(spin["storm"][what]["p50_ms"], 0.001)


def cell(row, what):
    q, s = row["quiet"][what], row["storm"][what]
    mark = "**" if ratio(row, what, "p50_ms") > GOAL else ""
    return (f"{mark}{ratio(row, what, 'p50_ms'):.1f}{mark} / {ratio(row, what, 'p99_ms'):.1f} "
            f"({q['p50_ms']:.2f}→{s['p50_ms']:.2f})")


def commit():
    """Of the tree that is measured; "" without git."""
    asked = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty", "--exclude=*"], capture_output=True, text=True)
    return asked.stdout.strip()


def notes(path):
    """The text that was written below the tables by hand stays."""
    text = path.read_text() if path.exists() else ""
    return text[text.index(NOTES):] if NOTES in text else ""


def document(rows, abouts, options, load):
    worst = [f"`{row['name']}` {w} {ratio(row, w, 'p50_ms'):.1f}" for row in rows for w in WHAT if ratio(row, w, "p50_ms") > GOAL]
    lines = ["# The cost for a neighbour", "",
             "While one sandbox does its worst within its limits, one thing at a time with four processes, what a",
             "neighbour on the same machine waits for the same things, against quiet in the same run (before each storm).",
             "Made by `make pools` (test/pools/neighbour.py, test/pools/storm.c). Each cell: ratio of the medians / ratio",
             "of the 99th percentiles (medians in ms, quiet→storm). The goal is at most 2 for each median; what is beyond",
             "is bold.", "",
             f"At commit {commit() or 'unknown'}; medians beyond the goal: {', '.join(worst) or 'none'}.", "",
             f"{os.cpu_count()} processors, {options.seconds} s for each side; load average of the machine before the run "
             f"{load[0]:.1f}, after {os.getloadavg()[0]:.1f}. Two processors for four busy processes and a neighbour:",
             "what sharing the processors alone costs is the first line, `spin`. Other work on the machine is in both sides",
             "of each ratio, so that a run on a machine that does something else says little.", "",
             "| storm | " + " | ".join(WHAT) + " |", "|---" * (len(WHAT) + 1) + "|"]
    for row in rows:
        lines.append(f"| {abouts[row['name']]} (`{row['name']}`) | " + " | ".join(cell(row, w) for w in WHAT) + " |")
    spin = next((row for row in rows if row["name"] == "spin"), None)
    if spin:
        lines += ["", "## Beyond sharing the processors", "",
                  "The same medians against those beside `spin`, which takes nothing of the kernel: what the pool itself",
                  "costs.", "", "| storm | " + " | ".join(WHAT) + " |", "|---" * (len(WHAT) + 1) + "|"]
        for row in rows:
            cells = [beyond_spin(row, spin, w) for w in WHAT]
            lines.append(f"| `{row['name']}` | " + " | ".join(f"**{c:.1f}**" if c > GOAL else f"{c:.1f}" for c in cells) +
                         " |")
    lines += ["", "## Controls", "", "Measurements of each kind, and how the storm ended:", "",
              "| storm | quiet | storm | ended |", "|---|---|---|---|"]
    for row in rows:
        counts = [" ".join(f"{w} {row[side][w]['n']}" for w in WHAT) for side in ("quiet", "storm")]
        lines.append(f"| `{row['name']}` | {counts[0]} | {counts[1]} | {row['attacker'].get('status')} |")
    return "\n".join(lines) + "\n" + notes(options.write)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--only", default="")
    parser.add_argument("--write", type=pathlib.Path)
    options = parser.parse_args()
    os.environ["CAY_BUILD"] = str(options.build.resolve())
    import egresslib
    program = options.build.resolve() / "test/pools/storm"
    abouts = dict(line.split("\t") for line in
                  subprocess.run([program, "list"], capture_output=True, text=True, check=True).stdout.splitlines())
    chosen = [n for n in abouts if not options.only or n in options.only.split(",")]
    load, stack, rows = os.getloadavg(), egresslib.Stack(), []
    try:
        with stack.cay.create(timeout_s=3000) as attacker, stack.cay.create(timeout_s=3000) as neighbour:
            assert attacker.write("/tmp/storm", program.read_bytes(), user="root").status == 200
            attacker.run("chmod 755 /tmp/storm", user="root")
            for name in chosen:
                rows.append(one_storm(stack.cay, attacker, neighbour, name, options.seconds))
                print(f"{name:14}", "  ".join(f"{w} {cell(rows[-1], w)}" for w in WHAT), rows[-1]["attacker"], flush=True)
    finally:
        stack.close()
    if options.write:
        options.write.parent.mkdir(parents=True, exist_ok=True)
        options.write.write_text(document(rows, abouts, options, load))
    return 0


if __name__ == "__main__":
    sys.exit(main())
