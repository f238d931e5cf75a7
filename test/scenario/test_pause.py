"""Pause and resume with memory: stillness, events, waking, restarts in between, ends."""

import base64
import contextlib
import http.client
import json
import os
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from test_lifecycle import when
from waitlib import until


def pause(cay, box):
    return cay.call("POST", f"/sandboxes/{box.id}/pause", {}).status


def connect(cay, box, timeout_s=300, version="/v2"):
    return cay.call("POST", f"{version}/sandboxes/{box.id}/connect", {"timeout": timeout_s})


def state(cay, box):
    return cay.call("GET", f"/sandboxes/{box.id}").json["state"]


def listed(cay, states):
    return {one["sandboxID"] for one in cay.call("GET", f"/v2/sandboxes?state={states}&limit=100").json}


COUNTER = "while :; do date +%s%N >>/home/user/ticks; sleep 0.01; done >/dev/null 2>&1 & echo $!"


def test_it_stands_still_and_goes_on(cay):
    with cay.create() as box:
        pid = box.run(COUNTER).out.strip()
        boot = box.run("cat /proc/sys/kernel/random/boot_id").out
        for version in ("/v2", ""):
            time.sleep(0.1)
            before = cay.call("GET", f"/sandboxes/{box.id}").json
            assert pause(cay, box) == 204
            assert state(cay, box) == "paused"
            assert box.id in listed(cay, "paused") and box.id not in listed(cay, "running")
            assert pause(cay, box) == 409
            again = cay.call("POST", f"/cay/v1/sandboxes/{box.id}/pause", {"tier": "memory"}).json["message"]
            assert "already paused (frozen)" in again and "`cay resume`" in again
            assert box.request("GET", "/health").status == 502
            time.sleep(0.3)
            reply = connect(cay, box, 100, version)
            assert reply.status == 201 and reply.json["sandboxID"] == box.id
            assert reply.json["envdAccessToken"] == box.token
            after = cay.call("GET", f"/sandboxes/{box.id}").json
            assert after["state"] == "running" and when(after["startedAt"]) > when(before["startedAt"])
            assert abs(when(after["endAt"]) - when(after["startedAt"]) - 100) < 1
            assert connect(cay, box, 10, version).status == 200
            assert box.request("GET", "/health").status == 204
        assert box.run(f"kill -0 {pid} && cat /proc/sys/kernel/random/boot_id").out == boot
        lines = box.run("wc -l </home/user/ticks").out  # it goes on after the last pause, too
        until(lambda: box.run("wc -l </home/user/ticks").out != lines)
        ticks = [int(line) for line in box.read("/home/user/ticks").body.split()]
        gaps = sorted(b - a for a, b in zip(ticks, ticks[1:]))
        assert gaps[-1] > 280e6 and gaps[-2] > 280e6  # the two pauses: nothing ran in them


def start_with_time(box, seconds, *command):
    """A program whose time is told to the agent; the stream is read to its end in a thread."""
    def work():
        process = json.dumps({"process": {"cmd": command[0], "args": command[1:]}}).encode()
        connection = box.client.connect(60)
        connection.request("POST", "/process.Process/Start", struct.pack(">BI", 0, len(process)) + process, {
            **box.headers(None), "Content-Type": "application/connect+json", "Connect-Protocol-Version": "1",
            "Connect-Timeout-Ms": str(seconds * 1000)})
        with contextlib.suppress(OSError, http.client.HTTPException):  # a pause ends it
            connection.getresponse().read()
        connection.close()
    threading.Thread(target=work).start()


@pytest.mark.parametrize("paused", [True, False])
def test_a_pause_is_no_time_of_a_command(cay, paused):
    """A command with 6 s outlives a pause of 7; without the pause (the control) it is ended in that time."""
    def lives():
        return box.run("pgrep -f 'sleep [3]571'").out.strip() != ""

    with cay.create() as box:
        start_with_time(box, 6, "/bin/sleep", "3571")
        until(lives)
        if paused:
            assert pause(cay, box) == 204
        time.sleep(7)
        if paused:
            assert connect(cay, box).status == 201
        assert lives() == paused
        until(lambda: not lives(), 30)


@pytest.mark.parametrize("call, body", [("timeout", {"timeout": 60}), ("timeout", {"timeout": 0}), ("refreshes", {"duration": 60})])
def test_an_end_is_not_set_for_one_that_is_paused(cay, call, body):
    """404, as upstream; the resume's own holds."""
    with cay.create() as box:
        assert pause(cay, box) == 204
        reply = cay.call("POST", f"/sandboxes/{box.id}/{call}", body)
        assert reply.status == 404 and "is paused" in reply.json["message"] and "Connect" in reply.json["message"], reply.body
        assert connect(cay, box, 100).status == 201
        seen = cay.call("GET", f"/sandboxes/{box.id}").json
        assert abs(when(seen["endAt"]) - when(seen["startedAt"]) - 100) < 1
        assert cay.call("POST", f"/sandboxes/{box.id}/{call}", {"timeout": 60, "duration": 60}).status == 204  # the control


def test_the_old_resume(cay):
    with cay.create() as box:
        assert cay.call("POST", f"/sandboxes/{box.id}/resume", {"timeout": 60}).status == 409
        assert pause(cay, box) == 204
        assert cay.call("POST", f"/sandboxes/{box.id}/resume", {"timeout": 60}).status == 201
        assert state(cay, box) == "running"


def test_unknown_ended_and_others_are_not_found(cay, other_tenant):
    box = cay.create()
    for who, path in ((cay, "/sandboxes/inone"), (other_tenant, f"/sandboxes/{box.id}")):
        for call in ("pause", "resume", "connect"):
            reply = who.call("POST", f"{path}/{call}", {"timeout": 10})
            assert reply.status == 404 and reply.json["code"] == 404
    assert state(cay, box) == "running" and pause(cay, box) == 204
    assert other_tenant.call("POST", f"/sandboxes/{box.id}/resume", {"timeout": 10}).status == 404
    assert box.kill().status == 204
    for call in ("pause", "resume", "connect"):
        assert cay.call("POST", f"/sandboxes/{box.id}/{call}", {"timeout": 10}).status == 404
    assert box.kill().status == 404 and box.id not in listed(cay, "running,paused")


def test_the_end_of_its_time_pauses_it(cay):
    with cay.create(timeout_s=1, autoPause=True) as box:
        assert cay.call("GET", f"/sandboxes/{box.id}").json["lifecycle"] == {"autoResume": False, "onTimeout": "pause"}
        until(lambda: state(cay, box) == "paused", 10, "paused at the end of its time")
        assert connect(cay, box, 1).status == 201
        until(lambda: state(cay, box) == "paused", 10, "and once more")
        assert connect(cay, box).status == 201 and box.run("echo here").out == "here\n"


def test_many_callers_at_once(cay):
    """A single pause is done, the others are told; all resumes are answered; nothing is left half."""
    with cay.create() as box, ThreadPoolExecutor(16) as pool:
        for _ in range(5):
            statuses = sorted(pool.map(lambda _: pause(cay, box), range(16)))
            assert statuses == [204] + [409] * 15
            statuses = set(pool.map(lambda _: connect(cay, box).status, range(16)))
            assert statuses <= {200, 201} and 201 in statuses
            assert state(cay, box) == "running"
        calls = list(pool.map(lambda n: pause(cay, box) if n % 2 else connect(cay, box).status, range(64)))
        assert set(calls) <= {200, 201, 204, 409}
        connect(cay, box)
        assert box.run("echo here").out == "here\n"


def test_a_kill_while_it_is_paused_or_being_so(cay):
    for _ in range(10):
        box = cay.create()
        threads = [threading.Thread(target=pause, args=(cay, box)) for _ in range(2)]
        for thread in threads:
            thread.start()
        assert box.kill().status == 204
        for thread in threads:
            thread.join()
        assert cay.call("GET", f"/sandboxes/{box.id}").status == 404


def events_of(cay, box):
    lines = cay.call("GET", f"/cay/v1/events?sandbox={box.id}&since=0&follow=0").body.splitlines()
    return [(event["type"], event.get("reason")) for event in map(json.loads, lines) if event["type"].startswith("sandbox.")]


def test_it_is_told_with_its_reason(cay):
    box = cay.create(timeout_s=1, autoPause=True)
    until(lambda: state(cay, box) == "paused", 10, "paused at the end of its time")
    assert connect(cay, box).status == 201 and pause(cay, box) == 204
    assert cay.call("GET", f"/cay/v1/sandboxes/{box.id}").json["state"] == "paused"
    assert cay.call("GET", f"/cay/v1/sandboxes/{box.id}").json["reason"] == "api"
    assert [one["reason"] for one in cay.call("GET", "/v2/sandboxes?state=paused").json if one["sandboxID"] == box.id] == ["api"]
    box.kill()
    assert events_of(cay, box) == [("sandbox.created", None), ("sandbox.paused", "timeout"), ("sandbox.resumed", None),
                                   ("sandbox.paused", "api"), ("sandbox.ended", "killed")]


# -- traffic ----------------------------------------------------------------------------------------


def create_waking(cay, **fields):
    return cay.create(autoPause=True, autoResume={"enabled": True}, **fields)


SERVER = "cd /home/user && echo page >index.html && (python3 -m http.server 8000 >/dev/null 2>&1 &) && " \
         "until curl -s 127.0.0.1:8000 >/dev/null; do sleep 0.05; done"


def test_what_is_asked_of_it_wakes_it_once(cay):
    with create_waking(cay) as box, ThreadPoolExecutor(16) as pool:
        assert box.run(SERVER).exit_code == 0
        assert cay.call("GET", f"/sandboxes/{box.id}").json["lifecycle"] == {"autoResume": True, "onTimeout": "pause"}
        asks = [lambda: box.request("GET", "/index.html", port=8000).body == b"page\n",
                lambda: box.run("echo here").out == "here\n",
                lambda: box.request("GET", "/envs").status == 200]
        for n, one in enumerate(asks):
            assert pause(cay, box) == 204
            assert all(pool.map(lambda _: one(), range(16)))
            assert state(cay, box) == "running"
            assert [kind for kind, _ in events_of(cay, box)].count("sandbox.resumed") == n + 1
        left = when(cay.call("GET", f"/sandboxes/{box.id}").json["endAt"]) - time.time()
        assert 200 < left <= 300  # five minutes from when it was woken


def test_who_may_not_reach_it_does_not_wake_it(cay):
    with create_waking(cay, network={"allowPublicTraffic": False}) as box:
        assert pause(cay, box) == 204
        for reply, status in ((box.request("GET", "/health", token=False), 502), (box.request("GET", "/health"), 502), (box.request("GET", "/envs", token=False), 401),
                              (box.request("GET", "/envs", token="0" * 64), 401), (box.request("GET", "/", port=8000), 403),
                              (box.request("POST", "/init", {}), 404)):
            assert reply.status == status, reply.body
        assert state(cay, box) == "paused"


def test_without_auto_resume_the_answer_says_so(cay):
    with cay.create() as box:
        assert pause(cay, box) == 204
        for port in (49983, 8000):
            reply = box.request("GET", "/health", port=port)
            assert reply.status == 502 and reply.json["sandboxId"] == box.id and "paused" in reply.json["message"]
        assert state(cay, box) == "paused"


def test_streams_end_with_the_pause_and_their_programs_do_not(cay):
    """The output that had come before is whole; the program is found again, with the number that it had."""
    with cay.create() as box:
        stream = box.stream("process.Process/Start", {"process": {"cmd": "/bin/bash", "args": ["-c", "while :; do echo tick; sleep 0.01; done"]}})
        pid = next(stream)["event"]["start"]["pid"]
        assert "data" in next(stream)["event"]
        assert pause(cay, box) == 204
        with pytest.raises((ConnectionError, http.client.HTTPException)):
            for _ in range(10000):
                next(stream)
        assert connect(cay, box).status == 201
        assert pid in [one["pid"] for one in box.rpc("process.Process/List", {}).json["processes"]]
        again = box.stream("process.Process/Connect", {"process": {"pid": pid}})
        assert "start" in next(again)["event"] and "data" in next(again)["event"]
        again.close()


# -- again and again ---------------------------------------------------------------------------------

TIMES = int(os.environ.get("CAY_PAUSE_TIMES", "100"))  # `make pause-long`: 1000

# A counter that writes each number once, and a connection inside over which each number goes there and back.
WITNESS = """
import socket, threading, time
a = socket.create_server(("127.0.0.1", 0))
b = socket.create_connection(a.getsockname())
c, _ = a.accept()
def echo():
    while True:
        data = c.recv(4096)
        if not data:
            open("broken", "w").write("the connection ended")
        c.sendall(data)
threading.Thread(target=echo, daemon=True).start()
ticks, trips, n = open("ticks", "w", 1), open("trips", "w", 1), 0
while True:
    n += 1
    print(n, file=ticks)
    b.sendall(b"%010d" % n)
    data = b""
    while len(data) < 10:
        data += b.recv(10 - len(data))
    print(int(data), file=trips)
    time.sleep(0.001)
"""


def test_nothing_is_lost_however_often(cay):
    """Numbers, bytes of a connection inside, a server, a terminal and a shell's variable in it."""
    with cay.create() as box:
        box.write("/home/user/witness.py", WITNESS.encode())
        assert box.run(f"{SERVER}; (python3 witness.py >/dev/null 2>&1 &)").exit_code == 0
        tty = box.stream("process.Process/Start", {"process": {"cmd": "/bin/bash", "args": ["-i"]}, "pty": {"size": {"cols": 80, "rows": 24}}})
        pid = next(tty)["event"]["start"]["pid"]
        enter(box, pid, "kept=$$; tty >tty; touch there\n")
        until(lambda: box.read("/home/user/there").status == 200, what="the shell has the variable")
        before = box.run("pgrep -f witness.py").out
        for _ in range(TIMES):
            assert pause(cay, box) == 204
            assert connect(cay, box).status == 201
            assert box.request("GET", "/index.html", port=8000).body == b"page\n"
        assert box.run("pgrep -f witness.py").out == before
        enter(box, pid, "echo $kept $(tty) >after\n")
        until(lambda: box.read("/home/user/after").status == 200 and box.read("/home/user/after").body.endswith(b"\n"),
              what="the shell answers")
        assert box.read("/home/user/after").body.split() == [str(pid).encode(), box.read("/home/user/tty").body.strip()]
        at = int(box.run("tail -n1 ticks").out)
        until(lambda: int(box.run("tail -n1 ticks").out) > at, what="it still counts")
        box.run("pkill -STOP -f witness.py")
        ticks, trips = (box.read(f"/home/user/{name}").body.split() for name in ("ticks", "trips"))
        assert [int(n) for n in ticks] == list(range(1, len(ticks) + 1)) and len(ticks) > TIMES / 10
        assert [int(n) for n in trips] == list(range(1, len(trips) + 1)) and len(ticks) - len(trips) in (0, 1)
        assert box.read("/home/user/broken").status == 404


def enter(box, pid, text):
    data = base64.b64encode(text.encode()).decode()
    assert box.rpc("process.Process/SendInput", {"process": {"pid": pid}, "input": {"pty": data}}).status == 200


@pytest.mark.parametrize("body", [{"tier": "memory", "memory": False}, {"tier": "frozen", "memory": False}, {"tier": "files", "memory": True},
                                  {"orFiles": True}, {"tier": "files", "orFiles": True}, {"memory": False, "orFiles": True}])
def test_a_pause_that_contradicts_itself_is_refused(cay, body):
    with cay.create() as box:
        for path in (f"/sandboxes/{box.id}/pause", f"/cay/v1/sandboxes/{box.id}/pause"):
            assert cay.call("POST", path, body).status == 400, body
        assert cay.call("GET", f"/sandboxes/{box.id}").json["state"] == "running"


def test_a_resume_that_contradicts_itself_is_refused(cay):
    with cay.create() as box:
        assert pause(cay, box) == 204
        for path in (f"/sandboxes/{box.id}/resume", f"/cay/v1/sandboxes/{box.id}/resume", f"/v2/sandboxes/{box.id}/connect"):
            reply = cay.call("POST", path, {"memory": False, "orFiles": True})
            assert reply.status == 400 and "orFiles" in reply.json["message"], reply.body
        assert state(cay, box) == "paused"


def test_what_asks_for_what_cannot_be_is_refused(cay):
    made = cay.call("POST", "/cay/v1/sandboxes", {"templateID": "host", "seccompFilters": True, "autoPause": True, "autoPauseTier": "memory"})
    assert made.status == 400 and "seccompFilters" in made.json["message"], made.body
    for mount in ("volumeMounts", "hostMounts"):
        made = cay.call("POST", "/cay/v1/sandboxes", {"templateID": "host", mount: [{"name": "v", "path": "/w", "readonly": True}]})
        assert made.status == 400 and '"readonly"' in made.json["message"], made.body
    with cay.create() as box:
        assert cay.call("POST", f"/cay/v1/sandboxes/{box.id}/resize", {}).status == 400
