"""A sandbox's agent that was replaced by one that lies, as the sandbox's own root could: each call ends in a bounded time with an error
that says so, what it makes cayd hold is bounded, and other sandboxes are served meanwhile. Each call is made of one that is honest first."""

import concurrent.futures
import http.client
import json
import pathlib
import socket
import sqlite3
import threading

import leftovers
import pytest
from agentlib import need_plain_build
from client import Reply
from lying_agent import END, ENTRY, HONEST, OVER, START, Liar, answer, chunk, envelope, event, head, honest, out, stream
from mcplib import STATELESS, Mcp
from test_toolbox import Box

CALL_SECONDS = 110  # a call that takes longer has no end
MIB = 1 << 20


@pytest.fixture(scope="module")
def other(cay):
    with cay.create() as made:
        yield made


def agent_of(server, id):
    """The host's pid of a sandbox's cay-init."""
    with sqlite3.connect(f"file:{server.state}/cayd/cay.db?mode=ro", uri=True) as db:
        slot = db.execute("SELECT slot FROM sandboxes WHERE id = ?", [id]).fetchone()[0]
    first = server.uid_base + slot * leftovers.RANGE
    found = [p for p in leftovers._processes() if first <= p.uid < first + leftovers.RANGE and p.inner_pids == ["1"]]
    assert [p.name for p in found] == ["cay-init"], [vars(p) for p in found]
    return found[0].pid


@pytest.fixture(scope="module")
def new_liar(cay, own_server):
    """Makes sandboxes whose agent is a Liar's."""
    if not own_server:
        pytest.skip("agents are replaced only in a server of the tests' own")
    made = []

    def make():
        box = Box(cay, cay.call("POST", "/api/sandbox", {"snapshot": "host", "autoStopInterval": 60}).json["id"])
        made.append(box)
        box.liar = None
        box.liar = Liar(agent_of(own_server, box.id))
        return box

    yield make
    for box in made:
        if box.liar:
            box.liar.close()
        assert cay.call("DELETE", f"/sandboxes/{box.id}").status == 204


@pytest.fixture(scope="module")
def liar(new_liar):
    return new_liar()


def tool(name, **arguments):
    """The call of a tool of MCP: its error is a text."""
    def call(self):
        result = Mcp(self.cay, STATELESS).call(name, sandbox=self.box.id, **arguments).result
        text = result["content"][-1]["text"]
        return Reply(500 if result["isError"] else 200, {}, json.dumps({"message": text}).encode())
    return call


class Calls:
    """Each is a request to cayd, which asks the agent."""

    def __init__(self, box):
        self.box, self.cay = box, box.cay

    def toolbox(self, method, path, body=None, query=None):
        import urllib.parse
        sent = {"Authorization": f"Bearer {self.box.key}", "X-Daytona-SDK-Version": "0.226.1"}
        path += "?" + urllib.parse.urlencode(query) if query else ""
        return self.cay.call(method, f"/api/toolbox/{self.box.id}{path}", body, sent, key=False, timeout=CALL_SECONDS)

    def execute(self):
        return self.toolbox("POST", "/process/execute", {"command": "true", "timeout": 1})

    def exec(self):
        return self.cay.call("POST", f"/cay/v1/sandboxes/{self.box.id}/exec", {"command": ["true"], "timeout_ms": 1000}, timeout=CALL_SECONDS)

    def session(self):
        return self.toolbox("POST", "/process/session", {"sessionId": "s"})

    def sessions(self):
        return self.toolbox("GET", "/process/session")

    def terminals(self):
        return self.toolbox("GET", "/process/pty")

    def contexts(self):
        return self.toolbox("GET", "/process/interpreter/context")

    def list(self):
        return self.toolbox("GET", "/files", query={"path": "/home/daytona"})

    def info(self):
        return self.toolbox("GET", "/files/info", query={"path": "/home/daytona/f"})

    def download(self):
        """Handed on as it comes: one that is cut has begun, and its client is told by the cut."""
        try:
            return self.toolbox("GET", "/files/download", query={"path": "/home/daytona/f"})
        except (ConnectionError, http.client.HTTPException):
            return Reply(502, {}, b'{"message": "it was cut"}')

    def git(self):
        return self.toolbox("GET", "/git/status", query={"path": "w"})

    def ports(self):
        return self.toolbox("GET", "/port")

    def folder(self):
        return self.toolbox("POST", "/files/folder", query={"path": "/home/daytona/d"})

    def remove(self):
        return self.toolbox("DELETE", "/files", query={"path": "/home/daytona/f"})

    def env(self):
        return self.toolbox("POST", "/env", {"set": {"A": "b"}})

    def context(self):
        return self.toolbox("POST", "/process/interpreter/context", {})

    tool_read = tool("read", path="/home/daytona/f")
    tool_edit = tool("edit", path="/home/daytona/f", old="a", new="b")
    tool_list = tool("list", path="/home/daytona")
    tool_write = tool("write", path="/home/daytona/f", content="a")


STREAMS = ("execute", "exec", "session", "sessions", "git", "ports")
LISTS = ("terminals", "contexts", "list", "info")
ALL = (*STREAMS, *LISTS, "download")
# A call whose program's time is not the client's to say: the agent may take minutes.
SHORT = ("execute", "exec", "sessions", "ports")


def is_error(reply):
    """In JSON, with a sentence, and of no success."""
    said = reply.json.get("message", "") if reply.status >= 400 else ""
    return bool(said) and reply.status != 401 and not any(ord(c) < 32 or 127 <= ord(c) < 160 for c in said)


def lies(data):
    """Sends it, whatever was asked, and ends: the end comes with the last of it, so that cayd does not take the connection for one that
    can be asked again."""
    def lie(connection, _):
        connection.sendall(data, socket.MSG_MORE)
        connection.shutdown(socket.SHUT_WR)
    return lie


def test_an_honest_one_in_its_place_is_believed(liar):
    liar.liar.lie, calls = honest, Calls(liar)
    done = calls.execute()
    assert (done.status, done.json["result"], done.json["exitCode"]) == (200, "honest\n", 0), done.body
    assert "honest" in calls.exec().body.decode()
    assert calls.download().body == b"honest\n" and calls.info().json["name"] == "f" and [f["name"] for f in calls.list().json] == ["f"]
    assert (calls.session().status, calls.terminals().json, calls.contexts().json) == (201, {"sessions": []}, {"contexts": []})
    for call, text, said in (("sessions", b"Ss1\0", "s1"), ("git", b"# branch.head main\0", "main")):
        liar.liar.lie = lies(stream(START, out(text), END, OVER))
        assert said in str(getattr(calls, call)().json)
    assert {"/process.Process/Start", "/files", "/filesystem.Filesystem/ListDir"} <= {*liar.liar.asked}


# Of any answer: no HTTP, or one that contradicts itself.
HTTP = {
    "nothing": b"",
    "no HTTP": b"\0\1\2" * 1000 + b"\r\n\r\n",
    "a head without an end": b"HTTP/1.1 200 OK\r\nX: " + b"x" * (2 * MIB),
    "many fields": b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200000 + b"\r\n",
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    "a length and chunks": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "a length that is none": b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n{}",
    "a chunk of 2^64": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n{}",
    "a chunk that is none": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nz\r\n{}\r\n0\r\n\r\n",
    "a cut body": b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{\"entry\":",
    "a cut chunk": head() + b"1000\r\n{\"entries\":[",
    "another protocol": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n{}",
    "a redirect": b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
    "a question for a key": head(401, length=2, more='WWW-Authenticate: Basic realm="x"\r\n') + b"{}",
    "an error with control characters": answer(json.dumps({"code": "x\n", "message": "a\x1b[2J\0b\x9b"}).encode(), 500),
    "status 999": answer(b"{}", 999),
    "status 0": answer(b"{}", 0),
    "an error with a long body": answer(b"x" * (2 * MIB), 500),
    "an error without words": answer(b"[" * 3000, 500),
    "an empty error": answer(b"", 404),
    "a HTML page": answer(b"<html>" + b"x" * 5000, 503, "text/html"),
}


@pytest.mark.parametrize("name", HTTP)
def test_an_answer_that_is_no_http(liar, other, name):
    liar.liar.lie = lies(HTTP[name])
    calls = Calls(liar)
    with concurrent.futures.ThreadPoolExecutor(len(ALL)) as pool:
        asked = {call: pool.submit(getattr(calls, call)) for call in ALL}
        assert other.run("echo here").out == "here\n"
        replies = {call: one.result() for call, one in asked.items()}
    bad = {call: (r.status, r.body[:200]) for call, r in replies.items() if not is_error(r)}
    assert not bad, bad



# Of a program: no stream of an agent's, or one that says what cannot be.
PROGRAM = {
    "2 GiB announced": stream(b"\0\x7f\xff\xff\xff"),
    "more than a message has": stream(START, b"\0\0\2\0\1" + b" " * 70000, end=False),
    "cut in a head": stream(START, b"\0\0"),
    "cut in a message": stream(START, out(b"x" * 1000)[:500]),
    "cut without an end": stream(START, out(b"x"), end=False),
    "no JSON": stream(envelope(b"{")),
    "no object": stream(envelope(b"[]")),
    "nested": stream(envelope(b"{\"event\":" + b"[" * 50000)),
    "other flags": stream(envelope({}, 4)),
    "compressed": stream(envelope(b"\x1f\x8b\x08", 1)),
    "a pid that is none": stream(event(start={"pid": -1}), END, OVER),
    "a pid of text": stream(event(start={"pid": "7"}), END, OVER),
    "output that is no base64": stream(START, event(data={"stdout": "%%%"}), END, OVER),
    "output that is a number": stream(START, event(data={"stdout": 7}), END, OVER),
    "an end that is none": stream(START, event(end=7), OVER),
    "no end": stream(START, OVER),
    "the last first": stream(OVER, START, END),
    "an error with control characters": stream(envelope({"error": {"code": "x\n\x1b[2J", "message": "\0y" * 400}}, 2)),
}


@pytest.mark.parametrize("name", PROGRAM)
def test_a_program_that_cannot_be(liar, other, name):
    liar.liar.lie = lies(PROGRAM[name])
    calls = Calls(liar)
    for call in STREAMS:
        reply = getattr(calls, call)()
        begun = call == "session" and name == "cut without an end"  # which said that it is there
        assert is_error(reply) or begun, (call, reply.status, reply.body[:300])
    assert other.run("echo here").out == "here\n"


def test_a_program_that_says_more_than_once_how_it_is(liar):
    """An answer that contradicts itself may be taken either way; the call ends, and once."""
    calls = Calls(liar)
    for lie in (stream(START, START, out(b"a"), END, END, OVER, OVER), stream(END, out(b"a"), START, OVER), stream(out(b"a"), END, OVER),
                stream(event(start={"pid": 2 ** 62}), event(end={"exitCode": 2 ** 40, "exited": True}), OVER),
                stream(START, event(end={"exitCode": "0", "exited": True, "status": "x" * 5000, "error": "y" * 5000}), OVER)):
        liar.liar.lie = lies(lie)
        for call in STREAMS:
            assert getattr(calls, call)().status in range(200, 600)


def entries(name, n, piece=b"{}"):
    return answer(b'{"%s":[' % name + b",".join([piece] * n) + b"]}")


# Of a list, or an answer in one piece.
LIST = {
    "no JSON": answer(b"{"), "a number": answer(b"7"), "a list": answer(b"[]"), "nested": answer(b"[" * 60000), "nothing of it": answer(b"{}"),
    "another field": answer(b'{"entries":7,"processes":7,"entry":7}'), "entries that are none": answer(b'{"entries":[7],"entry":[7],"processes":[[]]}'),
    "an entry without a name": answer(b'{"entries":[{}],"entry":{}}'), "more after it": answer(b'{"entries":[]}x'),
    "cut": answer(b'{"entries":[{"name":"f","path":"/f"},'), "not UTF-8": answer(b'{"entries":[{"name":"\xff","path":"/f"}],"entry":{"name":"\xff","path":"x"}}'),
}


@pytest.mark.parametrize("name", LIST)
def test_a_list_that_is_none(liar, name):
    liar.liar.lie = lies(LIST[name])
    calls = Calls(liar)
    for call in ("list", "info"):
        reply = getattr(calls, call)()
        assert is_error(reply), (call, reply.status, reply.body[:300])
    for call in ("terminals", "contexts"):
        assert getattr(calls, call)().status in (200, 500, 503)


# More values than such a length may have, or deeper than an answer may be: what they stand beside is not believed.
BURDENS = {"dense": [0] * 24000, "deep": json.loads("[" * 40 + "]" * 40)}


def with_burden(burden, **said):
    return json.dumps(said | ({"x": BURDENS[burden]} if burden else {}), separators=(",", ":")).encode()


# Of a list of terminals and of contexts an error has no words of the agent.
@pytest.mark.parametrize("call", [*STREAMS, "list", "info", "download", "folder", "remove", "env", "tool_read", "tool_edit", "tool_list", "tool_write"])
def test_the_words_of_a_refusal_are_read_within_bounds(liar, call):
    status = 400 if call == "env" else 500
    for burden in (None, *BURDENS):
        liar.liar.lie = lies(answer(with_burden(burden, code="internal", message="words of the agent"), status))
        reply = getattr(Calls(liar), call)()
        assert is_error(reply) and (b"words of the agent" in reply.body) == (not burden), (burden, reply.body[:300])


@pytest.mark.parametrize("call", ["info", "remove", "tool_read", "context", "execute"])
def test_an_answer_is_read_within_bounds(liar, call):
    for burden in (None, *BURDENS):
        text = with_burden(burden, entry=ENTRY, cwd="/made/up")
        began = stream(START, *(out((text + b"\n")[i:i + 30000]) for i in range(0, len(text) + 1, 30000)), END, OVER)
        ran = stream(START, envelope(with_burden(burden, event={"data": {"stdout": "YQ=="}})), END, OVER)
        by_path = {"/filesystem.Filesystem/Stat": answer(text), "/files": answer(HONEST), "/filesystem.Filesystem/Remove": answer(b"{}"),
                   "/process.Process/List": answer(b'{"processes":[]}'), "/process.Process/Start": ran if call == "execute" else began}
        liar.liar.lie = lambda connection, path, by=by_path: connection.sendall(by.get(path, b""))
        reply = getattr(Calls(liar), call)()
        assert is_error(reply) == bool(burden), (burden, reply.status, reply.body[:300])


def cayd_of(own_server):
    for one in pathlib.Path("/proc").iterdir():
        if one.name.isdigit():
            try:
                words = (one / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if words[0].endswith(b"/cayd") and str(own_server.run).encode() in b" ".join(words):
                return int(one.name)
    raise AssertionError("no cayd")


def held(pid, field="VmHWM"):
    return next(int(line.split()[1]) for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith(field)) // 1024


def test_lists_of_nothing_take_no_memory(liar, own_server, other):
    """Each entry is three bytes of the answer, and would be hundreds as JSON."""
    need_plain_build()
    calls, cayd = Calls(liar), cayd_of(own_server)
    lists = {"/filesystem.Filesystem/ListDir": entries(b"entries", 8 * MIB), "/process.Process/List": entries(b"processes", 2 * MIB)}
    liar.liar.lie = lambda connection, path: connection.sendall(lists[path])
    pathlib.Path(f"/proc/{cayd}/clear_refs").write_text("5")  # the peak counts anew
    before = held(cayd)
    for call in ("list", "terminals", "contexts"):
        reply = getattr(calls, call)()
        assert is_error(reply), (call, reply.status, reply.body[:300])
    # 25 MiB are held as text, a copy of which may be made.
    assert held(cayd) - before < 120, (before, held(cayd))
    assert other.run("echo here").out == "here\n"


def test_a_long_message_is_refused_at_its_head(liar, own_server, other):
    """The rest never comes: the call ends all the same, and cayd has closed its end before the liar has."""
    closed, calls = threading.Semaphore(0), Calls(liar)

    def lie(connection, _):
        connection.settimeout(CALL_SECONDS)
        try:
            connection.sendall(stream(START, b"\0\0\x0f\xff\xff" + b" " * 70000, end=False))
            while connection.recv(65536):
                pass
        except ConnectionError:
            pass
        closed.release()

    liar.liar.lie = lie
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        asked = [pool.submit(getattr(calls, STREAMS[i % 2])) for i in range(16)]
        assert other.run("echo here").out == "here\n"
        for one in asked:
            reply = one.result()
            # A command's own time is over after a second: the refusal comes before the 15 s that an agent has beyond that.
            assert is_error(reply) and reply.status not in (408, 504), (reply.status, reply.body)
    assert all(closed.acquire(timeout=CALL_SECONDS) for _ in asked)


def test_an_agent_that_goes_on_for_ever(new_liar, other):
    """It shows that it lives, and never ends; or says nothing; or a byte now and then. Programs end when their time is over."""
    over = threading.Event()

    def beats(connection, _):
        connection.sendall(stream(START, end=False))
        while not over.wait(0.2):
            connection.sendall(chunk(event(keepalive={})))

    def drips(connection, _):
        connection.sendall(head(kind="application/connect+json"))
        for byte in START + out(b"x" * 10000):
            if over.wait(0.2):
                return
            connection.sendall(chunk(bytes([byte])))

    def pours(connection, _):
        connection.sendall(stream(START, end=False))
        while not over.wait(0.01):
            connection.sendall(chunk(out(b"y" * 20000)))

    def rests(connection, _):
        connection.sendall(stream(START, end=False))
        over.wait()

    all_lies = (beats, drips, pours, rests)
    try:
        with concurrent.futures.ThreadPoolExecutor(len(all_lies) * len(SHORT)) as pool:
            asked = []
            for lie in all_lies:
                box = new_liar()
                box.liar.lie = lie
                asked += [(lie.__name__, call, pool.submit(getattr(Calls(box), call))) for call in SHORT]
            assert other.run("echo here").out == "here\n"
            for lie, call, one in asked:
                reply = one.result()
                timed_out = call == "exec" and reply.status == 200 and reply.json["timed_out"]
                assert timed_out or is_error(reply), (lie, call, reply.status, reply.body[:300])
    finally:
        over.set()


def test_an_agent_that_does_not_answer(liar, other):
    over = threading.Event()
    liar.liar.lie = lambda *_: over.wait()
    calls = Calls(liar)
    quick = (*SHORT, "terminals", "contexts", "info", "download")
    try:
        with concurrent.futures.ThreadPoolExecutor(len(quick)) as pool:
            asked = {call: pool.submit(getattr(calls, call)) for call in quick}
            assert other.run("echo here").out == "here\n"
            for call, one in asked.items():
                reply = one.result()
                timed_out = call == "exec" and reply.status == 200 and reply.json["timed_out"]
                assert timed_out or is_error(reply), (call, reply.status, reply.body[:300])
    finally:
        over.set()
