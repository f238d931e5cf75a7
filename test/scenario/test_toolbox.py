"""Daytona's toolbox by HTTP, as its SDKs call it: commands, sessions, files, and what is refused. The unmodified SDKs
are in test/sdk."""

import base64
import concurrent.futures
import hashlib
import hmac
import json
import re
import secrets
import select
import time
import urllib.parse

import leftovers
import pytest
from waitlib import kill_all, until

ERROR = {"statusCode", "message", "code", "source", "timestamp", "path", "method"}


class Box:
    def __init__(self, cay, id, key=None):
        self.cay, self.id, self.key = cay, id, key or cay.key

    def call(self, method, path, body=None, headers=None, query=None):
        if query:
            path += "?" + urllib.parse.urlencode(query)
        sent = {"Authorization": f"Bearer {self.key}", "X-Daytona-SDK-Version": "0.226.1", **(headers or {})}
        return self.cay.call(method, f"/api/toolbox/{self.id}{path}", body, sent, key=False)

    def good(self, method, path, body=None, status=200, **more):
        reply = self.call(method, path, body, **more)
        assert reply.status == status, (reply.status, reply.body)
        return reply.json

    def refused(self, status, method, path, body=None, code=None, why="", **more):
        reply = self.call(method, path, body, **more)
        assert reply.status == status, (reply.status, reply.body)
        error = reply.json
        assert ERROR <= {*error} and error["source"] == "DAYTONA_DAEMON" and error["statusCode"] == status, error
        assert why in error["message"] and code in (None, error["code"]), error
        assert "No such file" not in error["message"]  # clients take the word "directory" for something else
        return error

    def run(self, command, **more):
        return self.good("POST", "/process/execute", {"command": command, **more})

    def put(self, files):
        form, boundary = b"", secrets.token_hex(8)
        for i, (path, contents) in enumerate(files):
            form += (f'--{boundary}\r\nContent-Disposition: form-data; name="files[{i}].path"\r\n\r\n{path}\r\n'
                     f'--{boundary}\r\nContent-Disposition: form-data; name="files[{i}].file"; filename="f"\r\n\r\n'
                     ).encode() + contents + b"\r\n"
        form += f"--{boundary}--\r\n".encode()
        return self.call("POST", "/files/bulk-upload", form, {"Content-Type": f"multipart/form-data; boundary={boundary}"})

    def take(self, path):
        return self.call("GET", "/files/download", query={"path": path})


@pytest.fixture(scope="module")
def box(cay):
    reply = cay.call("POST", "/api/sandbox", {"snapshot": "host", "autoStopInterval": 60})
    assert reply.status == 200, reply.body
    assert reply.json["user"] == "daytona"
    yield Box(cay, reply.json["id"])
    cay.call("DELETE", f"/sandboxes/{reply.json['id']}")


# -- commands -------------------------------------------------------------------------------------------


def test_a_command_runs_as_daytona_in_its_home_with_both_outputs_in_their_order(box):
    done = box.run("id -un; pwd; echo a; echo b >&2; echo c; sudo id -un; exit 42")
    assert (done["exitCode"], done["result"]) == (42, "daytona\n/home/daytona\na\nb\nc\nroot\n")
    assert box.run("echo $A; pwd", envs={"A": "b c"}, cwd="/tmp")["result"] == "b c\n/tmp\n"
    assert box.run("kill -9 $$")["exitCode"] == 137
    assert box.run("printf 'a\\0b\\377'")["result"] == "a\0b\ufffd"


def test_a_server_in_the_background_holds_up_nothing_and_lives_on(box):
    assert box.run("sleep 7001 & echo begun")["result"] == "begun\n"
    assert box.run("pgrep -fc 'sleep 700[1]'")["result"] == "1\n"
    box.run("pkill -f 'sleep 700[1]'")


def test_a_command_of_a_mebibyte(box):
    done = box.run("cat <<'EOF' | wc -c\n" + "y" * (1 << 20) + "\nEOF\nexit 3")
    assert (done["exitCode"], done["result"]) == (3, f"{(1 << 20) + 1}\n")
    assert box.run("ls -a /tmp | grep -c '^.command'")["result"] == "0\n"


def test_output_beyond_what_is_held_loses_its_beginning_and_says_so(box):
    done = box.run("head -c 20000000 /dev/zero | tr '\\0' x; echo END")
    assert done["truncated"] and done["result"].startswith("[the beginning") and done["result"].endswith("xEND\n")
    assert done["exitCode"] == 0 and (1 << 20) < len(done["result"]) < 20000000


def test_a_command_that_is_over_its_time_is_killed(box):
    box.refused(408, "POST", "/process/execute", {"command": "exec sleep 7002", "timeout": 1}, "PROCESS_EXECUTION_TIMEOUT",
                "command execution timeout")
    assert box.run("pgrep -fc 'sleep 700[2]'")["exitCode"] == 1


@pytest.mark.parametrize("body, why", [
    ({}, "command"), ({"command": ""}, "command is required"), ({"command": 1}, "command"),
    ({"command": "true", "timeout": -1}, "timeout"), ({"command": "true", "timeout": "x"}, "timeout"),
    ({"command": "true", "envs": {"A=B": "1"}}, "variable"), ({"command": "true", "envs": {"A": 1}}, "envs"),
    ({"command": "true", "cwd": "/nowhere"}, "does not exist"), (b"{", "line 1"), (b"[]", "object")])
def test_a_bad_execute(box, body, why):
    box.refused(400, "POST", "/process/execute", body, why=why)


def test_a_body_of_many_values_is_not_held(box):
    """An empty object of three bytes takes some hundred of memory, for as long as the command runs."""
    few = {"command": "echo ran", "x": [{}] * 5000}
    assert box.good("POST", "/process/execute", few)["result"] == "ran\n"
    box.refused(413, "POST", "/process/execute", {**few, "x": [{}] * 17000}, why="values")
    rpc = {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"x": [{}] * 17000}}
    for path, body, status in (("/mcp", rpc, 400), ("/v2/sandboxes", {"templateID": "host", "x": [{}] * 17000}, 400)):
        reply = box.cay.call("POST", path, body)
        assert reply.status == status and b"values" in reply.body, reply.body


# -- sessions -------------------------------------------------------------------------------------------


@pytest.fixture
def session(box):
    name = "s-" + secrets.token_hex(4)
    box.good("POST", "/process/session", {"sessionId": name}, 201)
    yield f"/process/session/{name}"
    box.call("DELETE", f"/process/session/{name}")


def execute(box, session, command, status=200, **more):
    return box.good("POST", f"{session}/exec", {"command": command, **more}, status)


def ended(box, command):
    return until(lambda: "exitCode" in (now := box.good("GET", command)) and now)


def test_a_session_keeps_its_directory_variables_and_functions(box, session):
    first = execute(box, session, "cd /tmp; export A=5; f() { echo f$1; }; echo out; echo err >&2")
    assert (first["exitCode"], first["stdout"], first["stderr"]) == (0, "out\n", "err\n")
    second = execute(box, session, "pwd; f $A; cat\nfalse")
    assert (second["exitCode"], second["output"]) == (1, "/tmp\nf5\n")
    third = execute(box, session, "cat <<'E'\nit's \"here\"\nE\n")
    assert third["stdout"] == "it's \"here\"\n"
    shown = box.good("GET", session)
    assert [c["id"] for c in shown["commands"]] == [r["cmdId"] for r in (first, second, third)]
    assert [c["exitCode"] for c in shown["commands"]] == [0, 1, 0] and shown["commands"][1]["command"].startswith("pwd;")
    assert shown in box.good("GET", "/process/session")


def test_a_command_that_runs_on_takes_input_and_its_exit_is_the_shells(box, session):
    made = execute(box, session, "read x; echo got $x >&2; read y; exit 42", 202, runAsync=True)
    command = f"{session}/command/{made['cmdId']}"
    assert "exitCode" not in box.good("GET", command)
    box.good("POST", f"{command}/input", {"data": "one"}, 204)
    until(lambda: box.good("GET", f"{command}/logs")["stderr"] == "got one\n")
    box.good("POST", f"{command}/input", {"data": "two"}, 204)
    assert ended(box, command)["exitCode"] == 42
    assert box.good("GET", f"{command}/logs") == {"output": "one\ntwo\ngot one\n", "stdout": "one\ntwo\n", "stderr": "got one\n"}
    box.refused(410, "POST", f"{command}/input", {"data": "x"}, "COMMAND_ALREADY_COMPLETED")
    box.refused(410, "POST", f"{session}/exec", {"command": "true"}, "SESSION_ENDED")


def test_the_end_of_a_command_that_has_just_begun_is_waited_for(box, session):
    """Clients ask for it at once, and again only after 100 ms."""
    for _ in range(50):
        made = execute(box, session, "sleep 0.05; (exit 3)", 202, runAsync=True)
        shown = box.good("GET", f"{session}/command/{made['cmdId']}")
        if shown.get("exitCode") == 3:
            break
    else:
        pytest.fail("it never was")
    made = execute(box, session, "read x", 202, runAsync=True)
    assert "exitCode" not in box.good("GET", f"{session}/command/{made['cmdId']}")


def test_an_echo_can_be_left_out(box, session):
    made = execute(box, session, "read x; echo got $x", 202, runAsync=True, suppressInputEcho=True)
    command = f"{session}/command/{made['cmdId']}"
    box.good("POST", f"{command}/input", {"data": "one"}, 204)
    ended(box, command)
    assert box.good("GET", f"{command}/logs")["stdout"] == "got one\n"


def test_older_clients_get_one_text_with_marks(box, session):
    old = {"X-Daytona-SDK-Version": "0.143.0"}
    reply = box.call("POST", f"{session}/exec", {"command": "echo o; echo e >&2"}, old)
    assert reply.json["output"] == "\1\1\1o\n\2\2\2e\n" and "stdout" not in reply.json
    logs = box.call("GET", f"{session}/command/{reply.json['cmdId']}/logs", headers=old)
    assert logs.body == b"\1\1\1o\n\2\2\2e\n" and logs.headers["Content-Type"].startswith("text/plain")


def test_a_deleted_session_takes_all_that_it_began_along(box, session):
    execute(box, session, "sleep 7003 & (setsid sleep 7003 &)")
    until(lambda: box.run("pgrep -fc 'sleep 700[3]'")["result"] == "2\n")
    box.good("DELETE", session, None, 204)
    until(lambda: box.run("pgrep -fc 'sleep 700[3]'")["result"] == "0\n")
    box.refused(404, "GET", session, why="session not found")
    box.refused(404, "DELETE", session, why="session not found")


def test_a_session_outlives_cayd(box, session, own_server):
    if not own_server:
        pytest.skip("this kills cayd")
    execute(box, session, "cd /usr; B=6")
    kill_all(lambda: leftovers.children(own_server.keep_pid, "cayd"))
    done = until(lambda: execute(box, session, "echo $PWD $B"), patient=True)
    assert done["stdout"] == "/usr 6\n"


@pytest.mark.parametrize("method, path, body, status", [
    ("POST", "", {}, 400), ("POST", "", {"sessionId": "a/b"}, 400), ("POST", "", {"sessionId": ".."}, 400),
    ("POST", "", {"sessionId": "x" * 129}, 400), ("POST", "/nope/exec", {"command": "true"}, 404),
    ("GET", "/nope", None, 404), ("GET", "/..", None, 404), ("GET", "/nope/command/x", None, 404),
    ("GET", "/nope/command/x/logs", None, 404), ("POST", "/nope/command/x/input", {"data": ""}, 404)])
def test_a_bad_session(box, method, path, body, status):
    box.refused(status, method, f"/process/session{path}", body)


NO_NAMES = r"""cd ~/.daytona/sessions && nonutf=$(printf '\377') && control=$(printf '\001')"""


def test_folders_that_are_no_sessions_are_left_out(box, session):
    """The sandbox makes folders of any name beside those of sessions and commands."""
    made, name = execute(box, session, "echo 1"), session.rpartition("/")[2]
    begun = box.run(NO_NAMES + f"""; for s in "$nonutf" "$control" .x "a b" zz {name}; do for c in x "$nonutf" "$control"; do
        mkdir -p "$s/$c" && printf '\\375' >"$s/$c/cmd" || exit 1; done; done""")
    assert begun["exitCode"] == 0, begun
    try:
        for _ in range(20):
            shown = {s["sessionId"]: {c["id"] for c in s["commands"]} for s in box.good("GET", "/process/session")}
            assert shown.pop("zz") == {"x"} and shown.pop(name) == {"x", made["cmdId"]}
            assert all(re.fullmatch(r"[\w-][\w.-]*", s, re.A) for s in shown)
        assert {c["id"] for c in box.good("GET", session)["commands"]} == {"x", made["cmdId"]}
    finally:
        box.run(NO_NAMES + '; rm -rf "$nonutf" "$control" .x "a b" zz')


def test_more_sessions_than_an_answer_holds(box, session):
    """The sandbox makes them itself: SESSION_ENTRIES_MAX. A session of them by its name is answered all the same."""
    assert box.run("cd ~/.daytona/sessions && mkdir $(seq -f many%g 8200)")["exitCode"] == 0
    try:
        box.refused(409, "GET", "/process/session", why="more than 8192 sessions")
        assert box.good("GET", session)["sessionId"] == session.rpartition("/")[2]
    finally:
        box.run("cd ~/.daytona/sessions && rm -r $(seq -f many%g 8200)")
    assert len(box.good("GET", "/process/session")) < 8192


def test_a_session_is_made_once(box, session):
    box.refused(409, "POST", "/process/session", {"sessionId": session.rpartition("/")[2]}, "CONFLICT", "already exists")
    box.refused(400, "POST", f"{session}/exec", {"command": ""}, why="command is required")


# -- WebSocket ------------------------------------------------------------------------------------------


class Socket:
    """The client's side of RFC 6455, as much of it as the tests need."""

    def __init__(self, cay, path, protocols=(), key=None):
        self.connection = cay.connect()
        headers = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13",
                   "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", "Authorization": f"Bearer {key or cay.key}"}
        if protocols:
            headers["Sec-WebSocket-Protocol"] = ", ".join(protocols)
        self.connection.request("GET", path, headers=headers)
        self.answer = self.connection.getresponse()
        self.file = self.answer.fp
        if self.answer.status == 101:
            assert self.answer.headers["Sec-WebSocket-Accept"] == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="

    def frame(self, opcode, data, fin=True, mask=b"abcd"):
        length = bytes([len(data)]) if len(data) < 126 else b"\x7e" + len(data).to_bytes(2, "big")
        masked = bytes(c ^ mask[i % 4] for i, c in enumerate(data)) if mask else data
        head = bytes([(0x80 if fin else 0) | opcode, length[0] | (0x80 if mask else 0)]) + length[1:]
        self.connection.sock.sendall(head + mask + masked)

    def read(self):
        """The next message: a text as str, bytes, or how it was closed as (code, reason)."""
        opcode, length = self.file.read(2)
        if length >= 126:
            length = int.from_bytes(self.file.read(2 if length == 126 else 8), "big")
        data = self.file.read(length)
        if opcode == 0x88:
            return int.from_bytes(data[:2], "big"), data[2:].decode()
        return {0x81: data.decode, 0x82: lambda: data, 0x8a: lambda: ("pong", data)}[opcode]()

    def rest(self):
        """All that comes up to the end, and the end."""
        messages = []
        while not isinstance(message := self.read(), tuple):
            messages.append(message)
        self.connection.close()
        return messages, message


def outputs(messages):
    return {mark: b"".join(m[3:] for m in messages if m[:3] == mark) for mark in (b"\1\1\1", b"\2\2\2")}


def test_logs_are_followed_to_the_end(box, session):
    made = execute(box, session, "echo o1; read x; echo o$x; echo e >&2; head -c 300000 /dev/zero; exit 3", 202, runAsync=True)
    path = f"{session}/command/{made['cmdId']}"
    socket = Socket(box.cay, f"/api/toolbox/{box.id}{path}/logs?follow=true")
    assert socket.answer.status == 101 and "Sec-WebSocket-Protocol" not in socket.answer.headers
    assert socket.read() == b"\1\1\1o1\n"
    box.good("POST", f"{path}/input", {"data": "2"}, 204)
    messages, end = socket.rest()
    assert outputs(messages) == {b"\1\1\1": b"2\no2\n" + bytes(300000), b"\2\2\2": b"e\n"} and end == (1000, "")
    messages, end = Socket(box.cay, f"/api/toolbox/{box.id}{path}/logs?follow=true").rest()  # of one that has ended
    assert len(outputs(messages)[b"\1\1\1"]) == 300008 and end == (1000, "")
    assert Socket(box.cay, f"/api/toolbox/{box.id}{session}/command/none/logs?follow=true").answer.status == 404


CONTROL = "X-Daytona-Pty-Exit-Control"


def terminal(box, name, protocols=(CONTROL,), **query):
    query = urllib.parse.urlencode({"id": name, "cols": 90, "rows": 25, **query})
    socket = Socket(box.cay, f"/api/toolbox/{box.id}/process/pty/create-connect?{query}", protocols)
    assert socket.answer.status == 101, socket.answer.read()
    return socket


def test_a_terminal_in_one_step(box):
    envs = base64.urlsafe_b64encode(json.dumps({"FOO": "b a?>"}).encode()).decode().rstrip("=")
    socket = terminal(box, "t1", (f"X-Daytona-Pty-Envs~{envs}", CONTROL), cwd="/tmp")
    assert socket.answer.headers["Sec-WebSocket-Protocol"] == CONTROL
    assert json.loads(socket.read()) == {"type": "control", "status": "connected"}
    socket.frame(2, b"stty size; pwd; echo \"<$FOO>$TERM\"; exit 7\n")
    messages, end = socket.rest()
    seen = b"".join(m for m in messages if isinstance(m, bytes))
    assert b"25 90\r\n" in seen and b"/tmp\r\n" in seen and b"<b a?>>xterm-256color\r\n" in seen
    assert json.loads(messages[-1]) == {"type": "control", "status": "exited", "exitCode": 7}
    assert end == (1011, '{"exitCode":7}')


def test_a_terminal_is_seen_by_all_resized_and_killed(box):
    box.good("POST", "/process/pty", {"id": "t2", "cols": 70, "rows": 20, "envs": {"A": "b"}}, 201)
    box.refused(409, "POST", "/process/pty", {"id": "t2"}, "CONFLICT")
    one, two = (Socket(box.cay, f"/api/toolbox/{box.id}/process/pty/t2/connect", (CONTROL,)) for _ in range(2))
    for socket in (one, two):
        assert json.loads(socket.read())["status"] == "connected"
    shown = box.good("GET", "/process/pty/t2")
    assert (shown["cols"], shown["rows"], shown["active"], shown["envs"]["A"]) == (70, 20, True, "b")
    assert [s["id"] for s in box.good("GET", "/process/pty")["sessions"]] == ["t2"]
    assert box.good("POST", "/process/pty/t2/resize", {"cols": 111, "rows": 33})["cols"] == 111
    one.frame(1, b"stty size\n")
    seen = b""
    while b"33 111\r\n" not in seen:
        message = two.read()
        seen += message if isinstance(message, bytes) else b""
    box.good("DELETE", "/process/pty/t2")
    for socket in (one, two):
        messages, end = socket.rest()
        assert json.loads(messages[-1])["exitCode"] == 137 and end[0] == 1011
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/resize")):
        box.refused(404, method, f"/process/pty/t2{path}", {"cols": 1, "rows": 1} if path else None)


def test_a_bad_terminal(box):
    for body in ({}, {"id": "a b"}, {"id": "x", "cols": 1001}, {"id": "x", "rows": 0}, {"id": "x", "envs": {"A": 1}}):
        box.refused(400, "POST", "/process/pty", body)
    socket = Socket(box.cay, f"/api/toolbox/{box.id}/process/pty/none/connect")
    messages, end = socket.rest()
    assert json.loads(messages[0])["status"] == "error" and "not found" in messages[0] and end[0] == 1011
    for query in ("", "id=a%20b", "id=x&cols=0", "id=x&rows=x"):
        socket = Socket(box.cay, f"/api/toolbox/{box.id}/process/pty/create-connect?{query}")
        assert socket.answer.status == 400
    assert Socket(box.cay, f"/api/toolbox/{box.id}/process/pty/create-connect?id=x", ("X-Daytona-Pty-Envs~!!",)).answer.status == 400
    assert box.call("GET", "/process/pty/create-connect?id=x").status == 426
    socket = Socket(box.cay, f"/api/toolbox/{box.id}/process/pty/create-connect?id=x", key="e2b_" + "0" * 40)
    assert socket.answer.status == 401


@pytest.mark.parametrize("opcode, data, more, code", [
    (2, b"x", {"mask": b""}, 1002), (3, b"x", {}, 1002), (0xb, b"", {}, 1002), (9, b"x", {"fin": False}, 1002),
    (0, b"x", {}, 1002), (0x42, b"x", {}, 1002), (8, b"", {}, 1000)])
def test_frames_that_are_not_to_be(box, opcode, data, more, code):
    socket = terminal(box, "f-" + secrets.token_hex(4))
    socket.frame(opcode, data, **more)
    assert socket.rest()[1][0] == code


def test_frames_in_parts_and_a_ping(box):
    name = "g-" + secrets.token_hex(4)
    socket = terminal(box, name)
    assert json.loads(socket.read())["status"] == "connected"
    socket.frame(1, b"echo pa", fin=False)
    socket.frame(9, b"here")
    socket.frame(0, b"rts; exit\n")
    seen, pong = b"", False
    while not isinstance(message := socket.read(), tuple) or message[0] == "pong":
        pong |= message == ("pong", b"here")
        seen += message if isinstance(message, bytes) else b""
    assert pong and b"\rparts\r\n" in seen and message == (1000, '{"exitCode":0}')


def test_a_long_message_is_typed_as_it_comes(box):
    """Nothing of it is held: it has no maximum, and a terminal that takes nothing stops its client."""
    socket = terminal(box, "p-" + secrets.token_hex(4))
    pasted = secrets.token_bytes(3_000_000)
    socket.frame(2, f"stty raw -echo; echo re''ady; head -c {len(pasted)} | md5sum; exit\n".encode())
    seen = b""
    while b"ready" not in seen:
        seen += message if isinstance(message := socket.read(), bytes) else b""
    socket.connection.sock.sendall(b"\x82\xff" + len(pasted).to_bytes(8, "big") + bytes(4) + pasted)
    assert hashlib.md5(pasted).hexdigest().encode() in b"".join(m for m in socket.rest()[0] if isinstance(m, bytes))


def test_a_terminal_that_takes_nothing_stops_its_client(box):
    socket = terminal(box, "q-" + secrets.token_hex(4))
    socket.frame(2, b"stty raw -echo; echo re''ady; sleep 7003\n")
    seen, sent, sock = b"", 0, socket.connection.sock
    while b"ready" not in seen:
        seen += message if isinstance(message := socket.read(), bytes) else b""
    sock.sendall(b"\x82\xff" + (1 << 40).to_bytes(8, "big") + bytes(4))
    sock.setblocking(False)
    while select.select([], [sock], [], 5)[1]:
        sent += sock.send(bytes(65536))
        assert sent < 64 << 20, "all was read"
    socket.connection.close()
    box.run("pkill -f 'sleep 700[3]'")


def test_the_stream_of_events_knows_its_keys(box):
    path = "/api/socket.io/?EIO=4&transport=websocket"
    socket = Socket(box.cay, path)
    assert json.loads(socket.read().removeprefix("0"))["pingInterval"] == 25000
    socket.frame(1, b"40" + json.dumps({"token": box.key}).encode())
    assert socket.read().startswith('40{"sid":')
    socket.frame(1, b"41")
    assert socket.rest() == ([], (1000, ""))
    socket = Socket(box.cay, path)
    socket.read()
    socket.frame(1, b'40{"token":"e2b_' + b"0" * 40 + b'"}')
    messages, end = socket.rest()
    assert messages == ['44{"message":"Invalid credentials"}'] and end[0] == 1008


def test_a_stream_of_events_without_a_key_is_bounded(cay):
    """Its client sends signs of life of both kinds and reads nothing: it is read from no further, and ended in time."""
    socket = Socket(cay, "/api/socket.io/?EIO=4&transport=websocket")
    sock, some, sent = socket.connection.sock, b"\x81\x81\0\0\0\x002" * 4000 + (b"\x89\xfd" + bytes(129)) * 500, 0
    sock.setblocking(False)
    with pytest.raises(ConnectionError):
        while select.select([], [sock], [], 30)[1]:
            sent += sock.send(some[sent % len(some):])
            assert sent < 64 << 20, "all was read"
    socket.connection.close()


# -- files ----------------------------------------------------------------------------------------------

NAMES = ["plain.txt", "with blank", "qu\"o'te\\s", "ümläut ☃", "(1) [2]", "new\nline", "-dash", "%41&=+"]


@pytest.mark.parametrize("name", NAMES)
def test_a_file_goes_in_and_comes_out(box, name):
    path, contents = f"/tmp/names/{name}", secrets.token_bytes(100)
    if "\n" not in name:
        assert box.put([(path, contents)]).json == {"files": [{"path": path}]}
    else:
        sent = {"query": {"path": path}, "headers": {"Content-Type": "application/octet-stream"}}
        assert box.call("POST", "/files/upload", contents, **sent).body == b""  # as upstream's
        entry = box.good("POST", "/files/upload-v2", contents, **sent)
        assert entry == {"name": path.rpartition("/")[2], "path": entry["path"], "type": "file"} and entry["path"].endswith(path)
    assert box.take(path).body == contents
    assert box.good("GET", "/files/info", query={"path": path})["size"] == 100


def parts_of(reply):
    boundary = reply.headers["Content-Type"].partition("boundary=")[2].encode()
    assert reply.headers["Content-Type"].startswith("multipart/form-data") and reply.body.endswith(b"--%s--\r\n" % boundary)
    for part in reply.body.split(b"--" + boundary)[1:-1]:
        head, _, contents = part.removeprefix(b"\r\n").partition(b"\r\n\r\n")
        yield head.decode(), contents.removesuffix(b"\r\n")


@pytest.mark.parametrize("method, path, query", [
    ("POST", "/files/move", {"source": b"/tmp/\xff", "destination": "/tmp/to"}),
    ("POST", "/files/permissions", {"path": b"/tmp/\xff", "mode": "600"}),
    *((method, path, {"path": b"/tmp/\xff"}) for method, path in (
        ("GET", "/files"), ("DELETE", "/files"), ("GET", "/files/info"), ("POST", "/files/folder"), ("GET", "/git/status")))])
def test_a_path_that_is_not_text_is_refused_and_not_left_out(box, method, path, query):
    box.refused(400, method, path, query=query, why="not text")


def test_many_files_in_one_answer_each_with_its_error(box):
    made = [("d/a", b"x" * 300000), ("d/empty", b""), ("d/b", b"\0\r\n--")]
    assert len(box.put(made).json["files"]) == 3
    box.run("echo s >d/closed; chmod 000 d/closed")
    asked = ["d/a", "nope", "d/empty", "d", "d/closed", "d/b"]
    got = list(parts_of(box.call("POST", "/files/bulk-download", {"paths": asked})))
    assert [urllib.parse.unquote(h.partition("utf-8''")[2].partition("\r")[0]) for h, _ in got] == asked
    assert [c for h, c in got if 'name="file"' in h] == [c for _, c in made]
    errors = [json.loads(c) for h, c in got if 'name="error"' in h]
    assert [(e["statusCode"], e["code"]) for e in errors] == [(404, "FILE_NOT_FOUND"), (400, "INVALID_FILE_PATH"),
                                                              (403, "FILE_ACCESS_DENIED")]
    assert "points to a directory" in errors[1]["message"] and "permission denied" in errors[2]["message"]


def test_files_are_the_users_and_with_its_rights_alone(box):
    box.refused(403, "GET", "/files/download", query={"path": "/etc/shadow"}, code="FILE_ACCESS_DENIED")
    box.refused(403, "POST", "/files/folder", query={"path": "/root/x"})
    for files, named in (["/etc/x"], "/etc/x"), (["ok", "/etc/x"], "one of the files"):
        reply = box.put([(path, b"x") for path in files])
        assert (reply.status, reply.json["message"]) == (400, f"permission denied: {named}")
    assert box.put([("/root/x", b"x")]).status == 400
    assert box.run("sudo ls /root/x")["exitCode"] == 2
    box.put([("mine", b"x")])
    shown = box.good("GET", "/files/info", query={"path": "mine"})
    assert (shown["owner"], shown["mode"], shown["permissions"], shown["isDir"]) == ("daytona", "-rw-r--r--", "0644", False)
    # E2B's file service acts as root: the refusals above are not for want of the file.
    agent = box.cay.call("GET", "/files?path=/etc/shadow&username=root", headers={
        "E2b-Sandbox-Id": box.id, "E2b-Sandbox-Port": "49983", "X-Access-Token": token_of(box)}, key=False)
    assert agent.status == 200


def test_a_program_that_runs_is_replaced(box):
    """As upstream's bulk upload does; the program goes on from the file that it had."""
    box.run("mkdir -p run; cd run; cp $(readlink -f /bin/sleep) program; (setsid ./program 300 >/dev/null 2>&1 & echo $! >pid); "
            "for i in $(seq 300); do [ \"$(readlink /proc/$(cat pid)/exe)\" = $PWD/program ] && break; sleep 0.1; done")
    said = "#!/bin/sh\necho replaced\n".encode()
    reply = box.put([("run/program", said)])
    assert reply.status == 200, reply.body
    assert box.run("run/program; readlink /proc/$(cat run/pid)/exe")["result"] == "replaced\n/home/daytona/run/program (deleted)\n"
    box.run("kill $(cat run/pid); rm -r run")


def token_of(box):
    return box.cay.call("POST", f"/sandboxes/{box.id}/connect", {"timeout": 3600}).json["envdAccessToken"]


def test_folders_moves_permissions_and_deletes(box):
    box.good("POST", "/files/folder", None, 201, query={"path": "w/a", "mode": "700"})
    box.good("POST", "/files/folder", None, 201, query={"path": "w/a", "mode": "755"})
    box.put([("w/a/f", b"1"), ("w/g", b"2")])
    assert [(f["name"], f["isDir"], f["mode"]) for f in box.good("GET", "/files", query={"path": "w"})] == [
        ("a", True, "drwx------"), ("g", False, "-rw-r--r--")]
    box.refused(409, "POST", "/files/move", query={"source": "w/a/f", "destination": "w/g"})
    box.refused(404, "POST", "/files/move", query={"source": "w/a/f", "destination": "w/none/g"})
    box.refused(404, "POST", "/files/move", query={"source": "w/none", "destination": "w/h"})
    box.good("POST", "/files/move", query={"source": "w/a/f", "destination": "w/h"})
    box.good("POST", "/files/permissions", query={"path": "w/h", "mode": "600", "owner": "user", "group": "user"})
    shown = box.good("GET", "/files/info", query={"path": "w/h"})
    assert (shown["owner"], shown["group"], shown["permissions"]) == ("user", "user", "0600")
    box.refused(400, "POST", "/files/permissions", query={"path": "w/h", "mode": "rwx"}, why="octal")
    box.refused(404, "POST", "/files/permissions", query={"path": "w/none", "mode": "600"})
    box.refused(400, "DELETE", "/files", query={"path": "w"}, why="recursive")
    box.good("DELETE", "/files", None, 204, query={"path": "w", "recursive": "true"})
    box.refused(404, "DELETE", "/files", query={"path": "w"}, code="FILE_NOT_FOUND")


def test_find_search_and_replace(box):
    box.put([("t/a.txt", b"one\ntwo [x]\n"), ("t/s/b.txt", b"two [x] two [x]\n"), ("t/bin", b"\0two [x]")])
    found = box.good("GET", "/files/find", query={"path": "t", "pattern": "two [x]"})
    assert sorted((m["file"], m["line"], m["content"]) for m in found) == [
        ("t/a.txt", 2, "two [x]"), ("t/s/b.txt", 1, "two [x] two [x]")]
    assert sorted(box.good("GET", "/files/search", query={"path": "t", "pattern": "*.txt"})["files"]) == ["t/a.txt", "t/s/b.txt"]
    done = box.good("POST", "/files/replace", {"files": ["t/a.txt", "t/s/b.txt", "none", "t"], "pattern": "two [x]", "newValue": "$1 \\2 &"})
    assert [(d["file"], d["success"]) for d in done] == [("t/a.txt", True), ("t/s/b.txt", True), ("none", False), ("t", False)]
    assert box.take("t/s/b.txt").body == b"$1 \\2 & $1 \\2 &\n" and done[2]["error"] == "file not found"
    box.refused(404, "GET", "/files/find", query={"path": "none", "pattern": "x"})
    box.refused(400, "GET", "/files/search", query={"path": "t"}, why="pattern")
    box.refused(400, "POST", "/files/replace", {"files": [1], "pattern": "x", "newValue": ""}, why="files[0]")


def test_searches_read_no_fifo_and_take_no_path_for_an_option(box):
    box.run("mkdir -p w && cd w && touch keep ./-delete '(' && mkfifo fifo")
    for where in ("w", "w/fifo"):
        assert box.good("GET", "/files/find", query={"path": where, "pattern": "x"}) == []
    (done,) = box.good("POST", "/files/replace", {"files": ["w/fifo"], "pattern": "x", "newValue": "y"})
    assert done == {"file": "w/fifo", "success": False, "error": "path is no regular file"}
    box.run("mv w/-delete w/'(' .")
    for where in ("-delete", "("):
        assert box.good("GET", "/files/search", query={"path": where, "pattern": "*"})["files"] == [f"./{where}"]
    assert box.run("ls w; rm -r w ./-delete '('")["result"] == "fifo\nkeep\n"


def test_a_path_with_a_nul_is_refused(box):
    """The path before it would be another file."""
    reply = box.put([("nul\0x", b"contents")])
    assert reply.status == 400 and "NUL" in reply.json["message"]
    box.refused(404, "GET", "/files/info", query={"path": "nul"})


def test_a_long_file_both_ways(box):
    contents = secrets.token_bytes(24 << 20)
    assert box.put([("long", contents)]).status == 200
    assert box.take("long").body == contents
    (_, again), = parts_of(box.call("POST", "/files/bulk-download", {"paths": ["long"]}))
    assert again == contents
    box.good("DELETE", "/files", None, 204, query={"path": "long"})


def test_what_large_lists_took_is_given_back(box, own_server):
    """An answer of 7 MB is several times that as JSON, in small blocks."""
    if not own_server:
        pytest.skip("the memory of a server of the test's own is looked at")

    def held_kib():
        daemon, = leftovers.children(own_server.keep_pid, "cayd")
        return leftovers.memory_kib(daemon)["private"]

    box.run("mkdir many; cd many; seq 12000 | sed s/^/$(printf %0200d)/ | xargs touch")
    box.good("GET", "/files", query={"path": "."})
    before = held_kib()
    for _ in range(3):
        assert len(box.good("GET", "/files", query={"path": "many"})) == 12000
    until(lambda: held_kib() < before + 8192, what=lambda: f"{before} KiB before, {held_kib()} after")
    box.good("DELETE", "/files", None, 204, query={"path": "many", "recursive": "true"})


@pytest.mark.parametrize("method, path, query, body, headers, status", [
    ("GET", "/files/info", {}, None, None, 400), ("GET", "/files/download", {"path": "none"}, None, None, 404),
    ("GET", "/files/download", {"path": "/tmp"}, None, None, 400), ("GET", "/files", {"path": "none"}, None, None, 404),
    ("GET", "/files/info", {"path": "x" * 5000}, None, None, 400), ("POST", "/files/folder", {}, None, None, 400),
    ("POST", "/files/folder", {"path": "q", "mode": "9"}, None, None, 400),
    ("POST", "/files/bulk-download", {}, {}, None, 400), ("POST", "/files/bulk-download", {}, {"paths": [""]}, None, 400),
    ("POST", "/files/bulk-download", {}, {"paths": [1]}, None, 400),
    ("POST", "/files/bulk-upload", {}, b"x", {"Content-Type": "text/plain"}, 400),
    ("POST", "/files/bulk-upload", {}, b"--b--\r\n", {"Content-Type": "multipart/form-data; boundary=b"}, 400),
    ("POST", "/files/bulk-upload", {}, b"--b\r\nContent-Disposition: form-data; name=\"files[0].file\"\r\n\r\nx\r\n--b--\r\n",
     {"Content-Type": "multipart/form-data; boundary=b"}, 400),
    ("POST", "/files/bulk-upload", {}, b"--b\r\nContent-Disposition: form-data; name=\"files[0].file\"; filename=\"cut\"\r\n\r\nx",
     {"Content-Type": "multipart/form-data; boundary=b"}, 400),
    ("POST", "/files/upload", {}, b"x", {"Content-Type": "application/octet-stream"}, 400)])
def test_a_bad_call_about_files(box, method, path, query, body, headers, status):
    box.refused(status, method, path, body, query=query, headers=headers)


def test_ten_thousand_files_in_one_upload(box):
    """As Python's upload_files sends them; and more than one request may bring are refused, as is one path twice."""
    reply = box.put([(f"many/{i:05}", b"%d" % i) for i in range(10000)])
    assert reply.status == 200, reply.body
    assert [f["path"] for f in reply.json["files"]] == [f"/home/daytona/many/{i:05}" for i in range(10000)]
    assert box.run("ls many | wc -l; cat many/00000 many/09999; rm -r many")["result"] == "10000\n09999"
    reply = box.put([("same", b"1"), ("other", b"2"), ("same", b"3")])
    assert reply.status == 400 and "/home/daytona/same" in reply.json["message"]
    reply = box.put([(f"more/{i}", b"") for i in range(16385)])
    assert reply.status == 400 and "the number of parts is over its limit" in reply.json["message"]
    box.run("rm -rf more same other")


# -- variables ------------------------------------------------------------------------------------------


def test_variables_are_changed_for_what_begins_afterwards(box):
    shown = lambda: box.run("echo $ONE-$TWO-$E2B_SANDBOX")["result"].strip()  # noqa: E731
    before = shown()
    box.good("POST", "/process/session", {"sessionId": "old"}, 201)
    assert box.good("POST", "/env", {"set": {"ONE": "a b", "TWO": "$x'\"\n"}}) == {}
    assert box.run("printf %s \"$ONE|$TWO\"")["result"] == "a b|$x'\"\n"
    in_session = lambda id: box.good("POST", f"/process/session/{id}/exec", {"command": "echo \"<$ONE>\""})["output"]  # noqa: E731
    box.good("POST", "/process/session", {"sessionId": "new"}, 201)
    assert (in_session("old").strip(), in_session("new").strip()) == ("<>", "<a b>")  # an open session keeps its own
    box.good("POST", "/env", {"set": {"ONE": "pre-1"}, "unset": ["TWO", "NOT_THERE", "E2B_SANDBOX"], "unsetValuePrefix": "pre-"})
    assert shown() == "pre-1--true"  # set variables stay; so do those that say where a program is
    box.good("POST", "/env", {"unsetValuePrefix": "pre-"})
    assert shown() == before == "--true"
    for body, why in (({"set": {"A=B": "x"}}, "A=B"), ({"set": {"A": 1}}, "set"), ({"set": []}, "set"), ({"unset": [1]}, "unset[0]"),
                      ({"unsetValuePrefix": 1}, "unsetValuePrefix")):
        box.refused(400, "POST", "/env", body, "INVALID_REQUEST_BODY", why)
    for id in ("old", "new"):
        assert box.call("DELETE", f"/process/session/{id}").status == 204


def test_a_variable_that_no_program_can_be_started_with(cay, box):
    """The kernel takes 128 KiB of NAME=VALUE with its last byte, and no more."""
    longest = {"V": "x" * (128 * 1024 - 3)}
    too_long = {"V": longest["V"] + "x"}
    box.refused(400, "POST", "/env", {"set": too_long}, "INVALID_REQUEST_BODY", "no program can be started")
    reply = cay.call("POST", "/sandboxes", {"templateID": "host", "envVars": too_long})
    assert reply.status == 400 and b"no program can be started" in reply.body
    box.good("POST", "/env", {"set": longest})
    try:
        assert box.good("POST", "/process/execute", {"command": "echo ${#V}"})["result"] == f"{128 * 1024 - 3}\n"
    finally:
        box.good("POST", "/env", {"unset": ["V"]})


def test_more_variables_than_a_call_takes(box):
    """The agent takes 2 MiB, the toolbox a body of 4."""
    box.refused(413, "POST", "/env", {"set": {f"V{i}": "x" * 100000 for i in range(30)}}, why="several calls")


def test_of_changes_of_variables_at_once_none_is_lost(box):
    names = [f"RACE_{i}" for i in range(24)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for reply in pool.map(lambda name: box.call("POST", "/env", {"set": {name: "1"}}), names):
            assert reply.status == 200, reply.body
    assert box.run("env | grep -c ^RACE_")["result"] == "24\n"
    box.good("POST", "/env", {"unset": names})
    assert box.run("env | grep -c ^RACE_")["result"] == "0\n"


# -- who may --------------------------------------------------------------------------------------------

def test_what_is_not_there_says_so(box):
    box.refused(404, "GET", "/nothing/here", why="/nothing/here")
    for method, path in (("POST", "/git/rebase"), ("GET", "/git/blame"), ("POST", "/lsp/start"), ("GET", "/proxy/80/x"), ("POST", "/computeruse/start")):
        box.refused(501, method, path, code="NOT_IMPLEMENTED", why="not supported")
    box.refused(413, "POST", "/process/execute", b"[" + b" " * (5 << 20))


def test_a_sandbox_is_found_by_its_name_and_by_the_old_path(box, cay):
    name = "box-" + secrets.token_hex(4)
    made = cay.call("POST", "/api/sandbox", {"snapshot": "host", "name": name}).json
    try:
        assert Box(cay, name).run("echo by name")["result"] == "by name\n"
        assert Box(cay, f"{made['id']}/toolbox").run("echo old")["result"] == "old\n"
    finally:
        cay.call("DELETE", f"/sandboxes/{made['id']}")


# -- the control plane ------------------------------------------------------------------------------------


def test_labels_addresses_and_pages(box, cay):
    control = lambda method, path, body=None: cay.call(method, f"/api{path}", body, {"Authorization": f"Bearer {cay.key}"}, key=False)  # noqa: E731
    mark = secrets.token_hex(4)
    assert control("PUT", f"/sandbox/{box.id}/labels", {"labels": {"mark": mark}}).json == {"labels": {"mark": mark}}
    assert control("GET", f"/sandbox/{box.id}").json["labels"] == {"mark": mark}
    query = urllib.parse.urlencode({"labels": json.dumps({"mark": mark}), "page": 1, "limit": 10})
    listed = control("GET", f"/sandbox/paginated?{query}").json
    assert [s["id"] for s in listed["items"]] == [box.id] and (listed["total"], listed["page"], listed["totalPages"]) == (1, 1, 1)
    assert control("GET", f"/sandbox/paginated?{query.replace('page=1', 'page=2')}").json["items"] == []
    for labels in ({}, {"labels": {"a": 1}}, {"labels": []}):
        assert control("PUT", f"/sandbox/{box.id}/labels", labels).status == 400
    assert control("GET", f"/sandbox/{box.id}/toolbox-proxy-url").json["url"].endswith("/api/toolbox")
    assert control("POST", f"/sandbox/{box.id}/last-activity").status == 201
    series = control("GET", f"/sandbox/{box.id}/telemetry/metrics").json["series"]
    assert {s["metricName"] for s in series} >= {"daytona.sandbox.cpu.utilization", "daytona.sandbox.memory.usage"}
    assert all(s["dataPoints"] for s in series)
    assert control("GET", f"/sandbox/{box.id}/telemetry/metrics?from=x").status == 400
    for query, there in (("from=1969-12-31T23:59:59Z", True), ("from=0001-01-01T00:00:00Z", True), ("to=1969-12-31T23:59:59Z", False)):
        series = control("GET", f"/sandbox/{box.id}/telemetry/metrics?{query}").json["series"]
        assert [bool(s["dataPoints"]) for s in series] == [there] * 7, query


def test_labels_that_are_null_name_none(box, cay):
    """As Python's SDK 0.143 lists."""
    control = lambda path: cay.call("GET", f"/api{path}", None, {"Authorization": f"Bearer {cay.key}"}, key=False)  # noqa: E731
    for path in ("/sandbox/paginated?labels=null", "/sandbox?labels=null"):
        assert box.id in [s["id"] for s in control(path).json["items"]], path
    for labels in ("nul", "nullx", "[null]", "false"):
        assert control(f"/sandbox?labels={labels}").status == control(f"/sandbox/paginated?labels={labels}").status == 400


def test_the_configuration_has_what_the_contract_requires(cay):
    reply = cay.call("GET", "/api/config", None, {"Authorization": f"Bearer {cay.key}"}, key=False)
    assert reply.status == 200, reply.body
    texts = {"version", "proxyTemplateUrl", "proxyToolboxUrl", "defaultSnapshot", "dashboardUrl", "environment"}
    assert all(isinstance(reply.json[name], str) for name in texts)
    assert "{{PORT}}-{{sandboxId}}." in reply.json["proxyTemplateUrl"] and reply.json["proxyToolboxUrl"].endswith("/api/toolbox")
    assert reply.json["oidc"] == {"issuer": "", "clientId": "", "audience": ""} and reply.json["announcements"] == {}
    assert (reply.json["linkedAccountsEnabled"], reply.json["maintananceMode"]) == (False, False)
    assert reply.json["maxAutoArchiveInterval"] == 30 * 24 * 60


def test_a_port_is_reached_with_its_token_alone(box, cay):
    control = lambda path: cay.call("GET", f"/api{path}", None, {"Authorization": f"Bearer {cay.key}"}, key=False)  # noqa: E731
    box.run("cd /etc && (python3 -m http.server 8123 >/dev/null 2>&1 &)")
    link = control(f"/sandbox/{box.id}/ports/8123/preview-url").json
    host = link["url"].partition("//")[2]
    assert link["sandboxId"] == box.id and host.startswith(f"8123-{box.id}.")
    until(lambda: cay.call("GET", "/hostname", None, {"Host": host, "X-Daytona-Preview-Token": link["token"]}, key=False).status == 200)
    assert cay.call("GET", f"/hostname?DAYTONA_SANDBOX_AUTH_KEY={link['token']}", None, {"Host": host}, key=False).status == 200
    for wrong in ({}, {"X-Daytona-Preview-Token": "x"}):
        assert cay.call("GET", "/hostname", None, {"Host": host, **wrong}, key=False).status == 403
    for port in ("0", "65536", "x"):
        assert control(f"/sandbox/{box.id}/ports/{port}/preview-url").status == 400
    box.run("pkill -f 'http.serve[r] 8123'")


def test_a_signed_address_opens_one_port_for_its_time(box, cay, other_tenant):
    control = lambda path, key=cay.key: cay.call("GET", f"/api/sandbox/{path}", None, {"Authorization": f"Bearer {key}"}, key=False)  # noqa: E731
    reach = lambda host, path="/hostname": cay.call("GET", path, None, {"Host": host}, key=False)  # noqa: E731
    box.run("cd /etc && (python3 -m http.server 8126 >/dev/null 2>&1 &)")
    ask = f"{box.id}/ports/8126/signed-preview-url"
    link = control(f"{ask}?expiresInSeconds=3600").json
    host = link["url"].partition("//")[2]
    assert (link["sandboxId"], link["port"]) == (box.id, 8126) and host.startswith(f"8126-{link['token']}.")
    label, _, domain = host.partition(".")
    until(lambda: reach(host).status == 200)
    for wrong in (label[:-1] + ("a" if label[-1] != "a" else "b"), label.replace("8126-", "8127-"), label.replace("8126-", "49983-"),
                  label.replace("8126-" + box.id + "0", "8126-" + box.id + "z")):
        agents = wrong.startswith("49983-")  # which has no such path
        assert wrong != label and reach(f"{wrong}.{domain}").status in ((404,) if agents else (401, 403))
    assert reach(f"8126-{box.id}.{domain}").status == 403
    over = control(f"{ask}?expiresInSeconds=1").json["url"].partition("//")[2]
    until(lambda: reach(over).status == 403 and b"over its time" in reach(over).body)
    assert control(ask, other_tenant.key).status == 404 and control(ask, "e2b_" + "0" * 40).status == 401
    for bad in (f"{ask}?expiresInSeconds=0", f"{ask}?expiresInSeconds=86401", f"{ask}?expiresInSeconds=x", f"{box.id}/ports/0/signed-preview-url"):
        assert control(bad).status == 400
    assert control(f"{box.id}/ports/49983/signed-preview-url").status == 403
    box.run("pkill -f 'http.serve[r] 8126'")


def test_a_signed_url_opens_one_file_for_one_method_until_its_key_is_replaced(box, cay, other_tenant):
    def control(method, path, key=None):
        return cay.call(method, f"/api/sandbox/{path}", None, {"Authorization": f"Bearer {key or cay.key}"}, key=False)

    def sign(key, method, path, expires):  # as Daytona's SDKs do
        digest = hmac.digest(key.encode(), f"v1:files:{method}:{path}:{expires}".encode(), "sha256")
        signature = "v1_" + base64.urlsafe_b64encode(digest).decode().rstrip("=")
        return urllib.parse.urlencode({"path": path, "expires": expires, "signature": signature})

    def follow(query, method="GET", route="files/download", body=None, to=box.id):
        return cay.call(method, f"/api/toolbox/{to}/{route}?{query}", body, {}, key=False)

    path, later, at = "/home/daytona/signed é+:5", int(time.time()) + 3600, f"{box.id}/signing-key"
    key = control("GET", at).json
    assert control("GET", at).json == key and len(key) == 64
    put = sign(key, "POST", path, later)
    assert follow(put, "POST", "files/upload-v2", b"through the url").status == 200
    get = sign(key, "GET", path, later)
    assert follow(get).body == follow(sign(key, "GET", path, 0)).body == box.take(path).body == b"through the url"
    assert follow(get + "&path=/etc/hostname").body == b"through the url"  # the first one is what was signed, and read
    refused = [follow(sign(key, "GET", path, 1)), follow(put), follow(get, "POST", "files/upload-v2", b"x"),
               follow(get.replace("signed", "other")), follow(get.replace(f"expires={later}", f"expires={later + 1}")),
               follow(get.replace(f"expires={later}", "expires=0")), follow("path=/etc/hostname&" + get),
               follow(get, route="files"), follow(get, "DELETE", "files"), follow(get, route="files/info"),
               follow(put, "POST", "files/upload", b"x"), follow(get, to="i" + "0" * 19), follow(get, to=box.id + "x"),
               follow(sign(control("GET", at).json[::-1], "GET", path, later)), follow(f"path={urllib.parse.quote(path)}")]
    assert [r.status for r in refused] == [401] * len(refused), [(r.status, r.body) for r in refused]
    assert b"over its time" in refused[0].body and refused[11].json["message"] == refused[13].json["message"]
    assert control("GET", at, other_tenant.key).status == control("POST", f"{at}/rotate", other_tenant.key).status == 404
    replaced = control("POST", f"{at}/rotate").json
    assert replaced != key and control("GET", at).json == replaced
    assert (follow(get).status, follow(sign(replaced, "GET", path, later)).status) == (401, 200)
    assert box.call("DELETE", "/files", query={"path": path}).status == 204
    assert follow(sign(replaced, "GET", path, later)).status == 404


def test_stopped_is_files_alone_and_started_again(cay, new_key):
    control = lambda method, path, key=None: cay.call(method, f"/api/sandbox/{path}", b"" if method == "POST" else None,  # noqa: E731
                                                      {"Authorization": f"Bearer {key or cay.key}"}, key=False)
    made = cay.call("POST", "/api/sandbox", {"snapshot": "host", "env": {"KEPT": "1"}}).json
    id = made["id"]
    try:
        assert made["autoDeleteInterval"] == -1 and "autoDestroyAt" not in made
        box = Box(cay, id)
        box.run("echo kept >f; sleep 7004 >/dev/null 2>&1 & echo shm >/dev/shm/f")
        assert control("POST", f"{id}/stop", new_key("others")).status == 404
        assert control("POST", f"{id}/stop").json["state"] == "stopped"
        assert control("POST", f"{id}/stop").json["state"] == "stopped" and control("GET", id).json["state"] == "stopped"
        box.refused(409, "POST", "/process/execute", {"command": "true"})
        assert control("POST", f"{id}/pause").status == 400
        assert control("POST", f"{id}/start").json["state"] == "started"
        assert control("POST", f"{id}/start").json["state"] == "started"
        done = box.run("cat f; echo $KEPT; pgrep -fc 'sleep 700[4]'; ls /dev/shm")
        assert done["result"] == "kept\n1\n0\n"
        box.run("sleep 7005 >/dev/null 2>&1 &")
        assert control("POST", f"{id}/pause").json["state"] == "paused"
        assert control("POST", f"{id}/start").json["state"] == "started"
        assert box.run("pgrep -fc 'sleep 700[5]'")["result"] == "1\n"
    finally:
        cay.call("DELETE", f"/sandboxes/{id}")
    made = cay.call("POST", "/api/sandbox", {"snapshot": "host", "autoDeleteInterval": 0}).json
    assert made["autoDeleteInterval"] == 0
    assert control("POST", f"{made['id']}/stop").json["state"] == "destroyed"
    assert control("GET", made["id"]).status == 404


def test_one_that_is_stopped_is_archived_until_it_starts(cay, new_key):
    control = lambda method, path, key=None: cay.call(method, f"/api/sandbox/{path}", b"" if method == "POST" else None,  # noqa: E731
                                                      {"Authorization": f"Bearer {key or cay.key}"}, key=False)
    made = cay.call("POST", "/api/sandbox", {"snapshot": "host", "autoArchiveInterval": 5}).json
    id = made["id"]
    try:
        assert made["autoArchiveInterval"] == 5
        for minutes, shown in ((0, 30 * 1440), (99999, 30 * 1440), (7, 7)):
            assert control("POST", f"{id}/autoarchive/{minutes}").json["autoArchiveInterval"] == shown
        Box(cay, id).run("echo kept >f")
        assert control("POST", f"{id}/archive").status == 400 and control("GET", id).json["state"] == "started"
        assert control("POST", f"{id}/stop").json["state"] == "stopped"
        assert control("POST", f"{id}/archive", new_key("archivers")).status == 404 and control("GET", id).json["state"] == "stopped"
        for _ in range(2):
            assert control("POST", f"{id}/archive").json["state"] == "archived"
        listed = {s["id"]: s["state"] for s in cay.call("GET", "/api/sandbox", None, {"Authorization": f"Bearer {cay.key}"}, key=False).json["items"]}
        assert listed[id] == "archived" == control("GET", id).json["state"] and control("POST", f"{id}/stop").status == 400
        assert control("POST", f"{id}/start").json["state"] == "started"
        assert Box(cay, id).run("cat f")["result"] == "kept\n"
        assert control("POST", f"{id}/stop").json["state"] == "stopped" and control("GET", id).json["autoArchiveInterval"] == 7
    finally:
        cay.call("DELETE", f"/sandboxes/{id}")


def test_what_becomes_of_one_that_stops(cay, other_tenant):
    control = lambda method, path, key=None: cay.call(method, f"/api/sandbox/{path}", b"" if method == "POST" else None,  # noqa: E731
                                                      {"Authorization": f"Bearer {key or cay.key}"}, key=False)
    made = cay.call("POST", "/api/sandbox", {"snapshot": "host"}).json
    id = made["id"]
    assert made["autoDeleteInterval"] == -1
    assert control("POST", f"{id}/autodelete/0", other_tenant.key).status == 404 and control("POST", f"{id}/autodelete/0", "e2b_0").status == 401
    assert control("POST", f"{id}/autodelete/0").json["autoDeleteInterval"] == 0
    assert control("POST", f"{id}/autodelete/-1").json["autoDeleteInterval"] == -1
    assert control("POST", f"{id}/autodelete/5").json["autoDeleteInterval"] == 5
    assert control("POST", f"{id}/stop").json["state"] == "stopped"
    assert control("POST", f"{id}/start").json["state"] == "started"
    assert control("POST", f"{id}/autodelete/0").status == 200 and control("GET", id).json["autoDeleteInterval"] == 0
    for path, status in (("autodelete/x", 400), ("autodelete/99999999999", 400), ("autoarchive/x", 400),
                         ("autoarchive/-1", 400), ("resize", 400), ("nothing", 501)):
        reply = control("POST", f"{id}/{path}")
        assert reply.status == status == reply.json["statusCode"], reply.body
        assert status == 400 or "(" in reply.json["message"], reply.body
    assert control("POST", f"{id}/stop").json["state"] == "destroyed"
    assert control("GET", id).status == 404


def test_a_key_that_only_reads_opens_nothing(cay, box):
    key = cay.call("POST", "/cay/v1/keys", {"tenant": "default", "label": "r", "role": "read-only"}).json["key"]
    Box(cay, box.id, key).refused(403, "POST", "/process/execute", {"command": "true"}, why="read-only")
    Box(cay, box.id, key).refused(403, "GET", "/files", why="read-only")
