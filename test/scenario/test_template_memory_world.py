"""Templates with memory where something is other than it was when they were built: the limits of a create, volumes, the kernel, CRIU that
is not there or has gone; and that nothing of the sandbox that the memory was made in reaches another by its agent. Needs CRIU."""

import concurrent.futures
import contextlib
import os
import pathlib
import re
import signal
import sqlite3
import subprocess

import pytest
from client import Client, Sandbox
from conftest import OwnServer
from test_dump import needs  # noqa: F401 (fixture)
from test_pause_memory import PROGRAMS, detail, kept, own  # noqa: F401 (fixtures)
from test_recovery import wait_ready
from test_template_builder import request, run, start, status
from test_template_memory import SERVER, asks, begins_cold, begins_with_memory, build, name, started, told_of, with_memory  # noqa: F401
from test_template_memory_ends import makers
from waitlib import until

MIB = 1 << 20
CRIU = pathlib.Path("/usr/local/sbin/criu")
MEMBERS = 2  # POOL_WITH_MEMORY (src/privd/pool.h)


# -- another create ------------------------------------------------------------------------------------

def wishes(client, name, **fields):  # noqa: F811
    """A create with limits of its own, which Daytona's clients can ask for, in GiB."""
    reply = client.call("POST", "/api/sandbox", {"snapshot": name, **fields})
    assert reply.status == 200, reply.body
    return Sandbox(client, {"sandboxID": reply.json["id"], **client.call("POST", f"/sandboxes/{reply.json['id']}/connect", {"timeout": 300}).json})


def test_other_limits_start_cold(kept, name):  # noqa: F811
    """Programs have read them. With those of the template it begins with memory."""
    most = {"memoryBytes": 2048 * MIB, "cpuMilli": 2000, "diskBytes": 2048 * MIB}
    try:
        assert kept.call("PUT", "/cay/v1/templates/host/limits", most).status == 204
        assert with_memory(build(kept, name, cpuCount=2, memoryMB=2048))
        for wish, limits in (({"cpu": 1}, {"cpuMilli": 1000}), ({"memory": 1}, {"memoryBytes": 1024 * MIB}), ({"disk": 1}, {"diskBytes": 1024 * MIB}),
                             ({}, None)):
            with wishes(kept, name, **wish) as box:
                event, told = told_of(kept, box), detail(kept, box)
                if limits is None:
                    assert event.get("memory") is True, event
                    continue
                assert "memory" not in event and "other limits" in event["memoryError"] == told["memoryError"], event
                assert {key: told[key] for key in limits} == limits
                until(lambda box=box: asks(box)[:1], 20, "its server answers", patient=True)
    finally:
        assert kept.call("PUT", "/cay/v1/templates/host/limits", {}).status == 204


def test_volumes_start_cold(kept, name):  # noqa: F811
    assert with_memory(build(kept, name))
    assert kept.call("POST", "/volumes", {"name": name}).status == 201
    with begins_cold(kept, name, "volumes", volumeMounts=[{"name": name, "path": "/srv/v"}]) as box:
        assert box.run("echo there > /srv/v/x; cat /srv/v/x", user="root").out == "there\n" and started(box) == 1
    until(lambda: kept.call("DELETE", f"/volumes/{name}").status == 204, what="the volume is removed")
    with begins_with_memory(kept, name):
        pass


# -- another world -------------------------------------------------------------------------------------

class Elsewhere(OwnServer):
    """A server that is started by a program of ours, and again by another one."""

    before = ()

    def start(self):
        plain, self.command = self.command, [*self.before, *self.command]
        try:
            super().start()
        finally:
            self.command = plain

    def again(self, *before):
        self.before = before
        os.kill(self.keep_pid, signal.SIGTERM)
        until(lambda: not pathlib.Path(f"/proc/{self.keep_pid}").exists(), 60, "it has ended")
        self.start()


@contextlib.contextmanager
def elsewhere(kind):
    server = kind(privd_args=PROGRAMS)
    try:
        client = Client(server.url, server.key())
        if client.call("GET", "/cay/v1/status").json["disk"]["backend"] == "memory":
            pytest.skip("files are in memory here")
        yield server, client
    finally:
        server.stop()


def test_memory_of_another_kernel_is_not_used(needs):  # noqa: F811
    with elsewhere(Elsewhere) as (server, client):
        assert with_memory(build(client, "k"))
        with begins_with_memory(client, "k") as box:
            word = asks(box)[0]
        server.again()  # control: a start anew changes nothing
        wait_ready(client)
        with begins_with_memory(client, "k") as box:
            assert asks(box)[0] == word
        server.again("setarch", "--uname-2.6")
        wait_ready(client)
        with begins_cold(client, "k", "another kernel") as box:
            assert asks(box)[0] != word and started(box) == 1
        with client.create(template="k") as box:  # it was removed, and nothing is told of it
            assert not {"memory", "memoryError"} & set(told_of(client, box))
        assert client.call("DELETE", "/templates/k").status == 204


class WithItsOwnCriu(Elsewhere):
    """CRIU is in a directory of its own there, from which it is taken away and put back."""

    @property
    def criu(self):
        return self.base / "sbin" / "criu"

    def start(self):
        if not self.criu.parent.exists():
            self.criu.parent.mkdir(mode=0o755)
            subprocess.run(["cp", "-p", CRIU, self.criu], check=True)
        self.before = ("unshare", "--mount", "--propagation=private", "sh", "-c",
                       f'mount --bind {self.criu.parent} {CRIU.parent} && exec "$0" "$@"')
        super().start()

    def take_away(self):
        self.criu.rename(self.base / "criu")

    def put_back(self):
        (self.base / "criu").rename(self.criu)


def created(client):
    """How many sandboxes the server has made."""
    found = re.search(r"^cay_sandboxes_created_total (\d+)", client.call("GET", "/metrics").body.decode(), re.M)
    return int(found[1])


def test_without_criu(needs):  # noqa: F811
    """A build makes no sandbox for a memory that cannot be kept, and says why once; a template that has memory keeps it meanwhile."""
    with elsewhere(WithItsOwnCriu) as (server, client):
        assert with_memory(build(client, "with"))
        before = created(client)
        with begins_with_memory(client, "with") as box:
            word = asks(box)[0]
        assert created(client) == before + 1
        server.take_away()
        said = build(client, "without")
        assert created(client) == before + 2, "the build's own sandbox alone"
        why = [one for one in said if "start its command anew" in one]
        assert len(why) == 1 and str(CRIU) in why[0] and not with_memory(said), said
        with client.create(template="without") as box:
            assert not {"memory", "memoryError"} & set(told_of(client, box))
            until(lambda: asks(box)[:1], 20, "its server answers", patient=True)
        reply = client.call("POST", "/cay/v1/snapshots/with/memory", {})
        assert reply.status in (404, 501), reply.body  # one of builds is none that can be asked for
        with contextlib.ExitStack() as held:
            for _ in range(MEMBERS):  # of the pool, made before: they have the memory
                if "memory" not in told_of(client, held.enter_context(client.create(template="with"))):
                    break
            with begins_cold(client, "with", "memory") as box:
                assert asks(box)[0] != word
        server.put_back()
        with begins_with_memory(client, "with") as box:
            assert asks(box)[0] == word
        assert with_memory(build(client, "without"))
        for one in ("with", "without"):
            assert client.call("DELETE", f"/templates/{one}").status == 204


# -- the agent's memory --------------------------------------------------------------------------------

def keys(server):
    """Of each sandbox that there is a row of, what its agent was given to know cayd by."""
    with contextlib.closing(sqlite3.connect(f"file:{server.state}/cayd/cay.db?mode=ro", uri=True)) as db:
        return dict(db.execute("SELECT id, agent_key FROM sandboxes"))


def agent_of(box):
    """The host's number of its PID 1."""
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if re.search(r"^NSpid:\t\d+\t1$", (entry / "status").read_text(), re.M) and host_name(entry.name) == box.id:
                return int(entry.name)
    raise AssertionError(f"{box.id} has no PID 1")


def host_name(pid):
    return subprocess.run(["nsenter", f"--uts=/proc/{pid}/ns/uts", "hostname"], capture_output=True, text=True).stdout.strip()


def has_in_memory(pid, wanted):
    """Whether a process has it anywhere in what it can write to."""
    with open(f"/proc/{pid}/maps", encoding="ascii") as maps, open(f"/proc/{pid}/mem", "rb", 0) as memory:
        for line in maps:
            begin, end, mode = re.match(r"([0-9a-f]+)-([0-9a-f]+) (\S+)", line).groups()
            if "w" not in mode:
                continue
            with contextlib.suppress(OSError):
                memory.seek(int(begin, 16))
                if wanted in memory.read(int(end, 16) - int(begin, 16)):
                    return True
    return False


def test_the_key_of_the_sandbox_it_was_made_in_is_in_no_agents_memory(kept, own, name):  # noqa: F811
    """As the agent got it, and as clients of it send it, in hexadecimal. Root of the sandbox cannot even look."""
    made = request(kept, name)
    steps = [run(f"cat > /opt/server.py <<'END'\n{SERVER}\nEND", "root")]
    # ready in the build's own sandbox at once; in that of the memory when there is a file
    ready = 'test "$E2B_TEMPLATE_ID" = host || test -e /tmp/go'
    assert start(kept, made, steps=steps, startCmd="exec python3 /opt/server.py", readyCmd=ready).status == 202
    maker = until(lambda: makers(kept), 60, "the sandbox of the memory is there")[0]["sandboxID"]
    theirs = keys(own)[maker]
    reply = kept.call("POST", f"/sandboxes/{maker}/connect", {"timeout": 300})
    assert reply.status in (200, 201), reply.body
    box = Sandbox(kept, reply.json)
    pid = agent_of(box)
    assert has_in_memory(pid, theirs)  # control
    # Heads of requests that were there at once had a buffer each, most of which no later request uses.
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        assert {done.exit_code for done in pool.map(lambda _: box.run("sleep 1"), range(6))} == {0}
    assert box.run("touch /tmp/go", user="root").exit_code == 0
    until(lambda: status(kept, made)["status"] == "ready", 60, "the template is ready")
    with begins_with_memory(kept, name) as box:
        pid, ours = agent_of(box), keys(own)[box.id]
        assert ours != theirs and has_in_memory(pid, ours)
        for form in (theirs, theirs.hex().encode(), theirs.hex().upper().encode()):
            assert not has_in_memory(pid, form)
        assert box.run("head -c1 /proc/1/mem", user="root").exit_code != 0
        assert box.run("cat /proc/self/mem > /dev/null; head -c1 /proc/self/maps", user="root").out != ""  # control

