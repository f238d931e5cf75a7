"""Servers that demand credentials, for tests of interception, in the stand-in internet's namespace:

    python3 origins.py serve DIRECTORY      certificates and keys from there; requests to DIRECTORY/requests.log

Ports: see below. Every request that arrives is one JSON line in the log, so that a test can say what a server has
seen, and what it has not. Nothing here needs more than Python's own library."""

import base64
import contextlib
import gzip
import hashlib
import hmac
import http.server
import json
import pathlib
import re
import socket
import ssl
import struct
import sys
import threading
import urllib.parse
import zlib

MODEL, EXPIRED, SELF_SIGNED, WRONG_NAME, PLAIN = 9443, 9444, 9445, 9446, 9080
REAL_KEY = "sk-real-0123456789-abcdefghij"
AWS_ID, AWS_SECRET = "AKIDREALEXAMPLE", "real/aws+secret0123456789abcdefghijklmno"


def frame(first, data, mask=b""):
    body = bytes(b ^ mask[i % 4] for i, b in enumerate(data)) if mask else data
    return struct.pack("!BB", first, (0x80 if mask else 0) | len(data)) + mask + body


def deflated(data):
    packer = zlib.compressobj(wbits=-15)
    return (packer.compress(data) + packer.flush(zlib.Z_SYNC_FLUSH))[:-4]  # RFC 7692 section 7.2.1


KEY = REAL_KEY.encode()
SAID = {b"secret": frame(0x81, KEY), b"ping": frame(0x89, KEY), b"length": b"\x81\x7f" + KEY,
        b"fragments": frame(0x01, KEY[:5]) + frame(0x89, b"!") + b"".join(frame(0x00, KEY[i:i + 1]) for i in range(5, len(KEY)))
        + frame(0x80, b""),
        b"masked": frame(0x81, KEY, b"\1\2\3\4"), b"compressed": frame(0xc1, deflated(KEY))}


def accept_key(key):
    return base64.b64encode(hashlib.sha1(key.encode() + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()).decode()


def signature_is_good(method, target, headers, body):
    """AWS Signature Version 4, header form, written from its description and not from cay's code."""
    scheme, _, rest = headers.get("authorization", "").partition(" ")
    if scheme != "AWS4-HMAC-SHA256":
        return "no signature"
    fields = dict(part.strip().split("=", 1) for part in rest.split(","))
    key_id, day, region, service, _ = fields["Credential"].split("/")
    if key_id != AWS_ID:
        return "unknown key"
    path, _, query = target.partition("?")
    if service != "s3":
        path = urllib.parse.quote(path, safe="/~-_.")
    pairs = sorted(tuple(urllib.parse.quote(urllib.parse.unquote_plus(x), safe="~-_.") for x in (p + "=").split("=")[:2])
                   for p in query.split("&") if p)
    names = fields["SignedHeaders"].split(";")
    said = headers.get("x-amz-content-sha256") or hashlib.sha256(body).hexdigest()
    if said not in ("UNSIGNED-PAYLOAD", hashlib.sha256(body).hexdigest()):
        return "the body is another"
    canonical = "\n".join([method, path, "&".join("=".join(p) for p in pairs),
                           *(f"{n}:{' '.join(headers[n].split())}" for n in names), "", ";".join(names), said])
    scope = f"{day}/{region}/{service}/aws4_request"
    text = "\n".join(["AWS4-HMAC-SHA256", headers["x-amz-date"], scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = ("AWS4" + AWS_SECRET).encode()
    for part in (day, region, service, "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    good = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    return "good" if hmac.compare_digest(good, fields["Signature"]) else f"bad signature of {canonical!r}"


class Origin(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    log_path, lock, released, stored = None, threading.Lock(), threading.Event(), b""

    def body(self):
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        pieces = []
        while size := int(self.rfile.readline(), 16):
            pieces.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(pieces)

    def answer(self):
        body = self.body()
        line = {"port": self.server.server_address[1], "method": self.command, "target": self.path,
                "headers": self.headers.items(), "body": body.decode("latin-1")}
        with self.lock, open(self.log_path, "a", encoding="utf-8") as log:
            log.write(json.dumps(line) + "\n")
        path = self.path.partition("?")[0]
        work = getattr(self, "on_" + path.strip("/").replace("-", "_").split("/")[0], None)
        if work:
            work(body)
        else:
            self.say(200, {"path": self.path})

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = answer

    def say(self, status, what, **headers):
        data = json.dumps(what).encode() if not isinstance(what, bytes) else what
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def on_v1(self, _):
        keys = (self.headers.get("Authorization"), self.headers.get("X-Api-Key"))
        good = f"Bearer {REAL_KEY}" in keys or REAL_KEY in keys
        self.say(200 if good else 401, {"ok": good})

    def on_echo(self, body):
        self.say(200, {"headers": self.headers.items(), "target": self.path, "body": body.decode("latin-1")})

    def on_echo_header(self, _):
        self.say(200, {}, X_Echo=self.headers.get("Authorization") or "none")

    def on_echo_chunked(self, _):
        """Every byte a chunk of its own."""
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for byte in json.dumps(self.headers.items()).encode():
            self.wfile.write(b"1\r\n%c\r\n" % byte)
        self.wfile.write(b"0\r\n\r\n")

    def on_tiny(self, _):
        """Chunks of one byte, until the client has gone."""
        self.close_connection = True
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        with contextlib.suppress(OSError):
            while True:
                self.wfile.write(b"1\r\nx\r\n" * 4096)

    def on_echo_until_close(self, _):
        self.close_connection = True
        self.send_response(200)
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(json.dumps(self.headers.items()).encode())

    def on_echo_gzip(self, _):
        self.say(200, gzip.compress(json.dumps(self.headers.items()).encode()), Content_Encoding="gzip")

    def on_echo_as(self, _):
        """Its headers in the form that the query names."""
        text = json.dumps([value for _, value in self.headers.items()])
        how = self.path.partition("?")[2]
        self.say(200, {
            "slash": lambda: text.replace("/", "\\/"),
            "unicode": lambda: "".join(f"\\u{ord(c):04x}" for c in text),
            "lower": lambda: "".join(f"%{ord(c):02x}" for c in text),
            "partial": lambda: "".join(f"%{ord(c):02X}" if i % 3 == 1 else c for i, c in enumerate(text)),
            "html": lambda: "".join(f"&#{ord(c)};" for c in text),
            "html-open": lambda: "".join(f"&#{ord(c)}" for c in text), "octal": lambda: "".join(f"\\{ord(c):o}" for c in text),
            "mail": lambda: text.replace("=", "=3D"),
            "base64": lambda: base64.b64encode(b"x" + text.encode()).decode(),
            "hex": lambda: text.encode().hex(),
        }[how]().encode())

    def on_zipped(self, _):
        """Compressed whatever was asked for: the query says how, and in which framing."""
        how = self.path.partition("?")[2]
        text = json.dumps(self.headers.items()).encode()
        if "large" in how:  # 40 MB of one byte, and the headers
            text = b"x" * 40_000_000 + text
        data = {"g": gzip.compress, "d": zlib.compress, "r": lambda t: zlib.compress(t, wbits=-15),
                "m": lambda t: gzip.compress(t[:30]) + gzip.compress(t[30:]), "b": lambda t: t,
                "c": lambda t: gzip.compress(t)[:-9], "t": lambda t: gzip.compress(t) + b"tail",
                "x": lambda t: b"no gzip at all"}[how[0]](text)
        coding = {"d": "deflate", "r": "deflate", "b": "br"}.get(how[0], "gzip")
        if "chunked" not in how and "close" not in how:
            return self.say(200, data, Content_Encoding=coding, ETag='"e"')
        self.send_response(200)
        self.send_header("Content-Encoding", coding)
        self.send_header(*(("Transfer-Encoding", "chunked") if "chunked" in how else ("Connection", "close")))
        self.end_headers()
        if "close" in how:
            self.close_connection = True
            return self.wfile.write(data)
        for at in range(0, len(data), 7):
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data[at:at + 7]), data[at:at + 7]))
        return self.wfile.write(b"0\r\n\r\n")

    def on_file(self, body):
        """The body that was put there, in the ranges that are asked for."""
        if self.command == "PUT":
            Origin.stored = body or self.headers.get("X-Api-Key", "").encode()
            return self.say(200, {})
        first, last = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", "bytes=0-99999")).groups()
        part = self.stored[int(first):int(last) + 1]
        if "Range" in self.headers or self.path.endswith("?anyway"):
            return self.say(206, part, Content_Range=f"bytes {first}-{last}/{len(self.stored)}")
        return self.say(200, part)

    def on_gz(self, _):
        self.say(200, gzip.compress(self.stored), Content_Encoding="gzip")

    def on_redirect(self, _):
        self.say(302, {}, Location=urllib.parse.unquote(self.path.partition("?")[2]))

    def on_s3(self, body):
        headers = {name.lower(): value for name, value in self.headers.items()}
        verdict = signature_is_good(self.command, self.path, headers, body)
        self.say(200 if verdict == "good" else 403, {"signature": verdict})

    def on_sse(self, _):
        """The second event comes when another request has asked for it."""
        self.released.clear()
        self.close_connection = True
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(b"data: first\n\n")
        self.wfile.write(b"data: second\n\n" if self.released.wait(30) else b"data: not released\n\n")

    def on_release(self, _):
        self.released.set()
        self.say(200, {})

    def on_ws(self, _):
        """Echoes each message before it reads the next, or sends what SAID has for it."""
        self.close_connection = True
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        if self.path.endswith("?extension"):
            self.send_header("Sec-WebSocket-Extensions", "permessage-deflate")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", accept_key(self.headers["Sec-WebSocket-Key"]))
        self.end_headers()
        while head := self.rfile.read(2):
            mask = self.rfile.read(4)
            data = bytes(b ^ mask[i % 4] for i, b in enumerate(self.rfile.read(head[1] & 0x7f)))
            self.wfile.write(SAID.get(data) or frame(0x81, data))

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6
    request_queue_size = 128
    context = None

    def get_request(self):
        connection, peer = super().get_request()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.context:
            connection.settimeout(60)
            connection = self.context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        return connection, peer

    def handle_error(self, *_):
        pass


def serve(directory):
    directory = pathlib.Path(directory)
    Origin.log_path = directory / "requests.log"
    for port, name in ((MODEL, "good"), (EXPIRED, "expired"), (SELF_SIGNED, "self-signed"), (WRONG_NAME, "wrong-name"),
                       (PLAIN, None)):
        server = Server(("::", port), Origin)
        if name:
            server.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            server.context.load_cert_chain(directory / f"{name}.pem", directory / f"{name}.key")
        threading.Thread(target=server.serve_forever, daemon=True).start()
    print("ready", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    if sys.argv[1:2] != ["serve"] or len(sys.argv) != 3:
        sys.exit(__doc__)
    serve(sys.argv[2])
