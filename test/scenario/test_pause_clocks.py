"""Clocks and timers of programs that stand through a pause (docs/pause.md, "Clocks and timers")."""

import json
import time

import pytest
from test_dump import needs  # noqa: F401 (fixture)
from test_pause_memory import kept, own, start  # noqa: F401 (fixtures)
from waitlib import until

# Each line of /tmp/clocks is a moment: monotonic, since the boot, real. In /tmp/timers is when each timer was set and went
# off, by those clocks. The file is renamed, or a line of it is one write, so that no reader meets half of it.
CLOCKS = """
import ctypes, errno, json, os, threading, time
libc = ctypes.CDLL(None, use_errno=True)
MONOTONIC, REALTIME, ABSOLUTE = 1, 0, 1

def now():
    return [time.monotonic(), time.clock_gettime(time.CLOCK_BOOTTIME), time.time()]

def note(name, set_at, **more):
    with open("/tmp/timers", "a") as f:
        f.write(json.dumps({"name": name, "set": set_at, "fired": now(), **more}) + "\\n")

def timer(name, clock, flags, seconds):
    set_at = now()
    due = seconds + (set_at[0 if clock == MONOTONIC else 2] if flags else 0)
    fd = libc.timerfd_create(clock, 0)
    spec = (ctypes.c_long * 4)(0, 0, int(due), int(due % 1 * 1e9))
    assert libc.timerfd_settime(fd, flags, spec, None) == 0
    os.read(fd, 8)
    note(name, set_at)

def nanosleep():
    set_at = now()
    n = libc.nanosleep((ctypes.c_long * 2)(SECONDS, 0), None)
    note("nanosleep", set_at, returned=n, error=errno.errorcode.get(ctypes.get_errno(), "") if n else "")

def sleep():
    set_at = now()
    time.sleep(SECONDS)
    note("sleep", set_at)

SECONDS = 6
for what in [(timer, "relative", MONOTONIC, 0, SECONDS), (timer, "absolute", MONOTONIC, ABSOLUTE, SECONDS),
             (timer, "real", REALTIME, ABSOLUTE, SECONDS), (nanosleep,), (sleep,)]:
    threading.Thread(target=what[0], args=what[1:]).start()
while True:
    with open("/tmp/clocks", "a") as f:
        f.write(json.dumps(now()) + "\\n")
    time.sleep(0.02)
"""
SECONDS, STOOD = 6, 8  # of the timers, of the pause


def lines(box, name):
    return [json.loads(line) for line in box.run(f"cat /tmp/{name}").out.split("\n")[:-1]]


def gap(moments):
    """How far each clock went over the longest stop of the real one."""
    pairs = list(zip(moments, moments[1:], strict=False))
    before, after = max(pairs, key=lambda pair: pair[1][2] - pair[0][2])
    return [b - a for a, b in zip(before, after, strict=True)]


@pytest.mark.parametrize("tier", ["frozen", "memory"])
def test_clocks_and_timers(kept, tier):  # noqa: F811
    with kept.create() as box:
        start(box, "clocks", CLOCKS)
        until(lambda: len(lines(box, "clocks")) > 5, 20, "the clocks are read")
        reply = kept.call("POST", f"/cay/v1/sandboxes/{box.id}/pause", {"tier": tier})
        assert reply.status == 200 and reply.json["tier"] == tier, reply.body
        before = time.time()
        time.sleep(STOOD)
        stood = time.time() - before
        assert kept.call("POST", f"/v2/sandboxes/{box.id}/connect", {"timeout": 300}).status == 201
        until(lambda: len(lines(box, "timers")) == 5, 60, lambda: f"all timers went off: {lines(box, 'timers')}", patient=True)
        timers = {t["name"]: t for t in lines(box, "timers")}
        monotonic, boot, real = gap(lines(box, "clocks"))
        assert real >= stood  # which is right
        went = {name: [b - a for a, b in zip(t["set"], t["fired"], strict=True)] for name, t in timers.items()}
        slept = timers["nanosleep"]
        if tier == "frozen":
            assert monotonic >= stood and boot >= stood
            assert slept["returned"] == 0
            assert all(w[0] >= SECONDS for w in went.values()), went
            return
        assert monotonic <= real - stood and boot <= real - stood
        assert (slept["returned"], slept["error"]) == (-1, "EINTR")
        assert went["relative"][0] >= SECONDS and went["sleep"][0] >= SECONDS, went
        assert went["absolute"][0] >= SECONDS - 1 and went["real"][0] >= SECONDS - 1, went
        assert went["real"][2] - went["real"][0] >= stood, went  # later than was asked for
