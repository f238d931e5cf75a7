"""Credentials that renew themselves (kind oauth2), by the whole server: cay-egress asks a token server of the stand-in
internet, cayd decides when and keeps what is replaced, no sandbox sees any of it."""

import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile

import pytest

import clocklib
from conftest import BUILD
from egresslib import ZONE, Stack, internet
from waitlib import until

TOKENS = internet.__file__.replace("internet.py", "tokens.py")
TOKEN_PORT = 9443
LOGIN, API = "login.example.com", "api.example.com"
ADDRESSES = {LOGIN: {"a": [[internet.OTHER]]}, API: {"a": [[internet.WEB]]}, "login.inside.example": {"a": [[internet.PRIVATE]]}}
URL = f"https://{API}:9444"
REFRESH = "rT-the-owners-own-0001"
POLICY = {"rules": [{"name": "api", "action": "allow", "domains": [API]}], "inject": [{"credential": "MAIL", "domains": [API]}]}


class Server:
    """The token server, from the side of the test."""

    def __init__(self, stack):
        self.directory = stack.networks.dir / "tokens"
        self.directory.mkdir()
        self.reset()
        self.process = subprocess.Popen(["ip", "netns", "exec", stack.networks.net, sys.executable, TOKENS, stack.networks.cert,
                                         stack.networks.key, self.directory], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True)
        assert self.process.stdout.readline() == "ready\n"

    def reset(self, **more):
        self.set(refresh=REFRESH, rotate=False, life=3600, mode="good", valid=[], issued=0, **more)
        (self.directory / "log.jsonl").write_text("")

    def read(self):
        return json.loads((self.directory / "state.json").read_text())

    def set(self, **more):
        path = self.directory / "state.json"
        state = {**(self.read() if path.exists() else {}), **more}
        (self.directory / "state.test").write_text(json.dumps(state))
        os.replace(self.directory / "state.test", path)

    def log(self):
        return [json.loads(line) for line in (self.directory / "log.jsonl").read_text().splitlines()]

    def close(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="module")
def stack():
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    with tempfile.TemporaryDirectory(prefix="cay-clock-", dir="/var/tmp") as directory:
        os.chmod(directory, 0o755)
        clock = clocklib.Clock(directory)
        s = Stack({**ZONE, **ADDRESSES}, keep_args=("--egress-processes=2",), program=clock.program(BUILD / "src/egress/cay-egress"))
        try:
            s.tokens, s.clock = Server(s), clock
            yield s
            s.tokens.close()
        finally:
            s.close()


@pytest.fixture
def tokens(stack):
    stack.tokens.reset()
    stack.cay.call("DELETE", "/cay/v1/secrets/MAIL")
    return stack.tokens


@pytest.fixture
def own(stack):
    made = []

    def make(policy=None):
        reply = stack.cay.call("POST", "/cay/v1/sandboxes", {"templateID": "host", "timeout": 300, "policy": policy or POLICY})
        assert reply.status == 201, reply.body
        from client import Sandbox
        made.append(Sandbox(stack.cay, reply.json))
        return made[-1]

    yield make
    for one in made:
        one.kill()


def put(stack, status=201, bind=None, **value):
    body = {"name": "MAIL", "bind": {"kind": "oauth2", "domains": [API], "token_host": f"{LOGIN}:9443", **(bind or {})},
            "value": {"token_url": f"https://{LOGIN}:9443/token", "client_id": "cay-test", "refresh_token": REFRESH, **value}}
    reply = stack.cay.call("POST", "/cay/v1/secrets", body)
    assert reply.status == status and REFRESH not in reply.body.decode(), reply.body
    return reply


def ask(sandbox, *options, path="/v1"):
    """Status and answer."""
    r = sandbox.run(f"curl -sS --max-time 60 -w '\\n%{{http_code}}' {' '.join(options)} {URL}{path}")
    text, _, status = r.out.rpartition("\n")
    return int(status or 0), text


def opened(text):
    """Which access token a request had: its number."""
    o = json.loads(text)
    for number in range(1, 60):
        for start in ("rT-t", "rT-r"):
            if o["digest"] == hashlib.sha256(f"Bearer access-token-{number:04d}-{start}".encode()).hexdigest():
                return number
    raise AssertionError(text)


def records(stack):
    return [r for r in stack.cay.call("GET", "/cay/v1/audit?limit=1000").json if r["event"] == "renewal"]


def test_the_first_request_has_it_renewed(stack, own, tokens):
    put(stack)
    one = own()
    status, text = ask(one)
    assert status == 200 and opened(text) == 1 and "[redacted]" in text and "access-token" not in text
    form = tokens.log()[0]["form"]
    assert tokens.log()[0]["path"] == "/token" and form["grant_type"] == ["refresh_token"] and form["refresh_token"] == [REFRESH]
    assert form["client_id"] == ["cay-test"] and form["authorization"] is None
    assert opened(ask(one)[1]) == 1 and len(tokens.log()) == 1
    assert opened(ask(own())[1]) == 1 and len(tokens.log()) == 1  # of a sandbox that came later
    last = records(stack)[-1]
    assert (last["verdict"], last["outcome"], last["credential"], last["name"], last["port"]) == ("allow", "renewed", "MAIL", LOGIN, 9443)


def test_many_wait_for_one_renewal(stack, own, tokens):
    put(stack, client_secret="s3cret of the client", scope="mail.read mail.send")
    tokens.set(mode="hold")
    boxes = [own(), own()]
    assert len(stack.pids("cay-egress")) == 2  # slots take turns among them
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = [pool.submit(ask, boxes[i % 2]) for i in range(8)]
        until(lambda: len(tokens.log()) == 1)
        assert not any(a.done() for a in answers)
        tokens.set(mode="good")
        assert [(a.result()[0], opened(a.result()[1])) for a in answers] == [(200, 1)] * 8
    assert len(tokens.log()) == 1
    form = tokens.log()[0]["form"]
    basic = "Basic Y2F5LXRlc3Q6czNjcmV0JTIwb2YlMjB0aGUlMjBjbGllbnQ="
    assert form["authorization"] == basic and "client_id" not in form and form["scope"] == ["mail.read mail.send"]


def test_it_ends_and_is_renewed(stack, own, tokens):
    put(stack)
    tokens.set(life=1)
    one = own()
    assert opened(ask(one)[1]) == 1
    until(lambda: opened(ask(one)[1]) >= 2)
    assert len(tokens.log()) >= 2


def sealed_record(stack):
    with sqlite3.connect(f"file:{stack.server.state}/cayd/cay.db?mode=ro", uri=True) as db:
        return db.execute("SELECT sealed, version FROM credentials WHERE name='MAIL'").fetchone()


def test_a_refresh_token_is_replaced(stack, own, tokens):
    """Each is good once. cayd is killed and comes again with what it has written."""
    put(stack)
    tokens.set(rotate=True, life=1)
    one = own()
    before = sealed_record(stack)
    assert opened(ask(one)[1]) == 1
    after = sealed_record(stack)
    assert before[0] != after[0] and before[1] == after[1]
    until(lambda: opened(ask(one)[1]) >= 3)
    tokens.set(life=3600)
    stack.wait_replaced("cayd", stack.kill("cayd"))
    until(lambda: stack.cay.call("GET", "/cay/v1/secrets").status == 200, patient=True)
    seen = len(tokens.log())
    until(lambda: ask(one)[0] == 200)
    assert len(tokens.log()) > seen and all(line["form"]["refresh_token"] for line in tokens.log())
    spent = [line["form"]["refresh_token"][0] for line in tokens.log()]
    assert len(set(spent)) == len(spent)
    assert "replaced" in {r.get("outcome") for r in records(stack)}


def test_a_cayd_that_dies_meanwhile_loses_nothing(stack, own, tokens):
    """It is killed between its question and the answer, which has a new refresh token."""
    put(stack)
    tokens.set(rotate=True, mode="hold")
    one = own()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        answer = pool.submit(ask, one)
        until(lambda: len(tokens.log()) == 1)
        killed = stack.kill("cayd")
        tokens.set(mode="good")
        assert answer.exception()  # the command's stream went with cayd
    stack.wait_replaced("cayd", killed)
    until(lambda: stack.cay.call("GET", "/cay/v1/secrets").status == 200, patient=True)
    until(lambda: ask(one)[0] == 200)
    assert [line["form"]["refresh_token"] for line in tokens.log()] == [[REFRESH]]


def shard_of(pid):
    (option,) = [a for a in pathlib.Path(f"/proc/{pid}/cmdline").read_text().split("\0") if a.startswith("--shard=")]
    return int(option.removeprefix("--shard=").split("/")[0])


def renewer(stack):
    """The process of cay-egress that has a connection to the token server."""
    found = subprocess.run(["ss", "-Htnp", f"dport = :{TOKEN_PORT}"], capture_output=True, text=True, check=True).stdout
    (pid,) = {int(text) for text in re.findall(r"pid=(\d+)", found)}
    return pid


def told(audit):
    """How many refresh tokens were replaced, by that log."""
    return audit.read_text().count('"replaced"') if audit.exists() else 0


def slot_of(stack, sandbox):
    with sqlite3.connect(f"file:{stack.server.state}/cayd/cay.db?mode=ro", uri=True) as db:
        return db.execute("SELECT slot FROM sandboxes WHERE id=?", [sandbox.id]).fetchone()[0]


def test_no_other_process_renews_what_one_has_renewed(stack, own, tokens):
    """cayd dies with a new refresh token on its way to it; the process that has it is not back for the next cayd when a
    sandbox of the other process asks. The other one would send the old refresh token again, which is spent."""
    put(stack)
    tokens.set(rotate=True, mode="hold")
    by_process = {}
    for _ in range(32):
        made = own()
        by_process[slot_of(stack, made) % 2] = made
        if len(by_process) == 2:
            break
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        answer = pool.submit(ask, by_process[0])
        until(lambda: len(tokens.log()) == 1)
        has = renewer(stack)
        other = by_process[1 - shard_of(has)]
        audit = stack.server.state / f"egress/audit-{shard_of(has)}.default.log"
        replaced = told(audit)
        os.kill(stack.server.keep_pid, signal.SIGSTOP)  # there is no cayd until the test says so
        try:
            killed = stack.kill("cayd")
            assert answer.exception()
            tokens.set(mode="good")
            until(lambda: told(audit) > replaced)
            os.kill(has, signal.SIGSTOP)
        finally:
            os.kill(stack.server.keep_pid, signal.SIGCONT)
    try:
        stack.wait_replaced("cayd", killed)
        until(lambda: stack.cay.call("GET", "/cay/v1/secrets").status == 200, patient=True)
        assert until(lambda: other.run("echo there").out, patient=True) == "there\n"
        assert ask(other, "--max-time 5") == (0, "")  # it waits
    finally:
        os.kill(has, signal.SIGCONT)
    until(lambda: ask(other)[0] == 200)
    assert [line["form"]["refresh_token"] for line in tokens.log()] == [[REFRESH]]


def test_a_server_that_refuses_it_has_it_renewed_once(stack, own, tokens):
    put(stack)
    one = own()
    assert opened(ask(one)[1]) == 1
    tokens.set(valid=[])
    assert ask(one)[0] == 401  # what it was is told; the next request has another
    status, text = ask(one)
    assert (status, opened(text)) == (200, 2)
    tokens.set(valid=[])
    assert [ask(one)[0] for _ in range(4)] == [401] * 4 and len(tokens.log()) == 2


@pytest.mark.parametrize("mode, said, status", [
    ("invalid_grant", "400 invalid_grant", 403), ("garbage", "no JSON object", 503), ("huge", "larger than is allowed", 503),
    ("redirect", "redirects are not followed", 503), ("500", "answered 500", 503), ("header", "that a header can hold", 503),
    ("break", "ended before the answer", 503)])
def test_a_token_server_that_does_not_help(stack, own, tokens, mode, said, status):
    put(stack)
    tokens.set(mode=mode)
    one = own()
    got, text = ask(one)
    assert got == status and said in text and "MAIL" in text, (got, text)
    assert ("its owner has to set it anew" in text) == (status == 403) and json.loads(text)["rule"] == "credential"
    assert "elsewhere" not in [line["path"] for line in tokens.log()]
    last = records(stack)[-1]
    assert last["outcome"] == "failed" and said in last["reason"]
    asked = len(tokens.log())
    for _ in range(5):
        assert ask(one)[0] == status
    assert len(tokens.log()) == asked  # it is asked again later, if at all
    tokens.set(mode="good")
    put(stack)
    status, text = ask(one)
    assert status == 200, text  # set anew: at once


@pytest.mark.parametrize("mode, said", [("garbage", "no JSON object"), ("huge", "larger than is allowed"), ("redirect", "not followed"),
                                        ("500", "answered 500"), ("break", "ended before the answer")])
def test_no_token_beyond_its_life(stack, own, tokens, mode, said):
    """While no other is there the old one serves to its end (the control), and then no more, though its server would take it still:
    refused, and why."""
    put(stack)
    tokens.set(life=5)
    one = own()
    assert opened(ask(one)[1]) == 1
    tokens.set(mode=mode)
    until(lambda: ask(one)[0] == 503, 60)
    for _ in range(3):
        status, text = ask(one)
        assert status == 503 and said in text and json.loads(text)["rule"] == "credential", (status, text)
    assert records(stack)[-1]["outcome"] == "failed"
    tokens.set(mode="good")
    put(stack)
    assert opened(ask(one)[1]) == 2


def test_a_slow_token_server(stack, own, tokens):
    """Told after a while (15 s, of cay-egress's own clock, which the test moves); what it says at last is not lost."""
    put(stack)
    tokens.set(mode="hold", rotate=True)
    one = own()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ask, one)
        until(lambda: len(tokens.log()) == 1)
        stack.clock.pass_by(14)
        one.run("curl -sS --max-time 20 http://cay.internal/denials.txt")  # of the same process, which has seen that
        assert not asked.done()
        stack.clock.pass_by(2)
        status, text = asked.result()
    assert status == 503 and "too long" in text, text
    tokens.set(mode="good")
    until(lambda: ask(one)[0] == 200, 60)
    assert len(tokens.log()) == 1


@pytest.fixture(scope="module")
def http2(stack):
    """h2origin.py, which demands its own key: that is what the token server gives out then."""
    h2origin = pytest.importorskip("h2origin")
    home = stack.networks.dir / "h2"
    home.mkdir()
    (home / "good.pem").symlink_to(stack.networks.cert)
    (home / "good.key").symlink_to(stack.networks.key)
    with subprocess.Popen(["ip", "netns", "exec", stack.networks.net, sys.executable, TOKENS.replace("tokens.py", "h2origin.py"),
                           "serve", home], stdout=subprocess.PIPE, text=True) as p:
        assert p.stdout.readline() == "ready\n"
        yield h2origin
        p.kill()


def ask2(http2, sandbox, path, *options):
    r = sandbox.run(f"head -c 300000 /dev/zero >/tmp/zeros.$$; mv /tmp/zeros.$$ /tmp/zeros; curl -sS --http2 --max-time 60 -w ' %{{http_version}} %{{http_code}}' "
                    f"{' '.join(options)} https://{API}:{http2.H2}{path}")
    assert http2.REAL_KEY not in r.out
    return r.out


def test_http2_waits_too(stack, own, tokens, http2):
    """Streams are put off, with what comes of their bodies, and go on when the token is there."""
    put(stack)
    tokens.set(mode="hold", access=http2.REAL_KEY)
    one = own()
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        plain = pool.submit(ask2, http2, one, "/v1")
        upload = pool.submit(ask2, http2, one, "/upload", "--data-binary", "@/tmp/zeros")
        both = pool.submit(ask2, http2, one, "/v1", f"https://{API}:{http2.H2}/v1", "--parallel")
        until(lambda: len(tokens.log()) == 1)
        assert not plain.done() and not upload.done()
        tokens.set(mode="good")
        assert plain.result() == '{"ok": true} 2 200'
        assert upload.result() == '{"bytes": 300000} 2 200'
        assert both.result().count('{"ok": true}') == 2
    assert len(tokens.log()) == 1


def test_http2_that_refuses_it_has_it_renewed(stack, own, tokens, http2):
    put(stack)
    tokens.set(access="sk-wrong-0123456789")
    one = own()
    assert ask2(http2, one, "/v1") == '{"ok": false} 2 401'
    tokens.set(access=http2.REAL_KEY)
    assert ask2(http2, one, "/v1") == '{"ok": true} 2 200'
    assert len(tokens.log()) == 2


def test_http2_is_told_why_not(stack, own, tokens, http2):
    put(stack)
    tokens.set(mode="invalid_grant")
    said = ask2(http2, own(), "/v1")
    assert "400 invalid_grant; its owner has to set it anew" in said and '"rule":"credential"' in said and said.endswith(" 2 403"), said


def test_the_limit_of_the_tenant_holds(stack, own, tokens):
    """The token server is dialled within it, though no sandbox of the tenant may go there."""
    put(stack)
    one = own()
    path = "/cay/v1/tenants/default/ceiling"
    assert "egress_denied" in one.run(f"curl -sS --max-time 20 https://{LOGIN}:9443/token").out or True
    assert stack.cay.call("PUT", path, {"rules": [{"name": "few", "action": "allow", "domains": [API]}]}).status == 204
    try:
        status, text = ask(one)
        assert status == 503 and "not allowed" in text, text
        assert not tokens.log()
        assert records(stack)[-1]["verdict"] == "deny"
    finally:
        assert stack.cay.call("DELETE", path).status == 204
    put(stack)
    assert ask(one)[0] == 200


def test_a_token_server_inside_is_not_dialled(stack, own, tokens):
    put(stack, bind={"token_host": "login.inside.example:9443"}, token_url="https://login.inside.example:9443/token")
    status, text = ask(own({**POLICY, "default": "allow"}))
    assert status == 503 and "not allowed" in text, text
    assert not tokens.log()


def test_what_is_stored_is_bound(stack):
    bad = put(stack, 400, bind={"token_host": "else.example.com"})
    assert "token_host" in bad.body.decode()
    assert "https" in put(stack, 400, token_url="http://login.example.com/token").body.decode()
    assert "bearer" not in put(stack, 400, bind={"token_host": "Login.example.com"}).body.decode()
    assert "client_auth" in put(stack, 400, client_auth="body").body.decode()
    assert "refresh_token" in put(stack, 400, refresh_token=None).body.decode()


def test_by_the_command_line(stack, own, tokens):
    done = subprocess.run([BUILD / "src/cli/cay", "secret", "set", "MAIL", f"--domain={API}", f"--oauth=https://{LOGIN}:9443/token",
                           "--client-id=cay-test", "--client-auth=body"], capture_output=True, text=True, timeout=60, check=False,
                          input=json.dumps({"refresh_token": REFRESH, "client_secret": "of-the-client"}),
                          env={**os.environ, "CAY_URL": stack.server.url, "E2B_API_KEY": stack.server.key()})
    assert done.returncode == 0, done.stderr
    assert ask(own())[0] == 200
    form = tokens.log()[0]["form"]
    assert form["client_secret"] == ["of-the-client"] and form["client_id"] == ["cay-test"] and form["authorization"] is None


def test_nothing_of_it_is_in_clear(stack, own, tokens):
    """In no file, and not in cayd; in cay-egress it is the control."""
    put(stack, client_secret="of-the-client-0123")
    one = own()
    assert ask(one)[0] == 200
    secrets = [REFRESH.encode(), b"of-the-client-0123", b"access-token-0001"]
    for path in stack.server.state.rglob("*"):
        if path.is_file() and path.stat().st_size < 64 << 20:
            data = path.read_bytes()
            assert not [s for s in secrets if s in data], path
    found = one.run("env; cat /proc/self/environ /proc/1/environ 2>/dev/null | tr '\\0' '\\n'").out
    assert not [s for s in secrets if s.decode() in found]
    put(stack)
