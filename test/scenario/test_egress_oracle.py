"""A host that echoes guesses, and never the secret, must not tell a sandbox how much of a guess is right: not by what
is kept back of an answer, nor by the size of its pieces. The whole secret is the control: it is found there."""

import re

import pytest

from worldlib import API, inject, sandbox, seal, world_with_origin  # isort: skip: it makes the next ones found
from origins import MODEL, REAL_KEY
from test_egress_intercept import frame, tls_socket

STEP = 32768  # that is decompressed at a time


@pytest.fixture(scope="module")
def box():
    with world_with_origin("origins.py", "requests.log") as w:
        with sandbox(w, [seal(w, "KEY", REAL_KEY, kind="bearer")], inject("KEY")) as s:
            yield s


def head(path, more=""):
    return f"GET {path} HTTP/1.1\r\nHost: {API}:{MODEL}\r\n{more}\r\n".encode()


UPGRADE = ("Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
           "Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n")


def guesses():
    """Right ones of all lengths but the whole, each beside a wrong one that differs in its last character."""
    for n in range(1, len(REAL_KEY)):
        yield REAL_KEY[:n].encode(), REAL_KEY[:n - 1].encode() + b"~"


def test_websocket_keeps_no_guess(box):
    """Every echo is whole before the next message is sent, also where it is the beginning of the secret."""
    with tls_socket(box) as one, one.makefile("rb") as answers:
        one.sendall(head("/ws", UPGRADE))
        assert b"101" in b"".join(iter(answers.readline, b"\r\n"))
        for right, wrong in guesses():
            for text in (right, wrong):
                one.sendall(frame(text))
                assert answers.read(2 + len(text))[2:] == text
        one.sendall(frame(REAL_KEY.encode()))
        assert answers.read(2 + len(REAL_KEY))[2:].startswith(b"[redacted]")


def chunks_of(box, body):
    """The sizes of the chunks in which what the host has compressed arrives, and their contents."""
    with tls_socket(box) as one, one.makefile("rb") as f:
        one.sendall(b"PUT /file HTTP/1.1\r\nHost: %s:%d\r\nContent-Length: %d\r\n\r\n"
                    % (API.encode(), MODEL, len(body)) + body)
        said = b"".join(iter(f.readline, b"\r\n"))
        f.read(int(re.search(rb"(?i)content-length: (\d+)", said)[1]))
        one.sendall(head("/gz"))
        assert b"chunked" in b"".join(iter(f.readline, b"\r\n"))
        sizes, contents = [], b""
        while n := int(f.readline(), 16):
            sizes.append(n)
            contents += f.read(n)
            f.readline()
    return sizes, contents


def test_pieces_are_the_same(box):
    """Guesses stand where a step of decompression ends."""
    def seen(guess):
        body = b"~" * (STEP - len(guess)) + guess + b"~" * 100
        sizes, contents = chunks_of(box, body)
        assert contents == body
        return sizes

    pieces = {tuple(seen(guess)) for pair in list(guesses())[::4] for guess in pair}
    assert len(pieces) == 1, pieces
    _, contents = chunks_of(box, b"~" * (STEP - 9) + REAL_KEY.encode() + b"~" * 100)
    assert contents[STEP - 9:].startswith(b"[redacted]")
