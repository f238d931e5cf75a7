#!/usr/bin/env python3
"""How many of the kernel's filters may be freed at a time, and how fast (docs/kernel-pools.md, docs/privsep.md
"Ending (kills in turn)"). Only in a machine that is thrown away: test/vm/run.py runs it there, and it refuses to run
elsewhere, as the last steps may stop the machine for good.

Each step makes filters, frees them as fast as the step says, and looks meanwhile at how many workers of the kernel wait
(state D) at a time: the fault needs all that may run for one processor. Then it asks for one filter: no answer in a
minute is the fault. A step is a line of the output; the last one may have none that follows."""

import argparse
import ctypes
import multiprocessing
import os
import pathlib
import resource
import socket
import sys
import time

INSTRUCTIONS = 4096
STUCK_SECONDS = 60
# {filters, freed at once, then in each millisecond (0: all at once)}
STEPS = ((96, 96, 0), (224, 224, 0), (1000, 96, 0.5), (2000, 96, 1), (4000, 96, 2), (4000, 96, 4), (4000, 96, 8),
         (500, 500, 0), (1000, 1000, 0), (2000, 2000, 0), (4000, 4000, 0), (8000, 8000, 0), (12000, 12000, 0))


class Code(ctypes.Structure):
    _fields_ = [("code", ctypes.c_ushort), ("jt", ctypes.c_ubyte), ("jf", ctypes.c_ubyte), ("k", ctypes.c_uint)]


class Program(ctypes.Structure):
    _fields_ = [("n", ctypes.c_ushort), ("code", ctypes.POINTER(Code))]


LINES = (Code * INSTRUCTIONS)(*[Code(0x04, 0, 0, i) for i in range(INSTRUCTIONS - 1)], Code(6, 0, 0, 0x7FFF0000))
PROGRAM = bytes(Program(INSTRUCTIONS, LINES))


def attach():
    s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    s.setsockopt(socket.SOL_SOCKET, 26, PROGRAM)
    return s


def waiting_workers():
    """Workers of the kernel that wait uninterruptibly, and those that there are."""
    waiting = workers = 0
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            with open(f"/proc/{entry.name}/stat", "rb") as f:
                text = f.read()
        except OSError:
            continue
        if b"(kworker/" in text:
            workers += 1
            waiting += text.rpartition(b") ")[2][:1] == b"D"
    return waiting, workers


def watch(most, end):
    os.sched_setaffinity(0, {os.cpu_count() - 1})
    while not end.is_set():
        waiting, workers = waiting_workers()
        most[0], most[1] = max(most[0], waiting), max(most[1], workers)


def free(kept, at_once, per_ms):
    """Their number is what counts: the sockets are kept, as closing one takes longer. Milliseconds that it took."""
    begun = time.monotonic()
    for n, s in enumerate(kept):
        while per_ms and n >= at_once and n - at_once >= (time.monotonic() - begun) * 1000 * per_ms:
            pass
        s.setsockopt(socket.SOL_SOCKET, 27, 0)
    return (time.monotonic() - begun) * 1000


def ask(answer):
    begun = time.monotonic()
    attach()
    answer.value = (time.monotonic() - begun) * 1000


def step(n, at_once, per_ms):
    most, end, answer = multiprocessing.Array("i", 2), multiprocessing.Event(), multiprocessing.Value("d", -1)
    kept = [attach() for _ in range(n)]
    time.sleep(1)
    watcher = multiprocessing.Process(target=watch, args=(most, end), daemon=True)
    watcher.start()
    time.sleep(1)
    took = free(kept, at_once, per_ms)
    asker = multiprocessing.Process(target=ask, args=(answer,), daemon=True)
    asker.start()
    asker.join(STUCK_SECONDS)
    stuck = answer.value < 0
    end.set()
    watcher.join(STUCK_SECONDS)
    rate = f"{at_once} at once, then {per_ms:g} in a millisecond" if per_ms else "at once"
    print(f"{n} filters freed {rate} ({took:.0f} ms): at most {most[0]} workers waited at a time, of {most[1]}; "
          + (f"STUCK: no filter can be made in {STUCK_SECONDS} s" if stuck else f"one more filter after {answer.value:.0f} ms"),
          flush=True)
    return stuck


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--most", type=int, default=max(n for n, _, _ in STEPS), help="filters of a step")
    options = parser.parse_args()
    if not pathlib.Path("/cay/command").exists():
        sys.exit("not in a machine that test/vm/run.py made: this may stop the kernel for good")
    resource.setrlimit(resource.RLIMIT_NOFILE, (20000, 20000))
    pathlib.Path("/proc/sys/net/core/bpf_jit_enable").write_text("1")
    os.sched_setaffinity(0, {0})
    for n, at_once, per_ms in STEPS:
        if n <= options.most and step(n, at_once, per_ms):
            break
    os.sync()
    os._exit(0)


if __name__ == "__main__":
    main()
