"""HTTP/2 through interception: clients in a network namespace as a sandbox has it, servers of HTTP/2 and gRPC in the
stand-in internet (test/egress/h2origin.py) that demand a key and tell what they have seen."""

import json
import os
import subprocess
import sys
import textwrap
import threading

import pytest

pytest.importorskip("h2")
pytest.importorskip("grpclib")
from waitlib import until  # noqa: E402
from worldlib import API, OTHER_HOST, PROGRAMS, ZONE, inject, sandbox, seal, world_with_origin  # isort: skip: it makes the next ones found
from h2origin import H2, REAL_KEY  # noqa: E402
from internet import UnixConnection  # noqa: E402
from origins import AWS_ID, AWS_SECRET, signature_is_good  # noqa: E402

URL = f"https://{API}:{H2}"


@pytest.fixture(scope="module")
def world():
    with world_with_origin("h2origin.py", "h2.log") as w:
        yield w


@pytest.fixture
def origin(world):
    world.origin.clear()
    return world.origin


RULES = [{"action": "deny", "domains": [API], "paths": ["/secret*"], "name": "no-secrets"},
         {"action": "allow", "domains": list(ZONE)}]


@pytest.fixture(scope="module")
def box(world):
    """Its model API's key is put on by the proxy."""
    with sandbox(world, [seal(world, "model", REAL_KEY, kind="bearer")], inject("model"), rules=RULES) as s:
        yield s


def curl(s, *arguments, timeout=60):
    r = s.curl("--http2", "--cacert", s.ca, *arguments, timeout=timeout)
    assert REAL_KEY not in r.stdout + r.stderr
    return r


def headers(line):
    return dict(map(tuple, line["headers"]))


def run(s, program, *arguments, **more):
    """A Python program inside, with what the tests' own Python has."""
    return s.run(sys.executable, "-c", textwrap.dedent(program), *arguments,
                 env={**os.environ, "SSL_CERT_FILE": str(s.ca)}, **more)


# -- requests ----------------------------------------------------------------------------------------


def test_without_a_key_the_model_refuses(world, origin):
    """The control: nothing is injected, and the connection is not even read."""
    with sandbox(world, [], []) as s:
        r = s.curl("--http2", "--cacert", world.ca, "-w", "%{http_version}", f"{URL}/v1/chat")
    assert r.stdout == '{"ok": false}2', r.stdout + r.stderr
    assert len(origin.seen()) == 1


def test_curl(world, box, origin):
    r = curl(box, "-w", "\\n%{http_version} %{http_code}", "-H", "Authorization: Bearer own", f"{URL}/v1/chat?q=1")
    assert r.stdout == '{"ok": true}\n2 200', r.stdout + r.stderr
    (line,) = origin.seen()
    assert [v for n, v in line["headers"] if n == "authorization"] == [f"Bearer {REAL_KEY}"]  # instead of the client's
    assert headers(line)[":authority"] == f"{API}:{H2}" and line["path"] == "/v1/chat?q=1"
    (record,) = [r for r in world.audit() if r["event"] == "request" and r.get("path") == "/v1/chat"]
    assert (record["verdict"], record["credential"], record["method"]) == ("allow", "model", "GET")


def test_an_authority_goes_on_as_it_was_judged(box, origin):
    """As over HTTP/1.1 (test_egress_intercept.py), where the control is."""
    spellings = {API.upper(): API, f"{API}.": API, f"{API.upper()}.:{H2}": f"{API}:{H2}"}
    for spelled in spellings:
        curl(box, "-H", f"Host: {spelled}", f"{URL}/v1/chat")
    assert [headers(line)[":authority"] for line in origin.seen()] == list(spellings.values())


def test_denied_path_leaves_the_others(world, box, origin):
    r = curl(box, "-v", "-w", "%{http_code}\\n", f"{URL}/v1/a", f"{URL}/secret/x", f"{URL}/v1/b")
    first, denied, status, last = r.stdout.splitlines()
    assert (first, last) == ('{"ok": true}200', '{"ok": true}200')
    assert json.loads(denied)["error"]["type"] == "egress_denied" and status == "403"
    assert r.stderr.count("Connected to") == 1 and "x-cay-denied: no-secrets" in r.stderr, r.stderr
    assert [line["path"] for line in origin.seen()] == ["/v1/a", "/v1/b"]
    (denial,) = [d for d in world.denials(box) if d.get("path") == "/secret/x"]
    assert denial["rule"] == "no-secrets" and denial["method"] == "GET"
    assert any(r["event"] == "request" and r["path"] == "/secret/x" and r["verdict"] == "deny" for r in world.audit())


def test_a_second_path_in_a_header(box, origin):
    """As over HTTP/1.1 (test_egress_fronting.py), where the other policies are."""
    r = curl(box, "-H", "destination: /secret/x", "-w", "%{http_code}\\n", f"{URL}/v1/a")
    assert "the header destination names a second path" in r.stdout and r.stdout.endswith("403\n"), r.stdout
    assert origin.seen() == []
    assert curl(box, f"{URL}/v1/a").stdout == '{"ok": true}'


def test_denied_upload_goes_no_further(world, box, origin):
    (world.dir / "big").write_bytes(bytes(3_000_000))
    r = curl(box, "-w", "%{http_code}", "-T", world.dir / "big", f"{URL}/secret/up", )
    assert r.stdout.endswith("403"), r.stdout + r.stderr
    assert origin.seen() == []


def test_many_streams_of_one_connection(box, origin):
    r = curl(box, "-v", "--parallel", "--parallel-max", "60", f"{URL}/v1/[1-300]")
    assert r.stdout.count('{"ok": true}') == 300, r.stdout[-300:] + r.stderr[-300:]
    assert r.stderr.count("Connected to") <= 3  # curl opens a second before it knows that the first is HTTP/2
    assert len(origin.seen()) == 300


PAUSED = """
import h2.config, h2.connection, h2.events, socket, ssl, sys, time
host, port = sys.argv[1], int(sys.argv[2])
context = ssl.create_default_context()
context.set_alpn_protocols(["h2"])
s = context.wrap_socket(socket.create_connection((host, port)), server_hostname=host)
assert s.selected_alpn_protocol() == "h2"
c = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
c.initiate_connection()
def ask(path, method="GET", end=True, more=()):
    stream = c.get_next_available_stream_id()
    c.send_headers(stream, [(":method", method), (":authority", f"{host}:{port}"), (":scheme", "https"), (":path", path),
                            *more], end_stream=end)
    s.sendall(c.data_to_send())
    return stream
def events():
    data = s.recv(65536)
    assert data, "the connection has ended"
    found = c.receive_data(data)
    s.sendall(c.data_to_send())
    return found
"""


def test_slow_reader_of_a_large_download(box, origin):
    """A stream is not read, and does not stop another of the same connection; then it is."""
    r = run(box, PAUSED + """
c.increment_flow_control_window(1000000)
slow, got = ask("/bytes/8000000"), 0
quick, done = ask("/v1/x"), False
while not done:
    for e in events():
        if isinstance(e, h2.events.DataReceived) and e.stream_id == slow:
            got += len(e.data)
        done |= isinstance(e, h2.events.StreamEnded) and e.stream_id == quick
assert got < 70000, got  # its own window
c.increment_flow_control_window(8000000)
c.increment_flow_control_window(8000000, slow)
s.sendall(c.data_to_send())
while got < 8000000:
    got += sum(len(e.data) for e in events() if isinstance(e, h2.events.DataReceived))
print(got)
""", API, str(H2))
    assert r.stdout == "8000000\n", r.stderr


def test_large_upload(world, box, origin):
    (world.dir / "big").write_bytes(os.urandom(8_000_000))
    r = curl(box, "-T", world.dir / "big", f"{URL}/upload")
    assert json.loads(r.stdout) == {"bytes": 8_000_000}, r.stderr


@pytest.mark.parametrize("way", ["down", "up"])
def test_bytes_are_limited(world, origin, way):
    """8 MB where 2 are left: the connection is cut at the limit, and not when it is next looked at."""
    (world.dir / "big").write_bytes(bytes(8_000_000))
    arguments = ["-T", world.dir / "big", f"{URL}/upload"] if way == "up" else [f"{URL}/bytes/8000000", "-o", "/dev/null"]
    limits = {"bytes": 2_000_000}
    with sandbox(world, [seal(world, "model", REAL_KEY, kind="bearer")], inject("model"), rules=RULES, limits=limits) as s:
        cut = curl(s, "-w", "%{size_download}", *arguments)
        usage = json.loads(world.call("GET", f"/v1/sandboxes/{s.slot}/{s.gen}/usage")[1])
        assert world.denials(s)[-1]["rule"] == "limit"
    assert cut.returncode != 0 and (way == "up" or 1_900_000 < int(cut.stdout) <= 2_000_000 + 65536), cut
    assert 2_000_000 <= usage["bytes_up"] + usage["bytes_down"] <= 2_000_000 + 65536, usage


def test_bidirectional_stream_is_not_buffered(box):
    """Each piece comes back before the next is sent."""
    r = run(box, PAUSED + """
stream = ask("/bidi", "POST", end=False)
for n in range(20):
    piece = b"\\0\\0\\0\\0\\x08piece %02d" % n  # a message of gRPC
    c.send_data(stream, piece)
    s.sendall(c.data_to_send())
    got = b""
    while got != piece:
        got += b"".join(e.data for e in events() if isinstance(e, h2.events.DataReceived))
c.end_stream(stream)
s.sendall(c.data_to_send())
while not any(isinstance(e, h2.events.StreamEnded) for e in events()):
    pass
print("fine")
""", API, str(H2))
    assert r.stdout == "fine\n", r.stderr


EXTENDED = """
import h2.config, h2.connection, h2.errors, h2.events, h2.settings, socket, ssl, sys
host, port = sys.argv[1], int(sys.argv[2])
context = ssl.create_default_context()
context.set_alpn_protocols(["h2"])
OWN = [(":authority", f"{host}:{port}"), (":scheme", "https")]
PATH, PROTOCOL, CONNECT = (":path", "/bidi?hidden"), (":protocol", "websocket"), (":method", "CONNECT")
for fields in ([CONNECT, PROTOCOL, *OWN, PATH], [PROTOCOL, CONNECT, *OWN, PATH], [CONNECT, (":protocol", "connect-udp"), *OWN, PATH],
               [CONNECT, *OWN, PATH], [CONNECT, OWN[0]], [(":method", "GET"), PROTOCOL, *OWN, PATH],
               [(":method", "GET"), *OWN, (":path", "/v1/x"), ("upgrade", "h2c")],
               [CONNECT, PROTOCOL, *OWN, PATH, ("sec-websocket-version", "13"), ("origin", "https://x")]):
    s = context.wrap_socket(socket.create_connection((host, port)), server_hostname=host)
    s.settimeout(50)
    c = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8", validate_outbound_headers=False,
                                                             normalize_outbound_headers=False))
    c.initiate_connection()
    c.send_headers(1, fields)
    c.send_data(1, b"GET /bidi?hidden HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")
    s.sendall(c.data_to_send())
    said = offered = None
    while said is None:
        data = s.recv(65536)
        for e in c.receive_data(data) if data else ():
            if isinstance(e, h2.events.RemoteSettingsChanged):
                code = h2.settings.SettingCodes.ENABLE_CONNECT_PROTOCOL
                offered = offered or (code in e.changed_settings and e.changed_settings[code].new_value)
            elif isinstance(e, h2.events.ResponseReceived):
                said = dict(e.headers)[":status"]
            elif isinstance(e, (h2.events.StreamReset, h2.events.ConnectionTerminated)):
                said = "reset"
        said = said if data else "end"
        try:
            s.sendall(c.data_to_send())
        except OSError:
            pass
    print(said, offered or 0, flush=True)
    s.close()
"""


def test_no_extended_connect(world, origin):
    """RFC 8441: a WebSocket in a stream of HTTP/2 would hide requests from the rules. It is not offered, whatever the server offers,
    and one that begins all the same comes to nothing, as do a plain CONNECT and a change of protocol. The control: a connection
    that is not read, on which the server sees them."""
    with sandbox(world, [], [], [{"action": "allow", "domains": [API], "paths": ["/v1*", "/bidi*"]}]) as s:
        r = run(s, EXTENDED, API, str(H2))
    lines = [line.split() for line in r.stdout.splitlines()]
    assert len(lines) == 8 and not [line for line in lines if line[0].startswith("2") or line[1] != "0"], r
    assert origin.seen() == [], origin.seen()
    with sandbox(world, [], [], [{"action": "allow", "domains": [API]}]) as s:
        s.ca = world.ca
        r = run(s, EXTENDED, API, str(H2))
    assert r.stdout.splitlines()[0] == "200 1", r
    assert "hidden" in json.dumps(origin.seen())


def test_trailers_and_interim_answers(box, origin):
    r = curl(box, "-D", "-", f"{URL}/trailers", f"{URL}/interim")
    assert "x-last: word" in r.stdout and "103" in r.stdout and '{"after": 103}' in r.stdout, r.stdout + r.stderr
    r = run(box, PAUSED + """
stream = ask("/echo", "POST", end=False)
c.send_data(stream, b"body")
c.send_headers(stream, [("x-sum", "1"), ("authorization", "Bearer own"), ("x-api-key", "own"),
                        ("x-http-method-override", "DELETE"), ("x-original-url", "/secret"), ("x-amz-copy-source", "/secret")],
               end_stream=True)
s.sendall(c.data_to_send())
while not any(isinstance(e, h2.events.StreamEnded) for e in events()):
    pass
""", API, str(H2))
    sent = headers(origin.seen()[-1])
    assert [name for name in sent if name.startswith("trailer-")] == ["trailer-x-sum"], r.stderr  # none of a key or rule


def test_resets_go_both_ways(box, origin):
    r = run(box, PAUSED + """
def end_of(stream):
    while True:
        for e in events():
            if isinstance(e, h2.events.StreamReset) and e.stream_id == stream:
                return int(e.error_code)
assert end_of(ask("/reset")) == 11 and end_of(ask("/refuse")) == 7
stream = ask("/hang")
ask("/v1/x")
while not any(isinstance(e, h2.events.StreamEnded) for e in events()):
    pass
c.reset_stream(stream, 8)
s.sendall(c.data_to_send())
early = ask("/early", "POST", end=False)
print(end_of(early))
""", API, str(H2))
    assert r.stdout == "0\n", r.stderr
    assert {"reset": 8} in origin.seen()


def test_going_away(world, box):
    r = run(box, PAUSED + """
ask("/goaway")
seen = []
while not {"StreamEnded", "ConnectionTerminated"} <= set(seen):
    seen += [type(e).__name__ for e in events()]
while s.recv(65536):
    pass
print("ended")
""", API, str(H2))
    assert r.stdout == "ended\n", r.stderr
    before = len(world.audit())
    r = curl(box, "-w", "%{http_code}", f"{URL}/vanish")
    assert "has closed the connection before it answered" in r.stdout and r.stdout.endswith("502"), r.stdout
    (record,) = [r for r in world.audit()[before:] if r.get("outcome") == "failed"]
    assert record["path"] == "/vanish" and record["verdict"] == "allow" and "closed the connection" in record["reason"]


def test_an_answer_that_is_broken_off_leaves_a_record(world, box):
    """At 009d670 the log had the end of the connection alone."""
    for path in ("/cut", "/cut?all"):
        before = len(world.audit())
        r = curl(box, f"{URL}{path}")
        assert r.returncode != 0, r.stdout
        (record,) = [r for r in world.audit()[before:] if r.get("outcome") == "failed"]
        assert record["path"] == "/cut" and record["verdict"] == "allow" and "before its answer was whole" in record["reason"]
    before = len(world.audit())
    curl(box, f"{URL}/bytes/10")  # the control
    assert not [r for r in world.audit()[before:] if r.get("outcome") == "failed"]


def test_what_came_before_a_break_is_taken(box):
    """By a client whose window is shut when the server breaks off; then it opens it."""
    r = run(box, PAUSED + """
c.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 4})
slow, quick = ask("/cut"), ask("/v1/x")
c.increment_flow_control_window(60000, quick)
s.sendall(c.data_to_send())
got, done, ends = b"", False, False
while not ends:
    for e in events():
        if isinstance(e, h2.events.DataReceived) and e.stream_id == slow:
            got += e.data
        done |= isinstance(e, h2.events.StreamEnded) and e.stream_id == quick
        ends |= isinstance(e, h2.events.StreamReset) and e.stream_id == slow
    if done and len(got) == 4 and not ends:  # the server has answered both
        c.increment_flow_control_window(100, slow)
        s.sendall(c.data_to_send())
        done = False
print(got)
""", API, str(H2))
    assert r.stdout == "b'0123456789'\n", r.stderr


# -- gRPC --------------------------------------------------------------------------------------------

ANSWERS = ["answer to question", str(sum(range(500))), "500 [redacted]" + "*" * (len(REAL_KEY) - 10), "bidi"]


def grpc_calls(s):
    return s.run(sys.executable, PROGRAMS / "grpc_calls.py", API, env={**os.environ, "SSL_CERT_FILE": str(s.ca)})


def test_grpc(world):
    """The key is metadata that the proxy adds; what the server says of it in a trailer is redacted."""
    key = seal(world, "model", REAL_KEY, kind="header", header="X-Api-Key")
    with sandbox(world, [key], inject("model")) as s:
        r = grpc_calls(s)
    assert r.stdout.splitlines() == ANSWERS, r.stdout + r.stderr


def test_grpc_without_a_key(world):
    """The control: its calls come through, and are refused by the server."""
    with sandbox(world, [], [], [{"action": "allow", "domains": [API], "paths": ["/cay.Test/*"]}]) as s:
        r = grpc_calls(s)
    assert r.stdout == "Status.UNAUTHENTICATED no key\n", r.stderr


# -- credentials -------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/echo", "/echo-trailers"])
def test_reflected_secret_is_redacted(box, origin, path):
    r = curl(box, "-i", f"{URL}{path}")
    assert r.returncode == 0 and "[redacted]" in r.stdout and "sk-real" not in r.stdout, r.stdout + r.stderr
    assert headers(origin.seen()[0])["authorization"] == f"Bearer {REAL_KEY}"


def test_not_by_compressed_echo(box, origin):
    """Of a server that compresses whatever it was asked: decompressed, and searched."""
    r = curl(box, "-i", f"{URL}/echo-gzip", f"{URL}/v1/next")
    assert "200" in r.stdout.splitlines()[0] and "[redacted]" in r.stdout and '{"ok": true}' in r.stdout, r.stdout
    assert "content-encoding" not in r.stdout
    assert headers(origin.seen()[0])["accept-encoding"] == "identity"
    other = curl(box, "-i", f"{URL}/echo-gzip?other")
    assert "502" in other.stdout.splitlines()[0] and "compressed" in other.stdout
    assert curl(box, f"{URL}/echo-gzip?cut").returncode != 0


def test_compressed_and_large(world, box):
    """More than the windows, to a slow reader: it arrives whole. With a rate, curl sleeps after every few records, for as
    long as a loaded machine lets it: 40 s were not enough with two dozen programs beside it."""
    file = world.dir / "unzipped"
    r = curl(box, "--limit-rate", "40M", "--max-time", "240", "-o", file, f"{URL}/echo-gzip?large", timeout=250)
    assert r.returncode == 0, r.stderr
    data = file.read_bytes()
    assert data[:40_000_000] == data[:4_000_000] * 10 and b"[redacted]" in data[40_000_000:]
    assert REAL_KEY.encode() not in data


def test_placeholders_in_headers_and_bodies(world, origin):
    key = seal(world, "place", REAL_KEY, kind="placeholder", headers=["*"], target=True, bodies=True)
    with sandbox(world, [key], inject("place", domains=(API, OTHER_HOST))) as s:
        r = curl(s, "-H", "X-Key: cay-secret:place", "-H", "Content-Type: application/json", "-d",
                 '{"key": "cay-secret:place"}', f"{URL}/echo?k=cay-secret:place")
        other = curl(s, "-H", "X-Key: cay-secret:place", f"https://{OTHER_HOST}:{H2}/echo")
        expect = curl(s, "-H", "Expect: 100-continue", "-H", "Content-Type: text/plain", "-d", "cay-secret:place",
                      f"{URL}/v2")
    assert r.stdout.count("[redacted]") >= 2, r.stdout + r.stderr
    line, last = origin.seen()
    assert headers(line)["x-key"] == REAL_KEY and line["body"] == f'{{"key": "{REAL_KEY}"}}'
    assert line["path"] == f"/echo?k={REAL_KEY}" and headers(line)["content-length"] == str(len(line["body"]))
    assert "not for this host" in other.stdout, other.stderr
    assert last["body"] == REAL_KEY, expect.stderr


@pytest.mark.parametrize("pieces", [False, True])
def test_placeholders_in_pieces(world, origin, pieces):
    """Over the borders of HEADERS, CONTINUATION and DATA it is one placeholder; the control is the same request whole."""
    key = seal(world, "place", REAL_KEY, kind="placeholder", headers=["*"], bodies=True)
    with sandbox(world, [key], inject("place")) as s:
        r = run(s, PAUSED + """
place, pieces = b"cay-secret:place", sys.argv[3] == "True"
if pieces:
    c.max_outbound_frame_size = 40  # of a head that has some 200 bytes: more frames than one, and no more than may be
stream = ask("/echo", "POST", end=False, more=[("content-type", "text/plain"), ("x-key", place.decode()), ("x-last", "a")])
body = b"before " + place + b" behind"
for part in ([body[i:i + 1] for i in range(len(body))] if pieces else [body]):
    c.send_data(stream, part)
    s.sendall(c.data_to_send())
c.end_stream(stream)
s.sendall(c.data_to_send())
text, ended = b"", False
while not ended:
    for e in events():
        text += e.data if isinstance(e, h2.events.DataReceived) else b""
        ended |= isinstance(e, h2.events.StreamEnded)
print(text.count(b"[redacted]"), b"sk-real" in text)
""", API, str(H2), str(pieces))
    assert r.stdout == "2 False\n", r.stdout + r.stderr
    (line,) = origin.seen()
    assert headers(line)["x-key"] == REAL_KEY and line["body"] == f"before {REAL_KEY} behind"


@pytest.mark.parametrize("bind, name, value", [
    ({"kind": "basic"}, "authorization", "Basic dXNlcjpzay1yZWFsLTAxMjM0NTY3ODktYWJjZGVmZ2hpag=="),
    ({"kind": "query", "parameter": "key"}, ":path", f"/v2?a=1&key={REAL_KEY}")])
def test_other_kinds(world, origin, bind, name, value):
    secret = f"user:{REAL_KEY}" if bind["kind"] == "basic" else REAL_KEY
    with sandbox(world, [seal(world, "model", secret, **bind)], inject("model")) as s:
        curl(s, f"{URL}/v2?a=1")
    assert headers(origin.seen()[0])[name] == value


def test_aws_signature(world, origin):
    key = seal(world, "aws", {"access_key_id": AWS_ID, "secret_access_key": AWS_SECRET}, kind="aws-sigv4",
               region="eu-west-1", service="s3")
    with sandbox(world, [key], inject("aws")) as s:
        curl(s, "-X", "PUT", "-d", "some body", f"{URL}/s3/bucket/key?x=1")
    (line,) = origin.seen()
    sent = {**headers(line), "host": headers(line)[":authority"]}
    assert signature_is_good("PUT", line["path"], sent, line["body"].encode()) == "good"


def copies(pid, text):
    """How often it stands in the memory that a process can write to."""
    found = 0
    with open(f"/proc/{pid}/maps", encoding="ascii") as maps, open(f"/proc/{pid}/mem", "rb", 0) as memory:
        for line in maps:
            place, rights = line.split()[:2]
            start, end = (int(number, 16) for number in place.split("-"))
            if "w" in rights:
                try:
                    memory.seek(start)
                    found += memory.read(end - start).count(text)
                except (OSError, OverflowError):
                    pass  # not a page that can be read
    return found


def test_no_copies_in_memory(world, origin):
    """Of a key that went out and came back in every way there is the credential's own, and none when it has ended."""
    if os.environ.get("CAY_SANITIZED"):
        pytest.skip("a sanitizer keeps what was freed")
    value = "zH2-" + "memory-0123456789"
    with sandbox(world, [seal(world, "place", value, kind="placeholder", headers=["*"], target=True, bodies=True)], inject("place")) as s:
        r = curl(s, "-H", "X-Key: cay-secret:place", "-H", "Content-Type: text/plain", "-d", "cay-secret:place " * 500,
                 f"{URL}/echo?k=cay-secret:place", f"{URL}/echo-trailers", f"{URL}/echo")
        assert "[redacted]" in r.stdout and value not in r.stdout
        assert copies(world.egress.pid, value.encode()) == 1
    until(lambda: copies(world.egress.pid, value.encode()) == 0)


# -- what is refused ---------------------------------------------------------------------------------


def test_authority_must_be_the_name(world, box, origin):
    r = curl(box, "-w", "%{http_code}", "-H", f"Host: {OTHER_HOST}:{H2}", f"{URL}/v1/x")
    assert r.stdout.endswith("421") and "x-cay-denied" not in r.stderr, r.stdout
    r = run(box, PAUSED + """
def status(more, authority=True):
    stream = c.get_next_available_stream_id()
    own = [(":authority", f"{host}:{port}")] if authority else []
    c.send_headers(stream, [(":method", "GET"), *own, (":scheme", "https"), (":path", "/v1/x"), *more], end_stream=True)
    s.sendall(c.data_to_send())
    while True:
        for e in events():
            if isinstance(e, h2.events.ResponseReceived):
                return dict(e.headers)[":status"]
c.config.validate_outbound_headers = c.config.normalize_outbound_headers = False
print(status([]), status([("host", f"{host}:{port}")]), status([("host", "other.example.net")]),
      status([("host", f"{host}:{port}")], False), status([("host", "other.example.net")], False))
""", API, str(H2))
    assert r.stdout == "200 200 421 200 421\n", r.stderr
    r = box.curl("-k", "--http2", "--resolve", f"{OTHER_HOST}:{H2}:{box.resolve(API)[1][0]}",
                 f"https://{OTHER_HOST}:{H2}/v1/chat")
    assert json.loads(r.stdout)["rule"] == "sni", r.stdout + r.stderr  # it is not the name that was dialled
    assert len(origin.seen()) == 3


def test_connect_inside_is_refused(world, box, origin):
    r = run(box, PAUSED + """
c.config.validate_outbound_headers = c.config.normalize_outbound_headers = False
stream = c.get_next_available_stream_id()
c.send_headers(stream, [(":method", "CONNECT"), (":authority", f"{host}:{port}")])
extended = c.get_next_available_stream_id()
c.send_headers(extended, [(":method", "CONNECT"), (":authority", f"{host}:{port}"), (":scheme", "https"),
                          (":path", "/v1/x"), (":protocol", "websocket")])
s.sendall(c.data_to_send())
seen = {}
while len(seen) < 2:
    for e in events():
        if isinstance(e, h2.events.ResponseReceived):
            seen[e.stream_id] = dict(e.headers)[":status"]
        elif isinstance(e, h2.events.StreamReset):
            seen.setdefault(e.stream_id, int(e.error_code))
print(seen[stream], seen[extended])
""", API, str(H2))
    assert r.stdout == "403 1\n", r.stdout + r.stderr
    assert any("CONNECT in a connection" in d["reason"] for d in world.denials(box))
    assert origin.seen() == []


def test_policy_changes_while_streams_are_open(world, origin):
    with sandbox(world, [], [], RULES) as s:
        p = subprocess.Popen(s.command(sys.executable, "-c", PAUSED + """
kept, cut, waits = ask("/bidi", "POST", end=False), ask("/hang/bidi"), ask("/hang/b")
begun = ask("/bidi/b", "POST", end=False)
heads = set()
while not {kept, begun} <= heads:
    heads |= {e.stream_id for e in events() if isinstance(e, h2.events.ResponseReceived)}
print("open", flush=True)
seen = {}
while len(seen) < 2:
    for e in events():
        if isinstance(e, h2.events.ResponseReceived):
            seen[e.stream_id] = dict(e.headers)[":status"]
        elif isinstance(e, h2.events.StreamReset):
            seen[e.stream_id] = int(e.error_code)
print(seen[waits], seen[begun], flush=True)
c.send_data(kept, b"still", end_stream=True)
s.sendall(c.data_to_send())
while not any(isinstance(e, h2.events.DataReceived) and e.data == b"still" for e in events()):
    pass
print("still", flush=True)
try:
    while s.recv(65536):
        pass
except OSError:
    pass
print("cut")
""", API, str(H2)), stdout=subprocess.PIPE, text=True, env={**os.environ, "SSL_CERT_FILE": str(s.ca)})
        assert p.stdout.readline() == "open\n"
        narrower = [{"action": "deny", "domains": [API], "paths": ["/hang/b", "/bidi/b"], "name": "b"}, *RULES]
        assert world.put(s, {"rules": narrower})[0] == 204
        assert p.stdout.readline() == "403 8\n"
        assert p.stdout.readline() == "still\n"
        said = {d["path"]: d for d in world.denials(s)}
        assert {path: d["rule"] for path, d in said.items()} == {"/hang/b": "b", "/bidi/b": "b"}, said
        assert all("b" in d["reason"] and d["reason"] for d in said.values())
        assert world.put(s, {"rules": []})[0] == 204
        assert p.stdout.readline() == "cut\n"
        p.wait()


def test_rate_counts_streams(world):
    limits = {"requests_per_second": 5}
    with sandbox(world, [], [], RULES) as s:
        assert world.put(s, {"rules": RULES, "limits": limits})[0] == 204
        r = curl(s, "-o", "/dev/null", "-w", "%{http_code}\\n", "--parallel", *[f"{URL}/v1/{n}" for n in range(20)])
    assert r.stdout.split().count("429") >= 5 and "401" in r.stdout.split(), r.stdout


def test_floods_end_the_connection(box):
    """And what many real clients do, does not."""
    r = run(box, PAUSED + """
for n in range(150):
    stream = ask("/hang")
    c.reset_stream(stream, 8)
    s.sendall(c.data_to_send())
fine = ask("/v1/x")
while not any(isinstance(e, h2.events.StreamEnded) and e.stream_id == fine for e in events()):
    pass
print("fine", flush=True)
try:
    for n in range(1000):
        c.reset_stream(ask("/hang"), 8)
        s.sendall(c.data_to_send())
    while True:
        for e in events():
            if isinstance(e, h2.events.ConnectionTerminated):
                print("calm", int(e.error_code))
except (AssertionError, OSError) as e:
    print("ended")
""", API, str(H2))
    assert r.stdout.startswith("fine\n") and r.stdout.endswith("ended\n"), r.stdout + r.stderr


def test_too_many_connections(world):
    """A connection too many for a sandbox speaks HTTP/1.1, or nothing where the client would not."""
    with sandbox(world, [seal(world, "model", REAL_KEY, kind="bearer")], inject("model")) as s:
        r = run(s, """
import socket, ssl, sys
def open_one(*protocols):
    context = ssl.create_default_context()
    context.set_alpn_protocols(protocols)
    return context.wrap_socket(socket.create_connection((sys.argv[1], int(sys.argv[2]))), server_hostname=sys.argv[1])
held = [open_one("h2", "http/1.1") for _ in range(65)]
print(sum(one.selected_alpn_protocol() == "h2" for one in held), held[-1].selected_alpn_protocol())
try:
    open_one("h2")
except ssl.SSLError as e:
    print(e.reason)
held[0].close()
held[0].close()
while open_one("h2", "http/1.1").selected_alpn_protocol() != "h2":
    pass
print("again")
""", API, str(H2))
    assert r.stdout == "64 http/1.1\nTLSV1_ALERT_ACCESS_DENIED\nagain\n", r.stdout + r.stderr


# -- versions that do not meet -----------------------------------------------------------------------


def when_ready(s, *arguments):
    """As soon as the server listens."""
    answers = []
    until(lambda: answers.append(s.curl("--cacert", s.ca, *arguments)) or "cannot connect" not in answers[-1].stdout,
          what=lambda: f"the server: {answers[-1].stdout}")
    return answers[-1]


def test_server_without_http2(world, box):
    """A client that speaks both gets what the server speaks; one that speaks HTTP/2 alone is told."""
    directory = world.origin.directory
    p = subprocess.Popen(["ip", "netns", "exec", world.net, "openssl", "s_server", "-quiet", "-www", "-accept", "9645",
                          "-cert", directory / "good.pem", "-key", directory / "good.key", "-alpn", "http/1.1"],
                         stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        r = when_ready(box, "--http2", "-w", "%{http_version} %{http_code}", f"https://{API}:9645/")
        assert r.stdout.endswith("1.1 200"), r.stdout + r.stderr
        r = run(box, PAUSED + """
stream = ask("/")
text = b""
while b"}" not in text:
    text += b"".join(e.data for e in events() if isinstance(e, h2.events.DataReceived))
print(text.decode())
""", API, "9645")
        assert "egress_unreachable" in r.stdout and "does not speak the HTTP version" in r.stdout, r.stdout + r.stderr
    finally:
        p.kill()
        p.wait()


def test_server_with_http2_alone(world, box):
    directory = world.origin.directory
    p = subprocess.Popen(["ip", "netns", "exec", world.net, "openssl", "s_server", "-quiet", "-www", "-accept", "9646",
                          "-cert", directory / "good.pem", "-key", directory / "good.key", "-alpn", "h2"],
                         stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        r = when_ready(box, "--http1.1", "-w", "%{http_code}", f"https://{API}:9646/")
        assert "does not speak the HTTP version" in r.stdout and r.stdout.endswith("502"), r.stdout + r.stderr
    finally:
        p.kill()
        p.wait()


def test_server_that_is_not_there(box):
    r = curl(box, "-w", "%{http_version} %{http_code}", f"https://{API}:9647/")
    assert "egress_unreachable" in r.stdout and r.stdout.endswith("2 502"), r.stdout + r.stderr


def test_address_that_is_denied(world):
    """The name resolves to an address that the policy allows to no program: said to each request."""
    deny = [{"action": "deny", "addresses": ["93.184.216.34/32"], "name": "not-there"}, *RULES[1:]]
    with sandbox(world, [seal(world, "model", REAL_KEY, kind="bearer")], inject("model"), rules=deny) as s:
        r = curl(s, "-i", f"{URL}/v1/x")
    assert "403" in r.stdout.splitlines()[0] and "x-cay-denied: not-there" in r.stdout, r.stdout + r.stderr


# -- what is required, and what only an owner's yes lets through ----------------------------------------

OWN = "attackers-own-key"


def test_required_is_the_only_key(world, origin):
    """As over HTTP/1.1 (test_egress_secrets.py): the control is the same stream without `require`, where all of it arrives."""
    more = [part for line in (f"Cookie: session={OWN}", f"X-Api-Key: {OWN}", f"xi-api-key: {OWN}") for part in ("-H", line)]
    for require in (False, True):
        origin.clear()
        with sandbox(world, [seal(world, "KEY", REAL_KEY, kind="placeholder", require=require)], inject("KEY")) as s:
            r = s.curl("--http2", "--cacert", s.ca, "-w", "%{http_version}", "-H", "Authorization: Bearer cay-secret:KEY", *more,
                       f"{URL}/echo?api_key={OWN}&q=1")
            assert r.stdout.endswith("2"), r.stdout + r.stderr
            (seen,) = origin.seen()
            assert headers(seen)["authorization"] == f"Bearer {REAL_KEY}"
            assert json.dumps(seen).count(OWN) == (0 if require else 5), seen  # the path is in it twice
            assert not require or seen["path"] == "/echo?q=1"
            origin.clear()
            for mine in (["-H", f"Authorization: Bearer {OWN}"], []):
                r = curl(s, "-w", "%{http_version}", *mine, f"{URL}/echo")
                assert ("must carry the key cay-secret:KEY" in r.stdout) == require and r.stdout.endswith("2"), r.stdout
            assert len(origin.seen()) == (0 if require else 2)


def test_a_required_key_stands_alone(world, origin):
    for header, passes in ((f"Bearer {OWN} cay-secret:KEY", False), (f"Bearer cay-secret:KEY,{OWN}", False), ("Bearer cay-secret:KEY", True)):
        origin.clear()
        with sandbox(world, [seal(world, "KEY", REAL_KEY, kind="placeholder", require=True)], inject("KEY")) as s:
            r = curl(s, "-w", "%{http_version}", "-H", f"Authorization: {header}", f"{URL}/v1/x")
        assert len(origin.seen()) == passes and ("alone" in r.stdout) != passes and r.stdout.endswith("2"), r.stdout


def asked_and_allowed(world, s, *arguments):
    """The answer that curl gets on a connection that waits for its owner's yes, which is given, for what comes later too."""
    events = UnixConnection(world.control)
    events.request("GET", "/v1/events")
    lines, got = events.getresponse(), []
    assert json.loads(lines.readline())["event"] == "hello"
    thread = threading.Thread(target=lambda: got.append(curl(s, *arguments)))
    thread.start()
    while (event := json.loads(lines.readline()))["event"] != "ask":
        pass
    status, text = world.call("POST", f"/v1/sandboxes/{s.slot}/{s.gen}/asks/{event['ask']}", {"answer": "yes", "always": True})
    assert status == 204, text
    thread.join(60)
    events.close()
    return got[0]


def test_a_yes_opens_nothing_that_a_rule_denies(world, origin):
    """The connection is read after its owner's yes, and each stream is held against the rules. The control: without the rule the
    same stream is answered, and the server is sent it."""
    for rules in ([], [RULES[0]]):
        origin.clear()
        with sandbox(world, [], [], rules=rules or [{"action": "deny", "domains": [OTHER_HOST]}], mode="ask") as s:
            authorities = s.ca.read_text() + world.ca.read_text()  # unread, the client sees the server's own certificate
            s.ca.write_text(authorities)
            r = asked_and_allowed(world, s, "-w", "%{http_version} %{http_code}", f"{URL}/secret/x")
            other = curl(s, "-w", "%{http_version} %{http_code}", f"{URL}/v1/x")
        assert other.stdout == '{"ok": false}2 401', other.stdout
        assert r.stdout.endswith("2 403" if rules else "2 200"), r.stdout
        assert ("no-secrets" in r.stdout) == bool(rules)
        assert [line["path"] for line in origin.seen()] == (["/v1/x"] if rules else ["/secret/x", "/v1/x"])
