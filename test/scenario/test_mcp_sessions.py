"""Sandboxes of the Model Context Protocol in time: paused when idle, resumed by the next call, removed after a while,
and found again by a cayd that was restarted."""

import os

import pytest

from client import Client
from conftest import OwnServer
from mcplib import STATELESS, Mcp
from waitlib import kill_all, until, wait_replaced


@pytest.fixture
def start():
    """Servers with other times."""
    servers = []

    def make(*times):
        servers.append(OwnServer(cayd_args=[f"--mcp-{time}" for time in times]))
        return servers[-1], Client(servers[-1].url, servers[-1].key())

    yield make
    for one in servers:
        one.stop()


def state(cay, box):
    reply = cay.call("GET", f"/sandboxes/{box}")
    return reply.json["state"] if reply.status == 200 else None


def test_a_sandbox_is_paused_when_it_is_idle_and_goes_on(start):
    _, cay = start("pause=1s")
    session, named = Mcp(cay), Mcp(cay, STATELESS)
    box = session.tool("run", command="(sleep 300 >/dev/null 2>&1 &); echo kept > f")["sandbox"]
    other = named.tool("create")["sandbox"]
    until(lambda: state(cay, box) == state(cay, other) == "paused")
    assert session.tool("run", command="cat f; pgrep -c sleep")["stdout"] == "kept\n1\n"
    assert named.tool("list", sandbox=other)["sandbox"] == other


def test_one_that_works_is_not_paused(start):
    """A command takes longer than a sandbox may be idle, without a sign of life in between."""
    _, cay = start("pause=1s")
    with Mcp(cay) as session:
        got = session.tool("run", command="sleep 4; echo done", timeout=30)
        assert got["stdout"] == "done\n" and not got["timed_out"]
        logs = cay.call("GET", f"/sandboxes/{got['sandbox']}/logs").body
        assert b"paused" not in logs.split(b"done")[0], logs


def test_one_that_stays_paused_is_removed(start):
    """With its session; the next call begins anew."""
    _, cay = start("pause=1s", "keep=3s")
    session, named = Mcp(cay), Mcp(cay, STATELESS)
    box = session.tool("run", command="true")["sandbox"]
    other = named.tool("create")["sandbox"]
    until(lambda: state(cay, box) is None and state(cay, other) is None)
    until(lambda: session.request("tools/list").status == 404)
    assert "create" in named.refused("run", command="true", sandbox=other)


def test_one_that_stays_with_its_files_alone_is_removed(start):
    """Stopped in Daytona's sense: it is never paused by itself here, so that nothing else removes it."""
    _, cay = start("pause=1h", "keep=3s")
    box = Mcp(cay, STATELESS).tool("create")["sandbox"]
    stopped = cay.call("POST", f"/api/sandbox/{box}/stop", b"", {"Authorization": f"Bearer {cay.key}"}, key=False)
    assert stopped.status == 200 and stopped.json["state"] == "stopped", stopped.body
    until(lambda: state(cay, box) is None)


def restart_cayd(server, cay):
    wait_replaced(lambda: pids_of(server), kill_all(lambda: pids_of(server)))
    until(lambda: cay.call("GET", "/health").status < 500, patient=True)


def pids_of(server):
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                words = f.read().split(b"\0")
        except OSError:
            continue
        if words[0].endswith(b"/cayd") and f"--state-dir={server.state}/cayd".encode() in words:
            found.append(int(pid))
    return found


def test_a_session_with_a_sandbox_outlives_cayd(start):
    """A session without is answered 404, so that its client begins anew."""
    server, cay = start("pause=1s")
    session, empty = Mcp(cay), Mcp(cay)
    box = session.tool("run", command="echo kept > f")["sandbox"]
    restart_cayd(server, cay)
    got = until(lambda: session.tool("run", command="cat f"), patient=True)
    assert got["stdout"] == "kept\n" and got["sandbox"] == box
    assert empty.request("tools/list").status == 404


def test_a_sandbox_of_before_a_restart_is_removed_in_its_time(start):
    server, cay = start("pause=1s", "keep=2s")
    box = Mcp(cay, STATELESS).tool("create")["sandbox"]
    restart_cayd(server, cay)
    until(lambda: state(cay, box) is None)
