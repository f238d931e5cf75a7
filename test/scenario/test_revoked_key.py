"""A stream that a client has opened with an API key, or only begun to ask for, when that key is revoked: it ends, and
nothing of it begins any more. The control of each is the same of another key of the tenant, which goes on."""

import json
import secrets
import socket

import pytest
from client import Client
from mcplib import Mcp
from test_toolbox import Box, Socket
from waitlib import until

CLOCK = "while :; do date; sleep 0.1; done"
TAKEN_MAX = 150  # some of it was on its way
MANY = 200


@pytest.fixture(scope="module")
def make_key(cay):
    def make():
        reply = cay.call("POST", "/cay/v1/keys", {"tenant": "revoked-open", "label": "revoked"})
        assert reply.status == 201, reply.body
        return Client(cay.url, reply.json["key"])
    return make


@pytest.fixture(scope="module")
def owner(make_key):
    return make_key()


@pytest.fixture(scope="module")
def box(owner):
    reply = owner.call("POST", "/api/sandbox", {"snapshot": "host", "autoStopInterval": 60})
    assert reply.status == 200, reply.body
    yield Box(owner, reply.json["id"])
    owner.call("DELETE", f"/sandboxes/{reply.json['id']}")


def revoke(cay, client):
    key = next(k["id"] for k in client.call("GET", "/cay/v1/keys").json if k["current"])
    assert cay.call("DELETE", f"/cay/v1/keys/{key}").status == 204


class Terminal:
    def __init__(self, client, box):
        self.id, self.box = "t-" + secrets.token_hex(4), box
        box.good("POST", "/process/pty", {"id": self.id}, 201)
        self.socket = Socket(client, f"/api/toolbox/{box.id}/process/pty/{self.id}/connect")
        self.connection = self.socket.connection
        assert self.socket.answer.status == 101
        self.socket.frame(1, f"{CLOCK}\n".encode())

    def take(self):
        return not isinstance(self.socket.read(), tuple)


class Interpreter:
    def __init__(self, client, box):
        self.socket = Socket(client, f"/api/toolbox/{box.id}/process/interpreter/execute")
        self.connection = self.socket.connection
        code = "import time\nfor i in range(9000): print(i, flush=True); time.sleep(0.1)"
        made = box.good("POST", "/process/interpreter/context", {})
        self.socket.frame(1, json.dumps({"code": code, "contextId": made["id"]}).encode())

    def take(self):
        return not isinstance(self.socket.read(), tuple)


class Logs(Terminal):
    def __init__(self, client, box):
        session = "s-" + secrets.token_hex(4)
        box.good("POST", "/process/session", {"sessionId": session}, 201)
        made = box.good("POST", f"/process/session/{session}/exec", {"command": CLOCK, "runAsync": True}, 202)
        self.socket = Socket(client, f"/api/toolbox/{box.id}/process/session/{session}/command/{made['cmdId']}/logs?follow=true")
        self.connection = self.socket.connection


class Download:
    """A client that takes a part now and then: the rest is held by the server and both kernels when the key is revoked."""

    HELD = 65536  # by the client's own kernel, which nothing takes away

    def __init__(self, client, box, method="GET", path="/files/download?path=long", body=b""):
        box.run("[ -e long ] || truncate -s 512M long")
        self.connection = socket.socket()
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.HELD)
        self.connection.settimeout(60)
        self.connection.connect((client.host, client.port))
        self.connection.sendall(f"{method} /api/toolbox/{box.id}{path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {client.key}\r\n"
                                f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        assert self.connection.recv(12) == b"HTTP/1.1 200"

    def take(self):
        return bool(self.connection.recv(self.HELD))


class ManyFiles(Download):
    def __init__(self, client, box):
        super().__init__(client, box, "POST", "/files/bulk-download", json.dumps({"paths": ["/etc/passwd", "long", "long"]}).encode())


class Exec:
    def __init__(self, client, box):
        self.connection = client.connect()
        self.connection.request("POST", f"/cay/v1/sandboxes/{box.id}/exec", json.dumps({"shell": CLOCK, "stream": True}),
                                {"X-API-Key": client.key, "Content-Type": "application/json"})
        self.answer = self.connection.getresponse()
        assert self.answer.status == 200, self.answer.read()

    def take(self):
        return bool(self.answer.readline())


class Tool:
    """MCP: what a command prints is told as progress."""

    def __init__(self, client, box):
        self.connection, self.answer = Mcp(client).begin(
            "tools/call", {"name": "run", "arguments": {"command": CLOCK, "sandbox": box.id, "timeout": 600},
                           "_meta": {"progressToken": 1}}, 1)
        assert self.answer.status == 200, self.answer.read()

    def take(self):
        return bool(self.answer.readline())


def ends(stream):
    """Reads on to its end, which a client sees as a close, or as a reset."""
    try:
        for _ in range(TAKEN_MAX):
            if not stream.take():
                return
        pytest.fail("the stream goes on")
    except (ConnectionError, OSError, ValueError) as e:
        assert not isinstance(e, TimeoutError), "nothing comes, and the stream does not end"


@pytest.mark.parametrize("kind", [Terminal, Interpreter, Logs, Download, ManyFiles, Exec, Tool])
def test_a_stream_that_a_key_has_opened_ends_with_it(cay, make_key, owner, box, kind):
    client = make_key()
    stream, control = kind(client, box), kind(owner, box)
    assert stream.take() and control.take()
    revoke(cay, client)
    ends(stream)
    for _ in range(30):  # more than what was on its way
        assert control.take()
    control.connection.close()
    stream.connection.close()


def test_of_many_streams_each_ends(cay, make_key, owner, box):
    client = make_key()
    control = Terminal(owner, box)
    path = f"/api/toolbox/{box.id}/process/pty/{control.id}/connect"
    sockets = [Socket(client, path) for _ in range(MANY)]
    assert {s.answer.status for s in sockets} == {101}
    revoke(cay, client)
    for socket in sockets:
        try:
            while not isinstance(socket.read(), tuple):
                pass
        except (ConnectionError, ValueError):
            pass
        socket.connection.close()
    for _ in range(30):
        assert control.take()
    control.connection.close()


def test_what_a_sandbox_s_token_has_opened_goes_on(cay, make_key, owner):
    """The control of the rest: the token is the sandbox's, and no key's."""
    client = make_key()
    with client.create(template="host") as sandbox:
        sandbox.client = owner  # its ender
        clock = sandbox.stream("process.Process/Start", {"process": {"cmd": "/bin/bash", "args": ["-c", CLOCK]}, "stdin": False})
        next(clock)
        revoke(cay, client)
        for _ in range(30):
            assert "event" in next(clock)
        assert sandbox.run("echo still").out == "still\n"
        clock.close()


class Half:
    """A request that has been sent but for its last byte."""

    def __init__(self, client, path, body):
        self.last = body[-1:]
        self.s = socket.create_connection((client.host, client.port), timeout=60)
        self.s.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {client.key}\r\nConnection: close\r\n"
                       f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body[:-1])

    def finish(self):
        answer = b""
        try:
            self.s.sendall(self.last)
            while part := self.s.recv(65536):
                answer += part
        except ConnectionError:
            pass
        self.s.close()
        return answer


def run_later(client, box, command):
    """A call whose sandbox and key have been looked at (another one after it was answered), and whose body is not whole."""
    half = Half(client, f"/api/toolbox/{box.id}/process/execute", json.dumps({"command": command}).encode())
    Box(client, box.id).run("true")
    return half


def there(box, path):
    return box.run(f"[ -e {path} ] && echo yes || echo no")["result"].strip()


def test_a_command_that_was_begun_with_a_key_does_not_run_after_it(cay, make_key, owner, box):
    client = make_key()
    name = "/tmp/after-" + secrets.token_hex(4)
    # On each connection loop: a connection goes to the one that accepts it.
    halves = [run_later(client, box, f"touch {name}-{i}") for i in range(4)]
    controls = [run_later(owner, box, f"touch {name}-control-{i}") for i in range(4)]
    revoke(cay, client)
    assert not any(b" 200 OK" in half.finish() for half in halves)
    assert all(b" 200 OK" in control.finish() for control in controls)
    assert [there(box, f"{name}-control-{i}") for i in range(4)] == ["yes"] * 4
    assert [there(box, f"{name}-{i}") for i in range(4)] == ["no"] * 4


def test_code_that_is_said_after_the_key_does_not_run(cay, make_key, owner, box):
    client = make_key()
    name = "/tmp/code-" + secrets.token_hex(4)
    sockets = {who: Socket(c, f"/api/toolbox/{box.id}/process/interpreter/execute")
               for who, c in (("revoked", client), ("control", owner))}
    assert all(s.answer.status == 101 for s in sockets.values())
    revoke(cay, client)
    for who, s in sockets.items():
        try:
            s.frame(1, json.dumps({"code": f"open('{name}-{who}', 'w').close()"}).encode())
            while not isinstance(s.read(), tuple):
                pass
        except (ConnectionError, ValueError):
            assert who == "revoked"
        s.connection.close()
    until(lambda: there(box, f"{name}-control") == "yes", 30, "the control's code")
    assert there(box, f"{name}-revoked") == "no"


def create_later(client, name, size):
    """A create whose key has been looked at, and whose body is not whole."""
    body = json.dumps({"snapshot": "host", "name": name, "labels": {"long": "x" * size}}).encode()
    half = Half(client, "/api/sandbox", body)
    assert client.call("GET", "/api/sandbox").status == 200
    return half


@pytest.mark.parametrize("size", [10, 20000], ids=["short", "long"])
def test_a_body_of_the_api_that_is_on_its_way_ends_with_its_key(cay, make_key, owner, size):
    """Its connection ends at the revocation, with the place that it had of its tenant's; the control's goes on."""
    client, name = make_key(), "later-" + secrets.token_hex(4)
    halves = [create_later(client, f"{name}-{i}", size) for i in range(4)]
    control = create_later(owner, f"{name}-control", size)
    revoke(cay, client)
    for half in halves:
        half.s.settimeout(30)
        try:
            assert half.s.recv(100) == b""  # nothing more was sent to it
        except ConnectionError:
            pass
        half.s.close()
    assert b" 200 OK" in control.finish()
    made = owner.call("GET", "/api/sandbox").json["items"]
    assert [one["name"] for one in made if one["name"].startswith(name)] == [f"{name}-control"]
    assert owner.call("DELETE", f"/api/sandbox/{name}-control").status == 200
