"""An owner's settings and views of the way out, by /cay/v1, E2B's network object and `cay`: policies, secrets that
no sandbox holds, the log, refusals. Against the stand-in internet of egresslib.py."""

import hashlib
import json
import os
import pathlib
import sqlite3
import subprocess
import sys

import pytest

from conftest import BUILD
from egresslib import box, fetch, internet, library_archive, stack  # noqa: F401: fixtures
from waitlib import until

SECRET = "kZ7-model-key-4f9a1c"
OTHER_SECRET = "qW2-other-key-77aa01"
GRPC_SECRET = "sk-real-0123456789-abcdefghij"  # h2origin.py's REAL_KEY
CALLS = pathlib.Path(__file__).resolve().parents[1] / "egress/grpc_calls.py"
WEB_ONLY = {"rules": [{"name": "web", "action": "allow", "domains": ["web.example.com"]}]}
WITH_KEY = {**WEB_ONLY, "inject": [{"credential": "MODEL_KEY", "domains": ["web.example.com"]}]}


@pytest.fixture
def cli(stack):
    def run(*arguments, given="", status=0, both=False):
        done = subprocess.run([BUILD / "src/cli/cay", *arguments], input=given, capture_output=True, text=True, timeout=60,
                              env={**os.environ, "CAY_URL": stack.server.url, "E2B_API_KEY": stack.server.key()})
        assert done.returncode == status, (arguments, done.stdout, done.stderr)
        return done.stdout + done.stderr if both else done.stdout if status == 0 else done.stderr
    return run


@pytest.fixture
def own(stack):
    """A sandbox made by cay's own call."""
    made = []

    def make(**fields):
        reply = stack.cay.call("POST", "/cay/v1/sandboxes", {"templateID": "host", "timeout": 300, **fields})
        assert reply.status == 201, reply.body
        from client import Sandbox
        made.append(Sandbox(stack.cay, reply.json))
        return made[-1]

    yield make
    for one in made:
        one.kill()


def set_secret(stack, name="MODEL_KEY", value=SECRET, **bind):
    reply = stack.cay.call("POST", "/cay/v1/secrets", {
        "name": name, "value": value, "bind": {"kind": "bearer", "domains": ["web.example.com"], **bind}})
    assert reply.status == 201 and value not in reply.body.decode(), reply.body


def digest(text):
    """How the stand-in tells which secret came: the secret itself would be taken out of its answer."""
    return hashlib.sha256(text.encode()).hexdigest()


def put(stack, sandbox, policy):
    reply = stack.cay.call("PUT", f"/cay/v1/sandboxes/{sandbox.id}/policy", policy)
    assert reply.status == 204, reply.body


def test_a_policy_is_in_force_at_once(stack, own):
    one = own()
    assert "egress_denied" in one.run("curl -sS --max-time 20 http://web.example.com/").out
    put(stack, one, WEB_ONLY)
    assert fetch(one, "http://web.example.com/a")["path"] == "/a"
    assert "egress_denied" in one.run("curl -sS --max-time 20 http://other.example.net/").out
    put(stack, one, {})
    assert "egress_denied" in one.run("curl -sS --max-time 20 http://web.example.com/").out


OPEN = "exec 3<>/dev/tcp/web.example.com/80 && echo open >/dev/shm/state; read -r line <&3; echo cut >/dev/shm/state"


def test_a_tenants_ceiling_caps_and_cuts(stack, own, cli, tmp_path):
    path = "/cay/v1/tenants/default/ceiling"
    one = own(policy={"default": "public"})
    assert stack.cay.call("GET", path).status == 404
    one.run(f"bash -c '{OPEN}' >/dev/null 2>&1 &")
    try:
        until(lambda: one.run("cat /dev/shm/state").out == "open\n")
        assert stack.cay.call("PUT", path, {"rules": [{"action": "allow", "domains": ["other.example.net"]}]}).status == 204
        until(lambda: one.run("cat /dev/shm/state").out == "cut\n")
        refused = json.loads(one.run("curl -sS --max-time 20 http://web.example.com/").out)
        assert refused["error"]["type"] == "egress_denied" and "limit" in refused["message"], refused
        assert fetch(one, "http://other.example.net/a")["path"] == "/a"
        later = own(policy={"default": "public"})  # one that is made under it
        assert "egress_denied" in later.run("curl -sS --max-time 20 http://web.example.com/").out
        # Nothing that a tenant's ceiling says opens what the server's closes.
        cli("tenant", "ceiling", "default", "allow")
        put(stack, one, {"default": "allow"})
        assert "egress_denied" in one.run("curl -sS --max-time 20 http://inside.example.com/").out
        assert json.loads(cli("tenant", "ceiling", "default")) == {"default": "allow"}
        assert [t["name"] for t in json.loads(cli("tenant", "ls", "--json"))] == ["default"]
        assert cli("tenant", "ls").splitlines()[1].split()[-1] == "allow"
        policy = tmp_path / "ceiling.json"
        policy.write_text('{"rules": [{"action": "permit"}]}')
        assert "rules[0].action" in cli("tenant", "ceiling", "default", str(policy), status=1)
    finally:
        cli("tenant", "ceiling", "default", "--remove")
    assert fetch(one, "http://web.example.com/a")["path"] == "/a"


def test_a_credential_for_hosts_it_is_not_bound_to_is_told(stack, own, cli, tmp_path):
    bound = {"name": "VAIN_KEY", "value": "a-secret-value", "bind": {"kind": "bearer", "domains": ["api.example.com"]}}
    assert stack.cay.call("POST", "/cay/v1/secrets", bound).status == 201
    try:
        policy = tmp_path / "policy.json"
        policy.write_text(json.dumps({"default": "public", "inject": [{"credential": "VAIN_KEY", "domains": ["other.example.net"]}]}))
        said = cli("policy", "check", str(policy), status=1)
        assert "inject[0].domains[0]: the credential VAIN_KEY is bound to api.example.com" in said, said
        one = own()
        assert "VAIN_KEY is bound to api.example.com" in cli("policy", "set", one.id, str(policy), status=0, both=True)
        again = stack.cay.call("POST", "/cay/v1/secrets", {**bound, "bind": {"kind": "bearer", "domains": ["other.example.net"]}})
        assert again.status == 201 and again.json["replaced"]["domains"] == ["api.example.com"], again.body
        said = cli("secret", "set", "VAIN_KEY", "--domain=other.example.net", "--method=GET", given="another-value", both=True)
        assert "replaces" in said and "bound to other.example.net" in said
        assert cli("secret", "set", "VAIN_KEY", "--domain=other.example.net", "--method=GET", given="renewed-value", both=True) == ""  # the value alone
        assert cli("policy", "check", str(policy), status=0) == ""
    finally:
        stack.cay.call("DELETE", "/cay/v1/secrets/VAIN_KEY")


def test_a_build_names_what_was_refused(cli, tmp_path):
    (tmp_path / "Dockerfile").write_text("FROM host\nRUN curl -sSf --max-time 20 http://web.example.com/\n")
    policy = tmp_path / "policy.json"
    policy.write_text(json.dumps(WEB_ONLY))
    said = cli("template", "build", "x", str(tmp_path), status=1)
    assert "cay: refused: web.example.com:80: " in said and "package-registries" in said
    assert "ended with status 22" in said
    allowed = cli("template", "build", "x", str(tmp_path), f"--policy={policy}", status=0)
    assert allowed.startswith("x is ready: 2 steps")
    cli("snapshot", "rm", "x")


def test_the_authority_is_known_inside(own):
    one = own(policy=WEB_ONLY)
    certificate = one.run("cat /etc/ssl/certs/cay-egress.pem").out
    assert certificate.startswith("-----BEGIN CERTIFICATE-----") and "PRIVATE" not in certificate
    assert one.run(f"tail -c {len(certificate)} /etc/ssl/certs/ca-certificates.crt").out == certificate
    assert certificate.count("BEGIN CERTIFICATE") == 2  # the tenant's own, and the operator's ca_file
    plain = one.run("env -i curl -sS --max-time 20 https://web.example.com/a")  # not read on its way
    assert plain.exit_code == 0 and '"path": "/a"' in plain.out, plain.stderr
    env = one.run("env").out
    assert "NODE_EXTRA_CA_CERTS=/etc/ssl/certs/cay-egress.pem\n" in env
    pam = one.run("cat /etc/environment").out
    for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO",
                 "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"):
        assert f"{name}=/etc/ssl/certs/ca-certificates.crt\n" in env
        assert pam.count(f"{name}=/etc/ssl/certs/ca-certificates.crt\n") == 1
    mine = own(envVars={"CURL_CA_BUNDLE": "/mine"})
    assert "CURL_CA_BUNDLE=/mine\n" in mine.run("env").out


def test_a_secret_reaches_its_host_and_nobody_else(stack, own):
    set_secret(stack)
    one = own(policy=WITH_KEY)
    seen = fetch(one, "https://web.example.com/v1")
    assert seen["digests"]["Authorization"] == digest(f"Bearer {SECRET}")
    assert seen["headers"]["Authorization"].startswith("Bearer [redacted]")
    set_secret(stack, value=OTHER_SECRET)  # sandboxes that run get the new one
    assert fetch(one, "https://web.example.com/v1")["digests"]["Authorization"] == digest(f"Bearer {OTHER_SECRET}")
    listed = stack.cay.call("GET", "/cay/v1/secrets").json
    assert [(s["name"], s["bind"]["kind"]) for s in listed] == [("MODEL_KEY", "bearer")]
    assert stack.cay.call("DELETE", "/cay/v1/secrets/MODEL_KEY").status == 204
    until(lambda: "digests" not in fetch(one, "https://web.example.com/v1"))
    assert "egress_denied" in one.run("curl -sS --max-time 20 https://web.example.com/v1").out
    look_for(stack, SECRET, OTHER_SECRET)


TOKENS = """
import http.server, urllib.parse
class Handler(http.server.BaseHTTPRequestHandler):
    count = 0
    def do_POST(self):
        form = urllib.parse.parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        good = form == {"grant_type": ["refresh_token"], "refresh_token": ["rT-the-owners-own"]}
        Handler.count += 1
        self.send_response(500 if Handler.count == 2 else 200 if good else 401)
        self.end_headers()
        self.wfile.write(b"access-token-%04d" % Handler.count)
    def log_message(self, *_):
        pass
server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"""


def test_a_value_that_a_command_renews(stack, own):
    """An OAuth token server of the operator's: its second answer is an error, and the token before stays."""
    set_secret(stack)
    one = own(policy=WITH_KEY)
    later = {digest(f"Bearer access-token-{n:04d}") for n in range(3, 1000)}
    with subprocess.Popen([sys.executable, "-c", TOKENS], stdout=subprocess.PIPE, text=True) as tokens:
        port = tokens.stdout.readline().strip()
        command = f"curl -sSf -d grant_type=refresh_token -d refresh_token=rT-the-owners-own http://127.0.0.1:{port}/token"
        with subprocess.Popen([BUILD / "src/cli/cay", "secret", "set", "MODEL_KEY", "--domain=web.example.com",
                               f"--command={command}", "--every=1"], stderr=subprocess.PIPE, text=True,
                              env={**os.environ, "CAY_URL": stack.server.url, "E2B_API_KEY": stack.server.key()}) as renewer:
            said = renewer.stderr.readline() + renewer.stderr.readline()

            def is_renewed():
                seen = fetch(one, "https://web.example.com/v1")
                return isinstance(seen, dict) and seen["digests"].get("Authorization") in later

            try:
                until(is_renewed)
            finally:
                renewer.terminate()
                tokens.terminate()
    assert "nothing was set" in said and "again in 1 s" in said, said
    look_for(stack, "rT-the-owners-own")
    assert stack.cay.call("DELETE", "/cay/v1/secrets/MODEL_KEY").status == 204


def test_a_value_from_a_file(stack, own, cli, tmp_path):
    """Of the operator's, read where `cay` runs: the request gets its contents, without the last line end."""
    value = tmp_path / "value"
    value.write_text("a-value-of-the-vault\n")
    cli("secret", "set", "MODEL_KEY", "--domain=web.example.com", f"--file={value}")
    try:
        seen = fetch(own(policy=WITH_KEY), "https://web.example.com/v1")
        assert seen["digests"]["Authorization"] == digest("Bearer a-value-of-the-vault"), seen
        assert "nowhere" in cli("secret", "set", "NEVER", "--domain=web.example.com", f"--file={tmp_path}/nowhere", status=1)
    finally:
        cli("secret", "rm", "MODEL_KEY")


def test_a_command_that_fails_sets_nothing(stack, cli):
    said = cli("secret", "set", "NEVER", "--domain=web.example.com", "--command=echo a-good-value; exit 3", status=1)
    assert "status 3" in said and "a-good-value" not in said
    assert "--every" in cli("secret", "set", "NEVER", "--domain=web.example.com", "--every=0", status=2)
    assert "--command" in cli("secret", "set", "NEVER", "--domain=web.example.com", "--every=5", status=2)
    assert "NEVER" not in [s["name"] for s in stack.cay.call("GET", "/cay/v1/secrets").json]


@pytest.fixture
def grpc_service(stack):
    """Demands REAL_KEY in the stand-in internet."""
    pytest.importorskip("grpclib")
    home = stack.networks.dir / "h2"
    home.mkdir()
    (home / "good.pem").symlink_to(stack.networks.cert)
    (home / "good.key").symlink_to(stack.networks.key)
    with subprocess.Popen(["ip", "netns", "exec", stack.networks.net, sys.executable, CALLS.with_name("h2origin.py"), "serve",
                           home], stdout=subprocess.PIPE, text=True) as p:
        assert p.stdout.readline() == "ready\n"
        yield
        p.kill()


def test_grpc_from_a_sandbox_that_has_no_key(stack, own, grpc_service):
    set_secret(stack, "GRPC_KEY", GRPC_SECRET, kind="header", header="X-Api-Key")
    libraries = library_archive("grpclib", "h2", "hpack", "hyperframe", "multidict", "typing_extensions")
    said = []
    for policy in ({**WEB_ONLY, "inject": [{"credential": "GRPC_KEY", "domains": ["web.example.com"]}]},
                   {"rules": [{**WEB_ONLY["rules"][0], "paths": ["/cay.Test/*"]}]}):  # without it: the control
        one = own(policy=policy)
        assert one.write("/tmp/libraries.zip", libraries).status == 200
        assert one.write("/tmp/calls.py", CALLS.read_bytes()).status == 200
        r = one.run("python3 /tmp/calls.py web.example.com", timeout=60,
                    env={"PYTHONPATH": "/tmp/libraries.zip", "MULTIDICT_NO_EXTENSIONS": "1"})
        said.append(r.out.splitlines() or r.stderr.decode())
    assert said == [["answer to question", str(sum(range(500))), "500 [redacted]" + "*" * (len(GRPC_SECRET) - 10), "bidi"],
                    ["Status.UNAUTHENTICATED no key"]]


def look_for(stack, *secrets):
    """In the database, its log, cayd's and cay-egress's files and the log of all of them."""
    seen = 0
    for path in [*pathlib.Path(stack.server.state).rglob("*"), stack.server.log]:
        if path.is_file() and "privd" not in path.parts:
            data = path.read_bytes()
            seen += len(data)
            assert not [s for s in secrets if s.encode() in data], path
    assert seen > 10000


def writable_memory(pid):
    with open(f"/proc/{pid}/maps", encoding="ascii") as maps, open(f"/proc/{pid}/mem", "rb", 0) as memory:
        for line in maps:
            place, rights = line.split()[:2]
            start, end = (int(number, 16) for number in place.split("-"))
            if "w" in rights:
                try:
                    memory.seek(start)
                    yield memory.read(end - start)
                except (OSError, OverflowError):
                    pass  # not a page that can be read


def test_of_a_value_no_copy_is_left_in_memory(stack):
    value = "zQ9-" + "memory-4411-mine"
    set_secret(stack, "MEMORY_SCAN_NAME", value)
    stack.cay.call("GET", "/cay/v1/secrets")
    for program in ("cayd", "cay-egress"):
        for pid in stack.pids(program):
            parts = list(writable_memory(pid))
            assert not [p for p in parts if value.encode() in p], program
            if program == "cayd":  # the control: its name is there
                assert [p for p in parts if b"MEMORY_SCAN_NAME" in p]


def test_a_placeholder_is_all_that_a_program_sees(stack, own):
    set_secret(stack, "PLACE", kind="placeholder")
    one = own(policy={**WEB_ONLY, "inject": [{"credential": "PLACE", "domains": ["web.example.com"]}]},
              envVars={"MODEL_KEY": "cay-secret:PLACE"})
    seen = fetch(one, "https://web.example.com/v1", "-H", '"X-Api-Key: $MODEL_KEY"')
    assert seen["digests"]["X-Api-Key"] == digest(SECRET)


def test_wrong_secrets_are_refused_with_the_reason(stack):
    for body, why in (({"name": "A", "value": "long-enough", "bind": {"kind": "bearer", "domains": []}}, "domains"),
                      ({"name": "A", "value": "short", "bind": {"kind": "bearer", "domains": ["a.example"]}}, "8 to"),
                      ({"name": "no/slash", "value": "long-enough", "bind": {"kind": "bearer", "domains": ["a.example"]}}, "name"),
                      ({"name": "e2b-rule-1", "value": "long-enough", "bind": {"kind": "bearer", "domains": ["a.example"]}}, "own"),
                      ({"name": "A", "value": "long-enough", "bind": {"kind": "magic", "domains": ["a.example"]}}, "kind"),
                      ({"name": "A", "bind": {}}, "value"), ({"value": "long-enough"}, "name")):
        refused = stack.cay.call("POST", "/cay/v1/secrets", body)
        assert refused.status == 400 and why in refused.json["message"], refused.body
        assert "long-enough" not in refused.json["message"]


def test_e2b_header_rules(stack, box):
    set_secret(stack, "TOKEN", kind="placeholder")
    rules = {"web.example.com": [{"transform": {"headers": {"X-Mine": SECRET, "X-Named": "t ${e2b.secrets.TOKEN}"}}}]}
    one = box(network={"rules": rules})
    seen = fetch(one, "https://web.example.com/")["digests"]
    assert seen["X-Mine"] == digest(SECRET) and seen["X-Named"] == digest(f"t {SECRET}")
    assert "X-Mine" not in fetch(one, f"http://{internet.OTHER}/")["headers"]
    shown = stack.cay.call("GET", f"/sandboxes/{one.id}").json["network"]["rules"]
    assert shown == {"web.example.com": [{"transform": {"headers": {"X-Mine": "***", "X-Named": "***"}}}]}
    path = f"/sandboxes/{one.id}/network"
    rules["web.example.com"][0]["transform"]["headers"] = {"X-Mine": OTHER_SECRET}
    assert stack.cay.call("PUT", path, {"rules": rules}).status == 204
    seen = fetch(one, "https://web.example.com/")["digests"]
    assert seen["X-Mine"] == digest(OTHER_SECRET) and "X-Named" not in seen
    assert stack.cay.call("PUT", path, {}).status == 204
    assert "X-Mine" not in fetch(one, "https://web.example.com/", "-k")["headers"]  # not opened any more
    with sqlite3.connect(f"file:{stack.server.state}/cayd/cay.db?mode=ro", uri=True) as db:
        assert db.execute("SELECT credentials FROM sandboxes WHERE id = ?", (one.id,)).fetchone() == (None,)
    look_for(stack, SECRET, OTHER_SECRET)


def test_secrets_of_e2b(stack, box):
    """E2B's own calls: headers set there are put on by network.rules, at the rule's host alone, and never shown."""
    call, name = stack.cay.call, "E2B-Own_1"
    made = call("POST", "/secrets", {"name": name, "value": SECRET, "metadata": {"team": "a"}})
    assert made.status == 201, made.body
    assert {k: made.json[k] for k in ("secretID", "name", "currentVersion", "metadata")} == {
        "secretID": f"sec_{name}", "name": name, "currentVersion": 1, "metadata": {"team": "a"}}
    for taken in (name, name.lower()):
        assert call("POST", "/secrets", {"name": taken, "value": OTHER_SECRET}).status == 409
    assert call("GET", f"/secrets/{name.lower()}").json == made.json
    rules = {"web.example.com": [{"transform": {"headers": {"X-Own": "v ${e2b.secrets.%s}" % name}}}]}
    one = box(network={"rules": rules})
    assert fetch(one, "https://web.example.com/")["digests"]["X-Own"] == digest(f"v {SECRET}")
    # The control of "at the rule's host alone": the same placeholder, sent to another host by a program inside.
    refused = one.run("curl -sS -o /dev/null -w '%{http_code}' --max-time 20 "
                      f"-H 'X-Own: ${{e2b.secrets.{name}}}' http://{internet.OTHER}/".replace("${e2b", "\\${e2b"))
    assert refused.out == "403", refused.out + refused.stderr.decode()
    # A host whose requests are read for another header is none of the secret's: a rule names it for the first alone.
    rules["other.example.net"] = [{"transform": {"headers": {"X-Plain": "y"}}}]
    two = box(network={"rules": rules})
    assert fetch(two, "https://web.example.com/")["digests"]["X-Own"] == digest(f"v {SECRET}")
    assert "X-Plain" in fetch(two, "https://other.example.net/")["headers"]
    refused = fetch(two, "https://other.example.net/", f"-H 'X-Own: ${{e2b.secrets.{name}}}'")
    assert "does not name it here" in refused.get("message", ""), refused
    bound = call("POST", f"/secrets/{name}", {"value": OTHER_SECRET, "domains": ["api.example"]})
    assert bound.status == 400 and '"domains"' in bound.json["message"] and "cay secret set" in bound.json["message"]
    new = call("POST", f"/secrets/sec_{name}", {"value": OTHER_SECRET})
    assert new.status == 200 and new.json["currentVersion"] == 2 and new.json["metadata"] == {"team": "a"}
    assert fetch(one, "https://web.example.com/")["digests"]["X-Own"] == digest(f"v {OTHER_SECRET}")
    assert call("GET", f"/secrets/{name}").json == new.json == call("GET", f"/secrets/sec_{name}").json
    for more in ("b", "c"):
        assert call("POST", "/secrets", {"name": f"e2b-page-{more}", "value": SECRET}).status == 201
    names, token = [], ""
    for _ in range(50):
        page = call("GET", f"/secrets?limit=1{token}")
        names += [s["name"] for s in page.json]
        if not page.headers["X-Next-Token"]:
            break
        token = f"&nextToken={page.headers['X-Next-Token']}"
    assert [n for n in names if n.lower().startswith("e2b-")] == [name, "e2b-page-b", "e2b-page-c"]
    for gone in (name, "e2b-page-b", "sec_e2b-page-c"):
        assert call("DELETE", f"/secrets/{gone}").status == 204
    assert call("GET", f"/secrets/{name}").status == call("DELETE", f"/secrets/{name}").status == 404
    look_for(stack, SECRET, OTHER_SECRET)


@pytest.mark.parametrize("body, status", [
    ({"name": "a/b", "value": SECRET}, 400), ({"name": "", "value": SECRET}, 400), ({"name": "sec_x", "value": SECRET}, 400),
    ({"name": "x" * 65, "value": SECRET}, 400), ({"name": "x"}, 400), ({"name": "x", "value": 7}, 400),
    ({"name": "x", "value": "short"}, 400), ({"name": "x", "value": SECRET, "metadata": {"a": 1}}, 400),
    ({"name": "e2b-rule-1", "value": SECRET}, 400), ({"name": "x", "value": SECRET, "hosts": ["api.example"]}, 400),
    ({"name": "x", "value": SECRET, "Metadata": {}}, 400)])
def test_bad_secrets_of_e2b(stack, body, status):
    before = stack.cay.call("GET", "/secrets").json
    reply = stack.cay.call("POST", "/secrets", body)
    assert reply.status == status and reply.json["message"] and SECRET not in reply.body.decode()
    assert stack.cay.call("GET", "/secrets").json == before


def test_the_way_outs_pages_are_for_programs_inside_alone(stack, own):
    """The control is the page, from inside by the same port. At 0a9d699b the gateway handed it to who has no key."""
    one = own(policy=WEB_ONLY)
    one.run("curl -sS --max-time 20 http://other.example.net/bad")
    for page in ("denials.txt", "allowed"):
        assert "example." in one.run(f"curl -sS --max-time 20 http://127.0.0.1:3128/{page}").out
        for headers in ({"Host": f"3128-{one.id}.cay.localhost"}, {"E2b-Sandbox-Id": one.id, "E2b-Sandbox-Port": "3128"}):
            reply = stack.cay.call("GET", f"/{page}", headers=headers, key=False)
            assert reply.status == 400 and b"example." not in reply.body and b"way out" in reply.body, reply.body


def test_denials_and_the_log(stack, own, cli):
    one = own(policy=WEB_ONLY)
    fetch(one, "http://web.example.com/good?secret=1")
    one.run("curl -sS --max-time 20 http://other.example.net/bad")
    denials = stack.cay.call("GET", f"/cay/v1/sandboxes/{one.id}/denials").json["denials"]
    assert denials[-1]["name"] == "other.example.net" and "allowed: web.example.com" in denials[-1]["reason"]
    assert "other.example.net" in cli("denials", one.id[:8])
    assert "other.example.net" in one.run("curl -sS http://cay.internal/denials").out
    records = stack.cay.call("GET", f"/cay/v1/audit?sandbox={one.id}").json
    assert {r["sandbox"] for r in records} == {one.id} and {r["verdict"] for r in records} == {"allow", "deny"}
    assert [r["time"] for r in records] == sorted(r["time"] for r in records)
    assert "secret=1" not in json.dumps(records) and "/good" in json.dumps(records)
    refused = stack.cay.call("GET", f"/cay/v1/audit?sandbox={one.id}&verdict=deny").json
    assert refused and {r["verdict"] for r in refused} == {"deny"}
    assert len(stack.cay.call("GET", "/cay/v1/audit?limit=2").json) == 2
    text = cli("audit", f"--sandbox={one.id[:8]}", "--verdict=deny")
    assert "other.example.net:80" in text and "web.example.com:80" not in text
    key = stack.cay.call("POST", "/cay/v1/keys", {"tenant": "others", "label": "test"}).json["key"]
    from client import Client
    others = Client(stack.server.url, key)
    assert others.call("GET", "/cay/v1/audit").json == []
    assert others.call("GET", "/cay/v1/audit/verify").status == 403


# Questions until the kernel has refused some, or n were sent. How many it refused.
QUESTIONS = """
import socket, sys
s, refused = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), 0
for _ in range(int(sys.argv[1])):
    try:
        s.sendto(b"\\0\\1\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0\\3web\\7example\\3com\\0\\0\\1\\0\\1", ("192.0.2.53", 53))
    except PermissionError:
        refused += 1
print(refused)
"""


def test_what_the_kernel_drops_is_told(stack, own):
    one = own(policy=WEB_ONLY)

    def refused(questions):
        return int(one.run("/usr/bin/python3", args=["-c", QUESTIONS, str(questions)]).out)

    def told():
        return [d for d in stack.cay.call("GET", f"/cay/v1/sandboxes/{one.id}/denials").json["denials"] if d["rule"] == "limit"]

    assert refused(400) == 0 and told() == []  # the control
    until(lambda: refused(4000) > 0 and told(), 30)
    assert "500 new connections and DNS questions a second" in told()[0]["reason"]
    until(lambda: one.run("curl -sS -o /dev/null -w '%{http_code}' http://web.example.com/").out == "200", 30)


def test_the_log_is_followed(stack, own, cli):
    one = own(policy=WEB_ONLY)
    with subprocess.Popen([BUILD / "src/cli/cay", "audit", "-f", f"--sandbox={one.id}", "--json"], stdout=subprocess.PIPE,
                          text=True, env={**os.environ, "CAY_URL": stack.server.url, "E2B_API_KEY": stack.server.key()}) as p:
        try:
            seen = []
            for path in ("/first", "/second"):
                fetch(one, f"http://web.example.com{path}")
                while not seen or seen[-1].get("path") != path:
                    seen.append(json.loads(p.stdout.readline()))
        finally:
            p.kill()
    assert len({r["prev"] for r in seen}) == len(seen)  # each once


def test_a_changed_log_is_found(stack, own, cli):
    fetch(own(policy=WEB_ONLY), "http://web.example.com/")
    assert "each as it was written" in cli("audit", "verify")
    log = stack.server.state / "egress" / "audit-0.default.log"
    before = log.read_bytes()
    log.write_bytes(before.replace(b'"verdict":"deny"', b'"verdict":"okay"', 1))
    assert log.read_bytes() != before
    done = subprocess.run([BUILD / "src/cli/cay", "audit", "verify"], capture_output=True, text=True, timeout=60,
                          env={**os.environ, "CAY_URL": stack.server.url, "E2B_API_KEY": stack.server.key()})
    assert done.returncode == 1 and "BROKEN" in done.stdout
    with open(log, "r+b") as f:
        f.write(before)
    assert "each as it was written" in cli("audit", "verify")


def test_the_command_line(stack, cli, tmp_path):
    policy = tmp_path / "policy.json"
    policy.write_text(json.dumps(WITH_KEY))
    cli("secret", "set", "MODEL_KEY", "--domain=web.example.com", "--kind=header:X-Api-Key", given=SECRET + "\n")
    assert "header" in cli("secret", "ls") and SECRET not in cli("secret", "ls", "--json")
    curl = "curl -sS --max-time 20 https://web.example.com/"
    assert json.loads(cli("run", "--template=host", f"--policy={policy}", "--", *curl.split()))["digests"]["X-Api-Key"] == digest(SECRET)
    one = cli("create", "host", "-q").strip()
    assert json.loads(cli("policy", "show", one)) == {"default": "deny"}
    assert "=> deny    default" in cli("policy", "explain", one, "web.example.com")
    cli("policy", "set", one, str(policy))
    assert "MODEL_KEY" in cli("policy", "explain", one, "web.example.com", "GET", "/")
    cli("policy", "set", one, "public")
    assert json.loads(cli("policy", "show", one)) == {"default": "public"}
    assert "(would be denied)" not in cli("audit", f"--sandbox={one}")
    policy.write_text('{"mode": "warn", "rules": [{"action": "deny", "domains": ["other.example.net"]}]}')
    cli("policy", "set", one, str(policy))
    for host in ("web.example.com", "other.example.net"):
        cli("exec", one, "--", "curl", "-sS", "--max-time", "20", f"http://{host}/learned?x")
    assert "(would be denied)" in cli("audit", f"--sandbox={one}")
    learned = json.loads(cli("policy", "learned", one))
    assert learned == {"default": "deny", "rules": [{"action": "deny", "domains": ["other.example.net"]},  # as the policy has it
                                                    {"action": "allow", "ports": [80], "domains": ["web.example.com"],
                                                     "methods": ["GET"], "paths": ["/learned"]}]}
    policy.write_text(json.dumps(learned))
    cli("policy", "set", one, str(policy))
    assert "egress_denied" not in cli("exec", one, "--", "curl", "-sS", "--max-time", "20", "http://web.example.com/learned")
    assert "egress_denied" in cli("exec", one, "--", "curl", "-sS", "--max-time", "20", "http://web.example.com/else")
    policy.write_text('{"rules": [{"action": "allow", "ports": [70000]}]}')
    assert "rules[0].ports[0]" in cli("policy", "set", one, str(policy), status=1)
    cli("kill", "-q", one)
    cli("secret", "rm", "MODEL_KEY")
    assert "MODEL_KEY" in cli("secret", "rm", "MODEL_KEY", status=1)
    assert "--domain" in cli("secret", "set", "A", given="long-enough", status=2)


def test_the_log_in_text_says_what_became_of_it(stack, own, cli):
    """Two records of a request that failed differ in their outcome, those of a command in its number, and the end of a connection
    names the rule that let it through, not the one that refused a request on it later."""
    policy = {"rules": [{"name": "web", "action": "allow", "domains": ["web.example.com"], "methods": ["GET"]}]}
    one = own(policy=policy)
    curl = ("curl", "-sS", "--max-time", "20")
    one.run(" ".join([*curl, "http://web.example.com/cut"]))
    one.run(" ".join([*curl, "https://web.example.com/good", "--next", *curl[1:], "-X", "PUT", "https://web.example.com/bad"]))
    cli("exec", "--policy=public", one.id, *curl, "http://web.example.com/told")
    cli("exec", "--policy=deny", one.id, *curl, "http://web.example.com/told")
    lines = cli("audit", f"--sandbox={one.id}", "--limit=1000").splitlines()
    first, second = [line for line in lines if " GET /cut " in line]
    assert "failed" not in first and " [web] failed: the connection ended before" in second, (first, second)
    told = [line.split(" ", 2)[2].split() for line in lines if "(command " in line]
    assert [(words[0], words[1]) for words in told if words[0] != "end"] == [("request", "allow"), ("connection", "deny")]
    records = [json.loads(line) for line in cli("audit", "--json", f"--sandbox={one.id}", "--limit=1000").splitlines()]
    refused = next(r["flow"] for r in records if r.get("path") == "/bad")
    assert [(r["event"], r["verdict"], r["rule"]) for r in records if r["flow"] == refused][-2:] == [
        ("request", "deny", "deny"), ("end", "allow", "web")]


def test_the_denials_of_a_command_are_told_apart(own, cli):
    one = own(policy=WEB_ONLY)
    for _ in range(2):
        cli("exec", "--policy=deny", one.id, "curl", "-sS", "--max-time", "20", "http://web.example.com/")
    one.run("for i in 1 2 3; do curl -sS --max-time 20 http://other.example.net/; done")
    heads, *lines = [line.split() for line in cli("denials", one.id).splitlines()]
    assert heads == ["TIME", "WHERE", "REQUEST", "COMMAND", "TIMES", "RULE", "WHY"]
    assert {tuple(line[1:4]) for line in lines} == {("web.example.com:80", "1", "1"), ("web.example.com:80", "2", "1"), ("other.example.net:80", "3", "deny")}


def test_what_is_learned_stays_within_the_owners_deny_rules(cli):
    """A program that asks for many harmless paths has the whole host opened; not what a rule denies. The control is a path that
    was not tried and that no rule denies."""
    one = cli("create", "host", "-q").strip()
    owners = {"mode": "warn", "limits": {"connections": 50},
              "rules": [{"name": "no admin", "action": "deny", "domains": ["web.example.com"], "paths": ["/admin*"]},
                        {"action": "allow", "domains": ["web.example.com"], "paths": ["/never"]}]}
    cli("policy", "set", one, "-", given=json.dumps(owners))
    cli("exec", one, "--", "sh", "-c", "for i in $(seq 70); do echo url=http://web.example.com/p$i; echo output=/dev/null; done > /tmp/k;"
        " curl -sS --max-time 60 -K /tmp/k")
    learned = json.loads(cli("policy", "learned", one))
    assert learned["rules"][0] == owners["rules"][0] and learned["limits"] == owners["limits"] and "mode" not in learned
    assert {"action": "allow", "ports": [80], "domains": ["web.example.com"], "methods": ["GET"]} in learned["rules"]
    cli("policy", "set", one, "-", given=json.dumps(learned))

    def curl(path):
        return cli("exec", one, "--", "curl", "-sS", "--max-time", "20", f"http://web.example.com/{path}")

    assert "egress_denied" in curl("admin/users") and "egress_denied" not in curl("another")
    cli("kill", "-q", one)


def test_what_is_learned_is_by_method(cli):
    """A path that was only read is not to be written, nor the other way round; methods that are alike share a rule."""
    one, tried = cli("create", "host", "-q").strip(), [("GET", "a"), ("HEAD", "a"), ("GET", "b"), ("HEAD", "b"), ("PUT", "c")]

    def curl(method, path):
        how = "-I" if method == "HEAD" else f"-X{method}"
        return cli("exec", one, "--", "curl", "-sS", "--max-time", "20", how, f"http://web.example.com/{path}")

    cli("policy", "set", one, "-", given='{"mode": "warn"}')
    for method, path in tried:
        curl(method, path)
    learned = json.loads(cli("policy", "learned", one))
    host = {"action": "allow", "ports": [80], "domains": ["web.example.com"]}
    assert [{key: sorted(value) if key in ("methods", "paths") else value for key, value in rule.items()} for rule in learned["rules"]] == [
        {**host, "methods": ["GET", "HEAD"], "paths": ["/a", "/b"]}, {**host, "methods": ["PUT"], "paths": ["/c"]}]
    cli("policy", "set", one, "-", given=json.dumps(learned))
    assert not [t for t in tried if "egress_denied" in curl(*t)]
    for method, path in (("GET", "c"), ("PUT", "a")):
        assert "egress_denied" in curl(method, path)
