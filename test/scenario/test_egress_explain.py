"""`cay policy explain` says what cay-egress does: for each row of a table both are asked, about a sandbox's own policy, the
limits above it, and its credentials. Against the stand-in internet of egresslib.py."""

import hashlib
import json
import os
import subprocess

import pytest

from conftest import BUILD
from egresslib import box, internet, stack  # noqa: F401: fixtures
from test_egress_ask import Held, answer
from test_events import Stream

SECRET, WEB, PRIVATE = "kZ7-model-key-4f9a1c", "web.example.com", "inside.example.com"
OTHER = "other.example.net"
ADDRESSES = {WEB: internet.WEB, OTHER: internet.OTHER, PRIVATE: internet.PRIVATE, "meta.example.com": internet.METADATA}
BINDS = {"ANY": {"kind": "bearer", "domains": [WEB]},
         "V1": {"kind": "bearer", "domains": [WEB], "paths": ["/v1*"], "methods": ["GET"]},
         "PORT": {"kind": "bearer", "domains": [WEB], "ports": [8443]},
         "HOST": {"kind": "bearer", "domains": [OTHER]},
         "PLAIN": {"kind": "bearer", "domains": [WEB], "insecure": True},
         "PLACE": {"kind": "placeholder", "domains": [WEB]},
         "MUST": {"kind": "placeholder", "domains": [WEB], "require": True},
         "MUST_V1": {"kind": "placeholder", "domains": [WEB], "require": True, "paths": ["/v1*"]}}


def allow(*domains, **more):
    return {"action": "allow", "name": "open", "domains": list(domains), **more}


def deny(**more):
    return {"action": "deny", "name": "closed", **more}


def key(name, **more):
    return {"rules": [allow(WEB)], "inject": [{"credential": name, "domains": [WEB], **more}]}


def way(to, **more):
    return {"rules": [allow(WEB)], "reroute": [{"domain": WEB, "to": to}], **more}


ADMIN = {"rules": [deny(domains=[WEB], paths=["/admin*"]), allow(WEB, methods=["GET"])]}
LIMIT = {"rules": [allow(WEB, paths=["/v1*"])]}

# policy, the tenant's limit, the request as [METHOD] URL, a header of its own; what both have to say
TABLE = [
    ({}, None, f"https://{WEB}/", None, "deny"),
    ({"default": "public"}, None, f"https://{WEB}/", None, "allow"),
    ({"default": "public"}, None, f"http://{PRIVATE}/", None, "deny"),
    ({"default": "allow"}, None, f"http://{PRIVATE}/", None, "deny"),  # the server's own limit is public
    ({"default": "allow"}, None, "http://meta.example.com/", None, "deny"),
    ({"default": "public"}, None, f"http://{internet.OTHER}/x", None, "allow"),
    ({"rules": [allow(WEB, ports=[443])]}, None, f"http://{WEB}/", None, "deny"),
    ({"rules": [allow(WEB, ports=[443])]}, None, f"https://{WEB}/", None, "allow"),
    (ADMIN, None, f"https://{WEB}/admin/x", None, "deny"),
    (ADMIN, None, f"http://{WEB}/Admin;x", None, "deny"),
    (ADMIN, None, f"https://{WEB}/x", None, "allow"),
    (ADMIN, None, f"POST https://{WEB}/x", None, "deny"),
    ({"default": "public"}, LIMIT, f"https://{WEB}/v1/x", None, "allow"),
    ({"default": "public"}, LIMIT, f"https://{WEB}/v2/x", None, "deny"),
    ({"default": "public"}, LIMIT, f"https://{OTHER}/v1/x", None, "deny"),
    ({"mode": "warn"}, None, f"https://{WEB}/", None, "warned"),
    ({"mode": "warn", **ADMIN}, None, f"https://{WEB}/admin/x", None, "warned"),
    ({"mode": "warn"}, None, f"http://{PRIVATE}/", None, "deny"),
    ({"mode": "warn"}, LIMIT, f"https://{WEB}/v2", None, "deny"),
    ({"mode": "ask"}, None, f"https://{WEB}/", None, "ask"),
    ({"mode": "ask"}, LIMIT, f"https://{OTHER}/", None, "deny"),
    ({"mode": "ask", "rules": [deny(domains=[WEB])]}, None, f"https://{WEB}/", None, "deny"),
    ({"mode": "ask", **ADMIN}, None, f"POST https://{WEB}/x", None, "deny"),
    (way(f"{internet.OTHER}:8080"), None, f"http://{WEB}/x", None, "rerouted"),
    (way(f"{internet.PRIVATE}:8080"), None, f"http://{WEB}/x", None, "deny"),
    (way("127.0.0.1:8080", mode="warn"), None, f"http://{WEB}/x", None, "deny"),
    (way(f"{internet.OTHER}:8080"), LIMIT, f"http://{WEB}/v1", None, "deny"),
    (key("ANY"), None, f"https://{WEB}/", None, "keyed"),
    (key("ANY"), None, f"http://{WEB}/", None, "deny"),
    (key("PLAIN"), None, f"http://{WEB}/", None, "keyed"),
    ({**key("PLAIN"), **way(f"{internet.OTHER}:8080")}, None, f"http://{WEB}/", None, "deny"),  # no server with its certificate
    (way(f"{OTHER}:8080"), None, f"http://{WEB}/x", None, "rerouted"),
    (way(f"{PRIVATE}:8080"), None, f"http://{WEB}/x", None, "deny"),
    (way(f"{OTHER}:8080"), {"rules": [allow(WEB)]}, f"http://{WEB}/x", None, "deny"),
    (key("ANY", ports=[8443]), None, f"https://{WEB}/", None, "allow"),
    (key("ANY", paths=["/v1*"]), None, f"https://{WEB}/v2", None, "allow"),
    (key("V1"), None, f"https://{WEB}/v1/x", None, "keyed"),
    (key("V1"), None, f"https://{WEB}/v2", None, "deny"),
    (key("V1"), None, f"POST https://{WEB}/v1/x", None, "deny"),
    (key("PORT"), None, f"https://{WEB}/", None, "deny"),
    (key("HOST"), None, f"https://{WEB}/", None, "deny"),
    ({**key("ANY"), "mode": "warn", "rules": [deny(domains=[WEB])]}, None, f"https://{WEB}/", None, "warned"),
    (key("PLACE"), None, f"https://{WEB}/", None, "allow"),
    (key("PLACE"), None, f"https://{WEB}/", "Authorization: Bearer cay-secret:PLACE", "keyed"),
    (key("PLACE"), None, f"http://{WEB}/", "Authorization: Bearer cay-secret:PLACE", "if carried"),
    (key("MUST"), None, f"https://{WEB}/", "Authorization: Bearer cay-secret:MUST", "keyed"),
    (key("MUST"), None, f"https://{WEB}/", None, "if absent"),
    (key("MUST_V1"), None, f"https://{WEB}/v2", "Authorization: Bearer cay-secret:MUST_V1", "deny"),
]


@pytest.fixture(scope="module")
def sandbox(stack):
    for name, bind in BINDS.items():
        reply = stack.cay.call("POST", "/cay/v1/secrets", {"name": name, "value": SECRET, "bind": bind})
        assert reply.status == 201, reply.body
    reply = stack.cay.call("POST", "/cay/v1/sandboxes", {"templateID": "host", "timeout": 600})
    from client import Sandbox
    one = Sandbox(stack.cay, reply.json)
    yield one
    one.kill()


def split(request):
    method, url = request.split() if " " in request else ("GET", request)
    scheme, _, rest = url.partition("://")
    host, _, path = rest.partition("/")
    return method, scheme, host, "/" + path


def shown(stack, sandbox, request, policy, *more):
    method, scheme, host, path = split(request)
    leads = policy.get("reroute", [{"to": host}])[0]["to"].partition(":")[0]  # what DNS is asked for
    done = subprocess.run([BUILD / "src/cli/cay", "policy", "explain", sandbox.id, f"{scheme}://{host}", method, path,
                           *([f"--address={ADDRESSES[leads]}"] if leads in ADDRESSES else []), *more],
                          capture_output=True, text=True, timeout=60,
                          env={**os.environ, "CAY_URL": stack.server.url, "E2B_API_KEY": stack.server.key()})
    assert done.returncode == 0, done.stderr
    return done.stdout


def explained(stack, sandbox, request, policy, *more):
    return json.loads(shown(stack, sandbox, request, policy, "--json", *more))


OUTCOMES = {"allow": "allowed, ", "deny": "denied, ", "ask": "asked about, ", "depends": "decided by request, "}


def tells_one_outcome(text, said):
    """The text that `cay policy explain` shows people: the outcome with its reason in the first line, and one line of what decides."""
    first, *rest = text.splitlines()
    subject, _, outcome = first.partition(": ")
    decides = [line.removeprefix("=> ").split(None, 1) for line in rest if line.startswith("=> ")]
    others = [w for v, w in OUTCOMES.items() if v != said["verdict"] and subject + ": " + w in text]
    return first == said["text"] and outcome.startswith(OUTCOMES[said["verdict"]]) and not others and \
        decides == [[said["verdict"], said["by"]]]


def done(stack, sandbox, request, header):
    """The decision of cay-egress: its answer, its record, and what the server got."""
    method, scheme, host, path = split(request)
    r = sandbox.run(f"curl -sS --max-time 20 --path-as-is -X {method} {f'-H {chr(39)}{header}{chr(39)}' if header else ''} "
                    f"-w '\\n%{{http_code}}' '{scheme}://{host}{path}'")
    body, _, status = r.out.rpartition("\n")
    log = stack.cay.call("GET", f"/cay/v1/audit?sandbox={sandbox.id}&limit=20").json
    decided = [e for e in log if e["event"] in ("connection", "request") and (not e.get("path") or e["path"] in path)]
    return {"denied": status != "200", "body": body, "last": decided[-1] if decided else {}, "log": decided}


EXPECTED = {  # verdict of explain; was it refused; what else
    "deny": ("deny", True), "allow": ("allow", False), "warned": ("allow", False), "ask": ("ask", True),
    "rerouted": ("allow", False), "keyed": ("allow", False), "if carried": ("allow", True), "if absent": ("allow", True)}


@pytest.mark.parametrize("policy, limit, request_, header, what", TABLE)
def test_what_is_said_is_what_is_done(stack, sandbox, policy, limit, request_, header, what):
    ceiling = "/cay/v1/tenants/default/ceiling"
    if limit:
        assert stack.cay.call("PUT", ceiling, limit).status == 204
    try:
        put = stack.cay.call("PUT", f"/cay/v1/sandboxes/{sandbox.id}/policy", policy).status
        assert put == 204 or (put == 200 and what == "deny")  # 200: it warns that something can never have an effect
        said, was = explained(stack, sandbox, request_, policy), done(stack, sandbox, request_, header)
        text = shown(stack, sandbox, request_, policy)
    finally:
        if limit:
            assert stack.cay.call("DELETE", ceiling).status == 204
    assert tells_one_outcome(text, said), (text, said)
    notes = " ".join(said["notes"])
    assert (said["verdict"], was["denied"]) == EXPECTED[what], (said, was)
    assert said["warned"] == (what == "warned") == bool(was["last"].get("warned")), (said, was)
    assert ("instead" in notes and said["verdict"] == "allow") == (what == "rerouted") == ("rerouted" in was["last"] and not was["denied"])
    assert ("owner" in notes) == (what == "ask") == ("owner" in was["body"]), (said, was)
    assert ("only" in said["text"] and "warns" in said["text"]) == (what == "warned")
    keyed = hashlib.sha256(f"Bearer {SECRET}".encode()).hexdigest() in was["body"]
    assert keyed == (what == "keyed"), (said, was)
    if what == "keyed":
        assert "cay-secret:" in notes if header else "sent with the credential" in notes
    if what.startswith("if"):
        assert "cay-secret:" in notes and "refused" in notes
    elif said["verdict"] == "deny" and said["credential"]:
        assert said["text"].partition(": denied, ")[2] in was["body"] and said["by"] == f'credential "{said["credential"]}"', (said, was)
        assert "By policy alone: allowed, " in notes and not any(m["decides"] for m in said["matches"]), said


def test_all_placeholders_of_a_request_are_named(stack, sandbox):
    """The verdict has the first of `inject` alone; those that are not bound to the request are not among them."""
    policy = {"rules": [allow(WEB)], "inject": [{"credential": name, "domains": [WEB]} for name in ("ANY", "PLACE", "HOST", "MUST_V1", "MUST")]}
    assert stack.cay.call("PUT", f"/cay/v1/sandboxes/{sandbox.id}/policy", policy).status == 200  # HOST can never be put on one
    for path, named in (("/v1/x", {"PLACE", "MUST", "MUST_V1"}), ("/v2/x", {"PLACE", "MUST"})):
        said = explained(stack, sandbox, f"https://{WEB}{path}", policy)
        assert said["credential"] == "ANY" and set(said["placeholders"]) == named, said
        assert all(any("too: " in note and name in note for note in said["notes"]) for name in named), said
    assert stack.cay.call("PUT", f"/cay/v1/sandboxes/{sandbox.id}/policy", {"rules": [allow(WEB)]}).status == 204
    assert explained(stack, sandbox, f"https://{WEB}/v1/x", policy)["placeholders"] == []  # the control: none is injected


@pytest.mark.parametrize("policy, limit, request_", [
    ({"default": "public"}, LIMIT, f"https://{WEB}/v2/x"), (key("V1"), None, f"https://{WEB}/v2")])
def test_a_policy_alone_is_not_all_that_decides(stack, sandbox, tmp_path, policy, limit, request_):
    """The control: the table's rows would tell an explanation that leaves out limits and bindings."""
    method, scheme, host, path = split(request_)
    file = tmp_path / "policy.json"
    file.write_text(json.dumps(policy))
    alone = subprocess.run([BUILD / "src/cli/cay", "policy", "explain", f"--policy={file}", f"{scheme}://{host}", method, path,
                            "--json"], capture_output=True, text=True, timeout=60)
    assert json.loads(alone.stdout)["verdict"] == "allow"
    assert any((p, l, r, w) == (policy, limit, request_, "deny") for p, l, r, _, w in TABLE)


# -- what only cay-egress knows ----------------------------------------------------------------------

def test_one_that_is_paused_with_its_files(stack):
    """cay-egress has it when it is resumed, and not before: the answer is the next step, not to try again."""
    if stack.cay.call("GET", "/cay/v1/status").json["disk"]["backend"] == "memory":
        pytest.skip("files are in memory here")
    paused, question = sandbox_of(stack, {"rules": [allow(WEB)]}), {"to": f"https://{WEB}:443"}
    try:
        path = f"/cay/v1/sandboxes/{paused.id}/policy/explain"
        assert stack.cay.call("POST", path, question).json["verdict"] == "allow"
        assert stack.cay.call("POST", f"/sandboxes/{paused.id}/pause", {"memory": False}).status == 204
        reply = stack.cay.call("POST", path, question)
        assert reply.status == 409 and f"cay resume {paused.id}" in reply.json["message"], reply.json
        assert stack.cay.call("POST", f"/sandboxes/{paused.id}/connect", {"timeout": 60}).status == 201
        assert stack.cay.call("POST", path, question).json["verdict"] == "allow"
    finally:
        paused.kill()


def test_bytes_that_are_used_up(stack, sandbox):
    policy = {"rules": [allow(WEB)], "limits": {"bytes": 300000}}
    request_ = f"http://{WEB}/x"
    used = sandbox_of(stack, policy)
    try:
        said = explained(stack, used, request_, policy)
        assert said["verdict"] == "allow" and any("bytes left" in n for n in said["notes"]), said
        used.run(f"curl -sS --max-time 20 -o /dev/null http://{WEB}/bytes/2000000")
        was = done(stack, used, request_, None)
        said = explained(stack, used, request_, policy)
        assert was["denied"] and was["last"]["rule"] == "limit"
        assert said["verdict"] == "deny" and "denied, the sandbox has used up its bytes" in said["text"], said
        assert said["by"] == 'limit "bytes"' and tells_one_outcome(shown(stack, used, request_, policy), said)
        said = explained(stack, used, "http://cay.internal/denials", policy)  # which is served all the same
        assert said["verdict"] == "allow" and "cay answers it itself" in said["text"], said
        assert "used up" in used.run("curl -sS --max-time 20 http://cay.internal/denials.txt").out
    finally:
        used.kill()


def sandbox_of(stack, policy):
    from client import Sandbox
    reply = stack.cay.call("POST", "/cay/v1/sandboxes", {"templateID": "host", "timeout": 600, "policy": policy})
    assert reply.status == 201, reply.body
    return Sandbox(stack.cay, reply.json)


HOLD = "exec 9<>/dev/tcp/{host}/80; touch /tmp/held; sleep 600"


def test_connections_that_are_used_up(stack):
    policy = {**key("PLACE"), "limits": {"connections": 1}}
    one = sandbox_of(stack, policy)
    try:
        assert explained(stack, one, f"http://{WEB}/x", policy)["verdict"] == "allow"
        assert explained(stack, one, f"https://{WEB}/x", policy)["placeholders"] == ["PLACE"]  # the control
        one.run(f"setsid bash -c '{HOLD.format(host=WEB)}' > /dev/null 2>&1 & until [ -e /tmp/held ]; do sleep 0.05; done")
        said, was = explained(stack, one, f"http://{WEB}/x", policy), done(stack, one, f"http://{WEB}/x", None)
        assert was["denied"] and said["verdict"] == "deny", (said, was)
        assert "denied, the sandbox has its 1 connections open already" in said["text"] and said["by"] == 'limit "connections"', said
        assert tells_one_outcome(shown(stack, one, f"http://{WEB}/x", policy), said)
        said = explained(stack, one, f"https://{WEB}/x", policy)
        assert (said["verdict"], said["placeholders"]) == ("deny", []), said  # none is replaced on what does not leave
    finally:
        one.kill()


def test_what_the_owner_has_answered(stack):
    policy = {"mode": "ask"}
    one = sandbox_of(stack, policy)
    try:
        with Stream(stack.cay, f"?sandbox={one.id}") as stream:
            for host, word, verdict in ((WEB, "yes", "allow"), (OTHER, "no", "deny")):
                request_ = f"http://{host}/x"
                assert explained(stack, one, request_, policy)["verdict"] == "ask"
                held = Held(stream, one, request_)
                assert answer(stack.cay, one, held.event["ask"], word, "always") == 204
                held.end()
                said, was = explained(stack, one, request_, policy), done(stack, one, request_, None)
                assert (said["verdict"], was["denied"]) == (verdict, verdict == "deny"), (said, was)
                assert said["by"] == 'owner "owner"' and "by its owner, who was asked" in said["text"], said
    finally:
        one.kill()


def test_a_name_that_is_said_to_an_address(stack, sandbox):
    """By address `public` allows it, and by the name that is said there a rule denies it. Without --said: the control."""
    policy = {"default": "public", "rules": [deny(domains=[WEB], paths=["/admin*"])]}
    assert stack.cay.call("PUT", f"/cay/v1/sandboxes/{sandbox.id}/policy", policy).status == 204
    request_ = f"http://{internet.WEB}/admin/x"
    for name, header, verdict in (([], None, "allow"), ([f"--said={WEB}"], f"Host: {WEB}", "deny"), ([f"--said={OTHER}"], f"Host: {OTHER}", "allow")):
        said, was = explained(stack, sandbox, request_, policy, *name), done(stack, sandbox, request_, header)
        assert (said["verdict"], was["denied"]) == (verdict, verdict == "deny"), (said, was)


def test_bad_questions(stack, sandbox):
    path = f"/cay/v1/sandboxes/{sandbox.id}/policy/explain"
    for body in ({}, {"to": 1}, {"to": "a b"}, {"to": WEB, "method": "GET"}, {"to": WEB, "method": "GET", "path": "x"}, {"to": WEB, "method": "GET", "path": "/x?y"}, {"to": WEB, "more": 1},
                 {"to": WEB, "address": "x"}, {"to": WEB, "said": OTHER}, {"to": internet.WEB, "address": internet.WEB},
                 {"to": WEB, "policy": {"default": "no"}}, {"to": "x:70000"}):
        reply = stack.cay.call("POST", path, body)
        assert reply.status == 400 and reply.json["message"], (body, reply.body)
    assert stack.cay.call("POST", "/cay/v1/sandboxes/0000000000000000/policy/explain", {"to": WEB}).status == 404
    reply = stack.cay.call("POST", path, {"to": WEB, "policy": {"default": "public"}})  # one instead of its own
    assert reply.status == 200 and reply.json["verdict"] == "allow"


def test_an_operators_limit_is_not_shown(stack, sandbox):
    """It refuses, and that is said with its rule's name; which other hosts, ports and rules it has, a tenant does not learn: by
    explain, in a refusal, or by a call of its own. The control: of its own policy all of it is told."""
    hidden = {"rules": [{"action": "allow", "name": "partner", "domains": ["hidden-partner.example"]},
                        {"action": "allow", "name": "odd port", "domains": [WEB], "ports": [8443]}]}
    policy, ceiling = {"default": "public"}, "/cay/v1/tenants/default/ceiling"
    request_ = f"https://{WEB}/x"
    assert stack.cay.call("PUT", f"/cay/v1/sandboxes/{sandbox.id}/policy", hidden).status == 204
    said, was = explained(stack, sandbox, request_, policy), done(stack, sandbox, request_, None)
    for text in (json.dumps(said), was["body"]):
        assert "hidden-partner" in text and "8443" in text
    assert stack.cay.call("PUT", ceiling, hidden).status == 204
    try:
        assert stack.cay.call("PUT", f"/cay/v1/sandboxes/{sandbox.id}/policy", policy).status == 204
        said, was = explained(stack, sandbox, request_, policy), done(stack, sandbox, request_, None)
    finally:
        assert stack.cay.call("DELETE", ceiling).status == 204
    for text in (json.dumps(said), was["body"], json.dumps(was["last"])):
        assert "limit" in text and "hidden-partner" not in text and "8443" not in text and "odd port" not in text, text
    assert said["verdict"] == "deny" and was["denied"]
    assert stack.cay.call("GET", f"/cay/v1/sandboxes/{sandbox.id}/policy/stack").status == 404
