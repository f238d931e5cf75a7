"""Interception and credentials of cay-egress, with real clients in a network namespace as a sandbox has it, and
servers in the stand-in internet (test/egress) that demand credentials and tell what they have seen."""

import base64
import contextlib
import hashlib
import json
import os
import pathlib
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import threading
import zlib

import pytest

from worldlib import API, OTHER_HOST, RULES, inject, sandbox, seal, world_with_origin  # isort: skip: it makes the next ones found
import internet  # isort: skip
from origins import (AWS_ID, AWS_SECRET, EXPIRED, MODEL, PLAIN, REAL_KEY, SAID, SELF_SIGNED, WRONG_NAME,
                     accept_key)

URL = f"https://{API}:{MODEL}"


@pytest.fixture(scope="module")
def world():
    with world_with_origin("origins.py", "requests.log") as w:
        yield w


@pytest.fixture
def origins(world):
    world.origin.clear()
    return world.origin


@pytest.fixture
def box(world):
    """Its model API's key is put on by the proxy."""
    with sandbox(world, [seal(world, "model", REAL_KEY, kind="bearer")], inject("model")) as s:
        yield s


def curl(s, *arguments):
    r = s.curl("--cacert", s.ca, *arguments)
    assert REAL_KEY not in r.stdout + r.stderr
    return r


def tls_socket(s, address=None):
    """A TLS connection from inside, to API."""
    context = ssl.create_default_context(cafile=str(s.ca))
    context.set_alpn_protocols(["http/1.1"])
    return context.wrap_socket(s.connect(address or s.resolve(API)[1][0], MODEL), server_hostname=API)


def read_until(connection, text):
    data = b""
    while text not in data:
        data += connection.recv(65536) or pytest.fail(f"ended after {data}")
    return data


def reasons(world, s):
    return [d["reason"] for d in world.denials(s)]


# -- clients -----------------------------------------------------------------------------------------


def test_without_a_key_the_model_refuses(world, origins):
    """The control: nothing is injected, and the connection is not even read."""
    with sandbox(world, [], []) as s:
        r = s.curl("--cacert", world.ca, f"{URL}/v1/chat")
    assert json.loads(r.stdout) == {"ok": False}, r.stderr
    assert origins.seen()[0]["target"] == "/v1/chat"


def test_curl(box, origins):
    r = curl(box, "-H", "Authorization: Bearer cay-secret:model", f"{URL}/v1/chat")
    assert json.loads(r.stdout) == {"ok": True}, r.stderr
    sent = [value for name, value in origins.seen()[0]["headers"] if name.lower() == "authorization"]
    assert sent == [f"Bearer {REAL_KEY}"]  # once, and instead of the client's


SPELLINGS = {API.upper(): API, f"{API}.": API, f"{API}:{MODEL}": f"{API}:{MODEL}", f"{API.upper()}.:{MODEL}": f"{API}:{MODEL}"}


def test_a_host_goes_on_as_it_was_judged(world, box, origins):
    """Servers differ in which spellings they take for one host: nginx and Go leave out a final dot, HAProxy's hdr(host) and Node
    have what stands there. The control: in a connection that is not read the server sees what the client has written."""
    with sandbox(world, [], []) as free:
        for spelled in SPELLINGS:
            free.curl("--cacert", world.ca, "-H", f"Host: {spelled}", f"{URL}/v1/chat")
    for spelled in SPELLINGS:
        curl(box, "-H", f"Host: {spelled}", f"{URL}/v1/chat")
    hosts = [value for line in origins.seen() for name, value in line["headers"] if name.lower() == "host"]
    assert hosts == [*SPELLINGS, *SPELLINGS.values()]


def test_connection_is_kept(box, origins):
    r = curl(box, "-v", f"{URL}/v1/a", f"{URL}/v1/b", f"{URL}/v1/c")
    assert r.stdout.count('{"ok": true}') == 3 and r.stderr.count("Connected to") == 1, r.stderr
    assert len(origins.seen()) == 3


def test_python(box):
    program = (f"import json, ssl, urllib.request as u\n"
               f"r = u.Request('{URL}/v1/chat', data=b'x' * 200000, headers={{'X-Api-Key': 'cay-secret:model'}})\n"
               f"print(json.load(u.urlopen(r)))")
    with_header = box.run(sys.executable, "-c", program, env={**os.environ, "SSL_CERT_FILE": str(box.ca)})
    # another header than the credential's own is no place for it
    assert "403" in with_header.stderr
    program = program.replace("X-Api-Key", "Authorization")
    r = box.run(sys.executable, "-c", program, env={**os.environ, "SSL_CERT_FILE": str(box.ca)})
    assert r.stdout == "{'ok': True}\n", r.stderr


@pytest.mark.skipif(not shutil.which("node"), reason="node is not installed")
def test_node(box):
    program = f"fetch('{URL}/v1/chat', {{method: 'POST', body: 'x'}}).then(r => r.json()).then(o => console.log(o.ok))"
    r = box.run("node", "-e", program, env={**os.environ, "NODE_EXTRA_CA_CERTS": str(box.ca)})
    assert r.stdout == "true\n", r.stderr


def test_large_bodies(world, box, origins):
    (world.dir / "big").write_bytes(os.urandom(3_000_000))
    r = curl(box, "--data-binary", f"@{world.dir}/big", "-H", "Content-Type: application/octet-stream", f"{URL}/v1/big")
    assert json.loads(r.stdout) == {"ok": True}, r.stderr
    assert len(origins.seen()[0]["body"]) == 3_000_000


@pytest.mark.parametrize("form", ["length", "chunked"])
def test_bytes_of_an_upload_are_limited(world, form):
    """8 MB where 2 are left: no more is counted, and taken from the client, than the limit and a piece."""
    (world.dir / "big").write_bytes(bytes(8_000_000))
    header = ["-H", "Transfer-Encoding: chunked"] if form == "chunked" else []
    with sandbox(world, [seal(world, "model", REAL_KEY, kind="bearer")], inject("model"), limits={"bytes": 2_000_000}) as s:
        cut = curl(s, "--http1.1", *header, "-H", "Content-Type: application/octet-stream", "-T", world.dir / "big", f"{URL}/v1/big")
        usage = json.loads(world.call("GET", f"/v1/sandboxes/{s.slot}/{s.gen}/usage")[1])
        assert world.denials(s)[-1]["rule"] == "limit"
    assert cut.returncode != 0, cut
    assert 2_000_000 <= usage["bytes_up"] + usage["bytes_down"] <= 2_000_000 + 65536, usage


@pytest.mark.parametrize("proxy", ["http://127.0.0.1:3128", "socks5h://127.0.0.1:3128"])
def test_through_the_explicit_proxy(box, origins, proxy):
    r = curl(box, "-x", proxy, f"{URL}/v1/chat")
    assert json.loads(r.stdout) == {"ok": True}, r.stderr
    assert len(origins.seen()) == 1


def test_paths_of_a_rule(world, origins):
    """Read for the rule's sake alone: no credential is there."""
    with sandbox(world, [], [], [{"action": "allow", "domains": [API], "paths": ["/v1/*"], "methods": ["GET"]}]) as s:
        good = curl(s, "-w", "%{http_code}", f"{URL}/v1/x")
        path = curl(s, "-w", "%{http_code}", f"{URL}/v2/x")
        method = curl(s, "-w", "%{http_code}", "-d", "x", f"{URL}/v1/x")
        twice = curl(s, "-w", "%{http_code}", "--path-as-is", f"{URL}/v1/..%2f..%2fv2")
    assert good.stdout == '{"ok": false}401'  # the server's own word
    for r in (path, method, twice):
        assert r.stdout.endswith("403") and "egress_denied" in r.stdout, r.stdout
    assert [line["target"] for line in origins.seen()] == ["/v1/x"]


def test_changed_policy_cuts(world, box, origins):
    """A connection that was read stays open only as long as its name is allowed; the new credentials count at once."""
    with tls_socket(box) as one:
        one.sendall(f"GET /v1/a HTTP/1.1\r\nHost: {API}:{MODEL}\r\n\r\n".encode())
        read_until(one, b'{"ok": true}')
        status, text = world.put(box, {"rules": RULES, "inject": inject("model")},
                                 credentials=[seal(world, "model", "another-key-0123456789", kind="bearer")])
        assert status == 204, text
        one.sendall(f"GET /v1/b HTTP/1.1\r\nHost: {API}:{MODEL}\r\n\r\n".encode())
        read_until(one, b'{"ok": false}')
        assert world.put(box, {"rules": []})[0] == 204
        assert not one.recv(65536)
    assert headers_seen(origins, "authorization") == [f"Bearer {REAL_KEY}", "Bearer another-key-0123456789"]


def test_client_that_does_not_trust(world, box):
    r = box.curl("--cacert", world.ca, f"{URL}/v1/chat")
    assert r.returncode == 60
    assert any("does not trust this sandbox's certificate authority" in reason for reason in reasons(world, box))


def test_client_without_http(world, box):
    r = box.run("openssl", "s_client", "-connect", f"{API}:{MODEL}", "-servername", API, "-alpn", "spdy/3",
                stdin=subprocess.DEVNULL)
    assert "no application protocol" in r.stderr
    assert any("neither HTTP/1.1 nor HTTP/2" in reason for reason in reasons(world, box))


def test_name_and_host_must_agree(world, box, origins):
    r = curl(box, "-o", "-", "-w", "%{http_code}", "-H", f"Host: {OTHER_HOST}:{MODEL}", f"{URL}/v1/chat")
    assert r.stdout.endswith("421"), r.stdout
    r = box.curl("-k", "--resolve", f"{OTHER_HOST}:{MODEL}:{box.resolve(API)[1][0]}",
                 f"https://{OTHER_HOST}:{MODEL}/v1/chat")
    assert json.loads(r.stdout)["rule"] == "sni", r.stdout + r.stderr
    assert origins.seen() == []


# -- servers that cannot be trusted ------------------------------------------------------------------


@pytest.mark.parametrize("port, says", [(EXPIRED, "certificate has expired"), (SELF_SIGNED, "self-signed"),
                                        (WRONG_NAME, "certificate is for another name")])
def test_bad_upstream_certificate(box, origins, port, says):
    r = curl(box, "-w", "%{http_code}", f"https://{API}:{port}/v1/chat")
    assert r.stdout.endswith("502") and says in r.stdout, r.stdout + r.stderr
    assert origins.seen() == []


# -- where a secret does not go ----------------------------------------------------------------------


def test_not_over_plain_http(world, box, origins):
    r = curl(box, "-w", "%{http_code}", f"http://{API}:{PLAIN}/v1/chat")
    assert r.stdout.endswith("403") and "does not go over plain HTTP" in r.stdout
    assert origins.seen() == []
    assert any("plain HTTP" in reason for reason in reasons(world, box))


def test_insecure_where_its_owner_says_so(world, origins):
    """The control of the test above."""
    with sandbox(world, [seal(world, "model", REAL_KEY, kind="bearer", insecure=True)], inject("model")) as s:
        r = curl(s, f"http://{API}:{PLAIN}/v1/chat", f"http://{API}:{PLAIN}/echo")
    assert '{"ok": true}' in r.stdout and "[redacted]" in r.stdout, r.stdout + r.stderr


@pytest.mark.parametrize("more, passes", [
    ({}, True), ({"reroute": f"{internet.WEB}:{PLAIN}"}, False), ({"reroute": f"{API}:{PLAIN}"}, False),
    ({"proxy": {"address": f"{internet.OTHER}:{internet.SOCKS_PORT}", "username": "user", "password": "pass word"}}, False), ({"reroute": f"{internet.WEB}:{MODEL}", "tls": True}, True)])
def test_insecure_is_for_its_own_host(world, origins, more, passes):
    """The author of a policy does not have the value: it is not theirs to send it in clear where they say. With TLS the server
    has to have the name's certificate."""
    way = [{"domain": API, "to": more["reroute"]}] if "reroute" in more else []
    credentials = [seal(world, "model", REAL_KEY, kind="bearer", insecure=True)]
    with sandbox(world, credentials, inject("model")) as s:
        status, text = world.put(s, {"rules": RULES, "inject": inject("model"), "reroute": way}, credentials=credentials,
                                 proxy=more.get("proxy"))
        assert status == 204, text
        r = curl(s, f"{URL if 'tls' in more else f'http://{API}:{PLAIN}'}/v1/chat")
    assert bool(origins.seen()) == passes, r.stdout + r.stderr
    assert ('{"ok": true}' in r.stdout) == passes
    assert passes or "to its own host only" in r.stdout, r.stdout


def test_not_after_a_redirect(box, origins):
    target = f"https://{OTHER_HOST}:{MODEL}/v1/stolen"
    r = box.curl("--cacert", "/dev/null", "-L", "-k", "--location-trusted", "-H", "Authorization: Bearer own",
                 f"{URL}/redirect?{target}")
    assert r.stdout.endswith('{"ok": false}'), r.stdout + r.stderr
    first, second = origins.seen()
    assert ["Authorization", f"Bearer {REAL_KEY}"] in first["headers"]
    assert second["target"] == "/v1/stolen" and REAL_KEY not in json.dumps(second)


def test_not_where_its_own_binding_ends(world, origins):
    """The rule would put it on everything; the owner of the value has bound it to one path."""
    with sandbox(world, [seal(world, "model", REAL_KEY, kind="bearer", paths=["/v1/*"], methods=["GET"])],
                 inject("model", domains=(API, OTHER_HOST))) as s:
        good = curl(s, f"{URL}/v1/x")
        path = curl(s, f"{URL}/echo")
        method = curl(s, "-X", "POST", f"{URL}/v1/x")
        twice = curl(s, "--path-as-is", f"{URL}/echo/..%2fv1/x")
        host = curl(s, f"https://{OTHER_HOST}:{MODEL}/v1/x")
    assert json.loads(good.stdout) == {"ok": True}
    for r in (path, method, twice):
        assert "not for this method and path" in r.stdout, r.stdout
    assert "not for this host" in host.stdout
    assert len(origins.seen()) == 1


def test_not_for_a_second_path(world, origins):
    """A copy reads, or writes, a second path with the key. A credential that is bound to paths is for none but these; the
    control is one that is bound to the host, and the same request without the header."""
    source = ("-X", "PUT", "-H", "x-amz-copy-source: private/x")
    with sandbox(world, [seal(world, "model", REAL_KEY, kind="bearer", paths=["/v1/*"])], inject("model")) as s:
        refused, good = curl(s, *source, f"{URL}/v1/x"), curl(s, "-X", "PUT", f"{URL}/v1/x")
    assert "not for this method and path" in refused.stdout and json.loads(good.stdout) == {"ok": True}, refused.stdout + good.stdout
    with sandbox(world, [seal(world, "model", REAL_KEY, kind="bearer")], inject("model")) as s:
        whole = curl(s, *source, f"{URL}/v1/x")
    with sandbox(world, [seal(world, "model", REAL_KEY, kind="bearer")], [{**one, "paths": ["/v1/*"]} for one in inject("model")]) as s:
        keyless = curl(s, *source, f"{URL}/v1/x")
    assert json.loads(whole.stdout) == {"ok": True} and json.loads(keyless.stdout) == {"ok": False}, whole.stdout + keyless.stdout
    assert ["x-amz-copy-source", "private/x"] in origins.seen()[-2]["headers"]
    assert REAL_KEY not in json.dumps(origins.seen()[-1])


@pytest.mark.parametrize("path", ["/echo", "/echo-chunked", "/echo-until-close", "/echo-header"])
def test_not_by_echo(box, path):
    r = curl(box, "-i", f"{URL}{path}")
    assert r.returncode == 0 and "[redacted]" in r.stdout, r.stdout + r.stderr
    assert "sk-real" not in r.stdout


def test_not_by_compressed_echo(box, origins):
    """Of a server that compresses whatever it was asked: decompressed, and searched."""
    r = curl(box, "-i", f"{URL}/echo-gzip")
    assert "200" in r.stdout.splitlines()[0] and "[redacted]" in r.stdout, r.stdout
    assert "content-encoding" not in r.stdout.lower()
    sent = dict(origins.seen()[0]["headers"])
    assert sent["Accept-Encoding"] == "identity"


def test_not_by_address(world):
    """A server that was told the secret says it under its address too: by the name that is said there, or by none."""
    body = f"the key is {REAL_KEY}".encode()
    answer = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body
    listener = internet.inside(world.net, lambda: socket.create_server((internet.WEB, 7998)))

    def serve():
        with contextlib.suppress(OSError):
            while True:
                peer = listener.accept()[0]
                peer.recv(4096)
                peer.sendall(answer)
                peer.close()

    threading.Thread(target=serve, daemon=True).start()
    try:
        rules = [*RULES, {"action": "allow", "addresses": [f"{internet.WEB}/32"]}]
        with sandbox(world, [seal(world, "model", REAL_KEY, kind="bearer")], inject("model"), rules) as s:
            for host in (f"{API}:7998", f"{internet.WEB}:7998"):
                r = curl(s, "-H", f"Host: {host}", f"http://{internet.WEB}:7998/")
                assert r.stdout == "the key is " + "[redacted]".ljust(len(REAL_KEY), "*")[:len(REAL_KEY)], r.stdout
        with sandbox(world, [], [], rules) as s:  # the control
            assert s.curl(f"http://{internet.WEB}:7998/").stdout.endswith(REAL_KEY)
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def test_nowhere_on_this_machine(world, box):
    """Not in logs, the audit log, denials, the state directory, nor in what others may read of the process."""
    curl(box, f"{URL}/v1/chat", f"{URL}/echo", f"http://{API}:{PLAIN}/v1")
    for path in [world.log, *(p for p in world.state.rglob("*") if p.is_file())]:
        assert REAL_KEY.encode() not in path.read_bytes(), path
    assert REAL_KEY not in json.dumps(world.audit()) + json.dumps(world.denials(box))
    pid = world.egress.pid
    assert os.stat(f"/proc/{pid}/mem").st_uid == 0  # not its user's: PR_SET_DUMPABLE is off
    limits = pathlib.Path(f"/proc/{pid}/limits").read_text()
    assert [line.split()[4:6] for line in limits.splitlines() if line.startswith("Max core")] == [["0", "0"]]
    for name in ("seal.key", "ca/tenant1.key"):
        assert (world.state / name).stat().st_mode & 0o777 == 0o600


def test_audit_names_the_credential(world, box):
    curl(box, f"{URL}/v1/audited?x=y")
    lines = [line for line in world.audit() if line.get("path") == "/v1/audited"]
    assert lines and lines[-1]["credential"] == "model"


# -- kinds -------------------------------------------------------------------------------------------


def headers_seen(origins, name):
    return [value for line in origins.seen() for key, value in line["headers"] if key.lower() == name]


def test_header(world, origins):
    with sandbox(world, [seal(world, "k", REAL_KEY, kind="header", header="X-Api-Key")], inject("k")) as s:
        r = curl(s, "-H", "x-api-key: own", "-H", "X-API-KEY: second", f"{URL}/v1/chat")
    assert json.loads(r.stdout) == {"ok": True}
    assert headers_seen(origins, "x-api-key") == [REAL_KEY]


def test_prefix_and_basic(world, origins):
    with sandbox(world, [seal(world, "k", REAL_KEY, kind="header", header="X-Api-Key", prefix="Token ")],
                 inject("k")) as s:
        curl(s, f"{URL}/x")
    assert headers_seen(origins, "x-api-key") == [f"Token {REAL_KEY}"]
    origins.clear()
    with sandbox(world, [seal(world, "k", f"me:{REAL_KEY}", kind="basic")], inject("k")) as s:
        r = curl(s, "-u", "own:own", f"{URL}/echo")
    expected = base64.b64encode(f"me:{REAL_KEY}".encode()).decode()
    assert headers_seen(origins, "authorization") == [f"Basic {expected}"]
    assert expected not in r.stdout and "[redacted]" in r.stdout


def test_query(world, origins):
    with sandbox(world, [seal(world, "k", "value/with &signs", kind="query", parameter="key")], inject("k")) as s:
        r = curl(s, f"{URL}/echo?a=1&key=own&k%65y=again&b=2")
    assert origins.seen()[0]["target"] == "/echo?a=1&b=2&key=value%2Fwith%20%26signs"
    assert "value%2F" not in r.stdout and "[redacted]" in r.stdout


def test_query_divided_by_semicolons(world, origins):
    """As some servers divide it: the client's own would be the first there. The control: others arrive as they were."""
    with sandbox(world, [seal(world, "k", "a-value-of-ours", kind="query", parameter="key")], inject("k")) as s:
        curl(s, f"{URL}/echo?a=1;key=own;b=2&c=3;d")
        curl(s, f"{URL}/echo?key=own;k%65y=again")
        curl(s, f"{URL}/echo?a;b")
    assert [seen["target"] for seen in origins.seen()] == [
        "/echo?a=1;b=2&c=3;d&key=a-value-of-ours", "/echo?key=a-value-of-ours", "/echo?a;b&key=a-value-of-ours"]


def test_headers_with_placeholders(world, origins):
    """As E2B's rules set them."""
    credentials = [seal(world, "TOKEN", REAL_KEY, kind="placeholder"),
                   seal(world, "rule", {"Authorization": "Bearer ${e2b.secrets.TOKEN}", "X-Plain": "y"}, kind="headers")]
    with sandbox(world, credentials, inject("rule", "TOKEN")) as s:
        r = curl(s, "-H", "X-Plain: own", f"{URL}/v1/chat")
    assert json.loads(r.stdout) == {"ok": True}
    assert headers_seen(origins, "x-plain") == ["y"]


@pytest.mark.parametrize("header", ["X-HTTP-Method-Override", "x_original_url", "X-Forwarded-Host", "x-amz-copy-source",
                                    "Content_Length", "Transfer.Encoding"])
@pytest.mark.parametrize("kind", ["header", "headers"])
def test_a_header_of_a_credential_names_no_other_request(world, header, kind):
    """The tenant chooses its name, and the rules may be an operator's. The control: test_header, test_headers_with_placeholders."""
    value, more = (REAL_KEY, {"header": header}) if kind == "header" else ({header: "/admin", "X-Plain": "y"}, {})
    status, text = world.call("POST", "/v1/seal", {"tenant": "tenant1", "name": "rule", "value": value,
                                                   "bind": {"kind": kind, "domains": [API], **more}})
    assert status == 400 and "other method, path or host" in text, text


def test_unknown_credential(world, origins):
    with sandbox(world, [], inject("absent")) as s:
        r = curl(s, f"{URL}/v1/chat")
    assert "which this sandbox was not given" in r.stdout
    assert origins.seen() == []


# -- placeholders ------------------------------------------------------------------------------------


@pytest.fixture
def holder(world):
    anywhere = {"headers": ["*"], "target": True, "bodies": True}
    with sandbox(world, [seal(world, "KEY", REAL_KEY, kind="placeholder", **anywhere),
                         seal(world, "ELSE", "another-secret-value", kind="placeholder", domains=[OTHER_HOST])],
                 inject("KEY") + inject("ELSE", domains=[OTHER_HOST])) as s:
        yield s


@pytest.mark.parametrize("spelling", ["cay-secret:KEY", "${e2b.secrets.KEY}"])
def test_placeholder_in_a_header(holder, origins, spelling):
    r = curl(holder, "-H", f"Authorization: Bearer {spelling}", "-H", f"X-Two: a {spelling}, b", f"{URL}/v1/chat")
    assert json.loads(r.stdout) == {"ok": True}, r.stdout
    assert headers_seen(origins, "x-two") == [f"a {REAL_KEY}, b"]


def test_placeholder_in_basic_and_target(holder, origins):
    curl(holder, "-u", "me:cay-secret:KEY", f"{URL}/bot-cay-secret:KEY/x?key=cay-secret:KEY")
    assert base64.b64decode(headers_seen(origins, "authorization")[0].split()[1]).decode() == f"me:{REAL_KEY}"
    assert origins.seen()[0]["target"] == f"/bot-{REAL_KEY}/x?key={REAL_KEY}"


def test_placeholder_in_bodies(holder, origins):
    for kind, body, expected in (
            ("application/json", '{"key": "cay-secret:KEY"}', f'{{"key": "{REAL_KEY}"}}'),
            ("application/x-www-form-urlencoded", "key=cay-secret:KEY&x=cay-secret:none", f"key={REAL_KEY}&x=cay-secret:none"),
            ("text/plain; charset=utf-8", "${e2b.secrets.KEY} cay-secret:ELSE", f"{REAL_KEY} cay-secret:ELSE"),
            ("application/octet-stream", "cay-secret:KEY", "cay-secret:KEY")):
        origins.clear()
        r = curl(holder, "-H", f"Content-Type: {kind}", "--data-binary", body, f"{URL}/echo")
        assert r.returncode == 0, r.stderr
        assert [line["body"] for line in origins.seen()] == [expected]


def test_placeholder_to_another_host(world, holder, origins):
    r = curl(holder, "-H", "Authorization: Bearer cay-secret:KEY", f"https://{OTHER_HOST}:{MODEL}/v1/chat")
    assert "KEY is not for this host" in r.stdout, r.stdout
    r = curl(holder, "-H", "Authorization: Bearer cay-secret:KEY", f"http://{OTHER_HOST}:{PLAIN}/v1/chat")
    assert "KEY is not for this host" in r.stdout, r.stdout
    r = curl(holder, "-H", "Authorization: Bearer cay-secret:KEY", f"http://{API}:{PLAIN}/v1/chat")
    assert "does not go over plain HTTP" in r.stdout, r.stdout
    r = curl(holder, "-H", "X: cay-secret:NEVER", f"{URL}/v1/chat")
    assert "no credential NEVER" in r.stdout, r.stdout
    assert origins.seen() == []
    assert len(reasons(world, holder)) == 4


# -- AWS ---------------------------------------------------------------------------------------------


S3 = f"https://s3.model.example:{MODEL}/s3"


@pytest.fixture
def aws(world):
    value = {"access_key_id": AWS_ID, "secret_access_key": AWS_SECRET}
    with sandbox(world, [seal(world, "aws", value, kind="aws-sigv4", domains=["s3.model.example"])],
                 inject("aws", domains=["s3.model.example"])) as s:
        yield s


SIGNED = ("--aws-sigv4", "aws:amz:eu-west-1:s3", "-u", "any:thing")


def test_requests_are_signed_anew(aws, origins):
    for more in (["-X", "GET"], ["-d", "hello"], ["-H", "x-amz-content-sha256: UNSIGNED-PAYLOAD", "-d", "hello"],
                 ["-T", "-", "-H", "Transfer-Encoding: chunked", "-H", "x-amz-meta-a:  b   c "]):
        r = aws.run("curl", "-sS", "--cacert", aws.ca, *SIGNED, *more, f"{S3}/bucket/a%20key?list-type=2&prefix=a%2Fb",
                    input="streamed" if "-T" in more else None)
        assert '"good"' in r.stdout, r.stdout + r.stderr
    assert all("any" not in value for value in headers_seen(origins, "authorization"))


def test_signature_needs_a_scope(aws, origins):
    r = curl(aws, f"{S3}/bucket")
    assert "no region and service" in r.stdout
    assert origins.seen() == []


def test_a_body_other_than_the_signed_one(aws, origins):
    """The hash that the client names stands, so that the server refuses what came instead."""
    for body, answer in (("hello", '"good"'), ("jello", "the body is another")):
        r = curl(aws, *SIGNED, "-H", f"x-amz-content-sha256: {hashlib.sha256(b'hello').hexdigest()}", "-d", body, f"{S3}/bucket")
        assert answer in r.stdout, r.stdout + r.stderr


def test_signature_in_chunks_is_refused(aws, origins):
    r = curl(aws, *SIGNED, "-H", "x-amz-content-sha256: STREAMING-AWS4-HMAC-SHA256-PAYLOAD", "-d", "x", f"{S3}/bucket")
    assert "signed in chunks" in r.stdout
    assert origins.seen() == []


# -- long answers ------------------------------------------------------------------------------------


def test_server_sent_events_come_one_by_one(box):
    with tls_socket(box) as one:
        one.sendall(f"GET /sse HTTP/1.1\r\nHost: {API}:{MODEL}\r\n\r\n".encode())
        data = read_until(one, b"data: first\n\n")  # it is here before the second was even asked for
        curl(box, f"{URL}/release")
        while more := one.recv(65536):
            data += more
    assert b"data: second\n\n" in data


def frame(data):
    mask = b"\1\2\3\4"
    return struct.pack("!BB", 0x81, 0x80 | len(data)) + mask + bytes(b ^ mask[i % 4] for i, b in enumerate(data))


def test_websocket_message_by_message(box, origins):
    with tls_socket(box) as one, one.makefile("rb") as answers:
        one.sendall(f"GET /ws HTTP/1.1\r\nHost: {API}:{MODEL}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n"
                    "Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n".encode())
        head = b"".join(iter(answers.readline, b"\r\n"))
        assert b"101" in head and accept_key("MDEyMzQ1Njc4OWFiY2RlZg==").encode() in head
        for text in (b"one", b"two", b"what begins like its key: sk-", b"s"):  # the next only after the echo
            one.sendall(frame(text))
            assert answers.read(2 + len(text))[2:] == text
        one.sendall(frame(b"secret"))
        assert answers.read(2 + len(REAL_KEY))[2:].startswith(b"[redacted]")
    assert headers_seen(origins, "authorization") == [f"Bearer {REAL_KEY}"]
    assert headers_seen(origins, "sec-websocket-extensions") == []


ASK = (f"Host: {API}:{MODEL}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
       "Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n")
END = b"\x81\x03end"


def conversation(s, how):
    """All that comes of it, to the echo of the message after it or to the connection's end."""
    data = b""
    with tls_socket(s) as one, one.makefile("rb") as answers:
        one.sendall(f"GET /ws HTTP/1.1\r\n{ASK}".encode())
        assert b"101" in b"".join(iter(answers.readline, b"\r\n"))
        one.sendall(frame(how) + frame(b"end"))
        with contextlib.suppress(ConnectionError):
            while not data.endswith(END) and (more := answers.read1(65536)):
                data += more
    return data


def contents(data):
    """Of frames as SAID has them: what a client reads who means to."""
    out = b""
    while len(data) > 1:
        head, masked, n, data = data[0], data[1] & 0x80, data[1] & 0x7f, data[2:]
        mask, data = (data[:4], data[4:]) if masked else (b"", data)
        body, data = data[:n], data[n:]
        body = bytes(b ^ mask[i % 4] for i, b in enumerate(body)) if mask else body
        if head & 0x40:
            body = zlib.decompressobj(-15).decompress(body + b"\0\0\xff\xff")
        out += b"" if body == b"!" else body
    return out


@pytest.mark.parametrize("how, passes", [("fragments", True), ("ping", True), ("length", True), ("masked", False),
                                         ("compressed", False)])
def test_not_in_the_frames_of_a_conversation(world, box, how, passes):
    """A server frames the key as a client that means to can read it. The control: a sandbox without a credential, whose
    connection is read too."""
    said = conversation(box, how.encode())
    assert said.endswith(END) == passes, said
    assert REAL_KEY.encode() not in said and REAL_KEY.encode() not in contents(said), said
    assert (b"[" in said) == passes
    with sandbox(world, [], [], [{**RULES[0], "paths": ["/*"]}]) as s:
        plain = conversation(s, how.encode())
    assert plain == SAID[how.encode()] + END and (how == "length" or REAL_KEY.encode() in contents(plain)), plain


def test_no_extension_that_was_not_offered(world, box):
    for s, status in ((box, b"502"), (None, b"101")):
        with contextlib.ExitStack() as end:
            s = s or end.enter_context(sandbox(world, [], [], [{**RULES[0], "paths": ["/*"]}]))  # the control
            one = end.enter_context(tls_socket(s))
            one.sendall(f"GET /ws?extension HTTP/1.1\r\n{ASK}".encode())
            assert status in read_until(one, b"\r\n").partition(b"\r\n")[0]


# -- the records themselves --------------------------------------------------------------------------


def test_records_of_others_are_refused(world):
    record = seal(world, "k", REAL_KEY, kind="bearer")
    s = world.sandbox()
    try:
        policy = {"rules": RULES, "inject": inject("k")}
        for what in ({**record, "bind": {**record["bind"], "domains": [OTHER_HOST]}}, {**record, "name": "other"},
                     {**record, "sealed": record["sealed"][:-8] + "AAAAAAA="}, seal(world, "k", REAL_KEY, "tenant2",
                                                                                    kind="bearer")):
            status, text = world.put(s, policy, credentials=[what])
            assert status == 400 and "credentials[0]" in text, text
            assert REAL_KEY not in text
        status, text = world.put(s, policy, credentials=[record])  # the control
        assert status == 204, text
    finally:
        world.end(s)


def test_bad_seals(world):
    for body, says in (({}, "tenant"), ({"tenant": "t", "name": "n", "value": REAL_KEY, "bind": {"kind": "x"}}, "bind.kind"),
                       ({"tenant": "t", "name": "n", "value": "short", "bind": {"kind": "bearer", "domains": [API]}}, "value"),
                       ({"tenant": "t", "name": "n", "value": REAL_KEY, "bind": {"kind": "bearer", "domains": ["*"]}},
                        "bind.domains[0]")):
        status, text = world.call("POST", "/v1/seal", body)
        assert status == 400 and says in text and REAL_KEY not in text, text


def test_each_tenant_has_an_authority_of_its_own(world, origins):
    """A program that trusts the CA of one does not trust what is signed for the sandboxes of another."""
    theirs = world.dir / "tenant2.pem"
    theirs.write_text(world.call("GET", "/v1/ca/tenant2")[1])
    with sandbox(world, [seal(world, "model", REAL_KEY, kind="bearer")], inject("model")) as s:
        assert s.curl("--cacert", theirs, f"{URL}/v1/chat").returncode == 60
        assert origins.seen() == []
        assert json.loads(curl(s, f"{URL}/v1/chat").stdout) == {"ok": True}  # the control
        sealed = seal(world, "model", REAL_KEY, tenant="tenant2", kind="bearer")
        assert world.put(s, {"rules": RULES, "inject": inject("model")}, tenant="tenant2", credentials=[sealed])[0] == 204
        assert json.loads(s.curl("--cacert", theirs, f"{URL}/v1/chat").stdout) == {"ok": True}


def test_authority_of_no_tenant(world):
    for name in ("..%2fx", "a%20b", "a.b"):
        assert world.call("GET", f"/v1/ca/{name}")[0] == 404


def test_authority_and_key_outlive_the_program(world):
    before, record = world.call("GET", "/v1/ca/tenant1"), seal(world, "k", REAL_KEY, kind="bearer")
    world.egress.send_signal(signal.SIGKILL)
    world.egress.wait()
    world.start_egress()
    assert world.call("GET", "/v1/ca/tenant1") == before
    with sandbox(world, [record], inject("k")) as s:
        assert json.loads(curl(s, f"{URL}/v1/chat").stdout) == {"ok": True}
