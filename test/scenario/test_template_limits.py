"""A template's limits for its sandboxes: checked, in every answer, for the operator alone, and kept."""

import base64
import errno
import os
import pathlib
import re
import signal

import mcplib
import pytest

from test_toolbox import Socket, outputs
from waitlib import until

MIB = 1 << 20
OWN = {"memoryBytes": 256 * MIB, "diskBytes": 512 * MIB, "cpuMilli": 500, "pids": 100, "seccompFilters": True}


def limits(cay):
    reply = cay.call("GET", "/cay/v1/templates")
    return next(t["limits"] for t in reply.json if t["id"] == "host") if reply.status == 200 else None


@pytest.fixture
def own_limits(cay):
    before = limits(cay)
    assert cay.call("PUT", "/cay/v1/templates/host/limits", OWN).status == 204
    yield before
    assert cay.call("PUT", "/cay/v1/templates/host/limits", {}).status == 204
    assert limits(cay) == before


def cayd_of(server):
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            line = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if b"/cayd\0" in line.split(b"--")[0] and f"--state-dir={server.state}/cayd".encode() in line:
            return int(pid)
    return None


# Attaches a filter that allows everything to itself: 0, or the errno.
ATTACH = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
class Code(ctypes.Structure): _fields_ = [("code", ctypes.c_ushort), ("jt", ctypes.c_ubyte), ("jf", ctypes.c_ubyte), ("k", ctypes.c_uint)]
class Program(ctypes.Structure): _fields_ = [("n", ctypes.c_ushort), ("code", ctypes.POINTER(Code))]
libc.prctl(38, 1, 0, 0, 0)
print(0 if libc.syscall(317, 1, 0, ctypes.byref(Program(1, (Code * 1)(Code(6, 0, 0, 0x7fff0000))))) == 0 else ctypes.get_errno())
"""


def attached(box):
    box.write("/tmp/attach.py", ATTACH.encode())
    return box.run("python3 /tmp/attach.py").out


def test_sandboxes_get_them(cay, own_limits):
    assert limits(cay) == OWN != own_limits
    template = next(t for t in cay.call("GET", "/templates").json if t["templateID"] == "host")
    with cay.create() as box:
        told = cay.call("GET", f"/sandboxes/{box.id}").json
        for answer in (template, told):
            assert (answer["memoryMB"], answer["cpuCount"], answer["diskSizeMB"]) == (256, 1, 512)
        assert cay.call("GET", f"/cay/v1/sandboxes/{box.id}").json["seccompFilters"] is True
        assert attached(box) == "0\n"
        for mib, held in ((64, True), (400, False)):
            said = box.run(f"python3 -c 'print(len(bytearray({mib} << 20).replace(bytes(1), b\"x\")))' 2>/dev/null").out
            assert (said.strip() == str(mib << 20)) == held, (mib, said)
        killed = list(box.stream("process.Process/Start", {"process": {
            "cmd": "python3", "args": ["-c", "len(bytearray(400 << 20).replace(bytes(1), b'x'))"]}, "stdin": False}))
        end = next(e["event"]["end"] for e in killed if "end" in e.get("event", {}))
        pid = next(e["event"]["start"]["pid"] for e in killed if "start" in e.get("event", {}))
        assert end["status"] == "signal: killed" and "limit of 256 MiB" in end["error"]
        assert end["error"].startswith(f"signal: killed: out of memory: python3 (pid {pid}) was killed: "), end


WHO = r"python3 \(pid \d+\) was killed: "


def is_named(reason, told):
    """The same words, and who was killed."""
    return re.sub(WHO, "", reason) == told != reason


def test_every_dialect_says_who_was_killed_at_the_memory_limit(cay, own_limits):
    """Commands whose shell outlives what was killed, and one that is killed itself; processes left running hold up nothing."""
    eat = "python3 -c 'len(bytearray(400 << 20).replace(bytes(1), bytes([7])))'"
    with cay.create() as box:
        def execute(shell):
            return cay.call("POST", f"/cay/v1/sandboxes/{box.id}/exec", {"shell": shell}).json

        def toolbox(command):
            return cay.call("POST", f"/api/toolbox/{box.id}/process/execute", {"command": command}).json

        told = execute(f"{eat}; exit $?")
        assert told["exit_code"] == 137 and told["reason"].startswith("out of memory: ") and "limit of 256 MiB" in told["reason"]
        named = execute(f"exec {eat}")
        assert named["signal"] == "SIGKILL" and is_named(named["reason"], told["reason"]), named
        assert execute("kill -9 $$")["reason"] is None and execute("exit 137")["reason"] is None
        with mcplib.Mcp(cay) as mcp:
            run = mcp.tool("run", sandbox=box.id, command=eat)
            assert is_named(run["reason"], told["reason"]) and mcp.tool("run", sandbox=box.id, command="true")["reason"] is None
            text = mcp.call("run", sandbox=box.id, command=eat).result["content"][0]["text"]
            assert told["reason"] in re.sub(WHO, "", text) != text
        done = toolbox(f"sleep 7040 & printf begun; {eat}")
        assert done["exitCode"] == 137 and done["result"].startswith("begun"), done
        box.run("pkill -f 'sleep 704[0]'", user="root")
        for command in (f"printf begun; {eat}", f"printf begun; exec {eat}"):
            done = toolbox(command)
            assert done["exitCode"] == 137 and done["result"].startswith("begun"), done
            assert done["result"].endswith(f"\n[{told['reason']}]\n"), done
        assert "out of memory" not in toolbox("kill -9 $$")["result"]


def test_commands_of_sessions_and_terminals_say_it_too(cay, own_limits):
    """Their shells live on, or end with the command; one that was killed by another says nothing."""
    eat = "python3 -c 'len(bytearray(400 << 20).replace(bytes(1), bytes([7])))'"
    told = b"[out of memory: the sandbox's programs and what they read and write of files together reached its limit of 256 MiB"
    with cay.create() as box:
        def session(method, path, body=None, good=(200, 201, 202)):
            reply = cay.call(method, f"/api/toolbox/{box.id}/process/session{path}", body)
            assert reply.status in good, reply.body
            return reply.json

        def execute(command, **more):
            return session("POST", "/s/exec", {"command": command, **more})

        session("POST", "", {"sessionId": "s"})
        for command in (f"echo e >&2; {eat}; printf last >&2; (exit 137)", "sh -c 'kill -9 $$'", f"printf x; exec {eat}"):
            asked = execute(command, runAsync=True)["cmdId"]
            path = f"/s/command/{asked}"
            until(lambda: "exitCode" in session("GET", path))
            logs = session("GET", f"{path}/logs")
            messages, _ = Socket(cay, f"/api/toolbox/{box.id}/process/session{path}/logs?follow=true").rest()
            assert session("GET", path)["exitCode"] == 137
            for text in (logs["stderr"].encode(), logs["output"].encode(), outputs(messages)[b"\2\2\2"]):
                assert (told in text and text.endswith(b"]\n")) == (eat in command), (command, text)
        session("POST", "", {"sessionId": "t"})
        done = session("POST", "/t/exec", {"command": eat})
        assert done["exitCode"] == 137 and told in done["stderr"].encode() and "out of memory" not in done["stdout"]
        shell = {"cmd": "/bin/bash", "args": ["--norc"], "envs": {"PS1": "", "TERM": "dumb"}}
        events = box.stream("process.Process/Start", {"process": shell, "pty": {"size": {"cols": 200, "rows": 24}}})
        seen, pid = b"", next(e["event"]["start"]["pid"] for e in events if "start" in e.get("event", {}))
        say = base64.b64encode(f"sh -c 'kill -9 $$'; {eat}; echo e''nd; exit\n".encode()).decode()
        assert box.rpc("process.Process/SendInput", {"process": {"pid": pid}, "input": {"pty": say}}).status == 200
        for event in events:
            seen += base64.b64decode(event.get("event", {}).get("data", {}).get("pty", ""))
        assert seen.count(told) == 1 and seen.index(b"Killed", seen.index(b"Killed") + 1) < seen.index(told) < seen.rindex(b"end"), seen


def test_what_is_made_of_a_snapshot_has_no_more_than_its_template_gives(cay, own_limits):
    with cay.create() as box:
        made = cay.call("POST", f"/sandboxes/{box.id}/snapshots", {"name": "bounded"})
    if made.status == 501:
        pytest.skip("a state disk of btrfs is needed for snapshots")
    assert made.status == 201, made.body
    try:
        for begin in ("host", "bounded", made.json["snapshotID"]):
            for wish in ({"cpu": 1}, {"memory": 1}, {"disk": 1}):
                reply = cay.call("POST", "/api/sandbox", {"snapshot": begin, **wish})
                assert reply.status == 400 and "a sandbox has at most" in reply.json["message"], (begin, wish, reply.body)
    finally:
        assert cay.call("DELETE", f"/templates/{made.json['snapshotID']}").status == 204


def test_without_them(cay):
    with cay.create() as box:
        assert attached(box) == f"{errno.EINVAL}\n"


@pytest.mark.parametrize("body,why", [
    ({"memoryBytes": MIB}, "memoryBytes: found 1048576, allowed are 33554432"),
    ({"cpuMilli": 5}, "cpuMilli: found 5"), ({"pids": 2000000}, "pids: found 2000000, allowed are 16 to 1000000 processes"), ({"diskBytes": 1}, "(16 MiB to 64 TiB)"),
    ({"seccompFilters": 64}, "seccompFilters"), ({"memory": 256 * MIB}, 'there is no "memory"'), ({"memoryBytes": "1G"}, "memoryBytes"), ({"pids": -1}, "pids: found -1"), ({"cpuMilli": (1 << 32) + 100}, "allowed are 10 to")])
def test_wrong_ones_change_nothing(cay, body, why):
    before = limits(cay)
    reply = cay.call("PUT", "/cay/v1/templates/host/limits", body)
    assert reply.status == 400 and why in reply.json["message"]
    assert limits(cay) == before


def test_only_the_operators(cay, other_tenant):
    assert other_tenant.call("PUT", "/cay/v1/templates/host/limits", OWN).status == 403
    assert cay.call("PUT", "/cay/v1/templates/nowhere/limits", OWN).status == 404


def test_they_outlive_cayd(cay, own_server, own_limits):
    if not own_server:
        pytest.skip("only a server of the tests' own is killed")
    before = until(lambda: cayd_of(own_server))
    os.kill(before, signal.SIGKILL)
    until(lambda: cayd_of(own_server) not in (None, before), what="the next cayd")

    def told():
        try:
            return limits(cay)
        except OSError:
            return None
    until(lambda: told() == OWN, what="the limits, by the next cayd")
