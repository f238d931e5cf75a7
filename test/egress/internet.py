"""A stand-in internet for tests of the way out, and for the parties around cay-egress there.

Three network namespaces, without any link to the machine's own network:

    sandbox   as cay-privd makes one: only lo, everything redirected to two listeners   (class Sandbox)
    host      where cay-egress runs; a veth to the next                                 (class World)
    internet  addresses of all kinds, DNS, HTTP, HTTPS, servers of bytes                (this file, `serve`)

    python3 internet.py serve ZONE-FILE CERT KEY    runs the servers; started by World in its namespace

Nothing here needs more than Python's own library, iproute2, nft and openssl. As root."""

import array
import base64
import ctypes
import hashlib
import http.client
import http.server
import itertools
import json
import os
import pathlib
import pwd
import re
import resource
import shutil
import signal
import socket
import socketserver
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time

import models

HOST_ADDRESS, GATEWAY = "192.0.2.1", "192.0.2.254"
HOST_ADDRESS6, GATEWAY6 = "2001:db8:77::1", "2001:db8:77::254"
WEB, WEB6, OTHER, DNS = "93.184.216.34", "2606:2800:220:1::34", "151.101.1.1", "8.8.8.8"
METADATA, PRIVATE = "169.254.169.254", "10.0.0.5"
ADDRESSES = (WEB, WEB6, OTHER, DNS, METADATA, PRIVATE, "100.100.100.200", "fd00:ec2::254", "198.51.100.7",
             "168.63.129.16", "192.0.0.192", "fd20:ce::254", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1", "::a9fe:a9fe",
             "198.18.0.99", "172.16.0.9", "192.168.0.9", "100.64.0.9", "240.0.0.9", "fec0::9", "fd12::9")
ECHO_PORT, BANNER_PORT, SINK_PORT, SOURCE_PORT = 7000, 22, 7001, 7002
SOCKS_PORT, CONNECT_PORT = 1080, 3129

TCP_PORT, UDP_PORT = 3128, 3153  # EGRESS_TCP_PORT, EGRESS_UDP_PORT in src/contract/proto.h
OWN4, OWN6 = "192.0.2.2", "2001:db8::2"  # NETLINK_OWN_IPV4 and _IPV6 in src/sys/netlink.h
RESOLVER = "198.18.0.1"

RULES = f"""
table inet cay {{
  chain way {{
    type nat hook output priority -100; policy accept;
    ip daddr {{ 127.0.0.0/8, {OWN4} }} accept
    ip6 daddr {{ ::1, {OWN6} }} accept
    meta l4proto tcp redirect to :{TCP_PORT}
    udp dport 53 redirect to :{UDP_PORT}
  }}
  chain out {{
    type filter hook output priority 0; policy accept;
    ip daddr {{ 127.0.0.0/8, {OWN4} }} accept
    ip6 daddr {{ ::1, {OWN6} }} accept
    meta l4proto tcp reject with tcp reset
    reject with icmpx type admin-prohibited
  }}
}}
"""


def run(*command, **more):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **more)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout


# -- the servers -------------------------------------------------------------------------------------


def dns_name(packet, at):
    labels = []
    while packet[at]:
        labels.append(packet[at + 1:at + 1 + packet[at]].decode("latin-1"))
        at += 1 + packet[at]
    return ".".join(labels).lower(), at + 1


def dns_wire(name):
    return b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + b"\0"


class Dns:
    """The zone: name -> {"a": [[addresses of the first answer], [of the second], ...], "aaaa": ...,
    "mode": "slow" | "truncated" | "half" | "servfail" | "garbage", "chain": [other names (CNAME) before the addresses]}.
    The last answer is repeated. Each question is written to the log, since a test wants to know what left."""

    def __init__(self, zone, log):
        self.zone, self.log, self.asked = zone, log, {}
        self.lock = threading.Lock()

    def answer(self, packet, tcp):
        name, at = dns_name(packet, 12)
        kind = struct.unpack_from(">H", packet, at)[0]
        question = packet[12:at + 4]
        with self.lock:
            with open(self.log, "a", encoding="ascii", errors="replace") as f:
                f.write(f"dns {name} {kind} {'tcp' if tcp else 'udp'}\n")
            entry = self.zone.get(name)
            count = self.asked[name, kind] = self.asked.get((name, kind), 0) + 1
        mode = (entry or {}).get("mode", "")
        if mode == "slow":
            time.sleep(30)
        if mode == "garbage":
            return packet[:2] + b"\x81\x80\x00\x01\xff\xff\x00\x00\x00\x00" + question + b"\xc0\x0c\x00"
        code = 2 if mode == "servfail" else 0 if entry else 3
        answers = (entry or {}).get({1: "a", 28: "aaaa"}.get(kind, ""), [[]])
        chosen = answers[min(count, len(answers)) - 1]
        records, owner, chain = b"", b"\xc0\x0c", (entry or {}).get("chain", [])
        for other in chain:
            data = dns_wire(other)
            records += owner + struct.pack(">HHIH", 5, 1, 0, len(data)) + data
            owner = data
        for address in chosen:
            data = socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)
            records += owner + struct.pack(">HHIH", kind, 1, entry.get("ttl", 0), len(data)) + data
        flags = 0x8180 | code
        if mode in ("truncated", "half") and not tcp:
            return packet[:2] + struct.pack(">HHHHH", flags | 0x0200, 1, 0, 0, 0) + question
        return packet[:2] + struct.pack(">HHHHH", flags, 1, len(chain) + len(chosen), 0, 0) + question + records

    def serve_udp(self, address):
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        s.bind((address, 53))
        while True:
            packet, peer = s.recvfrom(4096)
            threading.Thread(target=lambda p=packet, w=peer: s.sendto(self.answer(p, False), w), daemon=True).start()

    def serve_tcp(self, connection):
        while True:
            head = connection.recv(2, socket.MSG_WAITALL)
            if len(head) < 2:
                return
            answer = self.answer(connection.recv(struct.unpack(">H", head)[0], socket.MSG_WAITALL), True)
            half = self.zone.get(dns_name(answer, 12)[0], {}).get("mode") == "half"
            connection.sendall(struct.pack(">H", len(answer)) + answer[:len(answer) // 2 if half else None])
            if half:  # nor is what was asked behind it
                time.sleep(30)


class Web(http.server.BaseHTTPRequestHandler):
    """Says what it was asked: method, path, headers, body, the address that was reached. But for what is below
    `home`: site/HOST/PATH is a file of that host, git/NAME.git a repository at /git/NAME.git of every host; and for
    /events (server-sent events) and /websocket (messages are sent back)."""

    protocol_version = "HTTP/1.1"
    home = None
    seen = threading.Condition()
    events_seen = 0

    def send(self, data, kind="application/octet-stream", status=200):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def file(self):
        host = (self.headers.get("Host") or "").split(":")[0].lower()
        path = self.path.partition("?")[0]
        found = self.home / "site" / host / (path.lstrip("/") + ("index.html" if path.endswith("/") else ""))
        try:
            return found if found.is_file() and found.resolve().is_relative_to(self.home / "site") else None
        except (OSError, ValueError):  # too long for a name, or none at all
            return None

    def git(self):
        """git's own server program, by the rules of CGI."""
        path, _, query = self.path.partition("?")
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Transfer-Encoding"):
            while n := int(self.rfile.readline(), 16):
                body += self.rfile.read(n)
                self.rfile.readline()
            self.rfile.readline()
        environment = {"PATH": os.environ["PATH"], "GIT_PROJECT_ROOT": str(self.home / "git"), "GIT_HTTP_EXPORT_ALL": "1",
                       "PATH_INFO": path.removeprefix("/git"), "QUERY_STRING": query, "REQUEST_METHOD": self.command,
                       "CONTENT_TYPE": self.headers.get("Content-Type", ""), "CONTENT_LENGTH": str(len(body)),
                       "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
                       "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""), "REMOTE_USER": "test", "HOME": str(self.home)}
        done = subprocess.run(["git", "-c", "safe.directory=*", "http-backend"], input=body, capture_output=True,
                              env=environment, check=False)
        head, _, data = done.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().splitlines())
        self.send(data, fields.get("Content-Type", "text/plain"), int(fields.get("Status", "200").split()[0]))

    def events(self):
        """Each event but the first is sent when a client has said that the one before was seen (/seen)."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        for n in range(1, 5):
            self.wfile.write(f"event: tick\ndata: {n}\n\n".encode())
            with Web.seen:
                if not Web.seen.wait_for(lambda n=n: Web.events_seen >= n, 20):
                    return

    def websocket(self):
        """RFC 6455: frames of text, each sent back; a close too."""
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key.encode()).digest()).decode())
        self.end_headers()
        self.close_connection = True
        while len(head := self.rfile.read(2)) == 2:
            n = head[1] & 127
            n = struct.unpack(">H", self.rfile.read(2))[0] if n == 126 else n
            mask, data = self.rfile.read(4), self.rfile.read(n)
            plain = bytes(b ^ mask[i % 4] for i, b in enumerate(data))
            size = bytes([n]) if n < 126 else b"\x7e" + struct.pack(">H", n)
            self.wfile.write(head[:1] + size + plain)
            if head[0] & 15 == 8:
                return

    def switch(self):
        """Says yes to a change of protocol, and goes on with HTTP as before."""
        self.send_response(101)
        self.send_header("Upgrade", self.headers.get("Upgrade", "h2c"))
        self.send_header("Connection", "Upgrade")
        self.end_headers()
        self.close_connection = False

    def answer(self):
        with open(self.home / "requests.log", "a", encoding="latin-1") as f:
            f.write(f"{self.command} {self.path} {self.headers.get('Host')}\n")
        if self.headers.get("Host") in models.NAMES:
            models.answer(self)
            return
        if self.path.startswith("/git/"):
            self.git()
            return
        if self.path.startswith("/cut"):  # in the middle of an answer
            chunked = self.path.endswith("chunked")
            self.send_response(200)
            self.send_header(*(("Transfer-Encoding", "chunked") if chunked else ("Content-Length", "100")))
            self.end_headers()
            self.wfile.write(b"a\r\n0123456789\r\n" if chunked else b"0123456789")
            self.close_connection = True
            return
        if self.path == "/events":
            self.events()
            return
        if self.path == "/websocket" and self.headers.get("Upgrade"):
            self.websocket()
            return
        if self.path.endswith("/switch"):
            self.switch()
            return
        if self.path.startswith("/seen/"):
            with Web.seen:
                Web.events_seen = int(self.path.split("/")[2])
                Web.seen.notify_all()
        length = int(self.headers.get("Content-Length") or 0)
        if file := self.file():
            self.rfile.read(length)  # else it would be taken for the next request
            self.send(file.read_bytes(), "text/html" if file.name == "index.html" else "application/octet-stream")
            return
        body = self.rfile.read(length).decode("latin-1")
        if self.path.startswith("/bytes/"):
            self.send_bytes(int(self.path.split("/")[2]))
            return
        elif self.path.startswith("/redirect?"):
            self.send_response(302)
            self.send_header("Location", self.path.split("?", 1)[1])
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        else:
            # Secrets are taken out of answers: their digests are not.
            digests = {n: hashlib.sha256(v.encode()).hexdigest() for n, v in self.headers.items()}
            data = json.dumps({"method": self.command, "path": self.path, "headers": dict(self.headers.items()),
                               "body": body, "address": self.connection.getsockname()[0], "digests": digests,
                               "tls": isinstance(self.connection, ssl.SSLSocket)}).encode()
        self.send(data, "application/json")

    def send_bytes(self, left):
        """In pieces: gigabytes of which a test reads one, at once, took a loaded machine forty seconds."""
        self.send_response(200)
        self.send_header("Content-Length", str(left))
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        piece = b"x" * min(left, 1 << 20)
        while left > 0 and self.command != "HEAD":
            left -= self.wfile.write(piece[:left])

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = do_PATCH = answer

    def log_message(self, *_):
        pass


class Server6(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6
    request_queue_size = 512
    context = None

    def get_request(self):
        connection, peer = super().get_request()
        if self.context:
            connection.settimeout(30)
            connection = self.context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        return connection, peer

    def handle_error(self, *_):
        pass


def echo(connection):
    while data := connection.recv(65536):
        connection.sendall(data)


def banner(connection):
    connection.sendall(b"SSH-2.0-stand-in\r\n")
    echo(connection)


def sink(connection):
    count = 0
    while data := connection.recv(1 << 20):
        count += len(data)
    connection.sendall(str(count).encode())


def source(connection):
    """A line with a number in, that many bytes out."""
    left, piece = int(connection.makefile().readline()), b"s" * (1 << 20)
    while left > 0:
        left -= connection.send(piece[:min(left, len(piece))])


def join(a, b):
    """Bytes both ways until both directions have ended."""
    def copy(source_end, sink_end):
        try:
            while data := source_end.recv(65536):
                sink_end.sendall(data)
            sink_end.shutdown(socket.SHUT_WR)
        except OSError:
            pass
    thread = threading.Thread(target=copy, args=(b, a), daemon=True)
    thread.start()
    copy(a, b)
    thread.join()
    b.close()


def exactly(connection, n):
    data = connection.recv(n, socket.MSG_WAITALL)
    if len(data) < n:
        raise ConnectionError("cut short")
    return data


PROXY_USER = ("user", "pass word")


def socks_proxy(connection):
    """SOCKS5 with and without a password. A name is always WEB to it."""
    methods = exactly(connection, exactly(connection, 2)[1])
    if 2 in methods:
        connection.sendall(b"\5\2")
        user = exactly(connection, exactly(connection, 2)[1]).decode()
        password = exactly(connection, exactly(connection, 1)[0]).decode()
        connection.sendall(b"\1\0" if (user, password) == PROXY_USER else b"\1\1")
    else:
        connection.sendall(b"\5\0")
    kind = exactly(connection, 4)[3]
    host = (exactly(connection, exactly(connection, 1)[0]).decode() if kind == 3
            else socket.inet_ntop(socket.AF_INET if kind == 1 else socket.AF_INET6,
                                  exactly(connection, 4 if kind == 1 else 16)))
    port = struct.unpack(">H", exactly(connection, 2))[0]
    upstream = socket.create_connection((WEB if kind == 3 else host, port))
    connection.sendall(b"\5\0\0\1" + bytes(6))
    join(connection, upstream)


def connect_proxy(connection):
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += exactly(connection, 1)
    port = int(head.split()[1].rsplit(b":", 1)[1])
    upstream = socket.create_connection((WEB, port))
    connection.sendall(b"HTTP/1.1 200 fine\r\nX-Header: y\r\n\r\n")
    join(connection, upstream)


class Stream(socketserver.ThreadingTCPServer):
    address_family = socket.AF_INET6
    allow_reuse_address = daemon_threads = True
    request_queue_size = 4096

    def __init__(self, port, work):
        self.work = work
        super().__init__(("::", port), None)

    def finish_request(self, request, client_address):
        request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.work(request)

    def handle_error(self, *_):
        pass


def serve(zone_file, certificate, key):
    zone = json.loads(pathlib.Path(zone_file).read_text())
    dns = Dns(zone, pathlib.Path(zone_file).with_suffix(".log"))
    Web.home = pathlib.Path(zone_file).resolve().parent
    servers = [Stream(53, dns.serve_tcp), Stream(ECHO_PORT, echo), Stream(BANNER_PORT, banner),
               Stream(SINK_PORT, sink), Stream(SOURCE_PORT, source), Stream(SOCKS_PORT, socks_proxy),
               Stream(CONNECT_PORT, connect_proxy)]
    for port in (80, 8080, 443, 8443):
        server = Server6(("::", port), Web)
        if port in (443, 8443):
            server.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            server.context.load_cert_chain(certificate, key)
        servers.append(server)
    for server in servers:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    threading.Thread(target=dns.serve_udp, args=(DNS,), daemon=True).start()
    print("ready", flush=True)
    sys.stdin.read()


# -- namespaces --------------------------------------------------------------------------------------

libc = ctypes.CDLL(None, use_errno=True)


def inside(name, work):
    """Calls work() on a thread that has entered the network namespace, and hands its result back."""
    result = []

    def enter():
        with open(f"/run/netns/{name}", "rb") as f:
            if libc.setns(f.fileno(), 0x40000000) != 0:  # CLONE_NEWNET
                result.append(OSError(ctypes.get_errno(), "setns"))
                return
        try:
            result.append(work())
        except Exception as e:  # sent to the client
            result.append(e)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    if isinstance(result[0], Exception):
        raise result[0]
    return result[0]


def listener(kind, port):
    s = socket.socket(socket.AF_INET6, kind)
    s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    s.bind(("::", port))
    if kind == socket.SOCK_STREAM:
        s.listen(1024)
    s.setblocking(False)
    return s


class Sandbox:
    """A network namespace as cay-privd makes one, with its two listeners."""

    numbers = itertools.count()

    def __init__(self, slot, gen):
        self.slot, self.gen = slot, gen
        self.name = f"cayt-{os.getpid()}-s{next(self.numbers)}"
        self.etc = pathlib.Path("/etc/netns") / self.name
        self.tcp = self.udp = None
        run("ip", "netns", "add", self.name)
        try:
            self.furnish()
        except BaseException:
            self.close()
            raise

    def furnish(self):
        self.etc.mkdir(parents=True)
        (self.etc / "resolv.conf").write_text(f"nameserver {RESOLVER}\n")
        for command in ("link set lo up", f"address add {OWN4}/32 dev lo", f"-6 address add {OWN6}/128 dev lo nodad",
                        f"route add default dev lo src {OWN4}", f"-6 route add default dev lo src {OWN6}"):
            run("ip", "-n", self.name, *command.split())
        run("ip", "netns", "exec", self.name, "nft", "-f", "-", input=RULES)
        self.tcp = inside(self.name, lambda: listener(socket.SOCK_STREAM, TCP_PORT))
        self.udp = inside(self.name, lambda: listener(socket.SOCK_DGRAM, UDP_PORT))

    def command(self, *command):
        return ["ip", "netns", "exec", self.name, *(str(part) for part in command)]

    def run(self, *command, timeout=60, **more):
        return subprocess.run(self.command(*command), capture_output=True, text=True, timeout=timeout, **more)

    def curl(self, *arguments, timeout=60):
        return self.run("curl", "-sS", "--max-time", "40", *arguments, timeout=timeout)

    def connect(self, address, port, timeout=30):
        """A connected socket from inside."""
        def work():
            s = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
            s.settimeout(timeout)
            s.connect((address, port))
            return s
        return inside(self.name, work)

    def socket(self, *arguments):
        return inside(self.name, lambda: socket.socket(*arguments))

    def resolve(self, name, kind=1, server=RESOLVER, timeout=10):
        """(rcode, answers) of one question over UDP; kind 1 A, 28 AAAA, 12 PTR, 65 HTTPS."""
        packet = struct.pack(">HHHHHH", 0x1234, 0x0100, 1, 0, 0, 0) + dns_wire(name) + struct.pack(">HH", kind, 1)
        with self.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.settimeout(timeout / 5)
            s.connect((server, 53))
            for _ in range(5):
                s.send(packet)
                try:
                    return self.parse(s.recv(4096))
                except TimeoutError:
                    pass
            raise TimeoutError(f"no answer about {name}")

    @staticmethod
    def parse(answer):
        flags, _, count = struct.unpack_from(">HHH", answer, 2)
        at, found = dns_name(answer, 12)[1] + 4, []
        for _ in range(count):
            at += 2 if answer[at] >= 0xc0 else dns_name(answer, at)[1] - at
            kind, _, _, n = struct.unpack_from(">HHIH", answer, at)
            data, at = answer[at + 10:at + 10 + n], at + 10 + n
            found.append(socket.inet_ntop(socket.AF_INET if kind == 1 else socket.AF_INET6, data)
                         if kind in (1, 28) else dns_name(data, 0)[0])
        return flags & 15, found

    def close(self):
        for s in filter(None, (self.tcp, self.udp)):
            s.close()
        for pid in run("ip", "netns", "pids", self.name).split():
            os.kill(int(pid), signal.SIGKILL)
        run("ip", "netns", "delete", self.name)
        shutil.rmtree(self.etc, ignore_errors=True)


def operations(*names):
    """The numbers that src/contract/proto.h gives them."""
    text = (pathlib.Path(__file__).resolve().parents[2] / "src/contract/proto.h").read_text()
    numbers, last = {}, 0
    for name, value in re.findall(r"^    PRIVSEP_(\w+)(?: = (\d+))?\b", re.search(r"enum privsep_op \{(.+?)^\}", text, re.M | re.S)[1], re.M):
        last = int(value) if value else last + 1
        numbers[name] = last
    return [numbers[name] for name in names]


class Privd:
    """cay-privd's side of cay-egress's channel. Message layout: src/contract/proto.h."""

    HELLO, OPEN, SYNC, CLOSE = operations("HELLO", "EGRESS_OPEN", "EGRESS_SYNC", "EGRESS_CLOSE")
    SIZE, HEAD = 288, struct.Struct("<IHHQIIiI")

    def __init__(self, path):
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(str(path))
        os.chmod(path, 0o666)
        self.listener.listen(4)
        self.live, self.peer, self.lock = [], None, threading.Lock()
        threading.Thread(target=self.serve, daemon=True).start()

    def send(self, op, seq=0, slot=0, gen=0, fds=(), body=b""):
        packet = self.HEAD.pack(1, op, len(fds), seq, slot, gen, 0, 0) + body.ljust(self.SIZE - self.HEAD.size, b"\0")
        control = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        try:
            self.peer.sendmsg([packet], control)
        except OSError:  # it is being started again, and will be told all
            self.peer = None

    def open(self, sandbox):
        self.send(self.OPEN, slot=sandbox.slot, gen=sandbox.gen, fds=(sandbox.tcp.fileno(), sandbox.udp.fileno()))

    def serve(self):
        while True:
            try:
                peer, _ = self.listener.accept()
                packet = peer.recv(self.SIZE)
            except OSError:
                return
            if len(packet) != self.SIZE:
                continue
            with self.lock:
                self.peer = peer
                self.send(self.HELLO, seq=self.HEAD.unpack_from(packet)[3], body=struct.pack("<II", 1, 0))
                for sandbox in self.live:
                    if self.peer:
                        self.open(sandbox)
                if self.peer:
                    self.send(self.SYNC)

    def add(self, sandbox):
        with self.lock:
            self.live.append(sandbox)
            if self.peer:
                self.open(sandbox)

    def remove(self, sandbox):
        with self.lock:
            if sandbox in self.live:
                self.live.remove(sandbox)
                if self.peer:
                    self.send(self.CLOSE, slot=sandbox.slot, gen=sandbox.gen)

    def close(self):
        self.listener.close()
        if self.peer:
            self.peer.close()


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout=30):
        super().__init__("localhost", timeout=timeout)
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class World:
    """The internet, the host, and a cay-egress on it."""

    numbers = itertools.count()

    def __init__(self, program, zone=None, user=None, arguments=()):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="cay-egress-", dir="/var/tmp"))
        self.dir.chmod(0o755)
        number = next(self.numbers)
        self.host, self.net = f"cayt-{os.getpid()}-host{number}", f"cayt-{os.getpid()}-net{number}"
        self.program, self.user, self.arguments = program, user, list(arguments)
        self.open_files = None  # a limit for cay-egress, or its own
        self.zone = zone or {}
        self.sandboxes, self.processes, self.egress = [], [], None
        self.slots = itertools.count(1)
        try:
            self.make_networks()
            self.make_certificates()
            self.start_internet()
            self.control, self.log = self.dir / "egress.ctl", self.dir / "egress.log"
            self.privd = Privd(self.dir / "egress.sock")
            self.ctl = socket.socket(socket.AF_UNIX)
            self.ctl.bind(str(self.control))
            self.ctl.listen(64)
            self.state = self.dir / "state"
            self.state.mkdir(mode=0o700)
            if user:
                who = pwd.getpwnam(user)
                os.chown(self.state, who.pw_uid, who.pw_gid)
            self.start_egress()
        except BaseException:
            self.close()
            raise

    def make_networks(self):
        for name in (self.host, self.net):
            run("ip", "netns", "add", name)
            run("ip", "-n", name, "link", "set", "lo", "up")
        run("ip", "link", "add", "out", "netns", self.host, "type", "veth", "peer", "name", "in", "netns", self.net)
        for name, link, own, own6 in ((self.host, "out", HOST_ADDRESS, HOST_ADDRESS6),
                                      (self.net, "in", GATEWAY, GATEWAY6)):
            run("ip", "-n", name, "address", "add", f"{own}/24", "dev", link)
            run("ip", "-n", name, "-6", "address", "add", f"{own6}/64", "dev", link, "nodad")
            run("ip", "-n", name, "link", "set", link, "up")
        run("ip", "-n", self.host, "route", "add", "default", "via", GATEWAY)
        run("ip", "-n", self.host, "-6", "route", "add", "default", "via", GATEWAY6)
        for address in ADDRESSES:
            run("ip", "-n", self.net, "address", "add", f"{address}/{128 if ':' in address else 32}", "dev", "lo")

    def make_certificates(self):
        """A CA and a certificate of each name in the zone."""
        d = self.dir
        names = ",".join(f"DNS:{name}" for name in self.zone if "*" not in name) or "DNS:web.example.com"
        self.ca, self.cert, self.key = d / "ca.pem", d / "cert.pem", d / "key.pem"
        new = ("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2")
        run(*new, "-subj", "/CN=stand-in CA", "-keyout", d / "ca.key", "-out", self.ca)
        run(*new, "-subj", "/CN=stand-in", "-addext", f"subjectAltName={names}", "-addext", "basicConstraints=CA:FALSE",
            "-CA", self.ca, "-CAkey", d / "ca.key", "-keyout", self.key, "-out", self.cert)

    def start_internet(self):
        zone = self.dir / "zone.json"
        zone.write_text(json.dumps(self.zone))
        self.asked_log = self.dir / "zone.log"
        self.asked_log.write_text("")
        p = subprocess.Popen(["ip", "netns", "exec", self.net, sys.executable, __file__, "serve", zone, self.cert,
                              self.key], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.processes.append(p)
        assert p.stdout.readline() == "ready\n"

    def start_egress(self, wait=True):
        ready, told = os.pipe()
        command = ["ip", "netns", "exec", self.host]
        if self.user:
            command += ["setpriv", f"--reuid={self.user}", f"--regid={pwd.getpwnam(self.user).pw_gid}", "--clear-groups",
                        "--bounding-set=-all", "--no-new-privs"]
        command += [self.program, "--listen-fd=3", "--ready-fd=4", f"--privd={self.dir}/egress.sock",
                    f"--state-dir={self.state}", f"--peer-uid={os.getuid()}", "--shard=0/1",
                    f"--egress-dns-servers={DNS}", f"--egress-ca-file={self.ca}", *self.arguments]

        def descriptors():
            os.dup2(high_ctl, 3)
            os.dup2(high_told, 4)
            if self.open_files:
                resource.setrlimit(resource.RLIMIT_NOFILE, (self.open_files, self.open_files))

        high_ctl, high_told = os.dup(self.ctl.fileno()), os.dup(told)
        with open(self.log, "a", encoding="utf-8") as log:
            self.egress = subprocess.Popen([str(part) for part in command], pass_fds=(3, 4), preexec_fn=descriptors,
                                           stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        for fd in (high_ctl, high_told, told):
            os.close(fd)
        answer = os.read(ready, 300)
        os.close(ready)
        assert answer == b"R", (answer, self.log.read_text())

    def kill_egress(self):
        self.egress.kill()
        self.egress.wait()

    # what cayd would say

    def call(self, method, path, body=None, timeout=30):
        c = UnixConnection(self.control, timeout)
        c.request(method, path, None if body is None else json.dumps(body))
        r = c.getresponse()
        text = r.read().decode()
        c.close()
        return r.status, text

    def put(self, sandbox, policy, ceiling=None, **more):
        body = {"id": f"sandbox{sandbox.slot}", "tenant": "tenant1", "policy": policy,
                "ceilings": [ceiling] if ceiling else [],
                "credentials": [], "proxy": None, **more}
        return self.call("PUT", f"/v1/sandboxes/{sandbox.slot}/{sandbox.gen}", body)

    def denials(self, sandbox):
        status, text = self.call("GET", f"/v1/sandboxes/{sandbox.slot}/{sandbox.gen}/denials")
        assert status == 200, text
        return json.loads(text)["denials"]

    def audit(self, query="limit=1000"):
        status, text = self.call("GET", f"/v1/audit?{query}")
        assert status == 200, text
        return [json.loads(line) for line in text.splitlines()]

    def audit_log(self, tenant="tenant1"):
        """The newest file of its records."""
        return self.state / f"audit-0.{tenant}.log"

    def asked(self, name):
        """How often DNS was asked for it outside."""
        return sum(line.split()[1] == name for line in self.asked_log.read_text().splitlines())

    def sandbox(self, policy=None, **more):
        s = Sandbox(next(self.slots), 1)
        self.sandboxes.append(s)
        self.privd.add(s)
        if policy is not None:
            status, text = self.put(s, policy, **more)
            assert status == 204, text
        return s

    def end(self, sandbox):
        self.privd.remove(sandbox)
        self.sandboxes.remove(sandbox)
        sandbox.close()

    def close(self):
        if self.egress:
            self.egress.terminate()
            self.egress.wait()
        for s in list(self.sandboxes):
            s.close()
        for p in self.processes:
            p.stdin.close()
            p.wait()
        if hasattr(self, "privd"):
            self.privd.close()
            self.ctl.close()
        for name in (self.host, self.net):
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)
        shutil.rmtree(self.dir, ignore_errors=True)


if __name__ == "__main__":
    if sys.argv[1:2] != ["serve"] or len(sys.argv) != 5:
        sys.exit(__doc__)
    serve(*sys.argv[2:])
