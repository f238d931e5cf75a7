"""Attacks on the server of the Model Context Protocol: ids, cancellations, sessions and tokens of another, and what a client could
leave open. Beside each stands its control: the same by who may."""

import json
import os
import signal

import pytest

from client import Client
from conftest import OwnServer
from mcplib import ACCEPT, SESSION, STATELESS, Mcp
from test_mcp_sessions import restart_cayd
from waitlib import kill_all, signalled, until

TOOLS = {"run": {"command": "true"}, "read": {"path": "x"}, "write": {"path": "x", "content": ""}, "list": {}, "search": {"by": "name", "pattern": "x"},
         "edit": {"path": "x", "old": "a", "new": "b"}, "expose": {"port": 80}, "pause": {}, "resume": {}, "kill": {}}


@pytest.fixture
def mcp(cay):
    with Mcp(cay) as session:
        yield session


@pytest.fixture
def own():
    server = OwnServer()
    yield server
    server.stop()


class Held:
    """A command that is under way in a client's session until a file says that it may end; `end` gives its whole answer."""

    def __init__(self, client, id, mark):
        self.client, self.mark = client, mark
        command = f"touch {mark}-runs; while ! [ -e {mark}-ends ]; do sleep 0.05; done; echo {mark}"
        self.connection, self.answer = client.begin("tools/call", {"name": "run", "arguments": {"command": command, "timeout": 300}}, id)
        until(lambda: f"{mark}-runs" in client.tool("run", command="ls")["stdout"].split())

    def end(self):
        self.client.tool("run", command=f"touch {self.mark}-ends")
        return self.cut()

    def cut(self):
        body = self.answer.read()
        self.connection.close()
        return body


def raw(cay, lines, message):
    """A message whose headers are sent as they stand, also twice."""
    body = json.dumps(message).encode()
    connection = cay.connect()
    connection.putrequest("POST", "/mcp")
    for name, value in [("X-API-Key", cay.key), ("Accept", ACCEPT), ("Content-Type", "application/json"),
                        ("Content-Length", str(len(body))), *lines]:
        connection.putheader(name, value)
    connection.endheaders(body)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status


# -- ids of requests ----------------------------------------------------------------------------------------


def test_a_cancellation_ends_a_call_of_its_own_session_alone(cay, other_tenant, mcp):
    """Not from another session of the tenant, another tenant, without a session, or where there are none; then from its own."""
    held = Held(mcp, 7, "a")
    with Mcp(cay) as second, Mcp(other_tenant) as theirs:
        for client in (second, theirs):
            assert client.notify("notifications/cancelled", {"requestId": 7}).status == 202
        stolen = Mcp(other_tenant, open_now=False)
        stolen.session = mcp.session
        assert stolen.notify("notifications/cancelled", {"requestId": 7}).status == 404
        assert Mcp(cay, STATELESS).notify("notifications/cancelled", {"requestId": 7}).status == 202
        assert Mcp(cay, open_now=False).notify("notifications/cancelled", {"requestId": 7}).status == 400
        for id in ("7", 7.0, [7], {"id": 7}, True, None, "7" * 100000):
            mcp.notify("notifications/cancelled", {"requestId": id})
        assert b'"a\\n"' in held.end()
    held = Held(mcp, 7, "b")
    assert mcp.notify("notifications/cancelled", {"requestId": 7}).status == 202
    assert b"result" not in held.cut()


def test_a_cancellation_of_a_call_that_has_ended_ends_no_later_one(mcp):
    message = mcp.body("tools/call", {"name": "run", "arguments": {"command": "echo a"}}, 8)
    for _ in range(2):
        assert mcp.send(message).result["structuredContent"]["stdout"] == "a\n"
        for _ in range(3):
            assert mcp.notify("notifications/cancelled", {"requestId": 8}).status == 202
    held = Held(mcp, 8, "c")
    assert b'"c\\n"' in held.end()


def test_calls_of_one_id_have_their_own_answers(cay, mcp):
    """In a session and in two. A cancellation ends those of its session, and the other's goes on."""
    with Mcp(cay) as second:
        one, two, other = Held(mcp, "same", "one"), Held(mcp, "same", "two"), Held(second, "same", "other")
        for held in (two, one):
            said = held.end()
            assert f'"{held.mark}\\n"'.encode() in said and said.count(b'"id":"same"') == 1
        mine = Held(mcp, "same", "mine")
        mcp.notify("notifications/cancelled", {"requestId": "same"})
        assert b"result" not in mine.cut()
        assert b'"other\\n"' in other.end()


@pytest.mark.parametrize("id, status", [(b"9223372036854775807", 200), (b"-9223372036854775808", 200), (b"9223372036854775808", 400),
                                        (b"9" * 100000, 400), (b"1e3", 400), (b"1e999", 400), (b'"' + b"x" * 256 + b'"', 200),
                                        (b'"' + b"x" * 257 + b'"', 400), (b'"' + b"x" * 900000 + b'"', 400), (b'"\\u0000"', 400)])
def test_an_id_comes_back_as_it_was_sent_or_not_at_all(mcp, id, status):
    answer = mcp.send(b'{"jsonrpc":"2.0","method":"ping","id":' + id + b"}")
    assert answer.status == status
    assert answer.last["id"] == (json.loads(id) if status == 200 else None)


# -- sessions -----------------------------------------------------------------------------------------------


def test_sessions_of_others_are_as_those_that_are_none(cay, other_tenant, new_key, mcp):
    """By any message. A control: another key of the same tenant."""
    for make in (lambda c: c.request("tools/list"), lambda c: c.call("run", command="true"), lambda c: c.notify("notifications/initialized")):
        told = []
        for session in (mcp.session, "a" * 32, mcp.session[:-1], mcp.session.swapcase() + "x"):
            theirs = Mcp(other_tenant, open_now=False)
            theirs.session = session
            answer = make(theirs)
            told.append((answer.status, answer.error))
        assert told[0][0] == 404 and told == told[:1] * len(told), told
    told = [other_tenant.call("DELETE", "/mcp", headers={"Mcp-Session-Id": id}) for id in (mcp.session, "a" * 32)]
    assert {r.status for r in told} == {404} and told[0].body == told[1].body
    assert mcp.request("ping").status == 200
    key = Client(other_tenant.url, new_key("others"))
    with Mcp(other_tenant) as session:
        second = Mcp(key, open_now=False)
        second.session = session.session
        assert second.request("ping").status == 200


@pytest.mark.parametrize("name", TOOLS)
def test_sandboxes_of_others_are_as_those_that_are_none(mcp, other_tenant, name):
    box = mcp.tool("run", command="true")["sandbox"]
    nothing = "a" * len(box)
    for theirs in (Mcp(other_tenant), Mcp(other_tenant, STATELESS)):
        told = [theirs.refused(name, sandbox=id, **TOOLS[name]).replace(id, "ID") for id in (box, nothing)]
        assert told[0] == told[1] and "there is no sandbox" in told[0]
        told = [theirs.request("resources/read", {"uri": f"cay://{id}/etc/passwd"}).error for id in (box, nothing)]
        assert json.dumps(told[0]).replace(box, "ID") == json.dumps(told[1]).replace(nothing, "ID")
        theirs.close()
    assert mcp.tool("run", command="echo here", sandbox=box)["stdout"] == "here\n"


def test_a_session_that_ends_while_its_sandbox_is_made_does_not_come_back(own):
    """The sandbox would be kept under the session's id, by which it is found again. A control: one that does not end has it."""
    cay = Client(own.url, own.key())

    def privd():
        return [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and f"--uid-base={own.uid_base}".encode() in arguments(pid)]

    def attempt(ends):
        session = Mcp(cay)
        stopped = kill_all(privd, signal.SIGSTOP)  # it makes sandboxes
        try:
            connection, message = cay.connect(), session.body("tools/call", {"name": "run", "arguments": {"command": "echo a"}}, 5)
            connection.request("POST", "/mcp", json.dumps(message).encode(), {"X-API-Key": cay.key, **session.headers()})
            if ends:
                assert cay.call("DELETE", "/mcp", headers=session.headers()).status == 204
        finally:
            signalled(stopped, signal.SIGCONT)
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        return answer.status == 200 and (session, body)  # else the end came first

    session, said = until(lambda: attempt(True))
    assert b"the session has ended" in said
    assert session.request("ping").status == 404
    until(lambda: cay.call("GET", "/v2/sandboxes").json == [])
    session, said = attempt(False)
    assert b'"a\\n"' in said and len(cay.call("GET", "/v2/sandboxes").json) == 1 and session.request("ping").status == 200


def arguments(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as f:
            words = f.read().split(b"\0")
    except OSError:
        return ()
    return words if words[0].endswith(b"/cay-privd") else ()


def test_a_session_of_the_same_id_made_by_another_hides_none(own):
    """By the metadata of a sandbox of its own, which is believed after a restart. A control: that one is the other's own session."""
    cay = Client(own.url, own.key())
    other = Client(own.url, cay.call("POST", "/cay/v1/keys", {"tenant": "others"}).json["key"])
    mine, theirs = Mcp(cay), Mcp(other, open_now=False)
    box = mine.tool("run", command="echo mine > f")["sandbox"]
    theirs.session = mine.session
    made = other.create(metadata={"cay.mcp": "1", "cay.mcp.session": mine.session})
    restart_cayd(own, cay)
    got = until(lambda: theirs.tool("run", command="cat f || true"), patient=True)
    assert got["sandbox"] == made.id and got["stdout"] == ""
    got = mine.tool("run", command="cat f")
    assert (got["sandbox"], got["stdout"]) == (box, "mine\n")
    assert other.call("DELETE", "/mcp", headers=theirs.headers()).status == 204
    assert theirs.request("ping").status == 404 and mine.tool("run", command="cat f")["stdout"] == "mine\n"


# -- progress and streams -----------------------------------------------------------------------------------


def test_progress_of_one_token_goes_to_its_own_call(cay, other_tenant):
    params = {"progressToken": "shared"}
    clients = {"mine": Mcp(cay), "second": Mcp(cay), "theirs": Mcp(other_tenant)}
    try:
        answers = {mark: Mcp.begin(Token(c, params), "tools/call", {"name": "run", "arguments": {"command": (
            f"for i in 1 2 3 4; do echo {mark}; sleep 0.3; done")}}, 1) for mark, c in clients.items()}
        for mark, (connection, answer) in answers.items():
            body = answer.read()
            connection.close()
            assert body.count(b'"progressToken":"shared"') > 0 and mark.encode() in body
            assert not any(other.encode() in body for other in clients if other != mark)
    finally:
        for client in clients.values():
            client.close()


class Token:
    """A client each of whose messages has a progress token."""

    def __init__(self, of, meta):
        self.client, self.headers = of.client, of.headers
        self.body = lambda method, params, id: of.body(method, params, id, meta)


def test_streams_that_are_left_open_end_with_their_session(cay):
    session = Mcp(cay)
    held = [Held(session, i, f"left{i}") for i in range(4)]
    assert cay.call("DELETE", "/mcp", headers=session.headers()).status == 204
    for one in held:
        assert b"isError" in one.cut()  # and no output of the command
    assert session.request("ping").status == 404


# -- messages -----------------------------------------------------------------------------------------------


def test_two_origins_are_not_one_of_them(cay, mcp):
    """Whichever comes first. A control: its own alone."""
    session = [("Mcp-Session-Id", mcp.session)]
    own_page, evil = ("Origin", "http://localhost:1"), ("Origin", "http://evil.example")
    message = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    assert raw(cay, [*session, own_page], message) == 200
    for both in ([own_page, evil], [evil, own_page], [("Origin", "")], [("Origin", "http://localhost, http://evil.example")]):
        assert raw(cay, [*session, *both], message) in (400, 403), both


def test_two_sessions_are_not_one_of_them(cay, mcp):
    message = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    one, none = ("Mcp-Session-Id", mcp.session), ("Mcp-Session-Id", "a" * 32)
    assert raw(cay, [one], message) == 200
    for both in ([one, none], [none, one]):
        assert raw(cay, both, message) in (400, 404), both


def test_bodies_that_are_too_much(cay, mcp):
    """Values, bytes and depth; the session is there after each."""
    for more, status in ((b"[" + b"1," * 20000 + b"1]", 400), (b'"' + b"x" * (1 << 20) + b'"', 413), (b"[" * 40 + b"]" * 40, 400)):
        assert mcp.send(b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":' + more + b"}}").status == status
        assert mcp.request("ping").status == 200
    many = [{"jsonrpc": "2.0", "id": i, "method": "tools/call", "params": {"name": "create", "arguments": {}}} for i in range(50)]
    before = len(cay.call("GET", "/v2/sandboxes").json)
    for batch in (many, [many[0]], [], [[]]):
        assert (answer := mcp.send(batch)).status == 400 and answer.error["code"] == -32600
    assert len(cay.call("GET", "/v2/sandboxes").json) == before


@pytest.mark.parametrize("method", ["tools/call", "tools/list", "initialize", "notifications/cancelled"])
def test_a_notification_does_nothing_that_is_a_request(cay, mcp, method):
    params = {"name": "create", "arguments": {}, "protocolVersion": SESSION, "capabilities": {}, "clientInfo": {}}
    before = len(cay.call("GET", "/v2/sandboxes").json)
    answer = mcp.send(mcp.body(method, params))
    assert (answer.status, answer.messages) == (202, []) and "Mcp-Session-Id" not in answer.headers
    alone = Mcp(cay, open_now=False)
    assert alone.send(alone.body(method, params)).status == 400
    assert len(cay.call("GET", "/v2/sandboxes").json) == before
