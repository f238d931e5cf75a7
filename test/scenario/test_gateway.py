"""The door from outside to ports inside: routing, tokens, signed URLs, what happens when the other
side is closed or gone."""

import base64
import hashlib
import json
import os
import socket
import time
import urllib.parse

import leftovers
import pytest
from client import Sandbox
from waitlib import until

# A line for each request, then the headers that the service saw; and an upgrade that echoes bytes.
SERVICE = r"""
import base64, hashlib, http.server, sys
class H(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        if self.headers.get("Upgrade") == "echo":
            self.send_response(101); self.send_header("Upgrade", "echo"); self.send_header("Connection", "Upgrade")
            self.end_headers(); self.wfile.flush()
            while True:
                data = self.connection.recv(65536)
                if not data: break
                self.connection.sendall(data)
            self.close_connection = True
            return
        body = (self.requestline + "\n" + str(self.headers)).encode()
        self.send_response(200); self.send_header("Content-Length", str(len(body))); self.end_headers()
        self.wfile.write(body)
    do_OPTIONS = do_GET
    def do_POST(self):
        n = int(self.headers["Content-Length"]); body = self.rfile.read(n)
        digest = hashlib.sha256(body).hexdigest().encode()
        self.send_response(200); self.send_header("Content-Length", str(len(digest))); self.end_headers()
        self.wfile.write(digest)
    def log_message(self, *a): pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), H).serve_forever()
"""
PORT = 8123


@pytest.fixture(scope="module")
def service(sandbox):
    sandbox.write("/tmp/service.py", SERVICE.encode())
    sandbox.run(f"nohup python3 /tmp/service.py {PORT} >/dev/null 2>&1 & ")
    until(lambda: sandbox.request("GET", "/", port=PORT).status == 200, what="the service inside answers")
    return sandbox


def by_host(box, path="/", method="GET", headers=None, port=PORT, body=None):
    sent = {"Host": f"{port}-{box.id}.cay.test:1234"}
    sent.update(headers or {})
    return box.client.call(method, path, body, sent, key=False)


def test_port_by_headers_and_by_host(service):
    for reply in (service.request("GET", "/a?b=c", port=PORT), by_host(service, "/a?b=c")):
        assert reply.status == 200 and reply.body.startswith(b"GET /a?b=c HTTP/1.1\n")


def test_what_the_service_sees(service):
    """Not the key between cayd and the agent, nor what routed the request; all else as it was sent."""
    seen = service.request("GET", "/", port=PORT, headers={
        "X-Cay-Agent-Key": "00", "X-Mine": "kept", "Accept": "text/plain"}).body.decode().lower()
    assert "x-mine: kept" in seen and "accept: text/plain" in seen
    assert "x-cay" not in seen and "e2b-sandbox" not in seen and "traffic" not in seen


# Answers a chunked request with its own bytes.
RAW_SERVICE = r"""
import socket, sys
listening = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    c, _ = listening.accept()
    seen = b""
    while not (b"\r\n0\r\n" in seen and seen.endswith(b"\r\n\r\n")) and not seen.startswith(b"GET"):
        data = c.recv(65536)
        if not data: break
        seen += data
    c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(seen) + seen)
    c.close()
"""


@pytest.mark.parametrize("pieces", [1, 0])
def test_a_requests_trailers_do_not_reach_a_service(sandbox, pieces):
    """A service that takes them for headers would see what is taken out of a head, or be told another address; at any split. The body is
    as it was sent."""
    sandbox.write("/tmp/raw.py", RAW_SERVICE.encode())
    sandbox.run("nohup python3 /tmp/raw.py 8124 >/dev/null 2>&1 & ")
    until(lambda: sandbox.request("GET", "/", port=8124).status == 200, what="the service inside answers")
    head = "".join(f"{name}: {value}\r\n" for name, value in sandbox.headers(None, 8124, False).items())
    sent = (f"POST / HTTP/1.1\r\nHost: x\r\n{head}Connection: close\r\nTransfer-Encoding: chunked\r\nTrailer: X-Access-Token, X-Sum\r\n\r\n"
            f"5;a=b\r\nwhole\r\n0\r\nX-Access-Token: {sandbox.token}\r\nE2b-Traffic-Access-Token: t\r\nX-Forwarded-For: 127.0.0.1\r\nX-Sum: 1\r\n\r\n").encode()
    with socket.create_connection((sandbox.client.host, sandbox.client.port), 30) as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for part in [sent] if pieces == 1 else [sent[i:i + 1] for i in range(len(sent))]:
            s.sendall(part)
        answer = b""
        while data := s.recv(65536):
            answer += data
    seen = answer.partition(b"\r\n\r\n")[2]
    assert answer.startswith(b"HTTP/1.1 200 ") and seen.endswith(b"\r\n\r\n5;a=b\r\nwhole\r\n0\r\n\r\n"), answer
    for word in (b"x-access-token", sandbox.token.encode(), b"x-forwarded", b"x-sum", b"trailer"):
        assert word not in seen.lower(), seen


def test_bodies_arrive_whole(service):
    body = os.urandom(5 << 20)
    reply = service.request("POST", "/", body, port=PORT)
    assert reply.body.decode() == hashlib.sha256(body).hexdigest()


def test_upgrade_is_a_tunnel(service):
    client = service.client
    with socket.create_connection((client.host, client.port), timeout=20) as s:
        s.sendall(f"GET /ws HTTP/1.1\r\nHost: {PORT}-{service.id}.cay.test\r\nConnection: Upgrade\r\n"
                  "Upgrade: echo\r\n\r\n".encode())
        head = b""
        while b"\r\n\r\n" not in head:
            head += s.recv(1)
        assert head.startswith(b"HTTP/1.1 101 ")
        sent = os.urandom(1 << 20)
        s.sendall(sent[:70000])
        got = b""
        while len(got) < 70000:
            got += s.recv(65536)
        assert got == sent[:70000]
        s.shutdown(socket.SHUT_WR)
        assert s.recv(1) == b""


def half_closed(client, head, body=b""):
    """All that comes to who has ended its side after its requests."""
    with socket.create_connection((client.host, client.port), timeout=20) as s:
        s.sendall("".join(line + "\r\n" for line in head).encode() + b"\r\n" + body)
        s.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: s.recv(65536), b""))


def test_a_client_that_ends_its_side_is_answered(service):
    """As `nc -N` does: by cayd itself, by the agent, by a service inside, also two requests in a row."""
    client, key = service.client, f"X-API-Key: {service.client.key}"
    body = json.dumps({"templateID": "host"}).encode()
    made = half_closed(client, ["POST /v2/sandboxes HTTP/1.1", f"Host: {client.host}", key,
                                "Content-Type: application/json", f"Content-Length: {len(body)}"], body)
    assert made.startswith(b"HTTP/1.1 201 "), made
    one = Sandbox(client, json.loads(made.partition(b"\r\n\r\n")[2]))
    assert one.run("echo made").out == "made\n" and one.kill().status == 204
    sent = [f"{name}: {value}" for name, value in service.headers().items()]
    service.write("/tmp/much", bytes(1 << 20))
    got = half_closed(client, ["GET /files?path=/tmp/much HTTP/1.1", f"Host: {client.host}", *sent])
    assert got.startswith(b"HTTP/1.1 200 ") and got.endswith(bytes(1 << 20))
    to = [f"Host: {PORT}-{service.id}.cay.test"]
    got = half_closed(client, ["GET /one HTTP/1.1", *to, "", "GET /two HTTP/1.1", *to])
    assert got.count(b"HTTP/1.1 200 ") == 2 and got.index(b"GET /one ") < got.index(b"GET /two "), got
    assert half_closed(client, ["POST / HTTP/1.1", *to, "Content-Length: 9"], b"half") == b""


def test_a_client_that_leaves_a_stream_is_noticed(cay, own_server):
    """A stream that says nothing, so that nothing is sent to it."""
    if not own_server:
        pytest.skip("a server's descriptors are counted only where it is the tests' own")

    def held():
        return leftovers.descriptors(own_server)["cayd socket"]

    with cay.create() as box:
        before = until(held)
        streams = [box.stream("process.Process/Start", {"process": {"cmd": "/bin/sleep", "args": ["60"]}, "stdin": False})
                   for _ in range(5)]
        for stream in streams:
            assert "start" in next(stream)["event"]
        assert held() > before + len(streams)  # the control: a client's each and, but for one that was there, an agent's
        for stream in streams:
            stream.close()
        until(lambda: held() < before + len(streams), 10)


def test_closed_port(sandbox):
    for reply in (sandbox.request("GET", "/", port=9), by_host(sandbox, port=9)):
        assert reply.status == 502
        assert reply.json == {"sandboxId": sandbox.id, "port": 9, "code": 502,
                              "message": "The sandbox is running but port is not open"}
    page = by_host(sandbox, port=9, headers={"Accept": "text/html"})
    assert page.status == 502 and page.headers["Content-Type"].startswith("text/html")
    assert sandbox.id.encode() in page.body


def test_unknown_sandbox(cay):
    reply = cay.call("GET", "/health", key=False, headers={"E2b-Sandbox-Id": "i" + "0" * 20,
                                                           "E2b-Sandbox-Port": "49983"})
    assert reply.status == 502
    assert reply.json == {"sandboxId": "i" + "0" * 20, "code": 502, "message": "The sandbox was not found"}


@pytest.mark.parametrize("host", ["0-i1.x", "99999-i1.x", "80-I1.x", "80-.x", "80-%2e.x", "80-a_b.x"])
def test_bad_host_labels(cay, host):
    assert cay.call("GET", "/", key=False, headers={"Host": host}).status == 400


def test_agent_by_host_needs_the_token(sandbox):
    assert by_host(sandbox, "/health", port=49983).status == 204
    refused = by_host(sandbox, "/metrics", port=49983)
    assert refused.status == 401 and refused.json["code"] == 401
    assert refused.headers["Access-Control-Allow-Origin"] == "*"
    assert by_host(sandbox, "/metrics", port=49983, headers={"X-Access-Token": sandbox.token}).status == 200


@pytest.mark.parametrize("path", ["/init", "/INIT", "//init", "/./init", "/x/../init", "/%69nit", "/init/",
                                  "/cay/logs", "/freeze"])
def test_agent_internals(sandbox, path):
    assert sandbox.request("POST", path, b"{}").status in (400, 404)


def signed(box, operation, path, user="", expires=None, token=None):
    parts = [path, operation, user, token or box.token] + ([str(expires)] if expires is not None else [])
    digest = base64.b64encode(hashlib.sha256(":".join(parts).encode()).digest()).decode().rstrip("=")
    query = {"path": path, "signature": "v1_" + digest}
    if user:
        query["username"] = user
    if expires is not None:
        query["signature_expiration"] = str(expires)
    return "/files?" + urllib.parse.urlencode(query)


def test_signed_urls(sandbox):
    call = sandbox.client.call
    sandbox.write("/home/user/signed.txt", b"hello", user="user")
    hosts = [{"Host": f"49983-{sandbox.id}.cay.test"}, {}]  # the second: found by the signature alone
    for headers in hosts:
        good = signed(sandbox, "read", "signed.txt", "user")
        assert call("GET", good, headers=headers, key=False).body == b"hello"
        soon = signed(sandbox, "read", "signed.txt", "user", int(time.time()) + 60)
        assert call("GET", soon, headers=headers, key=False).status == 200
        past = call("GET", signed(sandbox, "read", "signed.txt", "user", int(time.time()) - 60),
                    headers=headers, key=False)
        assert past.status == 401
        assert past.json == {"code": 401, "message": "signature is already expired"}
        for bad in (signed(sandbox, "write", "signed.txt", "user"), signed(sandbox, "read", "other", "user")
                    .replace("path=other", "path=signed.txt"), good.replace("v1_", "v2_"), good + "x",
                    signed(sandbox, "read", "signed.txt", "user", token="guess")):
            reply = call("GET", bad, headers=headers, key=False)
            assert reply.status == 401 and reply.json["message"] == "invalid signature"
        written = call("POST", signed(sandbox, "write", "w.txt", "user"), b"new", headers={
            **headers, "Content-Type": "application/octet-stream"}, key=False)
        assert written.status == 200
        assert sandbox.read("/home/user/w.txt").body == b"new"


def test_traffic_token(cay):
    with cay.create(network={"allowPublicTraffic": False}) as box:
        token = box.made["trafficAccessToken"]
        box.run("nohup python3 -m http.server 8000 >/dev/null 2>&1 &")
        missing = box.request("GET", "/", port=8000)
        assert missing.status == 403 and missing.json["sandboxId"] == box.id
        for wrong in ("x", box.token):
            assert box.request("GET", "/", port=8000, headers={"E2b-Traffic-Access-Token": wrong}).status == 403
        until(lambda: box.request("GET", "/", port=8000, headers={"E2b-Traffic-Access-Token": token}).status == 200)
        assert box.request("GET", "/health").status == 204  # the agent has its own token


def test_masked_host(cay):
    with cay.create(network={"maskRequestHost": "inner.test:${PORT}"}) as box:
        box.write("/tmp/service.py", SERVICE.encode())
        box.run("nohup python3 /tmp/service.py 8123 >/dev/null 2>&1 &")
        until(lambda: box.request("GET", "/", port=8123).status == 200)
        assert b"Host: inner.test:8123\n" in box.request("GET", "/", port=8123).body


def test_preflight(service):
    asked = {"Origin": "https://app.test", "Access-Control-Request-Method": "POST",
             "Access-Control-Request-Headers": "x-api-key"}
    for headers in ({}, {"Host": f"49983-{service.id}.cay.test"}):
        reply = service.client.call("OPTIONS", "/v2/sandboxes", headers={**asked, **headers}, key=False)
        assert reply.status == 204 and reply.headers["Access-Control-Allow-Origin"] == "*"
    # A user's service answers its own.
    own = by_host(service, method="OPTIONS", headers=asked)
    assert own.status == 200 and own.body.startswith(b"OPTIONS / ")


def test_killed_while_streaming(cay):
    """No end envelope: the connection breaks, and the sandbox is not found after it."""
    box = cay.create()
    stream = box.stream("process.Process/Start", {"process": {"cmd": "/bin/sleep", "args": ["60"]}, "stdin": False})
    assert "start" in next(stream)["event"]
    assert box.kill().status == 204
    began = time.monotonic()
    with pytest.raises(Exception) as broken:
        for message in stream:
            assert "end-stream" not in message and "end" not in message.get("event", {}), message
    assert not isinstance(broken.value, AssertionError), broken.value
    assert time.monotonic() - began < 5
    reply = box.request("GET", "/health")
    assert reply.status == 502 and reply.json["message"] == "The sandbox was not found"


def test_killed_while_tunnelling(cay):
    box = cay.create()
    box.write("/tmp/service.py", SERVICE.encode())
    box.run("nohup python3 /tmp/service.py 8123 >/dev/null 2>&1 &")
    until(lambda: box.request("GET", "/", port=8123).status == 200)
    with socket.create_connection((cay.host, cay.port), timeout=10) as s:
        s.sendall(f"GET /ws HTTP/1.1\r\nHost: 8123-{box.id}.x.test\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n".encode())
        assert s.recv(4096).startswith(b"HTTP/1.1 101 ")
        assert box.kill().status == 204
        try:
            rest = s.recv(4096)
        except ConnectionResetError:
            rest = b""
        assert rest == b""


def test_idle_sandbox_costs_no_descriptor(cay, own_server):
    if not own_server:
        pytest.skip("counts descriptors of the tests' own server")

    def descriptors():
        return leftovers.daemon_descriptors(own_server.keep_pid)["cayd"]

    before = descriptors()
    boxes = [cay.create() for _ in range(10)]
    try:
        for box in boxes:
            assert box.run("true").exit_code == 0
        time.sleep(4)
        assert descriptors() <= before + 2
    finally:
        for box in boxes:
            box.kill()
