"""Pause with the memory on the disk, to its ends: every program of cay begins anew in between, requests wake it, its image is damaged, it
cannot be kept, the programs that it needs are not there, a program is killed while it is paused or resumed, and E2B's own SDK."""

import contextlib
import json
import pathlib
import random
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from client import Client
from conftest import OwnServer
from leftovers import children
from test_dump import needs  # noqa: F401 (fixture)
from test_pause import state
from test_pause_memory import COUNTER, PAIR, counted, detail, kept, own, pause, resume, start  # noqa: F401 (fixtures)
from test_recovery import kill_daemons, wait_ready
from waitlib import until

NO_NEW_PRIVS = "import ctypes, time; ctypes.CDLL(None).prctl(38, 1, 0, 0, 0); open('/tmp/set', 'w'); time.sleep(1000)"
ALL = ("cayd", "cay-privd")


def image(server):
    """The only one that is kept, by the way that cay-privd has to it."""
    privd = children(server.keep_pid, "cay-privd")[0]
    found = list(pathlib.Path(f"/proc/{privd}/root{server.state}").glob("**/kept/*/image"))
    assert len(found) == 1, found
    return found[0]


def told(client, box, kind):
    lines = client.call("GET", f"/cay/v1/events?sandbox={box.id}&since=0&follow=0").body.splitlines()
    return [event for event in map(json.loads, lines) if event["type"] == kind]


def goes_on(box):
    until(lambda: counted(box), 20, "the counter runs")
    last = counted(box)[-1]
    until(lambda: counted(box)[-1] > last, 20, "the counter goes on")
    numbers = counted(box)
    assert numbers == list(range(len(numbers)))


def runs(box):
    """The counter, which no boot starts."""
    return box.run("pgrep -f '[c]ount.py'").exit_code == 0


def refuses_to_be_kept(box):
    start(box, "count", COUNTER)
    start(box, "refusal", NO_NEW_PRIVS)
    until(lambda: box.run("cat /tmp/set").exit_code == 0, 20, "it has set no_new_privs")


# A watch of a file that CRIU cannot find again by its number.
WATCH = """
import ctypes, time
libc = ctypes.CDLL(None, use_errno=True)
open("/tmp/watched", "w")
assert libc.inotify_add_watch(libc.inotify_init(), b"/tmp/watched", 2) >= 0, ctypes.get_errno()
open("/tmp/set", "w")
time.sleep(1000)
"""


def test_what_criu_does_not_keep_is_refused_with_its_words(kept):  # noqa: F811
    with kept.create() as box:
        start(box, "count", COUNTER)
        start(box, "watch", WATCH)
        until(lambda: box.run("cat /tmp/set").exit_code == 0, 20, "it watches")
        reply = pause(kept, box)
        assert reply.status == 501 and "CRIU: Error" in reply.json["message"], reply.body
        goes_on(box)
        assert box.run("pkill -f '[w]atch.py'").exit_code == 0
        until(lambda: pause(kept, box).status == 200, 20, "it is paused without that")


# Connections to the socket by which cay-privd reaches cay-init, as many as can wait there, and held so that CRIU does not refuse them.
CONNECTS = """
import collections, os, socket
for _ in range(11):
    if os.fork() == 0:
        break
open("/tmp/set", "w")
held = collections.deque(maxlen=100)
while True:
    held.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
    held[-1].connect(b"\\0cay-init")
"""


def test_connections_to_cay_init_keep_no_resume_waiting(kept):  # noqa: F811
    """Those that waited there came back with the memory, and a resume waited for room for a minute, in a place that others wait for."""
    with kept.create() as box:
        start(box, "count", COUNTER)
        start(box, "connects", CONNECTS)
        until(lambda: box.run("cat /tmp/set").exit_code == 0, 20, "it connects")
        answers = []
        for _ in range(4):
            begun = time.monotonic()
            reply = pause(kept, box)
            answers.append((reply.status, reply.json.get("message", "")))
            if reply.status == 200:
                assert resume(kept, box).status == 201
            assert reply.status in (200, 501) and time.monotonic() - begun < 15, reply.body
            goes_on(box)
        assert any("cay-init's own socket" in message for _, message in answers), answers
        assert box.run("pkill -f '[c]onnects.py'").exit_code == 0
        until(lambda: pause(kept, box).status == 200, 20, "it is paused without that")
        assert resume(kept, box).status == 201
        goes_on(box)


def test_more_processes_than_can_be_kept_are_refused(kept):  # noqa: F811
    with kept.create() as box:
        start(box, "count", COUNTER)
        box.run("for i in $(seq 505); do setsid sleep 1000 >/dev/null 2>&1 </dev/null & done")
        reply = pause(kept, box)
        assert reply.status == 501 and "more than 500 processes" in reply.json["message"], reply.body
        goes_on(box)
        box.run("pkill sleep")
        assert pause(kept, box).status == 200


def test_requests_wake_it_once_after_all_programs_began_anew(kept, own):  # noqa: F811
    with kept.create(autoPause=True, autoResume={"enabled": True}) as box:
        start(box, "count", COUNTER)
        start(box, "pair", PAIR)
        assert box.run("cd /tmp; setsid python3 -m http.server 8000 > /dev/null 2>&1 < /dev/null &").exit_code == 0
        until(lambda: box.request("GET", "/count", port=8000).status == 200, 20, "it serves")
        assert pause(kept, box).json["tier"] == "memory"
        kill_daemons(own, *ALL)
        wait_ready(kept)
        assert detail(kept, box)["tier"] == "memory"
        with ThreadPoolExecutor(8) as pool:
            replies = list(pool.map(lambda _: box.request("GET", "/count", port=8000).status, range(8)))
        assert replies == [200] * 8
        assert state(kept, box) == "running"
        assert len(told(kept, box, "sandbox.resumed")) == 1
        goes_on(box)
        assert box.run("cat /tmp/pair.log /tmp/count.log").out == ""


@pytest.mark.parametrize("allowed", ["never", "at the pause", "at the resume"])
def test_a_damaged_image_is_refused_or_its_files_are_started(kept, own, allowed):  # noqa: F811
    with kept.create() as box:
        start(box, "count", COUNTER)
        until(lambda: runs(box), 20, "the counter runs")
        assert pause(kept, box, orFiles=allowed == "at the pause").json["tier"] == "memory"
        at = image(own)
        with open(at, "r+b") as file:
            file.seek(random.Random(7).randrange(8192, at.stat().st_size))
            byte = file.read(1)
            file.seek(-1, 1)
            file.write(bytes([byte[0] ^ 1]))
        reply = resume(kept, box, orFiles=allowed == "at the resume")
        if allowed == "never":
            assert reply.status == 503 and "damaged" in reply.json["message"]
            now = detail(kept, box)
            assert (now["state"], now["tier"]) == ("paused", "memory")
            assert resume(kept, box, memory=False).status == 201
        else:
            assert reply.status == 201
            assert "damaged" in detail(kept, box)["memoryError"]
            assert "damaged" in told(kept, box, "sandbox.resumed")[-1]["memoryError"]
        assert not runs(box)
        assert box.run("cat /tmp/count.py").out == COUNTER


def test_a_process_that_cannot_be_kept_is_named(kept):  # noqa: F811
    with kept.create() as box:
        refuses_to_be_kept(box)
        reply = pause(kept, box)
        assert reply.status == 501 and "no_new_privs" in reply.json["message"]
        assert state(kept, box) == "running"
        goes_on(box)


def test_its_files_alone_are_kept_where_that_is_allowed(kept):  # noqa: F811
    with kept.create() as box:
        refuses_to_be_kept(box)
        reply = pause(kept, box, orFiles=True)
        assert reply.status == 200 and reply.json["tier"] == "files" and "no_new_privs" in reply.json["memoryError"]
        assert "no_new_privs" in told(kept, box, "sandbox.paused")[-1]["memoryError"]
        assert resume(kept, box).status == 201
        assert not runs(box) and counted(box)


def test_without_the_programs_it_runs_on(needs):  # noqa: F811
    server = OwnServer()
    try:
        client = Client(server.url, server.key())
        if client.call("GET", "/cay/v1/status").json["disk"]["backend"] == "memory":
            pytest.skip("files are in memory here")
        with client.create() as box:
            start(box, "count", COUNTER)
            reply = pause(client, box)
            assert reply.status == 501 and "cay-checkpoint" in reply.json["message"]
            goes_on(box)
    finally:
        server.stop()


@pytest.mark.parametrize("victims", [("cayd",), ("cay-privd",), ALL])
@pytest.mark.parametrize("change", ["pause", "resume"])
def test_a_program_that_is_killed_meanwhile_leaves_it_paused_or_running(kept, own, change, victims):  # noqa: F811
    with kept.create() as box:
        start(box, "count", COUNTER)
        until(lambda: counted(box), 20, "the counter runs")
        if change == "resume":
            assert pause(kept, box).status == 200

        def ask():
            try:
                (pause if change == "pause" else resume)(kept, box)
            except OSError:
                pass  # cayd was killed

        asking = threading.Thread(target=ask)
        asking.start()
        kill_daemons(own, *victims)
        asking.join()
        wait_ready(kept)
        until(lambda: resume(kept, box, orFiles=True).status in (200, 201), 100, "it runs", patient=True)
        numbers = counted(box)
        assert numbers == list(range(len(numbers)))


SDK = """
import os, sys, time
from e2b import Sandbox
import urllib.request, json
key, api = os.environ["E2B_API_KEY"], os.environ["E2B_API_URL"]
sbx = Sandbox.create("host", timeout=300)
handle = sbx.commands.run("word=kept; n=0; while :; do n=$((n+1)); echo $word $n > /tmp/new; mv /tmp/new /tmp/n; sleep 0.05; done", background=True)
time.sleep(1)
r = urllib.request.Request(f"{api}/sandboxes/{sbx.sandbox_id}/pause", data=json.dumps({"tier": "memory"}).encode(), method="POST",
                           headers={"X-API-Key": key, "Content-Type": "application/json"})
assert json.loads(urllib.request.urlopen(r).read())["tier"] == "memory"
assert not sbx.is_running()
again = Sandbox.connect(sbx.sandbox_id, timeout=300)
assert again.is_running()
assert handle.pid in [p.pid for p in again.commands.list()]
first = again.files.read("/tmp/n"); time.sleep(0.5)
assert first.startswith("kept") and int(again.files.read("/tmp/n").split()[1]) > int(first.split()[1])
again.commands.connect(handle.pid).kill()
assert again.commands.run("echo done").stdout == "done\\n"
again.kill()
print("whole")
"""


def test_the_sdk_connects_to_what_ran(kept):  # noqa: F811
    domain = f"localhost:{kept.port}"
    done = subprocess.run([sys.executable, "-c", SDK], capture_output=True, text=True, timeout=100, env={
        "PATH": "/usr/bin:/bin", "E2B_API_KEY": kept.key, "E2B_API_URL": kept.url, "E2B_SANDBOX_URL": kept.url, "E2B_DOMAIN": domain,
        "E2B_DEBUG": ""})
    assert done.returncode == 0 and done.stdout.endswith("whole\n"), done.stderr[-2000:]



def test_a_pause_waits_for_a_program_that_is_being_started(kept):  # noqa: F811
    """It was refused (501) as if its memory could never be kept, and with "orFiles" the memory was lost. Four clients start programs without
    end, so that of five pauses one comes while that is under way."""
    over = threading.Event()

    def starts(box):
        while not over.is_set():
            with contextlib.suppress(OSError, AssertionError, ValueError):
                box.run("true")

    with kept.create() as box, ThreadPoolExecutor(4) as pool:
        start(box, "count", COUNTER)
        clients = [pool.submit(starts, box) for _ in range(4)]
        try:
            for _ in range(5):
                said = pause(kept, box, orFiles=True)
                assert said.status == 200 and said.json["tier"] == "memory", said.body
                assert resume(kept, box).status == 201
                assert box.run("true").exit_code == 0
        finally:
            over.set()
        for one in clients:
            one.result()
        goes_on(box)
