"""Answers of HTTP/2 that are decompressed and searched, and whose clients take a byte of each: the memory that a sandbox can make
cay-egress hold by them.

A kilobyte of a server's is a MiB here, of which as much is kept back as the longest form of a secret may take. Windows bound what came,
and not what became of it: without places for that (src/egress/h2/h2_held.h) 800 streams held 363 MiB. The controls: the streams within
the share go on, those beyond it ended for that reason, and another tenant's answer is searched."""

import contextlib
import ssl

import pytest

pytest.importorskip("h2")
import h2.config  # noqa: E402
import h2.connection  # noqa: E402
import h2.events  # noqa: E402
import h2.settings  # noqa: E402

from waitlib import until  # noqa: E402
from worldlib import API, inject, seal, world_with_origin  # isort: skip: it makes the next ones found
from h2origin import H2, REAL_KEY  # noqa: E402
from test_egress_held_answers import LONG_KEY, POOL, REASON, WAIT_S, held  # noqa: E402

CONNECTIONS, STREAMS = 8, 100
EACH = 48 << 10  # of a stream, outside of the pool: what nghttp2 and its head take
ZIPPED_BYTES = 1 << 20


@pytest.fixture(scope="module")
def world():
    with world_with_origin("h2origin.py", "h2.log") as w:
        yield w


class Client:
    """A connection whose streams may be sent one byte each."""

    def __init__(self, world, sandbox, tenant, streams):
        status, pem = world.call("GET", f"/v1/ca/{tenant}")
        assert status == 200, pem
        context = ssl.create_default_context(cadata=pem)
        context.set_alpn_protocols(["h2"])
        self.socket = context.wrap_socket(sandbox.connect(sandbox.resolve(API)[1][0], H2), server_hostname=API)
        self.socket.settimeout(WAIT_S)
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
        self.h2.local_settings = h2.settings.Settings(initial_values={h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 1})
        self.h2.initiate_connection()
        self.bytes, self.ended, self.reset, self.text = {}, set(), set(), b""
        for stream in range(1, 2 * streams, 2):
            self.bytes[stream] = 0
            self.h2.send_headers(stream, [(":method", "GET"), (":scheme", "https"), (":authority", f"{API}:{H2}"),
                                          (":path", "/zipped" if streams > 1 else "/echo-gzip")], end_stream=True)
        self.flush()

    def flush(self):
        self.socket.sendall(self.h2.data_to_send())

    def read(self):
        data = self.socket.recv(1 << 16)
        assert data, "the connection has ended"
        for e in self.h2.receive_data(data):
            if isinstance(e, h2.events.DataReceived):
                self.bytes[e.stream_id] += len(e.data)
                self.text += e.data if len(self.text) < 1 << 16 else b""
            elif isinstance(e, h2.events.StreamReset):
                self.reset.add(e.stream_id)
            elif isinstance(e, h2.events.StreamEnded):
                self.ended.add(e.stream_id)
        self.flush()

    def begun(self):
        """Each stream has its byte, or was reset."""
        while any(n == 0 and s not in self.reset for s, n in self.bytes.items()):
            self.read()

    def take(self, stream, size):
        self.h2.increment_flow_control_window(2 * size)
        self.h2.increment_flow_control_window(2 * size, stream)
        self.flush()
        while stream not in self.ended:
            assert stream not in self.reset
            self.read()

    def close(self):
        self.socket.close()


def make(world, tenant, key):
    return world.sandbox({"default": "allow", "inject": inject("KEY")}, tenant=tenant,
                         credentials=[seal(world, "KEY", key, tenant=tenant, kind="bearer")])


def test_a_sandbox_has_its_share_of_what_is_decompressed(world):
    loud, quiet = make(world, "tenant1", LONG_KEY), make(world, "tenant2", REAL_KEY)
    before = held(world)
    with contextlib.ExitStack() as open_ones:
        clients = []
        for _ in range(CONNECTIONS):
            clients.append(open_ones.enter_context(contextlib.closing(Client(world, loud, "tenant1", STREAMS))))
            clients[-1].begun()
        grown = held(world) - before
        assert grown < POOL // 3 + CONNECTIONS * STREAMS * EACH, f"{grown >> 20} MiB are held of {CONNECTIONS * STREAMS} streams"
        reset = sum(len(c.reset) for c in clients)
        assert 0 < reset < CONNECTIONS * STREAMS
        until(lambda: any(REASON in line.get("reason", "") for line in world.audit("limit=2000")), WAIT_S, "the log says why")
        first = next(s for s in clients[0].bytes if s not in clients[0].reset)
        clients[0].take(first, ZIPPED_BYTES)
        assert clients[0].bytes[first] == ZIPPED_BYTES
        # Another tenant's is searched as ever, and the same one's again when its places are free.
        with contextlib.closing(Client(world, quiet, "tenant2", 1)) as c:
            c.take(1, 1 << 16)
            assert b"redacted" in c.text and REAL_KEY.encode() not in c.text
    with contextlib.closing(Client(world, loud, "tenant1", STREAMS)) as c:
        c.begun()
        assert not c.reset
    world.end(loud), world.end(quiet)
