"""Bodies of requests that are held whole, for their placeholders: the memory that a sandbox can make cay-egress hold by them.

A sandbox says how long a body's last byte takes. Without places for them (src/egress/http/held_body.h) each connection of it held
up to 2 MiB, of 1,024 connections: the control is that bodies up to the share are held, and that the one beyond is refused."""

import contextlib
import json
import select

import pytest

from worldlib import API, inject, seal, world_with_origin  # isort: skip: it makes the next one found
from origins import PLAIN, REAL_KEY

PLACES, PLACE_BYTES, BODY_MAX = 4096, 64 << 10, 1 << 20  # src/egress/http/held_body.h, rewrite.h
HELD = PLACES // 3 // (2 * BODY_MAX // PLACE_BYTES + 1)  # a third of the places is a sandbox's; chunks are held beside what is in them
MORE = 8
HERE = "cay-secret:KEY"


@pytest.fixture(scope="module")
def world():
    with world_with_origin("origins.py", "requests.log") as w:
        yield w


def make(world, tenant):
    key = seal(world, "KEY", REAL_KEY, tenant=tenant, kind="placeholder", bodies=True, insecure=True)
    return world.sandbox({"default": "allow", "inject": inject("KEY")}, tenant=tenant, credentials=[key])


def begin(sandbox, address):
    """A request whose body does not end."""
    c = sandbox.connect(address, PLAIN)
    c.sendall(f"POST /echo HTTP/1.1\r\nHost: {API}:{PLAIN}\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
              "5\r\n{\"k\":\r\n".encode())
    return c


def finish(c):
    c.settimeout(60)
    c.sendall(f"{len(HERE) + 3:x}\r\n\"{HERE}\"}}\r\n0\r\n\r\n".encode())
    return c.recv(1 << 16)


def test_a_sandbox_has_its_share_of_what_is_held(world):
    world.origin.seen()
    loud, quiet = make(world, "tenant1"), make(world, "tenant2")
    address = loud.resolve(API)[1][0]
    with contextlib.ExitStack() as open_ones:
        held = [open_ones.enter_context(begin(loud, address)) for _ in range(HELD + MORE)]
        refused = []
        while len(refused) < MORE:
            ready = select.select([c for c in held if c not in refused], [], [], 60)[0]
            assert ready, f"{len(refused)} of {len(held)} were refused"
            refused += ready
        for c in refused:
            text = c.recv(1 << 16).decode()
            assert text.startswith("HTTP/1.1 503 ") and "take all the memory that they may" in text
        # Another tenant's is held, and goes on with its key.
        with begin(quiet, quiet.resolve(API)[1][0]) as c:
            assert b"200 " in finish(c).split(b"\r\n", 1)[0]
        # Those that were not refused are whole.
        rest = [c for c in held if c not in refused]
        assert len(rest) == HELD
        assert b"200 " in finish(rest[0]).split(b"\r\n", 1)[0]
        assert [json.loads(line["body"]) for line in world.origin.seen()] == [{"k": REAL_KEY}] * 2
        # A place that was given back is there for the next.
        rest.pop(0).close()
        with begin(loud, address) as c:
            assert b"200 " in finish(c).split(b"\r\n", 1)[0]
    world.end(loud), world.end(quiet)
