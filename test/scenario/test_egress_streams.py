"""A peer's acts on the stream itself, below and around HTTP, where cay-egress reads TLS: ends without a word,
trailers. The servers here say byte by byte what they say; they are threads whose listener is in the stand-in
internet's namespace."""

import contextlib
import fcntl
import http.server
import socket
import socketserver
import ssl
import struct
import termios
import threading

import pytest

from waitlib import until
from worldlib import API, ZONE, inject, make_certificates, make_world, sandbox, seal  # isort: skip: it makes the next ones found
import internet  # isort: skip

PORT = 9543
RULED = [{"action": "allow", "domains": [API], "paths": ["/*"]}]  # requests are read
NAMED = [{"action": "allow", "domains": [API]}]  # connections pass as they are


@pytest.fixture(scope="module")
def world():
    w = make_world(ZONE)
    (w.dir / "servers").mkdir()
    make_certificates(w, w.dir / "servers")
    yield w
    w.close()


@contextlib.contextmanager
def server(world, work, plain=False):
    """A server that calls work(connection) for each connection, over TLS or not, and ends it as it is left."""
    listener = internet.inside(world.net, lambda: socket.create_server((internet.WEB, PORT)))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(world.dir / "servers/good.pem", world.dir / "servers/good.key")

    def one(connection):
        with contextlib.suppress(OSError), (connection if plain else
                                            context.wrap_socket(connection, server_side=True)) as c:
            c.settimeout(30)
            work(c)

    def serve():
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=one, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def read_head(connection):
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(65536) or pytest.fail(f"ended after {data}")
    return data


def client(world, s, ruled, plain=False):
    """A connection from inside that tells an end without a word from one that was announced."""
    if plain:
        return s.connect(s.resolve(API)[1][0], PORT)
    context = ssl.create_default_context(cafile=str(s.ca if ruled else world.ca))
    context.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF
    c = context.wrap_socket(s.connect(s.resolve(API)[1][0], PORT), server_hostname=API, suppress_ragged_eofs=False)
    c.settimeout(30)
    return c


def read_to_end(connection):
    """The bytes that came, and how it ended: "whole", or "lost"."""
    data = b""
    try:
        while piece := connection.recv(65536):
            data += piece
    except (ssl.SSLError, ConnectionError):
        return data, "lost"
    return data, "whole"


# -- ends --------------------------------------------------------------------------------------------


def say_and_end(connection, has_read):
    how = read_head(connection).split()[1].decode().strip("/")
    connection.sendall(b"HTTP/1.1 200 OK\r\n\r\npart")
    if how == "announced":
        connection.unwrap()
    elif how == "reset":
        has_read.wait(30)  # a reset takes nothing with it then
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@pytest.mark.parametrize("ruled", [False, True], ids=["passed", "read"])
def test_an_end_without_a_word_is_no_whole_answer(world, ruled):
    """Of an answer without a length: the client sees what it sees where nothing is in between."""
    has_read = threading.Event()
    with server(world, lambda c: say_and_end(c, has_read)), sandbox(world, [], [], RULED if ruled else NAMED) as s:
        for how, end in ("announced", "whole"), ("silent", "lost"), ("reset", "lost"):
            with client(world, s, ruled) as c:
                c.sendall(f"GET /{how} HTTP/1.1\r\nHost: {API}:{PORT}\r\n\r\n".encode())
                got = b""
                while not got.endswith(b"part"):
                    got += c.recv(65536) or pytest.fail(f"ended after {got}")
                if how == "reset":
                    has_read.set()
                assert read_to_end(c) == (b"", end), how
        failed = [r["path"] for r in world.audit() if r["sandbox"] == f"sandbox{s.slot}" and r.get("outcome") == "failed"]
        assert failed == (["/silent", "/reset"] if ruled else [])


@pytest.mark.parametrize("plain", [False, True], ids=["tls", "plain"])
@pytest.mark.parametrize("ruled", [False, True], ids=["passed", "read"])
def test_a_cut_is_no_whole_answer(world, ruled, plain):
    """By a change of the policy, in an answer without a length. The control: the server's own end."""
    def work(connection):
        path = read_head(connection).split()[1]
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\npart")
        if path == b"/cut":
            connection.recv(1)  # until it is over
        elif not plain:
            connection.unwrap()

    rules = RULED if ruled else NAMED
    with server(world, work, plain), sandbox(world, [], [], rules) as s:
        for path, end in ("/whole", "whole"), ("/cut", "lost"):
            with client(world, s, ruled, plain) as c:
                c.sendall(f"GET {path} HTTP/1.1\r\nHost: {API}:{PORT}\r\n\r\n".encode())
                got = b""
                while not got.endswith(b"part"):
                    got += c.recv(65536) or pytest.fail(f"ended after {got}")
                if path == "/cut":
                    assert world.put(s, {"rules": [{"action": "deny", "domains": [API]}]})[0] == 204
                assert read_to_end(c) == (b"", end)


# -- answers that two parsers read differently ---------------------------------------------------------

HIDDEN = b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nsmuggled"
OK, CHUNKED, IN_CHUNKS = b"HTTP/1.1 200 OK\r\n", b"Transfer-Encoding: chunked\r\n", b"0\r\n\r\n" + HIDDEN
ANSWERS = {
    "length and chunks": OK + b"Content-Length: 5\r\n" + CHUNKED + b"\r\n" + IN_CHUNKS,
    "chunks and length": OK + CHUNKED + b"Content-Length: 500\r\n\r\n" + IN_CHUNKS,
    "two lengths": OK + b"Content-Length: 0\r\nContent-Length: 5\r\n\r\n" + HIDDEN,
    "a list of lengths": OK + b"Content-Length: 0, 5\r\n\r\n" + HIDDEN,
    "signed length": OK + b"Content-Length: +0\r\n\r\n" + HIDDEN,
    "negative length": OK + b"Content-Length: -1\r\n\r\n" + HIDDEN,
    "a length with a unit": OK + b"Content-Length: 0x0\r\n\r\n" + HIDDEN,
    "chunked twice": OK + CHUNKED + CHUNKED + b"\r\n" + IN_CHUNKS,
    "chunked and another": OK + b"Transfer-Encoding: chunked, identity\r\n\r\n" + IN_CHUNKS,
    "chunked misspelled": OK + b"Transfer-Encoding: xchunked\r\n\r\n" + IN_CHUNKS,
    "space before colon": OK + b"Content-Length : 0\r\n\r\n" + HIDDEN,
    "lone LF": b"HTTP/1.1 200 OK\nContent-Length: 0\n\n" + HIDDEN,
    "LF in a value": OK + b"X: y\nContent-Length: 0\r\n\r\n" + HIDDEN,
    "folded": OK + b"X: y\r\n Content-Length: 0\r\n\r\n" + HIDDEN,
    "NUL": OK + b"X: y\0z\r\nContent-Length: 0\r\n\r\n" + HIDDEN,
    "chunks in 1.0": b"HTTP/1.0 200 OK\r\n" + CHUNKED + b"\r\n" + IN_CHUNKS,
    "a change of protocol that was not asked for": b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n"
                                                   b"Upgrade: websocket\r\n\r\n" + HIDDEN,
    "interim answers without end": b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" * 500 + HIDDEN,
}


def answered_with(world, s, ruled, answer):
    """All that comes to a client of a server that answers so and ends."""
    def work(connection):
        read_head(connection)
        connection.sendall(answer)
        connection.unwrap()

    with server(world, work), client(world, s, ruled) as c:
        c.sendall(f"GET / HTTP/1.1\r\nHost: {API}:{PORT}\r\nConnection: close\r\n\r\n".encode())
        return read_to_end(c)[0]


@pytest.mark.parametrize("searched", [False, True], ids=["read", "searched"])
def test_an_answer_has_one_meaning(world, searched):
    """None of what a client could take for a second answer comes, or the first comes with another end. The controls: a server
    that is not read says all of it to the client; a plain answer passes."""
    keys = [seal(world, "key", "sk-of-these-answers", kind="bearer")] if searched else []
    with sandbox(world, keys, inject("key") if searched else [], RULED) as s:
        for name, answer in ANSWERS.items():
            got = answered_with(world, s, True, answer)
            assert b"HTTP/1.1 502 " in got and b"smuggled" not in got, (name, got)
        assert answered_with(world, s, True, HIDDEN).endswith(b"\r\n\r\nsmuggled")
    if not searched:
        with sandbox(world, [], [], NAMED) as s:
            assert {name: answered_with(world, s, False, answer) for name, answer in ANSWERS.items()} == ANSWERS


def say_part_and_go(connection, how, gone):
    read_head(connection)
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    for _ in range(20):
        connection.sendall(b"x" * 3000)
    if how == "reset":
        until(lambda: fcntl.ioctl(connection, termios.TIOCOUTQ, b"\0" * 4) == b"\0" * 4)  # a reset takes nothing with it then
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
    gone.set()


@pytest.mark.parametrize("how", ["ends", "reset"])
@pytest.mark.parametrize("ruled, plain", [(False, False), (True, False), (True, True)], ids=["passed", "read", "plain"])
def test_what_came_before_a_break_is_taken(world, ruled, plain, how):
    """By a client that reads nothing until the server has gone, and whose kernel takes little."""
    gone = threading.Event()
    with server(world, lambda c: say_part_and_go(c, how, gone), plain), \
            sandbox(world, [], [], RULED if ruled else NAMED) as s, client(world, s, ruled, plain) as c:
        c.settimeout(60)
        c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        c.sendall(f"GET /x HTTP/1.1\r\nHost: {API}:{PORT}\r\n\r\n".encode())
        assert gone.wait(30)
        assert s.curl(f"http://{API}/").returncode == 0  # by now cay-egress has met its end
        got, end = read_to_end(c)
    assert got.endswith(b"\r\n\r\n" + b"x" * 60000) and end == "lost", (len(got), got[:200])


# -- bodies that a server leaves unread --------------------------------------------------------------


@pytest.mark.parametrize("kept", [False, True], ids=["decided", "control"])
@pytest.mark.parametrize("method", ["GET", "HEAD", "DELETE"])
def test_a_body_is_no_second_request(world, method, kept):
    """A server that answers without reading a body takes it for the next request of a kept connection: one that the rules deny.
    The control: where no rule decides by path, it does."""
    served = []

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            served.append(self.path)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_HEAD = do_DELETE = do_GET

        def log_message(self, *_):
            pass

    class Server(socketserver.ThreadingTCPServer):
        allow_reuse_address = daemon_threads = True

    rules = NAMED if kept else [{"action": "allow", "domains": [API], "paths": ["/fine*"]}]
    host = f"Host: {API}:{PORT}\r\n"
    hidden = f"GET /hidden HTTP/1.1\r\n{host}\r\n"
    with contextlib.ExitStack() as s:
        web = s.enter_context(internet.inside(world.net, lambda: Server((internet.WEB, PORT), Handler)))
        threading.Thread(target=web.serve_forever, daemon=True).start()
        s.callback(web.shutdown)
        box = s.enter_context(sandbox(world, [], [], rules))
        c = s.enter_context(client(world, box, False, True))
        c.settimeout(30)
        c.sendall(f"{method} /fine/1 HTTP/1.1\r\n{host}Content-Length: {len(hidden)}\r\n\r\n{hidden}".encode())
        assert read_head(c).startswith(b"HTTP/1.1 200")
        if kept:
            until(lambda: len(served) == 2)
        with client(world, box, False, True) as next_one:  # goes on where the server was left
            next_one.settimeout(30)
            next_one.sendall(f"GET /fine/2 HTTP/1.1\r\n{host}\r\n".encode())
            assert read_head(next_one).startswith(b"HTTP/1.1 200")
        if not kept:
            c.sendall(f"GET /fine/3 HTTP/1.1\r\n{host}\r\n".encode())
            assert read_head(c).startswith(b"HTTP/1.1 200")
    assert served == (["/fine/1", "/hidden", "/fine/2"] if kept else ["/fine/1", "/fine/2", "/fine/3"])


# -- trailers ----------------------------------------------------------------------------------------

TRAILERS = b"X-HTTP-Method-Override: DELETE\r\nX-Original-URL: /admin\r\nAuthorization: Bearer own\r\nCookie: own\r\n" \
           b"X-Note: cay-secret:GIVEN\r\n"


@pytest.mark.parametrize("ruled, given, plain", [(False, False, False), (False, False, True), (False, True, True), (True, False, False)],
                         ids=["passed", "plain", "with-a-credential", "read"])
def test_trailers_say_nothing_that_a_rule_decides(world, ruled, given, plain):
    """There are servers that take a request's trailers for headers: behind the rules, and behind the credential. Where neither is,
    they go on, and a placeholder as the text that it is."""
    seen, given = [], [seal(world, "GIVEN", "secret-of-another-host", kind="placeholder")] if given else []

    def work(connection):
        data = read_head(connection)
        while not data.endswith(b"\r\n\r\n") or b"\r\n0\r\n" not in data:
            data += connection.recv(65536) or pytest.fail(f"ended after {data}")
        seen.append(data.partition(b"\r\n\r\n")[2])
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    with server(world, work, plain), sandbox(world, given, [], RULED if ruled else NAMED) as s, client(world, s, ruled, plain) as c:
        c.sendall(f"POST / HTTP/1.1\r\nHost: {API}:{PORT}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
                  + b"5\r\nhello\r\n0\r\n" + TRAILERS + b"\r\n")
        assert read_head(c).endswith(b"\r\n\r\nok")
    assert seen == [b"5\r\nhello\r\n0\r\n" + (b"" if ruled or given else TRAILERS) + b"\r\n"]
