"""An agent (cay-init) that is stopped from outside: calls to its sandbox end with the reason, no other client
notices, and it goes on when it is continued. A kill of cayd in the middle of uploads, terminals and watches."""

import base64
import concurrent.futures
import hashlib
import os
import pathlib
import signal
import sqlite3
import sys
import threading
import time

import pytest

import leftovers
from test_recovery import kill_daemons, wait_ready, wait_served

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "soak"))
import load  # noqa: E402

HANG_SECONDS = 100  # a call that takes longer has no end


@pytest.fixture
def agent_of(own_server):
    """The host's pid of a sandbox's cay-init: by its slot, which only the database tells."""
    if not own_server:
        pytest.skip("agents are stopped only in a server of the tests' own")

    def find(box):
        with sqlite3.connect(f"file:{own_server.state}/cayd/cay.db?mode=ro", uri=True) as db:
            slot = db.execute("SELECT slot FROM sandboxes WHERE id = ?", [box.id]).fetchone()[0]
        first = own_server.uid_base + slot * leftovers.RANGE
        found = [p for p in leftovers._processes() if first <= p.uid < first + leftovers.RANGE]
        # By its number inside: a child that it has forked has its name too until it calls exec or is reaped.
        agents = [p for p in found if p.inner_pids == ["1"]]
        assert [p.name for p in agents] == ["cay-init"], [vars(p) for p in found]
        return agents[0].pid
    return find


@pytest.fixture
def stopped(cay, agent_of):
    with cay.create() as box:
        served = box.run("cd /tmp && (python3 -m http.server 8123 >/dev/null 2>&1 &); sleep 1")
        assert served.exit_code == 0, vars(served)
        pid = agent_of(box)
        os.kill(pid, signal.SIGSTOP)
        yield box, pid
        if pathlib.Path(f"/proc/{pid}").exists():
            os.kill(pid, signal.SIGCONT)


def calls_of(box):
    """Every sort of call that needs the agent."""
    def start():
        try:
            load.Stream(load.Box(box), "process.Process/Start", {"process": load.process("true")})
        except load.Cut as error:
            return str(error)
        return "it answered"
    return {
        "a stream": start,
        "a call": lambda: box.rpc("process.Process/List", {}),
        "a download": lambda: box.read("/etc/hostname"),
        "a small upload": lambda: box.write("/tmp/x", b"x"),
        "an upload that is not read": lambda: box.request("POST", "/files?path=/tmp/y", bytes(16 << 20),
                                                           {"Content-Type": "application/octet-stream"}, timeout=HANG_SECONDS),
    }


def test_others_do_not_notice(cay, stopped):
    box, pid = stopped
    with cay.create() as other, concurrent.futures.ThreadPoolExecutor(8) as pool:
        asked = {name: pool.submit(call) for name, call in calls_of(box).items()}
        time.sleep(0.5)
        for _ in range(3):
            assert other.run("echo here").out == "here\n"
            assert other.write("/tmp/f", b"data").status == 200 and other.read("/tmp/f").body == b"data"
            with cay.create() as new:
                assert new.run("echo new").out == "new\n"
        assert box.id in [item["sandboxID"] for item in cay.call("GET", "/v2/sandboxes?limit=100").json]
        assert cay.call("GET", f"/sandboxes/{box.id}").json["state"] == "running"
        assert cay.call("POST", f"/sandboxes/{box.id}/timeout", {"timeout": 300}).status == 204
        # Only the agent is stopped: what serves inside goes on serving.
        assert box.request("GET", "/", port=8123).status == 200
        assert not any(call.done() for call in asked.values()), "they were to hang meanwhile"
        for name, call in asked.items():
            reply = call.result(HANG_SECONDS)
            said = reply if isinstance(reply, str) else f"{reply.status} {reply.body}"
            assert said.startswith("504 ") and "does not answer" in said and "agent is stopped" in said, (name, said)
    os.kill(pid, signal.SIGCONT)
    assert box.run("echo back").out == "back\n"
    assert box.read("/etc/hostname").status == 200


def test_it_can_be_killed(cay, own_server, stopped):
    box, pid = stopped
    assert box.kill().status == 204
    assert cay.call("GET", f"/sandboxes/{box.id}").status == 404
    assert not pathlib.Path(f"/proc/{pid}").exists()


def test_a_stream_goes_on(cay, agent_of):
    with cay.create() as box:
        with load.Stream(load.Box(box), "process.Process/Start",
                         {"process": load.process("for i in 1 2 3 4 5 6; do echo $i; sleep 0.3; done")}) as stream:
            stream.next()
            stream.next()
            pid = agent_of(box)
            os.kill(pid, signal.SIGSTOP)
            time.sleep(3)
            os.kill(pid, signal.SIGCONT)
            result = stream.rest()
        assert result.exit_code == 0 and result.out.split()[-1] == "6"


def test_a_pause_that_asks_for_an_agent_that_answers(cay, stopped):
    """The newest SDKs' pause(strict=True): refused while the agent does not answer, and the sandbox goes on. Without it: paused."""
    box, pid = stopped
    strict = {"requireHealthyGuest": True}
    refused = cay.call("POST", f"/sandboxes/{box.id}/pause", strict)
    assert refused.status == 503 and "does not answer" in refused.json["message"]
    assert cay.call("GET", f"/sandboxes/{box.id}").json["state"] == "running"
    os.kill(pid, signal.SIGCONT)
    assert cay.call("POST", f"/sandboxes/{box.id}/pause", strict).status == 204
    assert cay.call("POST", f"/sandboxes/{box.id}/pause", strict).status == 409


# -- cayd is killed in the middle ------------------------------------------------------------------

def kill_cayd(cay, own_server, box):
    kill_daemons(own_server, "cayd")
    wait_served(cay, box)
    wait_ready(cay)


@pytest.fixture
def box(cay, own_server):
    if not own_server:
        pytest.skip("daemons are killed only in a server of the tests' own")
    with cay.create() as made:
        yield made


def test_an_upload(cay, own_server, box):
    """It fails for its client, leaves no part under its name, and works when it is sent again."""
    data, begun = os.urandom(16 << 20), threading.Event()
    box.write("/home/user/big", b"before")

    def slowly():
        for at in range(0, len(data), 1 << 16):
            yield data[at:at + (1 << 16)]
            begun.set()
            time.sleep(0.05)

    def send():
        connection = cay.connect()
        connection.request("GET", "/cay/v1/status", headers={"X-API-Key": cay.key})
        connection.getresponse().read()  # it is this cayd's now, and not one that waits for the next to accept it
        headers = {**box.headers(), "Content-Type": "application/octet-stream"}
        connection.request("POST", "/files?path=/home/user/big", slowly(), headers, encode_chunked=True)
        return connection.getresponse().status

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        sent = pool.submit(send)
        assert begun.wait(20)
        kill_cayd(cay, own_server, box)
        with pytest.raises(load.CUTS):
            assert sent.result(HANG_SECONDS) is None
    assert box.write("/home/user/big", data).status == 200
    assert hashlib.sha256(box.read("/home/user/big").body).digest() == hashlib.sha256(data).digest()
    assert box.run("ls -A /home/user | grep -v '^\\.bash\\|^\\.profile'").out.split() == ["big"]


def test_a_terminal(cay, own_server, box):
    """The same shell, by another connection."""
    one = load.Box(box)
    message = {"process": load.process("", ["-i", "-l"]), "pty": {"size": {"cols": 80, "rows": 24}}}
    with load.Stream(one, "process.Process/Start", message) as stream:
        pid = {"pid": stream.next()["event"]["start"]["pid"]}
        type_in(box, pid, "kept=$((6*7))\n")
        kill_cayd(cay, own_server, box)
        with pytest.raises((*load.CUTS, load.Cut)):
            stream.rest()
    with load.Stream(one, "process.Process/Connect", {"process": pid}) as stream:
        assert stream.next()["event"]["start"]["pid"] == pid["pid"]
        type_in(box, pid, "echo it is $kept; exit 3\n")
        seen, code = b"", None
        while "end-stream" not in (message := stream.next()):
            seen += base64.b64decode(message["event"].get("data", {}).get("pty", ""))
            code = message["event"].get("end", {}).get("exitCode", code)
    assert b"it is 42" in seen and code == 3


def type_in(box, pid, text):
    reply = box.rpc("process.Process/SendInput",
                    {"process": pid, "input": {"pty": base64.b64encode(text.encode()).decode()}})
    assert reply.status == 200, reply.body


def test_a_command_and_its_input(cay, own_server, box):
    one = load.Box(box)
    with load.Stream(one, "process.Process/Start", {"process": load.process("sha256sum"), "stdin": True}) as stream:
        pid = {"pid": stream.next()["event"]["start"]["pid"]}
        send = lambda data: box.rpc("process.Process/SendInput", {
            "process": pid, "input": {"stdin": base64.b64encode(data).decode()}})
        assert send(b"one").status == 200
        kill_cayd(cay, own_server, box)
    with load.Stream(one, "process.Process/Connect", {"process": pid}) as stream:
        stream.next()
        assert send(b"two").status == 200
        assert box.rpc("process.Process/CloseStdin", {"process": pid}).status == 200
        assert stream.rest().out.split()[0] == hashlib.sha256(b"onetwo").hexdigest()


def test_a_watch(cay, own_server, box):
    """A watch that is asked for its events goes on by itself; a streamed one is asked for again."""
    made = box.rpc("filesystem.Filesystem/CreateWatcher", {"path": "/home/user"}).json
    one = load.Box(box)
    with load.Stream(one, "filesystem.Filesystem/WatchDir", {"path": "/home/user"}) as stream:
        stream.next()
        kill_cayd(cay, own_server, box)
        with pytest.raises((*load.CUTS, load.Cut)):
            stream.next()
    with load.Stream(one, "filesystem.Filesystem/WatchDir", {"path": "/home/user"}) as stream:
        assert "start" in stream.next()
        box.write("/home/user/new", b"x")
        assert stream.next()["filesystem"]["name"] == "new"
    events = box.rpc("filesystem.Filesystem/GetWatcherEvents", {"watcherId": made["watcherId"]}).json["events"]
    assert "new" in {event["name"] for event in events}
