"""Servers of HTTP/2 that demand credentials, for tests of interception, in the stand-in internet's namespace:

    python3 h2origin.py serve DIRECTORY      good.pem and good.key from there; requests to DIRECTORY/h2.log

Ports: H2 speaks HTTP/2 (the paths are Origin's methods), GRPC a service of gRPC. Every request that arrives is one
JSON line in the log. Needs h2 and grpclib."""

import asyncio
import gzip
import json
import pathlib
import random
import ssl
import sys

import grpclib.const
import grpclib.exceptions
import grpclib.server
import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions

from grpc_calls import GRPC, Raw

H2 = 9643
REAL_KEY = "sk-real-0123456789-abcdefghij"
ZIPPED = gzip.compress(b"x" * (1 << 20))


class Origin(asyncio.Protocol):
    """A connection. A path's method gets (stream, headers) when the head came; those in `streaming` hear of the body
    themselves, for the others it is collected first."""

    log = None
    streaming = ("bidi", "upload", "hang", "early", "refuse")

    def connection_made(self, transport):
        self.transport = transport
        if transport.get_extra_info("ssl_object").selected_alpn_protocol() != "h2":
            transport.close()
            return
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding="utf-8"))
        self.h2.initiate_connection()
        self.h2.update_settings({h2.settings.SettingCodes.ENABLE_CONNECT_PROTOCOL: 1})  # RFC 8441
        self.bodies, self.heads, self.queues, self.counts = {}, {}, {}, {}
        self.writable = True
        self.flush()

    def flush(self):
        if not self.transport.is_closing():
            self.transport.write(self.h2.data_to_send())

    def pause_writing(self):
        self.writable = False

    def resume_writing(self):
        self.writable = True
        self.pump()

    def connection_lost(self, _):
        self.queues = {}

    def data_received(self, data):
        try:
            events = self.h2.receive_data(data)
        except h2.exceptions.ProtocolError:
            events = []
        for event in events:
            self.on(event)
        self.pump()

    def on(self, event):
        if isinstance(event, h2.events.RequestReceived):
            self.begin(event.stream_id, event.headers)
        elif isinstance(event, h2.events.DataReceived):
            self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            name = self.heads.get(event.stream_id, ("",))[0]
            self.counts[event.stream_id] = self.counts.get(event.stream_id, 0) + len(event.data)
            if name == "bidi":
                self.send(event.stream_id, event.data)
            elif name not in self.streaming:
                self.bodies[event.stream_id] += event.data
        elif isinstance(event, h2.events.TrailersReceived):
            self.heads[event.stream_id][1].extend(("trailer-" + n, v) for n, v in event.headers)
        elif isinstance(event, h2.events.StreamEnded):
            self.ended(event.stream_id)
        elif isinstance(event, h2.events.StreamReset):
            self.note({"reset": event.error_code})
            self.queues.pop(event.stream_id, None)

    def note(self, what):
        with open(self.log, "a", encoding="utf-8") as log:
            log.write(json.dumps(what) + "\n")

    def begin(self, stream, headers):
        path = dict(headers)[":path"]
        name = path.partition("?")[0].strip("/").replace("-", "_").split("/")[0]
        self.heads[stream], self.bodies[stream] = (name, headers, path), b""
        if name in self.streaming:
            self.note({"path": path, "headers": headers})
            getattr(self, "on_" + name)(stream, headers)

    def ended(self, stream):
        name, headers, path = self.heads[stream]
        if name in self.streaming:
            if name == "upload":
                self.say(stream, {"bytes": self.counts.get(stream, 0)})
            elif name == "bidi":
                self.send(stream, b"", end=True)
            return
        self.note({"path": path, "headers": headers, "body": self.bodies[stream].decode("latin-1")})
        getattr(self, "on_" + name, self.on_other)(stream, headers)

    # answers

    def head(self, stream, status=200, end=False, **headers):
        self.h2.send_headers(stream, [(":status", str(status)), *((n.replace("_", "-"), v) for n, v in headers.items())],
                             end_stream=end)

    def send(self, stream, data, end=False, trailers=()):
        queue = self.queues.setdefault(stream, [b"", False, ()])
        queue[0], queue[1], queue[2] = queue[0] + data, end, trailers

    def say(self, stream, what, status=200, **headers):
        data = what if isinstance(what, bytes) else json.dumps(what).encode()
        self.head(stream, status, content_length=str(len(data)), **headers)
        self.send(stream, data, end=True)

    def pump(self):
        for stream, queue in list(self.queues.items()):
            try:
                self.pump_one(stream, queue)
            except h2.exceptions.ProtocolError:
                self.queues.pop(stream, None)
        self.flush()

    def pump_one(self, stream, queue):
        at = 0
        while at < len(queue[0]) and self.writable:
            n = min(self.h2.local_flow_control_window(stream), self.h2.max_outbound_frame_size, len(queue[0]) - at)
            if n <= 0:
                break
            self.h2.send_data(stream, queue[0][at:at + n])
            at += n
            self.flush()
        queue[0] = queue[0][at:]
        if not queue[0] and queue[1]:
            if queue[2]:
                self.h2.send_headers(stream, queue[2], end_stream=True)
            else:
                self.h2.end_stream(stream)
            del self.queues[stream]

    # paths

    def on_other(self, stream, _):
        self.say(stream, {"path": self.heads[stream][2]})

    def on_v1(self, stream, headers):
        keys = dict(headers)
        good = f"Bearer {REAL_KEY}" == keys.get("authorization") or REAL_KEY == keys.get("x-api-key")
        self.say(stream, {"ok": good}, 200 if good else 401)

    def on_echo(self, stream, headers):
        self.say(stream, {"headers": headers, "body": self.bodies[stream].decode("latin-1")},
                 x_echo=dict(headers).get("authorization", "none"))

    def on_echo_trailers(self, stream, headers):
        """The key in pieces of one byte, and in a trailer."""
        self.head(stream)
        for byte in dict(headers).get("authorization", "none").encode():
            self.h2.send_data(stream, bytes([byte]))
            self.flush()
        self.send(stream, b"", end=True, trailers=[("x-echo", dict(headers).get("authorization", "none"))])

    def on_echo_gzip(self, stream, headers):
        """Compressed whatever was asked; `?large`: after 40 MB that are hardly compressed, `?cut`: without its end."""
        how, text = self.heads[stream][2].partition("?")[2], json.dumps(headers).encode()
        if how == "large":
            noise = random.Random(1).randbytes(4_000_000)
            text = noise * 10 + text
        data = gzip.compress(text, 1)
        self.say(stream, data[:-9] if how == "cut" else data, content_encoding="br" if how == "other" else "gzip")

    def on_zipped(self, stream, _):
        """A MiB without a line, in some hundred bytes."""
        self.say(stream, ZIPPED, content_encoding="gzip")

    def on_bytes(self, stream, _):
        self.say(stream, b"x" * int(self.heads[stream][2].split("/")[2]))

    def on_interim(self, stream, _):
        self.h2.send_headers(stream, [(":status", "103"), ("link", "</style.css>; rel=preload")])
        self.say(stream, {"after": 103})

    def on_trailers(self, stream, _):
        self.head(stream)
        self.send(stream, b"body", end=True, trailers=[("x-last", "word")])

    def on_goaway(self, stream, _):
        self.say(stream, {"last": True})
        self.pump()
        self.h2.close_connection(last_stream_id=stream)

    def on_reset(self, stream, _):
        self.h2.reset_stream(stream, h2.errors.ErrorCodes.ENHANCE_YOUR_CALM)

    def on_cut(self, stream, _):
        """In the middle of an answer: the stream, or with `?all` the connection."""
        self.head(stream, content_length="100")
        self.h2.send_data(stream, b"0123456789")
        self.flush()
        if self.heads[stream][2].endswith("all"):
            self.transport.close()
        else:
            self.h2.reset_stream(stream, h2.errors.ErrorCodes.INTERNAL_ERROR)

    def on_vanish(self, stream, _):
        self.transport.abort()

    # those that hear of the body themselves

    def on_bidi(self, stream, _):
        self.head(stream, content_type="application/grpc")

    def on_upload(self, stream, _):
        pass

    def on_hang(self, stream, _):
        pass

    def on_early(self, stream, _):
        self.say(stream, {"early": True}, 413)
        self.pump()
        self.h2.reset_stream(stream, h2.errors.ErrorCodes.NO_ERROR)

    def on_refuse(self, stream, _):
        self.h2.reset_stream(stream, h2.errors.ErrorCodes.REFUSED_STREAM)


class Service:
    """A service as a model behind gRPC might be: every call demands its key."""

    @staticmethod
    async def admit(stream):
        if stream.metadata.get("x-api-key") != REAL_KEY:
            raise grpclib.exceptions.GRPCError(grpclib.const.Status.UNAUTHENTICATED, "no key")

    async def unary(self, stream):
        await self.admit(stream)
        await stream.send_message(b"answer to " + await stream.recv_message())

    async def server_stream(self, stream):
        await self.admit(stream)
        count = int(await stream.recv_message())
        for n in range(count):
            await stream.send_message(b"%d" % n)
        await stream.send_trailing_metadata(metadata={"x-count": str(count), "x-seen": stream.metadata["x-api-key"]})

    async def bidi(self, stream):
        await self.admit(stream)
        async for message in stream:
            await stream.send_message(message[::-1])

    def __mapping__(self):
        kinds = grpclib.const.Cardinality
        return {f"/cay.Test/{name}": grpclib.const.Handler(work, kind, bytes, bytes) for name, work, kind in
                (("Unary", self.unary, kinds.UNARY_UNARY), ("Stream", self.server_stream, kinds.UNARY_STREAM),
                 ("Bidi", self.bidi, kinds.STREAM_STREAM))}


async def serve(directory):
    directory = pathlib.Path(directory)
    Origin.log = directory / "h2.log"
    Origin.log.write_text("")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "good.pem", directory / "good.key")
    context.set_alpn_protocols(["h2"])
    await asyncio.get_running_loop().create_server(Origin, None, H2, ssl=context)
    server = grpclib.server.Server([Service()], codec=Raw())
    await server.start(None, GRPC, ssl=context)
    print("ready", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    if sys.argv[1:2] != ["serve"] or len(sys.argv) != 3:
        sys.exit(__doc__)
    asyncio.run(serve(sys.argv[2]))
