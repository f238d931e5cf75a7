"""Clients that are huge, slow, greedy or gone. Each gets a clear answer or none, and meanwhile another
sandbox is served."""

import json
import os
import resource
import select
import socket
import struct
import time

import pytest

import leftovers
from waitlib import until

WHOLE = os.environ.get("CAY_BAD_WORLDS")  # `make bad-worlds`: all of it
MIB = 1 << 20


@pytest.fixture(autouse=True)
def the_rest_is_unharmed(server, sandbox, own_server):
    """After each: another sandbox still works, cayd is still the same process and holds nothing of it."""
    before = cayd(own_server)
    yield
    assert sandbox.run("echo unharmed").out == "unharmed\n"
    if before:
        assert cayd(own_server) == before, "cayd was started again"
        until(lambda: descriptors(before) <= 200, 20)


def cayd(own_server):
    found = leftovers.children(own_server.keep_pid, "cayd") if own_server else []
    return found[0] if found else None


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def resident_mib(pid):
    with open(f"/proc/{pid}/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmRSS:")) >> 10


class Raw:
    """A connection of which every byte is ours."""

    def __init__(self, client, timeout=30, receive_buffer=None):
        self.socket = socket.socket()
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(timeout)
        self.socket.connect((client.host, client.port))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, data):
        """False when the other side has had enough."""
        try:
            self.socket.sendall(data)
            return True
        except (ConnectionError, TimeoutError):
            return False

    def answer(self):
        """Status and all that came, until the end of the stream or of the first answer's body."""
        data = b""
        while True:
            head, found, body = data.partition(b"\r\n\r\n")
            length = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
            if found and length and len(body) >= int(length[0].split(b":")[1]):
                break
            try:
                piece = self.socket.recv(65536)
            except ConnectionError:
                break
            if not piece:
                break
            data += piece
        return int(data.split()[1]) if data else None, data


def head(path="/v2/sandboxes", method="POST", key="", *lines):
    return "".join([f"{method} {path} HTTP/1.1\r\nHost: a\r\nX-API-Key: {key}\r\n",
                    *(line + "\r\n" for line in lines)]).encode()


def says(answer, status, *texts):
    assert answer[0] == status, answer
    body = json.loads(answer[1].partition(b"\r\n\r\n")[2])
    assert body["message"] and all(text in body["message"] for text in texts), body


# -- heads ---------------------------------------------------------------------------------------------

@pytest.mark.parametrize("lines", [
    ["X-Big: " + "a" * MIB], ["X-Many: 1"] * 100000, ["X" * MIB + ": 1"], ["Cookie: a=b; " * 100000]])
def test_a_huge_head(cay, lines):
    with Raw(cay) as c:
        c.send(head("/v2/sandboxes", "GET", cay.key, *lines) + b"\r\n")
        says(c.answer(), 431, "too large")


def test_many_small_headers(cay):
    """Within the bytes of a head, but more lines than it may have."""
    with Raw(cay) as c:
        c.send(head("/v2/sandboxes", "GET", cay.key, *(f"a{n}:1" for n in range(1000))) + b"\r\n")
        assert c.answer()[0] in (400, 431)


def test_a_huge_target(cay):
    with Raw(cay) as c:
        c.send(head("/" + "a" * MIB, "GET") + b"\r\n")
        says(c.answer(), 431)


def test_heads_that_never_end(cay, sandbox, own_server):
    """Slowloris: a byte now and then. All others are served; cayd holds a head's bytes for each, no more."""
    slow = [Raw(cay) for _ in range(400)]
    try:
        for c in slow:
            c.send(b"GET /v2/sandboxes HTTP/1.1\r\nHost: a\r\nX-Slow: ")
        for _ in range(20):
            for c in slow:
                c.send(b"a")
            assert cay.call("GET", "/v2/sandboxes").status == 200
        assert sandbox.run("echo still").out == "still\n"
        if WHOLE:  # a head has 15 seconds, however it dribbles
            end = time.monotonic() + 40
            while time.monotonic() < end and not select.select([slow[0].socket], [], [], 0.5)[0]:
                slow[0].send(b"a")
            says(slow[0].answer(), 408, "in time")
    finally:
        for c in slow:
            c.socket.close()


# -- bodies ----------------------------------------------------------------------------------------------

def test_a_body_of_100_mib(cay, own_server):
    """Refused by its announced length, without being read; and when it is not announced, once it is too long."""
    with Raw(cay) as c:
        c.send(head("/v2/sandboxes", "POST", cay.key, f"Content-Length: {100 * MIB}") + b"\r\n")
        says(c.answer(), 413, "larger than")
    with Raw(cay) as c:
        c.send(head("/v2/sandboxes", "POST", cay.key, "Transfer-Encoding: chunked") + b"\r\n")
        piece = b"100000\r\n" + b'"' * MIB + b"\r\n"
        for _ in range(100):
            if not c.send(piece):
                break
        says(c.answer(), 413, "larger than")


@pytest.mark.parametrize("opening, closing", [(b"[", b"]"), (b'{"a":', b"}")])
def test_json_as_deep_as_it_gets(cay, sandbox, opening, closing):
    body = opening * 100000 + b"1" + closing * 100000
    reply = cay.call("POST", "/v2/sandboxes", body, {"Content-Type": "application/json"})
    assert reply.status == 400 and reply.json["message"]
    reply = sandbox.request("POST", "/process.Process/List", body, {"Content-Type": "application/json"})
    assert reply.status in (400, 429), reply.body


def test_chunks_of_one_byte(cay):
    body = json.dumps({"templateID": "no-such", "metadata": {"a": "x" * 50000}}).encode()
    with Raw(cay) as c:
        c.send(head("/v2/sandboxes", "POST", cay.key, "Transfer-Encoding: chunked") + b"\r\n")
        c.send(b"".join(b"1\r\n" + bytes([b]) + b"\r\n" for b in body) + b"0\r\n\r\n")
        says(c.answer(), 404, "no-such")


@pytest.mark.parametrize("endless", [b"1;" + b"a=b;" * 300000, b"1" * MIB, b"0\r\n" + b"X-T: a\r\n" * 200000,
                                     b"-1\r\n", b"\r\n" * 100000])
def test_chunks_that_are_none(cay, endless):
    with Raw(cay) as c:
        c.send(head("/v2/sandboxes", "POST", cay.key, "Transfer-Encoding: chunked") + b"\r\n")
        c.send(endless)
        status, _ = c.answer()
        assert status in (400, 413, 431, None)


@pytest.mark.parametrize("key", ["", "e2b_" + "0" * 40])
def test_bodies_without_a_key_hold_nothing(cay, own_server, key):
    """257 clients without a key held the room for bodies of all: each is told so before its body is read."""
    clients = []
    try:
        for _ in range(300):
            c = Raw(cay, timeout=20)
            clients.append(c)
            c.send(head("/v2/sandboxes", "POST", key, f"Content-Length: {MIB}") + b"\r\n" + b"x" * (MIB // 8))
        reply = cay.call("POST", "/v2/sandboxes", b"[" + b" " * (MIB - 100) + b"]", {"Content-Type": "application/json"})
        assert reply.status == 400, reply  # it was read
        assert {c.answer()[0] for c in clients} == {401}
    finally:
        for c in clients:
            c.socket.close()


def test_many_bodies_at_once(cay, own_server):
    """A tenant's bodies take its share of the memory; requests beyond are told so, and another tenant's are read."""
    if not own_server:
        pytest.skip("the memory of the tests' own server is looked at")
    other = cay.call("POST", "/cay/v1/keys", {"tenant": "others", "label": "bodies"}).json["key"]
    pid = cayd(own_server)
    before, clients = resident_mib(pid), []
    try:
        for _ in range(500):
            c = Raw(cay, timeout=5)
            clients.append(c)
            c.send(head("/v2/sandboxes", "POST", cay.key, f"Content-Length: {MIB}") + b"\r\n" + b"x" * (MIB - 1))
        poll = select.poll()
        for c in clients:
            poll.register(c.socket, select.POLLIN)
        answered = [fd for fd, _ in poll.poll(20000)]
        assert answered
        says(next(c for c in clients if c.socket.fileno() == answered[0]).answer(), 503, "try again")
        with Raw(cay) as c:
            body = b"[" + b" " * (MIB - 100) + b"]"
            c.send(head("/v2/sandboxes", "POST", other, f"Content-Length: {len(body)}") + b"\r\n" + body)
            assert c.answer()[0] == 400
        assert resident_mib(pid) - before < 700  # 192 MiB of bodies, in buffers that grow by doubling
    finally:
        for c in clients:
            c.socket.close()


def test_a_body_that_stops(cay, sandbox):
    """The first half of an upload into a sandbox, and then nothing: others go on, and the file is no problem."""
    held = []
    for n in range(50):
        c = Raw(cay)
        lines = [f"{k}: {v}" for k, v in sandbox.headers().items()]
        c.send(head(f"/files?path=/tmp/half{n}", "POST", "", *lines, "Content-Type: application/octet-stream",
                    f"Content-Length: {MIB}") + b"\r\n" + b"x" * (MIB // 2))
        held.append(c)
    assert sandbox.run("echo meanwhile").out == "meanwhile\n"
    assert sandbox.write("/tmp/whole", b"y" * MIB).status == 200
    for c in held:
        c.socket.close()
    assert sandbox.run("stat -c %s /tmp/whole").out == f"{MIB}\n"


# -- readers -----------------------------------------------------------------------------------------------

def test_clients_that_never_read(cay, sandbox, own_server):
    """100 MiB are asked for and not taken, thirty times. Nothing of it heaps up in cayd or in the agent."""
    sandbox.run("truncate -s 100M /tmp/big")
    pid = cayd(own_server)
    before, held = resident_mib(pid) if pid else 0, []
    try:
        for _ in range(30):
            c = Raw(cay, receive_buffer=4096)
            lines = [f"{k}: {v}" for k, v in sandbox.headers().items()]
            c.send(head("/files?path=/tmp/big", "GET", "", *lines) + b"\r\n")
            held.append(c)
        for _ in range(10):
            assert sandbox.run("echo meanwhile").out == "meanwhile\n"
        whole = sandbox.read("/tmp/big")
        assert whole.status == 200 and len(whole.body) == 100 * MIB
        if pid:
            assert resident_mib(pid) - before < 100
    finally:
        for c in held:
            c.socket.close()


def test_a_flood_of_pipelined_requests(cay, sandbox):
    """Each is answered in its turn; unread ones are not answered ahead."""
    count = 5000
    with Raw(cay, timeout=60) as c:
        one = b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n"
        c.socket.setblocking(False)
        data, answers, sent = one * count, b"", 0
        assert sandbox.run("echo meanwhile").out == "meanwhile\n"
        while answers.count(b"HTTP/1.1 200 OK") < count:
            reads, writes, _ = select.select([c.socket], [c.socket] if sent < len(data) else [], [], 30)
            assert reads or writes, (sent, answers.count(b"HTTP/1.1"))
            if reads:
                piece = c.socket.recv(65536)
                assert piece, "cut off"
                answers += piece
            if writes:
                sent += c.socket.send(data[sent:sent + 65536])


# -- streams ---------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("length", [0xFFFFFFFF, 0x7FFFFFFF, 100 * MIB])
def test_a_giant_envelope(cay, sandbox, length):
    body = struct.pack(">BI", 0, length) + b"{}" * 1000
    sent = {"Content-Type": "application/connect+json", "Connect-Protocol-Version": "1"}
    reply = sandbox.request("POST", "/process.Process/Start", body, sent)
    assert reply.status in (200, 400, 413, 429)
    assert b"invalid_argument" in reply.body or b"resource_exhausted" in reply.body, reply.body


def test_upgrades_that_stop(cay, sandbox):
    """Half a WebSocket to a closed port of the sandbox, and to the server itself."""
    held = []
    try:
        for n in range(50):
            c = Raw(cay)
            lines = [f"{k}: {v}" for k, v in sandbox.headers(port=5999).items()] if n % 2 else []
            c.send(head("/ws", "GET", "", *lines, "Connection: Upgrade", "Upgrade: websocket",
                        "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==") + b"\r\n")
            assert c.answer()[0] in (404, 502, 401)
            held.append(c)
        assert sandbox.run("echo meanwhile").out == "meanwhile\n"
    finally:
        for c in held:
            c.socket.close()


# -- many -------------------------------------------------------------------------------------------------------

def test_10000_connections(cay, sandbox, own_server):
    """More than the server may have. All that ask are served: those that are idle longest make room."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 12000:
        pytest.skip(f"the test may open {hard} files only (RLIMIT_NOFILE)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    held = []
    try:
        for n in range(10000):
            s = socket.socket()
            s.settimeout(30)
            s.connect((cay.host, cay.port))
            held.append(s)
            if n % 1000 == 999:  # they all came within a moment: none is idle yet
                assert cay.call("GET", "/v2/sandboxes").status in (200, 503)
        time.sleep(1.2)  # idle is who has been so for a second
        for _ in range(20):
            assert cay.call("GET", "/v2/sandboxes").status == 200
            assert sandbox.run("echo meanwhile").out == "meanwhile\n"
        poll = select.poll()
        for s in held:
            poll.register(s, select.POLLIN)
        told = {fd for fd, _ in poll.poll(0)}  # 503, or closed to make room
        kept = [s for s in held if s.fileno() not in told]
        assert told and kept
        kept[-1].sendall(b"GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        assert kept[-1].recv(100).startswith(b"HTTP/1.1 200")
        if own_server:
            assert descriptors(cayd(own_server)) < hard
            assert "as many connections as may be" in own_server.log.read_text()
    finally:
        for s in held:
            s.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_connections_that_are_reset(cay):
    """A thousand times half a request and a reset."""
    for _ in range(1000):
        with Raw(cay) as c:
            c.send(b"POST /v2/sandboxes HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n{")
            c.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    assert cay.call("GET", "/v2/sandboxes").status == 200
