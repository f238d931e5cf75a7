"""TLS on the port: versions spoken and refused, real clients through it to the API and into sandboxes, what
strangers do to a handshake, and certificates that are refused at the start."""

import hashlib
import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import threading

import pytest

from client import Client
from conftest import BUILD, READY_SECONDS, UID_BASE, USER, OwnServer, free_port
from tlslib import DOMAIN, make_authority, make_certificate, openssl
from waitlib import until

PORT = 8124
SERVICE = r"""
import hashlib, http.server, sys
class H(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        if self.path == "/ws":
            self.connection.sendall(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
            while (data := self.connection.recv(65536)):
                self.connection.sendall(data)
            self.close_connection = True
            return
        body = self.headers["Host"].encode()
        self.send_response(200); self.send_header("Content-Length", str(len(body))); self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_): pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), H).serve_forever()
"""

if os.environ.get("CAY_URL"):
    pytest.skip("the tests of TLS start servers of their own", allow_module_level=True)


@pytest.fixture(scope="module")
def files():
    folder = pathlib.Path(tempfile.mkdtemp(prefix="cay-test-tls-", dir="/var/tmp"))
    make_authority(folder)
    make_certificate(folder, "good")
    yield folder
    shutil.rmtree(folder)


class TlsClient(Client):
    def __init__(self, server, files):
        super().__init__(f"https://127.0.0.1:{server.port}", server.key())
        self.context = ssl.create_default_context(cafile=files / "ca.pem")

    def connect(self, timeout=60):
        return http.client.HTTPSConnection(self.host, self.port, timeout=timeout, context=self.context)

    def raw(self, context=None, name=DOMAIN):
        plain = socket.create_connection((self.host, self.port), timeout=20)
        return (context or self.context).wrap_socket(plain, server_hostname=name)


@pytest.fixture(scope="module")
def tls_server(files):
    own = OwnServer(keep_args=[f"--tls-cert={files}/good.pem", f"--tls-key={files}/good.key"],
                    cayd_args=[f"--server-domain={DOMAIN}"])
    yield own
    own.stop()


@pytest.fixture(scope="module")
def cay(tls_server, files):
    return TlsClient(tls_server, files)


@pytest.fixture(scope="module")
def service(sandbox):
    sandbox.write("/tmp/service.py", SERVICE.encode())
    sandbox.run(f"nohup python3 /tmp/service.py {PORT} >/dev/null 2>&1 & ")
    until(lambda: sandbox.request("GET", "/", port=PORT).status == 200, what="the service inside answers")
    return sandbox


def open_sockets(server):
    """Connections that cayd holds: its descriptors that are TCP sockets, the listeners not counted."""
    cayd = next(int(p) for p in os.listdir("/proc") if p.isdigit() and is_cayd_of(p, server))
    inodes = set()
    for fd in os.listdir(f"/proc/{cayd}/fd"):
        try:
            inodes.add(os.readlink(f"/proc/{cayd}/fd/{fd}").removeprefix("socket:[").removesuffix("]"))
        except FileNotFoundError:  # closed in between
            continue
    port = f":{server.port:04X}"
    with open("/proc/net/tcp", encoding="ascii") as f:
        lines = [line.split() for line in f.readlines()[1:]]
    return sum(fields[9] in inodes and fields[1].endswith(port) and fields[3] != "0A" for fields in lines)


def is_cayd_of(pid, server):
    try:
        line = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
        return b"/cayd\0" in line.split(b"--")[0] and f"--state-dir={server.state}/cayd".encode() in line
    except OSError:
        return False


def test_tls_only(files):
    """First, so that its server is gone before the other one starts: some machines allow a user few processes."""
    own = OwnServer(keep_args=[f"--tls-cert={files}/good.pem", f"--tls-key={files}/good.key"],
                    cayd_args=[f"--server-domain={DOMAIN}", f"--listen-tls-cert={files}/good.pem",
                               f"--listen-tls-key={files}/good.key", "--listen-tls=only"],
                    wait=False)
    try:
        reply = Client(own.url, own.key()).call("GET", "/cay/v1/status")
        assert reply.status == 400 and "https" in reply.json["message"]
        assert TlsClient(own, files).call("GET", "/cay/v1/status").status == 200
    finally:
        own.stop()


# -- what is spoken --------------------------------------------------------------------------------

def test_daytonas_clients_send_their_key_by_tls(cay, tls_server, sandbox):
    for client in (cay, Client(tls_server.url, cay.key)):
        told = client.call("GET", f"/api/sandbox/{sandbox.id}").json["toolboxProxyUrl"]
        assert told == f"https://127.0.0.1:{tls_server.port}/api/toolbox"


def test_plain_and_tls_on_one_port(tls_server, cay):
    plain = Client(tls_server.url, tls_server.key())
    for client in (plain, cay):
        assert client.call("GET", "/cay/v1/status").json["domain"] == DOMAIN


def test_protocol(cay, files):
    with cay.raw() as s:
        assert s.version() == "TLSv1.3" and s.compression() is None and not s.session_reused
        assert s.session is None or not s.session.has_ticket
    old = ssl.create_default_context(cafile=files / "ca.pem")
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with cay.raw(old) as s:
        assert s.version() == "TLSv1.2" and s.cipher()[0].startswith("ECDHE-") and not s.session.has_ticket
        session = s.session
    with socket.create_connection((cay.host, cay.port), timeout=20) as plain:
        with old.wrap_socket(plain, server_hostname=DOMAIN, session=session) as s:
            assert not s.session_reused


@pytest.mark.parametrize("arguments", [["-tls1_1"], ["-tls1"], ["-tls1_2", "-cipher", "AES128-SHA"],
                                       ["-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-SHA"], ["-alpn", "h2"]])
def test_what_is_not_spoken(cay, arguments):
    done = subprocess.run(["openssl", "s_client", "-connect", f"{cay.host}:{cay.port}",
                           *(a if a != "AES128-SHA" else "AES128-SHA:@SECLEVEL=0" for a in arguments)],
                          input="", capture_output=True, text=True, timeout=30)
    assert "alert" in done.stderr and "New, (NONE)" in done.stdout


def test_alpn(cay, files):
    for offered, chosen in ((["h2", "http/1.1"], "http/1.1"), (["http/1.1"], "http/1.1"), (None, None)):
        context = ssl.create_default_context(cafile=files / "ca.pem")
        if offered:
            context.set_alpn_protocols(offered)
        with cay.raw(context) as s:
            assert s.selected_alpn_protocol() == chosen


def test_a_name_that_the_certificate_has_not(cay):
    with pytest.raises(ssl.SSLCertVerificationError):
        cay.raw(name="elsewhere.test")


def test_the_end_is_announced(cay):
    """close_notify, so that a client can tell an end from a cut."""
    with cay.raw() as s:
        s.sendall(f"GET /health HTTP/1.1\r\nHost: {DOMAIN}\r\nConnection: close\r\n\r\n".encode())
        while s.recv(65536):  # raises SSLEOFError where the socket ends without a word
            pass


def test_renegotiation_is_refused(cay):
    done = subprocess.run(["openssl", "s_client", "-connect", f"{cay.host}:{cay.port}", "-tls1_2"],
                          input="R\n", capture_output=True, text=True, timeout=30)
    assert "no renegotiation" in done.stderr
    assert cay.call("GET", "/cay/v1/status").status == 200


# -- clients ---------------------------------------------------------------------------------------

def curl(cay, files, *arguments):
    done = subprocess.run(["curl", "-sS", "--cacert", files / "ca.pem", "--connect-to", f"::{cay.host}:{cay.port}",
                           "--max-time", "60", *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_curl_by_host_name(cay, files, service):
    host = f"{PORT}-{service.id}.{DOMAIN}"
    assert curl(cay, files, f"https://{host}/") == host
    closed = json.loads(curl(cay, files, f"https://9-{service.id}.{DOMAIN}/"))
    assert (closed["code"], closed["port"]) == (502, 9)


def run_cay(server, *arguments, **more):
    env = {name: value for name, value in os.environ.items() if not name.startswith(("CAY_", "E2B_", "SSL_"))}
    return subprocess.run([BUILD / "src/cli/cay", *arguments], capture_output=True, text=True, timeout=60,
                          env={**env, "E2B_API_KEY": server.key(), "CAY_CONFIG": "/dev/null", **more})


def test_the_command_line(tls_server, files):
    url, ca = f"--url=https://127.0.0.1:{tls_server.port}", str(files / "ca.pem")
    for done in (run_cay(tls_server, "status", url, f"--ca-file={ca}"), run_cay(tls_server, "ls", url, CAY_CA_FILE=ca),
                 run_cay(tls_server, "ls", url, SSL_CERT_FILE=ca)):
        assert done.returncode == 0, done.stderr
    for done in (run_cay(tls_server, "status", url), run_cay(tls_server, "status", url, "--ca-file=/dev/null")):
        assert done.returncode == 1 and "cannot be trusted" in done.stderr and "--ca-file" in done.stderr


def test_env_tells_the_public_address(tls_server):
    """The files that `cay up` leaves behind for commands on this machine: they speak plain HTTP, clients are told
    the domain, of which they make https addresses. A certificate of the operator's is no business of the local
    authority's."""
    public = f"https://{DOMAIN}:{tls_server.port}"
    (tls_server.run / "connect").write_text(f"{tls_server.url}\n{tls_server.state}/cayd/api-key\n{public}\n")
    done = run_cay(tls_server, "env", "--json", f"--state-run={tls_server.run}")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told == {"E2B_DOMAIN": DOMAIN, "E2B_API_KEY": tls_server.key(), "DAYTONA_API_URL": public + "/api",
                    "DAYTONA_API_KEY": tls_server.key()}
    asked = json.loads(run_cay(tls_server, "env", "--json", f"--url={tls_server.url}/").stdout)
    assert asked["E2B_API_URL"] == tls_server.url and asked["DAYTONA_API_URL"] == tls_server.url + "/api"


def test_node_by_host_name(cay, files, service):
    node = shutil.which("node")
    if not node:
        pytest.skip("there is no Node.js here")
    host = f"{PORT}-{service.id}.{DOMAIN}"
    script = (f"require('https').get({{host: '{cay.host}', port: {cay.port}, servername: '{host}', "
              f"headers: {{Host: '{host}'}}}}, r => r.on('data', d => process.stdout.write(d)))")
    done = subprocess.run([node, "-e", script], capture_output=True, text=True, timeout=60,
                          env={**os.environ, "NODE_EXTRA_CA_CERTS": str(files / "ca.pem")})
    assert done.stdout == host, done.stderr


def test_upgrade_by_host_name(cay, service):
    """A tunnel to a port inside, its halves ended one after the other."""
    with cay.raw(name=f"{PORT}-{service.id}.{DOMAIN}") as s:
        s.sendall(f"GET /ws HTTP/1.1\r\nHost: {PORT}-{service.id}.{DOMAIN}\r\nConnection: Upgrade\r\n"
                  "Upgrade: echo\r\n\r\n".encode())
        head = b""
        while b"\r\n\r\n" not in head:
            head += s.recv(1)
        assert head.startswith(b"HTTP/1.1 101 ")
        sent = os.urandom(70000)
        s.sendall(sent)
        got = b""
        while len(got) < len(sent):
            got += s.recv(65536)
        assert got == sent
        assert s.unwrap().recv(1) == b""  # close_notify from both sides, then the end


def test_large_bodies(sandbox):
    body = os.urandom(1 << 20) * 24
    sandbox.write("/home/user/large", body)
    reply = sandbox.request("GET", "/files?path=/home/user/large&username=user")
    assert hashlib.sha256(reply.body).digest() == hashlib.sha256(body).digest()


def test_streams_at_a_time(cay, sandbox):
    """More commands than one record holds, side by side, through connections of their own."""
    outputs = {}

    def run(n):
        outputs[n] = sandbox.run(f"head -c 300000 /dev/zero | tr '\\0' {n}").stdout

    threads = [threading.Thread(target=run, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outputs == {n: str(n).encode() * 300000 for n in range(3)}


# -- strangers -------------------------------------------------------------------------------------

def hello(cay):
    """A ClientHello as bytes."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = cay.context.wrap_bio(incoming, outgoing, server_hostname=DOMAIN)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def closes(s):
    """The bytes until the connection ends."""
    s.settimeout(30)
    got = b""
    try:
        while data := s.recv(65536):
            got += data
    except ConnectionResetError:
        pass
    return got


@pytest.mark.parametrize("bytes_", [b"\x16", b"\x16\x03\x01\x00\x05hello", b"\x16\x03\x01\xff\xff" + b"\0" * 70000,
                                    b"\x16\x03\x01\x00\x04\x01\xff\xff\xff", b"\x16GET / HTTP/1.1\r\n\r\n"])
def test_garbage_is_closed(cay, bytes_):
    with socket.create_connection((cay.host, cay.port)) as s:
        s.sendall(bytes_)
        answer = closes(s)
        assert answer == b"" or answer[0] == 0x15  # nothing, or an alert
    assert cay.call("GET", "/cay/v1/status").status == 200


def test_slow_handshake_ends(cay, tls_server):
    """A byte a second would take minutes: it is over long before, while others are served."""
    greeting = hello(cay)
    with socket.create_connection((cay.host, cay.port)) as s:
        s.settimeout(1)
        ended = False
        for byte in greeting:
            try:
                s.sendall(bytes([byte]))
                ended = s.recv(1) == b""
            except TimeoutError:
                continue
            except OSError:
                ended = True
            if ended:
                break
        assert ended and cay.call("GET", "/cay/v1/status").status == 200


def test_half_close_in_a_handshake(cay):
    with socket.create_connection((cay.host, cay.port)) as s:
        s.sendall(hello(cay)[:100])
        s.shutdown(socket.SHUT_WR)
        closes(s)


def test_garbage_after_the_handshake(cay):
    """Records that do not decrypt end the connection with an alert."""
    with socket.create_connection((cay.host, cay.port), timeout=20) as plain:
        s = cay.context.wrap_socket(plain.dup(), server_hostname=DOMAIN)
        plain.sendall(b"\x17\x03\x03\x00\x20" + os.urandom(32))
        with pytest.raises(ssl.SSLError, match="(?i)alert|decrypt|bad record"):
            s.recv(1)
        s.close()


def test_a_flood_of_handshakes_that_stop_holds_up_nobody(cay, tls_server):
    """More than may be in progress at a time: the oldest make room, at once and not after their time."""
    held = []
    try:
        for _ in range(300):
            s = socket.create_connection((cay.host, cay.port))
            s.sendall(b"\x16\x03\x01")
            held.append(s)
        assert cay.call("GET", "/cay/v1/status").status == 200
        until(lambda: open_sockets(tls_server) <= 260, 8, "the oldest go")
        assert any(closed_now(s) for s in held[:40])
    finally:
        for s in held:
            s.close()
    until(lambda: open_sockets(tls_server) <= 4, what="no connections are left")


def closed_now(s):
    s.setblocking(False)
    try:
        return s.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


# -- certificates ----------------------------------------------------------------------------------

class Start:
    """cay-keep's start with these files, to its end."""

    def __init__(self, *options):
        self.base = pathlib.Path(tempfile.mkdtemp(prefix="cay-test-tls-", dir="/var/tmp"))
        self.base.chmod(0o755)
        src = BUILD / "src"
        self.command = [str(part) for part in (
            src / "keep/cay-keep", "--daemon", f"--listen-port={free_port()}", f"--state-dir={self.base}/state",
            f"--run-dir={self.base}/run", f"--log-file={self.base}/log", f"--cayd={src}/cayd/cayd",
            f"--privd={src}/privd/cay-privd", f"--job={src}/job/cay-job", f"--agent={src}/agent/cay-init",
            f"--user={USER}", f"--privd-arg=--uid-base={UID_BASE}", "--privd-arg=--disk-backend=memory",
            "--privd-arg=--slots-ready=0", *options)]

    def run(self):
        done = subprocess.run(self.command, capture_output=True, text=True, timeout=READY_SECONDS)
        left = (self.base / "run/keep.pid").exists()
        if left:
            os.kill(int((self.base / "run/keep.pid").read_text()), signal.SIGTERM)
        else:
            shutil.rmtree(self.base)
        assert not left, "it started"
        return done


@pytest.fixture(scope="module")
def bad_files(files):
    make_certificate(files, "other")
    make_certificate(files, "old", "20200101000000Z", "20200201000000Z")
    make_certificate(files, "early", "20990101000000Z", "20990201000000Z")
    openssl("ec", "-in", "good.key", "-aes256", "-passout", "pass:secret", "-out", "locked.key", cwd=files)
    (files / "empty.pem").write_text("")
    (files / "text.pem").write_text("no PEM at all\n" * 100)
    (files / "huge.pem").write_bytes(b"x" * (300 << 10))
    os.mkfifo(files / "fifo.pem")
    return files


@pytest.mark.parametrize("cert, key, why", [
    ("good.pem", "other.key", "the key does not belong to the certificate"),
    ("good.pem", "absent.key", "absent.key: No such file"),
    ("good.pem", "fifo.pem", "fifo.pem: Invalid argument"),
])
def test_bad_files_refuse_the_start(bad_files, cert, key, why):
    done = Start(f"--tls-cert={bad_files}/{cert}", f"--tls-key={bad_files}/{key}").run()
    assert done.returncode == 1 and why in done.stderr, done.stderr


@pytest.mark.parametrize("cert, key, why", [
    ("old.pem", "old.key", "valid until 2020-02-01"),
    ("early.pem", "early.key", "not valid before 2099-01-01"),
    ("good.pem", "locked.key", "the key is encrypted"),
    ("good.pem", "good.pem", "holds no PEM private key"),
    ("good.key", "good.key", "holds no PEM certificate"),
    ("empty.pem", "good.key", "holds no PEM certificate"),
    ("good.pem", "text.pem", "holds no PEM private key"),
    ("huge.pem", "good.key", "at most 256 KiB"),
    (".", "good.key", "not a regular file"),
])
def test_what_cayd_says_to_bad_files(bad_files, cert, key, why):
    """cayd alone, with the descriptors that keep would give it."""
    reading, writing = os.pipe()
    with socket.socket() as listener:
        files = [os.open(bad_files / name, os.O_RDONLY) for name in (cert, key)]
        fds = [listener.fileno(), writing, *files]
        names = ("--listen-fd", "--ready-fd", "--tls-cert-fd", "--tls-key-fd")
        done = subprocess.run([BUILD / "src/cayd/cayd", *(f"{name}={fd}" for name, fd in zip(names, fds))],
                              pass_fds=fds, capture_output=True, text=True, timeout=30)
        for fd in (*files, writing):
            os.close(fd)
    with open(reading, encoding="utf-8") as f:
        said = f.read()
    assert done.returncode == 1 and said.startswith("FTLS: ") and why in said, (said, done.stderr)


@pytest.mark.parametrize("options, why", [
    (["--tls-cert=/x"], "needed together"),
    (["--cayd-arg=--listen-tls=only"], "tls = only needs"),
    (["--cayd-arg=--listen-tls=maybe"], "allowed are optional, only and off"),
    (["--cayd-arg=--listen-tls-cert=/x", "--cayd-arg=--listen-tls-key=/y"], "--tls-cert-fd and --tls-key-fd are missing"),
])
def test_settings_that_do_not_fit(options, why):
    start = Start(*options)
    done = subprocess.run(start.command, capture_output=True, text=True, timeout=READY_SECONDS)
    said = done.stderr + ((start.base / "log").read_text() if (start.base / "log").exists() else "")
    shutil.rmtree(start.base)
    assert done.returncode in (1, 2) and why in said, said


def serial(cay):
    with cay.raw() as s:
        return s.getpeercert()["serialNumber"]


def test_hangup_reads_the_files_again(tls_server, cay, bad_files, sandbox):
    """Sandboxes live on. A certificate that would not start leaves everything as it is."""
    files, before, keep = bad_files, serial(cay), tls_server.keep_pid

    def hang_up_says(text):
        os.kill(keep, signal.SIGHUP)
        until(lambda: text in tls_server.log_tail(), what=f"keep says: {text}")
        assert serial(cay) == before

    (files / "good.key").rename(files / "aside.key")
    hang_up_says("nothing is replaced: ")
    shutil.copy(files / "other.key", files / "good.key")
    hang_up_says("nothing is replaced: TLS: the key does not belong")
    make_certificate(files, "good")
    os.kill(keep, signal.SIGHUP)

    def changed():
        try:
            return serial(cay) != before
        except OSError:
            return False

    until(changed, 60, "the new certificate")
    assert sandbox.run("echo still here").out == "still here\n"
