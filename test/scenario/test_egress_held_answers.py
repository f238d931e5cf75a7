"""Answers that are searched for secrets, and whose clients take nothing: the memory that a sandbox can make cay-egress hold by them.

With a long secret and an answer of chunks of one byte the bytes kept back take up to a MiB, their marks as much, and bytes that
have gone on wait behind them. Without places for it (src/egress/http/held_answer.h) 300 connections held 494 MiB. The controls:
those within the share go on, and those beyond it ended for that reason."""

import contextlib
import pathlib
import time

import pytest

from worldlib import API, inject, seal, world_with_origin  # isort: skip: it makes the next one found
from origins import PLAIN, REAL_KEY
from waitlib import until

CONNECTIONS = 300
LONG_KEY = "".join(f"{i:08x}" for i in range(1024))  # CREDENTIAL_VALUE_MAX
POOL = 256 << 20  # HELD_ANSWER_PLACES * HELD_ANSWER_PLACE_BYTES
EACH = 320 << 10  # of a connection, outside of the pool: HELD_ANSWER_FREE_BYTES, FORWARD_HIGH_BYTES and a read
REASON = "take all the memory that they may"
QUIET_S, WAIT_S = 2, 60


@pytest.fixture(scope="module")
def world():
    with world_with_origin("origins.py", "requests.log") as w:
        yield w


def make(world, tenant, key):
    sealed = seal(world, "KEY", key, tenant=tenant, kind="placeholder", insecure=True)
    return world.sandbox({"default": "allow", "inject": inject("KEY")}, tenant=tenant, credentials=[sealed])


def ask(sandbox, address, path):
    c = sandbox.connect(address, PLAIN)
    c.sendall(f"GET {path} HTTP/1.1\r\nHost: {API}:{PLAIN}\r\nAuthorization: Bearer cay-secret:KEY\r\n\r\n".encode())
    return c


def held(world):
    """Bytes of the program's own, when they do not become more."""
    status = pathlib.Path(f"/proc/{world.egress.pid}/status")
    most, since, begun = 0, time.monotonic(), time.monotonic()
    while time.monotonic() - since < QUIET_S and time.monotonic() - begun < WAIT_S:
        now = int(next(line.split()[1] for line in status.read_text().splitlines() if line.startswith("RssAnon:"))) << 10
        if now > most + (1 << 20):
            most, since = now, time.monotonic()
        time.sleep(0.05)
    return most


def within_share(world, before):
    grown = held(world) - before
    assert grown < POOL // 3 + CONNECTIONS * EACH, f"{grown >> 20} MiB are held of {CONNECTIONS} answers"


def ended(world):
    return {line["flow"] for line in world.audit("limit=2000") if REASON in line.get("reason", "")}


def test_a_sandbox_has_its_share_of_what_is_held_of_answers(world):
    loud, quiet = make(world, "tenant1", LONG_KEY), make(world, "tenant2", REAL_KEY)
    address = loud.resolve(API)[1][0]
    before = held(world)
    with contextlib.ExitStack() as open_ones:
        for _ in range(CONNECTIONS):
            open_ones.enter_context(ask(loud, address, "/tiny"))
        within_share(world, before)
        until(lambda: ended(world), WAIT_S, "some have ended")
        within_share(world, before)
        assert len(ended(world)) < CONNECTIONS
        # Another tenant's is searched as ever, and the same one's again when its places are free.
        with ask(quiet, quiet.resolve(API)[1][0], "/echo") as c:
            text = b""
            while not text.endswith(b"}"):
                text += c.recv(1 << 16)
            assert b"200 " in text.split(b"\r\n", 1)[0] and b"redacted" in text and REAL_KEY.encode() not in text
    with ask(loud, address, "/tiny") as c:
        c.settimeout(WAIT_S)
        taken = 0
        while taken < 4 << 20:
            piece = c.recv(1 << 16)
            assert piece, "ended"
            taken += len(piece)
    world.end(loud), world.end(quiet)
