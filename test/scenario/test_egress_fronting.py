"""First messages, by an allowed name, for a neighbour on the same address (domain fronting): what real servers
accept before and around a first request or ClientHello, against what cay-egress reads. Each is tried against
servers that run here (Node, OpenSSL, Python) directly, which is the control, and through cay-egress."""

import contextlib
import json
import os
import shutil
import socket
import ssl
import struct
import subprocess
import threading
import time

import pytest

from egresslib import Stack, internet
from waitlib import until

NODE, NODE_TLS, OPENSSL, PYTHON, NODE_H2C, GREETER = 9081, 9443, 9444, 80, 9082, 9083
WEB, OTHER = "web.example.com", "other.example.net"
HOST = f"Host: {OTHER}\r\nConnection: close\r\n\r\n"
GET = f"GET /x HTTP/1.1\r\n{HOST}"
SETTINGS = "\0\0\0\4\0\0\0\0\0"

# name, what is sent (pieces with a pause between them), the servers that serve the neighbour then. Those of Node and
# Python are tried below; Go's net/http 1.26 and nginx 1.22 were tried by hand.
PLAIN = [
    ("plainly", [GET], {"node", "python", "go", "nginx"}),
    ("an unknown method, in two pieces", ["ACL", f" /x HTTP/1.1\r\n{HOST}"], {"node", "go", "nginx"}),
    ("its blank in the first piece", ["PROPFIN", "D ", f"/x HTTP/1.1\r\n{HOST}"], {"node", "go", "nginx"}),
    ("a method in lower case", ["get ", f"/x HTTP/1.1\r\n{HOST}"], {"go"}),
    ("one letter", ["G", GET[1:]], {"node", "python", "go", "nginx"}),
    ("empty lines first", ["\r\n\r\n", GET], {"node", "nginx"}),
    ("a vertical tab first", ["\x0b", GET], {"python"}),
    ("a form feed first", ["\x0cG", GET[1:]], {"python"}),
    ("a separator first", ["\x1d", GET], {"python"}),
    ("a next-line first", ["\x85G", GET[1:]], {"python"}),
    ("a hard blank first", ["\xa0G", GET[1:]], {"python"}),
    ("a NUL in the path", ["GET /x\0", f"y HTTP/1.1\r\n{HOST}"], {"python"}),
    ("line feeds alone", ["GET /x", f" HTTP/1.1\r\n{HOST}".replace("\r\n", "\n")], {"python", "go", "nginx"}),
    ("carriage returns alone", [GET.replace("\r\n", "\r")], set()),
    ("RTSP", ["OPTIONS rtsp://x/ ", f"RTSP/1.0\r\n{HOST}"], {"node"}),
    ("RTSP by path", [f"DESCRIBE /x RTSP/1.0\r\n{HOST}"], {"node"}),
    ("without a version", [f"GET /x\r\n{HOST}"], {"node", "python"}),
    ("without a version, another scheme", [f"GET rtsp://x/\r\n{HOST}"], {"node", "python"}),
    ("CONNECT, and a request when it is refused", [f"CONNECT x:1 HTTP/1.1\r\nHost: {WEB}\r\n\r\n", GET], {"go"}),
    ("another host in the target", [f"GET http://{OTHER}/x HTTP/1.1\r\nHost: {WEB}\r\nConnection: close\r\n\r\n"], {"go", "nginx"}),
    ("any target", [f"GET * HTTP/1.1\r\n{HOST}"], {"node", "python", "go"}),
    ("a folded Host", [f"GET /x HTTP/1.1\r\nX: y\r\n {HOST}"], set()),
    ("a header of the PROXY protocol", ["PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n", GET], {"nginx with proxy_protocol"}),
    ("its second form", ["\r\n\r\n\0\r\nQUIT\n", "\x21\x11\0\x0c\1\2\3\4\5\6\7\x08\0\1\0\2", GET], {"nginx with proxy_protocol"}),
    ("HTTP/2 without TLS", ["PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", SETTINGS], {"nginx with http2", "go with h2c"}),
    ("a line that is none first", ["hello\r\n", GET], set()),
    ("no blank behind the method", [f"GET/x HTTP/1.1\r\n{HOST}"], set()),
    ("a target that none has, in two pieces", ["GET {", f"x HTTP/1.1\r\n{HOST}"], {"python"}),
    ("another such target, in three", ["GE", "T <", f"x HTTP/1.1\r\n{HOST}"], {"python"}),
    ("a target that none has, whole", [f"GET {{x HTTP/1.1\r\n{HOST}"], {"python"}),
    ("no letter first, in two pieces", ["(", GET], set()),
    ("a byte order mark", [f"\xef\xbb\xbf{GET}"], set()),
]

SERVER = """
require("http2").createServer((q, r) => r.end(`served ${q.authority} ${q.url}`)).listen(+process.argv[4], "0.0.0.0");
const tls = require("tls"), https = require("https"), http = require("http"), fs = require("fs");
const pair = n => ({cert: fs.readFileSync(`${n}.crt`), key: fs.readFileSync(`${n}.key`), ecdhCurve: "P-384"});
http.createServer((q, r) => r.end(`served ${q.headers.host} ${q.url}`)).listen(+process.argv[2], "0.0.0.0");
https.createServer({...pair("web"), SNICallback: (n, cb) => cb(null, tls.createSecureContext(pair(n.split(".")[0])))},
                   (q, r) => r.end(`served ${q.headers.host} ${q.socket.servername}`)).listen(+process.argv[3], "0.0.0.0");
"""

# Says something, and then how many bytes it was sent.
GREETS = """
import socketserver, sys
class Greeter(socketserver.BaseRequestHandler):
    def handle(self):
        self.request.sendall(b"220 ready\\r\\n")
        self.request.settimeout(1)
        count = 0
        try:
            while data := self.request.recv(65536):
                count += len(data)
        except OSError:
            pass
        if count:
            self.request.sendall(b"heard %d" % count)
socketserver.ThreadingTCPServer.allow_reuse_address = socketserver.ThreadingTCPServer.daemon_threads = True
socketserver.ThreadingTCPServer((sys.argv[1], int(sys.argv[2])), Greeter).serve_forever()
"""


def tls_hello(name):
    context, out = ssl.create_default_context(), ssl.MemoryBIO()
    o = context.wrap_bio(ssl.MemoryBIO(), out, server_hostname=name)
    with contextlib.suppress(ssl.SSLWantReadError):
        o.do_handshake()
    return out.read()


# Inside, and for the control outside: reads [{"host", "port", "send": [..], "pause", "tls": {..} or null}], says what came.
CLIENT = r"""
import concurrent.futures, ctypes, json, socket, ssl, sys, time

def take(s):
    data = b""
    try:
        while part := s.recv(65536):
            data += part
            if len(data) > 65536:
                break
    except OSError:
        pass
    return data.decode("latin-1")

def hello(name, versions=None):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if versions:
        context.maximum_version = getattr(ssl.TLSVersion, versions)
    read, write = ssl.MemoryBIO(), ssl.MemoryBIO()
    return context.wrap_bio(read, write, server_hostname=name), read, write

def cut(data, size):
    # One record as many of at most so many bytes.
    body = data[5:]
    return b"".join(data[:3] + len(body[i:i + size]).to_bytes(2, "big") + body[i:i + size] for i in range(0, len(body), size))

def wrapped(s, p):
    o, read, write = hello(p["sni"], p.get("versions"))
    first = True
    def flush():
        nonlocal first
        data = write.read()
        if first and data:
            first = False
            if p.get("size"):
                data = cut(data, p["size"])
            if p.get("version"):
                data = data[:1] + bytes.fromhex(p["version"]) + data[3:]
            if p.get("prefix"):
                data = bytes.fromhex(p["prefix"]) + data
        if data:
            s.sendall(data)
    def until(call):
        while True:
            try:
                result = call()
                flush()
                return result
            except ssl.SSLWantReadError:
                flush()
                part = s.recv(65536)
                if not part:
                    raise EOFError
                read.write(part)
    until(o.do_handshake)
    o.write(f"GET /x HTTP/1.1\r\nHost: {p['sni']}\r\nConnection: close\r\n\r\n".encode())
    flush()
    whom = "other" if b"other.example.net" in o.getpeercert(True) else "web"
    return f"certificate {whom} " + until(lambda: o.read(4096)).decode("latin-1")

def retried(s, p):
    # OpenSSL's own client, whose name is another when it is asked for a second ClientHello.
    lib = ctypes.CDLL("libssl.so.3")
    for f in ("TLS_client_method", "SSL_CTX_new", "SSL_new"):
        getattr(lib, f).restype = ctypes.c_void_p
    context = ctypes.c_void_p(lib.SSL_CTX_new(ctypes.c_void_p(lib.TLS_client_method())))
    lib.SSL_CTX_ctrl(context, 92, 0, b"X25519:P-384")
    if p.get("ech"):  # an extension of its own: OpenSSL 3.0 knows none of that number
        content = ctypes.create_string_buffer(b"\0\0\1\0\1\7\0\x20" + b"k" * 32 + b"\0\x80" + b"p" * 128)
        pointers = ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_size_t)
        @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_uint, *pointers, ctypes.c_void_p, ctypes.c_void_p)
        def put(ssl_, number, out, n, alert, arg):
            out[0], n[0] = ctypes.addressof(content), len(content) - 1
            return 1
        assert lib.SSL_CTX_add_client_custom_ext(context, 0xfe0d, put, None, None, None, None) == 1
    one = ctypes.c_void_p(lib.SSL_new(context))
    name = lambda n: lib.SSL_ctrl(one, 55, 0, n.encode())
    kind = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p,
                            ctypes.c_void_p)
    @kind
    def seen(write, version, content, data, n, ssl_, arg):
        if not write and content == 22 and n > 6 and ctypes.string_at(data, 1) == b"\x02":
            name(p["second"])
    lib.SSL_CTX_set_msg_callback(context, seen)
    lib.SSL_set_msg_callback(one, seen)
    s.setblocking(True)
    lib.SSL_set_fd(one, s.fileno())
    name(p["sni"])
    if lib.SSL_connect(one) != 1:
        return "no handshake"
    crypto = ctypes.CDLL("libcrypto.so.3")
    lib.SSL_get1_peer_certificate.restype = crypto.X509_get_subject_name.restype = ctypes.c_void_p
    crypto.X509_NAME_oneline.restype = ctypes.c_char_p
    subject = ctypes.c_void_p(crypto.X509_get_subject_name(ctypes.c_void_p(lib.SSL_get1_peer_certificate(one))))
    whom = "other" if b"other.example.net" in crypto.X509_NAME_oneline(subject, None, 0) else "web"
    data = f"GET /x HTTP/1.1\r\nHost: {p['second']}\r\nConnection: close\r\n\r\n".encode()
    lib.SSL_write(one, data, len(data))
    room = ctypes.create_string_buffer(4096)
    n = lib.SSL_read(one, room, 4096)
    return f"certificate {whom} " + room.raw[:max(n, 0)].decode("latin-1")

def send(s, p, pieces):
    # "urgent": the number of one that TCP marks so; "ends": the client's end comes in one segment with the last.
    for i, piece in enumerate(pieces):
        ends = p.get("ends") and i == len(pieces) - 1
        if ends:
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
        if i == p.get("urgent"):
            s.send(piece, socket.MSG_OOB)
        else:
            s.sendall(piece)
        if ends:
            s.shutdown(socket.SHUT_WR)
        time.sleep(0.3)

def probe(p):
    try:
        with socket.create_connection((p["host"], p["port"]), 10) as s:
            s.settimeout(p.get("wait", 3))
            time.sleep(p.get("silence", 0))
            if p.get("tls"):
                return (retried if "second" in p["tls"] else wrapped)(s, p["tls"])
            if p.get("await"):
                s.recv(1)
            send(s, p, [piece.encode("latin-1") for piece in p["send"]])
            return take(s)
    except (OSError, EOFError, ssl.SSLError) as e:
        return f"failed: {type(e).__name__}"

with concurrent.futures.ThreadPoolExecutor(64) as pool:
    print(json.dumps(list(pool.map(probe, json.load(open(sys.argv[1]))))))
"""


@pytest.fixture(scope="module")
def stack():
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    s = Stack()
    processes = []
    try:
        for name, cn in (("web", WEB), ("other", OTHER)):
            subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{name}.key", "-out", f"{name}.crt",
                            "-subj", f"/CN={cn}", "-days", "30"], cwd=s.networks.dir, check=True, capture_output=True)
        (s.networks.dir / "front.js").write_text(SERVER)
        inside = ["ip", "netns", "exec", s.networks.net]
        if shutil.which("node"):
            processes.append(subprocess.Popen([*inside, "node", "front.js", str(NODE), str(NODE_TLS), str(NODE_H2C)], cwd=s.networks.dir))
        processes.append(subprocess.Popen(
            [*inside, "openssl", "s_server", "-accept", f"{internet.WEB}:{OPENSSL}", "-cert", "web.crt", "-key", "web.key", "-servername", OTHER,
             "-cert2", "other.crt", "-key2", "other.key", "-groups", "P-384", "-www", "-quiet"],
            cwd=s.networks.dir, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

        processes.append(subprocess.Popen([*inside, "/usr/bin/python3", "-c", GREETS, internet.WEB, str(GREETER)]))

        def up():
            def work():
                for port in ([NODE, NODE_TLS, NODE_H2C] if shutil.which("node") else []) + [OPENSSL, GREETER]:
                    with socket.create_connection((internet.WEB, port), 1):
                        pass
            try:
                internet.inside(s.networks.host, work)
                return True
            except OSError:
                return False

        until(up, 60, "the servers outside", every=0.2)
        yield s
    finally:
        for p in processes:
            p.kill()
            p.wait()
        s.close()


@pytest.fixture(scope="module")
def box(stack):
    with stack.cay.create(timeout_s=1800, network={"denyOut": ["0.0.0.0/0"], "allowOut": [WEB]}) as made:
        yield made


def inside(sandbox, probes):
    assert sandbox.write("/tmp/front.py", CLIENT.encode()).status == 200
    assert sandbox.write("/tmp/front.json", json.dumps(probes).encode()).status == 200
    r = sandbox.run("python3 /tmp/front.py /tmp/front.json", timeout=180)
    assert r.exit_code == 0, r.stderr.decode()
    return json.loads(r.out)


def outside(stack, probes):
    """The same without a proxy."""
    at = stack.networks.dir / "front.json"
    at.write_text(json.dumps([{**p, "host": internet.WEB} for p in probes]))
    (stack.networks.dir / "front.py").write_text(CLIENT)
    done = subprocess.run(["ip", "netns", "exec", stack.networks.host, "/usr/bin/python3", str(stack.networks.dir / "front.py"), str(at)],
                          capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def for_other(text):
    """The neighbour was served: by what Node or Python say of the Host, or by the certificate; not cay's refusal."""
    return "egress_denied" not in text and (f"served {OTHER}" in text or f'"Host": "{OTHER}"' in text or
                                            "certificate other" in text)


def test_first_bytes_hide_nothing(stack, box):
    node = bool(shutil.which("node"))
    ports = [("node", NODE)] * node + [("python", PYTHON)]
    rows = [(name, server, {"host": WEB, "port": port, "send": pieces}) for name, pieces, _ in PLAIN for server, port in ports]
    late = [("after a silence", server, {"host": WEB, "port": port, "send": [GET], "silence": 11}) for server, port in ports]
    late += [("after a silence, in pieces", server, {"host": WEB, "port": port, "send": ["G", GET[1:]], "silence": 11})
             for server, port in ports]
    late += [("a letter and a silence", server, {"host": WEB, "port": port, "send": ["A"] + [""] * 36 + [GET[1:]], "wait": 2})
             for server, port in ports]
    for (name, server, _), got in zip(rows + late, inside(box, [p for _, _, p in rows + late]), strict=True):
        assert not for_other(got), (name, server, got)
    served = {(name, server) for (name, server, _), got in zip(rows, outside(stack, [p for _, _, p in rows]), strict=True)
              if for_other(got)}
    stated = {(name, server) for name, _, servers in PLAIN for server in servers & {s for s, _ in ports}}
    assert served == stated, served ^ stated  # the control
    fine = [{"host": WEB, "port": port, "send": [GET.replace(OTHER, WEB)], "silence": silence} for _, port in ports
            for silence in (0, 11)]
    fine.append({"host": WEB, "port": internet.ECHO_PORT, "send": ["hello\n"], "wait": 1})
    fine.append({"host": WEB, "port": internet.BANNER_PORT, "send": [], "wait": 1})
    got = inside(box, fine)
    assert all(f"served {WEB}" in g or f'"Host": "{WEB}"' in g for g in got[:-2]), got
    assert got[-2] == "hello\n" and "stand-in" in got[-1], got[-2:]
    assert "first message" in box.run("cay-denials").out


# A look at the first bytes does not reach all of these, and the client's end is told with them: it ends at a mark of urgent
# data, and has a length. Node, as nginx, skips any number of empty lines, and takes no byte that is marked.
BEYOND = [("urgent data behind an empty line", {"send": ["\r\n", "X", GET], "urgent": 1, "ends": True}),
          ("urgent data in the first word", {"send": ["\r\n", "X", "G", GET[1:]], "urgent": 1, "ends": True}),
          ("empty lines beyond the look", {"send": ["\r\n", "\r\n" * 8400 + GET], "ends": True})]


def test_an_end_hides_nothing(stack, box):
    """A client that has ended sends no more: but the bytes looked at need not be all that it has sent."""
    if not shutil.which("node"):
        pytest.skip("Node is not installed")
    rows = [{"host": WEB, "port": NODE, **how} for _, how in BEYOND]
    greeted = [{"host": WEB, "port": GREETER, "await": True, "wait": 2, **how} for _, how in BEYOND]
    for (name, _), got in zip(BEYOND, outside(stack, rows), strict=True):
        assert for_other(got), (name, got)  # the control
    for (name, how), got in zip(BEYOND, outside(stack, greeted), strict=True):
        assert f"heard {sum(len(p) for i, p in enumerate(how['send']) if i != how.get('urgent'))}" in got, (name, got)
    for (name, _), got in zip(BEYOND * 2, inside(box, rows + greeted), strict=True):
        assert not for_other(got) and "heard" not in got, (name, got)
    said = box.run("cay-denials").out
    assert "urgent data (MSG_OOB) among the first bytes" in said and "behind a server's greeting" in said
    # The last bytes of a client that ends are carried, and its answer comes back.
    fine = [{"host": WEB, "port": NODE, "send": [GET.replace(OTHER, WEB)], "ends": True},
            {"host": WEB, "port": internet.ECHO_PORT, "send": ["hello\n"], "ends": True},
            {"host": WEB, "port": internet.SINK_PORT, "send": ["data:" + "x" * 100000, "!", "y" * 100000], "urgent": 1, "ends": True}]
    got = inside(box, fine)
    assert f"served {WEB}" in got[0] and got[1] == "hello\n" and got[2] == "200006", got


def urgently(peer):
    """The beginning of an answer, or of first words, that more is waited for of, and the rest behind an urgent byte."""
    peer.settimeout(1)
    asked = b""
    with contextlib.suppress(TimeoutError):
        asked = peer.recv(4096)
    first, rest = (b"\x16\3\3\0\x7a\2", b"\0\x76\3\3") if asked else (b"\0\0\0\4", bytes(4))
    peer.sendall(first)
    with contextlib.suppress(ConnectionError):  # it may be refused already
        peer.send(b"\0", socket.MSG_OOB)
        peer.sendall(rest)


def test_urgent_data_of_a_server(stack, box):
    """Bytes before the mark were looked at again and again, at the cost of the thread that all share: for 10 s where a
    server speaks first, for as long as a connection may be idle at its answer to a ClientHello."""
    listener = internet.inside(stack.networks.net, lambda: socket.create_server((internet.WEB, 7998)))
    probes = [{"host": WEB, "port": 7998, "send": [text], "wait": 15} for text in ("", tls_hello(WEB).decode("latin-1"))]
    t = threading.Thread(target=inside, args=(box, probes))
    t.start()
    with listener, contextlib.ExitStack() as peers:
        listener.settimeout(20)
        for _ in probes:
            urgently(peers.enter_context(listener.accept()[0]))
        t.join()
    said = box.run("cay-denials").out
    assert "urgent data (MSG_OOB) among the server's first bytes" in said and "urgent data (MSG_OOB) in the server's answer" in said


# A ClientHello for the neighbour, and what stands before or in it. "go" skips the second, by hand.
TLS = {
    "plainly": {}, "an empty record first": {"prefix": "1603010000"}, "two empty records first": {"prefix": "16030100001603010000"},
    "a warning first": {"prefix": "1503010002015a"}, "a change of ciphers first": {"prefix": "140303000101"},
    "data first": {"prefix": "170303000158"}, "a version that Go takes": {"version": "0201"},
    "another version that Go takes": {"version": "0f01"}, "records of one byte": {"size": 1}, "two records": {"size": 50},
    "TLS 1.2": {"versions": "TLSv1_2"}, "without a name that is known": {"sni": "unknown.example"},
}


def test_client_hellos_hide_nothing(stack, box):
    node = bool(shutil.which("node"))
    ports = [NODE_TLS] * node + [OPENSSL]
    rows = [(name, port, {"host": WEB, "port": port, "tls": {"sni": OTHER, **how}}) for name, how in TLS.items() for port in ports]
    again = [("a second ClientHello", port, {"host": WEB, "port": port, "tls": {"sni": WEB, "second": OTHER}}) for port in ports]
    for (name, port, _), got in zip(rows + again, inside(box, [p for _, _, p in rows + again]), strict=True):
        assert not for_other(got) and "served" not in got, (name, port, got)
    through = [name for (name, _, _), got in zip(rows + again, outside(stack, [p for _, _, p in rows + again]), strict=True)
               if for_other(got)]
    assert {"plainly", "an empty record first", "records of one byte", "two records", "TLS 1.2",
            "a second ClientHello"} <= set(through), through  # the control
    fine = [{"host": WEB, "port": port, "tls": {"sni": WEB, **how}} for port in ports
            for how in ({}, {"size": 1}, {"size": 50}, {"versions": "TLSv1_2"}, {"second": WEB})]
    got = inside(box, fine)
    assert all(g.startswith("certificate web HTTP/1.") for g in got), got
    said = box.run("cay-denials").out
    assert "the second TLS ClientHello names another server" in said and "the TLS ClientHello cannot be read" in said


# Preface, SETTINGS, and a request for the neighbour: GET, "/", http, and :authority as a literal.
HEADS = b"\x82\x84\x86\x41" + bytes([len(OTHER)]) + OTHER.encode()
H2C = (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + SETTINGS.encode() + struct.pack(">I", len(HEADS))[1:] + b"\x01\x05\0\0\0\x01"
       + HEADS).decode("latin-1")


def test_a_server_that_speaks_first_waives_no_look(stack, box):
    """A client that waits for the server's first words before it says for whom it comes."""
    node = bool(shutil.which("node"))
    ready = {"host": WEB, "port": NODE_H2C, "send": [H2C], "await": True}
    if node:
        assert f"served {OTHER}" in outside(stack, [ready])[0]  # the control
        waits, at_once = inside(box, [ready, {**ready, "await": False}])
        assert "served" not in waits + at_once, (waits, at_once)
        assert "HTTP/2 without TLS" in box.run("cay-denials").out
    # A server of any kind that says something, and what comes behind that.
    hello = tls_hello(OTHER).decode("latin-1")
    greeted = {"host": WEB, "port": GREETER, "await": True, "wait": 2}
    bad = [H2C, GET, "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n", hello, hello[:40]]
    rows = [{**greeted, "send": [text]} for text in bad] + [{**greeted, "send": ["G", GET[1:]]}, {**greeted, "send": ["PR", H2C[2:]]}]
    for row, got in zip(rows, outside(stack, rows), strict=True):
        assert f"heard {len(''.join(row['send']))}" in got, (row, got)  # the control
    for row, got in zip(rows, inside(box, rows), strict=True):
        assert "heard" not in got, (row, got)
    fine = [{**greeted, "send": [text]} for text in
            ("SSH-2.0-client\r\n", "EHLO me.example\r\n", "USER anonymous\r\n", "a1 LOGIN me you\r\n", "CAPA\r\n", "\x20\0\0\1\x85\xa6\xff\1" + "\0" * 28,
             "\xff\xfd\x03\xff\xfb\x18", "RFB 003.008\n", tls_hello(WEB).decode("latin-1"))]
    for row, got in zip(fine, inside(box, fine), strict=True):
        assert f"heard {len(row['send'][0])}" in got, (row, got)
    said = box.run("cay-denials").out
    assert "behind a server's greeting" in said and "not the name that was dialled" in said


def test_a_server_that_ends_has_not_spoken(stack, box):
    """Only bytes of the server's waive the look at the client's."""
    def work():
        s = socket.create_server((internet.WEB, 7999))
        return s
    listener = internet.inside(stack.networks.net, work)
    listener.settimeout(20)
    assert box.write("/tmp/end.py", f"""
import socket, time
s = socket.create_connection(({WEB!r}, 7999), 10)
time.sleep(1)
assert s.recv(1) == b""  # the server's end is told
try:
    s.sendall({GET.encode()!r})
    time.sleep(1)
except OSError:
    pass
""".encode()).status == 200
    r = []
    t = threading.Thread(target=lambda: r.append(box.run("python3 /tmp/end.py", timeout=30)))
    t.start()
    with listener, contextlib.closing(listener.accept()[0]) as peer:
        peer.shutdown(socket.SHUT_WR)
        peer.settimeout(6)
        data = b""
        with contextlib.suppress(OSError):
            while part := peer.recv(4096):
                data += part
    t.join()
    assert r[0].exit_code == 0, r[0].stderr.decode()
    assert data == b"", data


def test_an_encrypted_client_hello_is_opened(stack, box):
    """Where names decide; the server outside, whose certificate no CA has signed, is then not reached."""
    port = NODE_TLS if shutil.which("node") else OPENSSL
    probes = [{"host": WEB, "port": port, "tls": {"sni": WEB, "second": WEB, "ech": ech}} for ech in (True, False)]
    opened, passed_on = inside(box, probes)
    assert "egress_unreachable" in opened and "certificate" in passed_on and "egress" not in passed_on, (opened, passed_on)
    with stack.cay.create() as public:  # the control: where they do not, it is passed on, and the server ignores it
        assert not [g for g in inside(public, probes) if not g.startswith("certificate web HTTP/1.") or "egress" in g]


# -- by address --------------------------------------------------------------------------------------

BY_NAME = {"default": "public", "rules": [{"name": "no admin", "action": "deny", "domains": [WEB], "paths": ["/v1/admin*"]}]}
ADMIN = "/v1/admin/users"


def ways_by_address(path):
    """curl's arguments for a request to WEB's address that says WEB's name, or lets the server guess it."""
    ip, proxy = internet.WEB, f"127.0.0.1:{internet.TCP_PORT}"
    plain, named = f"-H 'Host: {WEB}' http://{ip}{path}", f"--connect-to {WEB}:443:{ip}:443 https://{WEB}{path}"
    yield from ((plain, 200), (named, 200), (f"--http1.1 {named}", 200), (f"-x socks5://{proxy} {plain}", 200),
                (f"-p -x http://{proxy} {plain}", 200), (f"-x http://{proxy} {named}", 200), (f"-x socks5://{proxy} {named}", 200))
    yield f"-H 'Host: {WEB}' https://{ip}{path}", 502  # without SNI: the stand-in's certificate is for no address


def test_by_address_the_rules_of_a_name_hold(stack):
    with stack.cay.create() as one:
        place = stack.place(one)
        ask = "curl -sSk --max-time 20 -o /tmp/answer -w '%{http_code}' "
        for policy, status in ((BY_NAME, 403), ({"default": "public"}, 200)):  # the second is the control
            assert stack.put(one, policy, None, place)[0] == 204
            for scheme in ("http", "https"):
                assert one.run(f"{ask} {scheme}://{WEB}{ADMIN}").out == str(status)
            for arguments, _ in ways_by_address(ADMIN):
                assert one.run(ask + arguments).out == str(status), (policy, arguments, one.run("cat /tmp/answer").out)
        assert stack.put(one, BY_NAME, None, place)[0] == 204
        for arguments, expected in ways_by_address("/v1/fine"):
            assert one.run(ask + arguments).out == str(expected), (arguments, one.run("cat /tmp/answer").out)
        assert one.run(f"{ask} -H 'Host: {OTHER}' http://{internet.WEB}{ADMIN}").out == "200"  # another name's rules are others
        assert one.run(f"{ask} -H 'Host: {OTHER}' --connect-to {WEB}:443:{internet.WEB}:443 https://{WEB}/v1/fine").out == "421"
        # A ceiling's rules of a name hold in the same way.
        assert stack.put(one, {"default": "public"}, BY_NAME, place)[0] == 204
        for arguments, _ in ways_by_address(ADMIN):
            assert one.run(ask + arguments).out == "403", arguments


HELD = f"""
import socket, ssl, sys, time
context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
held = {{}}
for name, address in (({WEB!r}, {internet.WEB!r}), ({OTHER!r}, {internet.OTHER!r})):
    held[name] = context.wrap_socket(socket.create_connection((address, 443), 10), server_hostname=name)
print("open", flush=True)
time.sleep(float(sys.argv[1]))
for name, s in held.items():
    try:
        s.sendall(f"GET /held HTTP/1.1\\r\\nHost: {{name}}\\r\\nConnection: close\\r\\n\\r\\n".encode())
        print(name, "goes on" if s.recv(100).startswith(b"HTTP/1.1 200") else "ended")
    except OSError:
        print(name, "ended")
"""


def test_tunnels_by_address_are_asked_about_again(stack):
    """Connections that are passed on unread, when a change of the policy denies the name that they said."""
    with stack.cay.create() as one:
        place = stack.place(one)
        assert stack.put(one, {"default": "public"}, None, place)[0] == 204
        assert one.write("/tmp/held.py", HELD.encode()).status == 200
        one.run("nohup python3 /tmp/held.py 4 > /tmp/held 2>&1 &")
        until(lambda: "open" in one.run("cat /tmp/held").out, 20)
        assert stack.put(one, {"default": "public", "rules": [{"action": "deny", "domains": [WEB]}]}, None, place)[0] == 204
        until(lambda: len(one.run("cat /tmp/held").out.splitlines()) == 3, 20)
        assert one.run("cat /tmp/held").out == f"open\n{WEB} ended\n{OTHER} goes on\n"


# -- other spellings ---------------------------------------------------------------------------------

OVERRIDES = ("X-HTTP-Method-Override: DELETE", "x-http-method: DELETE", "X-Method-Override: DELETE", "X_HTTP_Method_Override: DELETE",
             f"X-Original-URL: {ADMIN}", f"X-Rewrite-URL: {ADMIN}", "X.HTTP.Method.Override: DELETE", f"x~original~url: {ADMIN}",
             "Forwarded: host=other.example", "X-Original-Host: other.example", "X-Forwarded-Server: other.example",
             f"X-Forwarded-Url: {ADMIN}", f"X-Forwarded-Original-Url: {ADMIN}", f"X-Request-Uri: {ADMIN}",
             f"X-Http-Url-Override: {ADMIN}", f"X-Proxy-Url: {ADMIN}", f"X-Envoy-Original-Path: {ADMIN}",
             "X-Envoy-Original-Host: other.example", "X-Http-Verb: DELETE", "X-Verb: DELETE", "X-Requested-Method: DELETE",
             "X-Tunnel-Method: DELETE")


SECOND = ("x-amz-copy-source: bucket/key", "X_Amz_Copy_Source: /bucket/key", f"Destination: https://{WEB}{ADMIN}", "X-Copy-From: c/o",
          "x-ms-rename-source: /fs/x", "x-goog-copy-source: /b/k")


@pytest.mark.parametrize("policy, why", [
    ({"default": "public", "rules": BY_NAME["rules"]}, "rule"),
    ({"rules": [{"action": "allow", "domains": [WEB], "paths": ["/v1/fine*"]}]}, "default"),
    ({"rules": [{"action": "allow", "domains": [WEB], "methods": ["PUT"]}]}, "default"),
    ({"rules": [{"action": "allow", "domains": [WEB], "methods": ["PUT", "GET"]}]}, None), ({"default": "public"}, None)])
def test_a_second_path_in_a_header(stack, policy, why):
    """The path that a request copies, or copies to, is one that no rule was asked about: a server like S3 read
    /private/x for PUT /fine/x. The controls: without the header each passes, and where no path decides, the server
    sees the header."""
    with stack.cay.create() as one:
        assert stack.put(one, policy, None, stack.place(one))[0] == 204
        ask = "curl -sS -k --max-time 20 -X PUT -w ' %{http_code}'"
        for scheme in ("http", "https"):
            assert one.run(f"{ask} {scheme}://{WEB}/v1/fine").out.endswith(" 200")
            for header in SECOND:
                got, _, status = one.run(f"{ask} -H '{header}' {scheme}://{WEB}/v1/fine").out.rpartition(" ")
                name = header.partition(":")[0]
                assert status == ("403" if why else "200"), (header, got)
                assert (f"the header {name} names a second path" in got) == bool(why) and name.lower() in got.lower(), got


def test_other_spellings_of_what_is_denied(stack):
    rules = [*BY_NAME["rules"], {"action": "deny", "domains": [WEB], "methods": ["DELETE"]},
             {"action": "deny", "domains": [WEB], "paths": ["/v1/*:delete", "/@own*"]}]
    with stack.cay.create() as one:
        place = stack.place(one)
        ask = "curl -sS --path-as-is --max-time 20 -o /tmp/answer -w '%{http_code}' "
        headers = " ".join(f"-H '{h}'" for h in OVERRIDES)
        for policy, refused in (({"default": "public", "rules": rules}, True), ({"default": "public"}, False)):
            assert stack.put(one, policy, None, place)[0] == 204
            for path in (ADMIN, "/V1/Admin/users", "/v1;x=1/admin/users", "/v1/x;/../admin", "/v1/%c0%afadmin", "/v1/x%3Adelete", "/%40own/x"):
                assert one.run(f"{ask} 'http://{WEB}{path}'").out == ("403" if refused else "200"), path
            for scheme in ("http", "https"):
                assert one.run(f"{ask} -k {headers} {scheme}://{WEB}/v1/fine").out == "200"
                seen = one.run("cat /tmp/answer").out
                assert all((h.split(":")[0].lower() in seen.lower()) != refused for h in OVERRIDES), seen
