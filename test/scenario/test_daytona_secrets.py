"""Daytona's secrets: the vault's calls, and what a sandbox that has one mounted sends. By HTTP, and by Daytona's unmodified
SDKs in processes of their own: their threads keep the network namespace in which they began. Against the stand-in internet of
egresslib.py, whose server tells by digests which value came."""

import json
import os
import pathlib
import subprocess
import time

import pytest

from client import Sandbox
from conftest import BUILD
from egresslib import fetch, internet, stack  # noqa: F401: fixtures
from test_egress_api import digest, look_for
from test_egress_daytona import daytona, is_ready, own  # noqa: F401: fixtures
from waitlib import until

VALUE, OTHER_VALUE = "kZ7-daytona-key-4f9a1c", "qW2-daytona-key-77aa01"
WEB, OTHER = "https://web.example.com/v1", "https://other.example.net/v1"
AUTHORIZATION = ('-H', '"Authorization: Bearer $MODEL_KEY"')
SDK = pathlib.Path(__file__).resolve().parents[1] / "sdk"
PYTHON = BUILD / "venv-daytona/bin/python"
NODE = SDK / "js/node_modules/node/bin/node"
FIELDS = {"id", "name", "placeholder", "hosts", "createdAt", "updatedAt"}


@pytest.fixture
def vault(stack, daytona):
    """The vault's calls; what the test has made there is gone afterwards."""
    def call(method, path="", body=None, status=200, key=None):
        reply = daytona.call(method, f"/secret{path}", body, key)
        assert reply.status == status, (reply.status, reply.body)
        assert VALUE.encode() not in reply.body and OTHER_VALUE.encode() not in reply.body
        return reply.json if reply.body else None

    yield call
    for one in stack.cay.call("GET", "/cay/v1/secrets").json:
        assert stack.cay.call("DELETE", f"/cay/v1/secrets/{one['name']}").status == 204


def make(vault, name="MODEL", value=VALUE, hosts=("web.example.com",), **more):
    made = vault("POST", "", {"name": name, "value": value, "hosts": list(hosts), **more}, 201)
    time.sleep(0.002)  # times are whole milliseconds: a later change has a later one
    return made


def mount(daytona, sandbox, status=200, **secrets):
    reply = daytona.call("PUT", f"/sandbox/{sandbox.id}/secrets", {"secrets": [{k: v} for k, v in secrets.items()]})
    assert reply.status == status, (reply.status, reply.body)
    return reply.json


def came(sandbox, url=WEB, *options):
    """The digest of the key that the server was sent; or why the request was refused."""
    seen = fetch(sandbox, url, *(options or AUTHORIZATION))
    if isinstance(seen, dict):
        return seen["digests"]["Authorization"] if "digests" in seen else seen["message"]
    return seen.out + seen.stderr.decode()


def bearer(value):
    return digest(f"Bearer {value}")


# -- the vault


def test_one_is_made_changed_and_removed(stack, vault):
    made = make(vault, hosts=["web.example.com", "*.Example.org"], description="for the model")
    assert made == {"id": "MODEL", "name": "MODEL", "placeholder": "cay-secret:MODEL", "hosts": ["web.example.com", "*.Example.org"],
                    "description": "for the model", "createdAt": made["createdAt"], "updatedAt": made["createdAt"]}
    assert vault("GET", "/MODEL") == made and vault("GET") == [made]
    assert {k: v for k, v in stack.cay.call("GET", "/cay/v1/secrets").json[0].items() if k != "madeAt"} == {
        "name": "MODEL", "bind": {"kind": "placeholder", "domains": ["web.example.com", "*.Example.org"]}}
    again = vault("PATCH", "/MODEL", {"description": "of another"})
    assert again == {**made, "description": "of another"}  # the value and its time stay
    assert vault("PATCH", "/MODEL", {"description": "", "hosts": made["hosts"], "value": None}).keys() == FIELDS
    assert vault("PATCH", "/MODEL", {}).keys() == FIELDS
    new = vault("PATCH", "/MODEL", {"value": OTHER_VALUE, "hosts": ["other.example.net"], "description": "d"})
    assert (new["hosts"], new["description"], new["createdAt"]) == (["other.example.net"], "d", made["createdAt"])
    assert new["updatedAt"] > made["updatedAt"]
    vault("DELETE", "/MODEL", status=204)
    for method, body in (("GET", None), ("PATCH", {"value": VALUE}), ("DELETE", None)):
        assert "not found" in vault(method, "/MODEL", body, 404)["message"]
    look_for(stack, VALUE, OTHER_VALUE)


def test_what_the_secrets_of_a_tenant_say_together_has_a_limit(daytona, vault):
    """A list of them is one turn of the loop that all tenants share."""
    hosts = [".".join(["a" * 60] * 3 + ["b" * 50, f"h{n:02}.example"]) for n in range(64)]
    fit = 1024 * 1024 // len(json.dumps(hosts, separators=(",", ":")))  # and a little beside the hosts
    for n in range(fit - 1):
        vault("POST", "", {"name": f"S{n}", "value": VALUE, "hosts": hosts}, 201)
    for n in range(2):
        reply = daytona.call("POST", "/secret", {"name": f"T{n}", "value": VALUE, "hosts": hosts})
    assert reply.status == 429 and "longer than 1048576 bytes together" in reply.json["message"], reply.body
    vault("PATCH", "/S0", {"value": VALUE, "hosts": hosts[:1]})  # one is not counted beside its successor
    vault("PATCH", "/S1", {"value": VALUE, "hosts": hosts[:1]})
    vault("POST", "", {"name": "T1", "value": VALUE, "hosts": hosts}, 201)
    assert len(vault("GET")) in (fit, fit + 1)


@pytest.mark.parametrize("change, why", [
    ({"hosts": None}, "without hosts"), ({"hosts": []}, "without hosts"), ({"hosts": "a.example"}, "hosts"), ({"hosts": ["*"]}, "hosts[0]"),
    ({"hosts": ["a.example", "https://b.example"]}, "hosts[1]"), ({"hosts": ["a.example:443"]}, "hosts[0]"), ({"hosts": [1]}, "hosts[0]"),
    ({"hosts": ["10.0.0.1"]}, "hosts[0]"), ({"hosts": ["a.example/v1"]}, "hosts[0]"), ({"hosts": ["*.*.example"]}, "hosts[0]"),
    ({"hosts": [f"h{n}.example" for n in range(65)]}, "at most 64"), ({"name": "1x"}, "first a letter"), ({"name": "_x"}, "first a letter"),
    ({"name": "a.b"}, "letters"), ({"name": ""}, "letters"), ({"name": "x" * 65}, "name"), ({"name": None}, "name"), ({"name": 1}, "name"),
    ({"name": "e2b-rule-1"}, "own"), ({"value": "short"}, "8 to 8192"), ({"value": "x" * 8193}, "8 to 8192"), ({"value": 7}, "value"),
    ({"value": None}, "value"), ({"value": "two\nlines-of-it"}, "printable"), ({"description": 1}, "description"),
    ({"description": "x" * 1025}, "description"), ({"metadata": {}}, "metadata should not exist"), ({"paths": ["/v1"]}, "paths")])
def test_what_is_no_secret_is_refused(daytona, vault, change, why):
    body = {"name": "MODEL", "value": VALUE, "hosts": ["web.example.com"], **change}
    error = daytona.refused(400, "POST", "/secret", body, why)
    assert VALUE not in json.dumps(error) and vault("GET") == []


@pytest.mark.parametrize("change, why", [
    ({"hosts": ["other.example.net"]}, "give the value too"), ({"hosts": ["other.example.net"], "value": None}, "give the value too"),
    ({"hosts": [], "value": OTHER_VALUE}, "without hosts"), ({"hosts": ["a b"], "value": OTHER_VALUE}, "hosts[0]"),
    ({"name": "B"}, "name should not exist"), ({"value": "short"}, "8 to 8192"), ({"value": 7}, "value")])
def test_a_bad_change_changes_nothing(daytona, vault, change, why):
    made = make(vault)
    daytona.refused(400, "PATCH", "/secret/MODEL", change, why)
    assert vault("GET", "/MODEL") == made


def test_a_name_is_one_secrets(daytona, vault):
    made = make(vault)
    daytona.refused(409, "POST", "/secret", {"name": "MODEL", "value": OTHER_VALUE, "hosts": ["other.example.net"]}, "already exists")
    assert vault("GET", "/MODEL") == made


def test_lists_page_by_page(daytona, vault):
    for name in ("b1", "a1", "c1", "b2"):
        make(vault, name)

    def pages(query):
        names, cursor = [], ""
        for _ in range(8):
            page = vault("GET", f"/paginated?{query}{cursor}")
            names.append([one["name"] for one in page["items"]])
            assert page["total"] == (2 if "name=b" in query else 4)
            if page["nextCursor"] is None:
                return names
            cursor = f"&cursor={page['nextCursor']}"
        raise AssertionError(names)

    assert pages("limit=3") == [["b2", "c1", "a1"], ["b1"]]
    assert pages("limit=3&sort=createdAt&order=asc") == [["b1", "a1", "c1"], ["b2"]]
    assert pages("limit=1&sort=name&order=asc") == [["a1"], ["b1"], ["b2"], ["c1"]]
    assert pages("sort=name") == [["c1", "b2", "b1", "a1"]] and pages("name=b&limit=1&sort=name&order=asc") == [["b1"], ["b2"]]
    vault("PATCH", "/b1", {"value": OTHER_VALUE})
    assert pages("sort=updatedAt&limit=2")[0] == ["b1", "b2"]
    cursor = vault("GET", "/paginated?sort=name&order=asc&limit=2")["nextCursor"]
    vault("DELETE", "/b1", status=204)  # the one that the cursor is of
    assert [one["name"] for one in vault("GET", f"/paginated?sort=name&order=asc&cursor={cursor}")["items"]] == ["b2", "c1"]
    for bad in ("limit=0", "limit=201", "limit=x", "sort=value", "order=up", "cursor=x", "cursor=/b1", "cursor=x/", f"name={'x' * 99}"):
        daytona.refused(400, "GET", f"/secret/paginated?{bad}", why=bad.partition("=")[0])


def test_anothers_are_not_there_and_a_reader_changes_none(stack, daytona, vault):
    make(vault)
    key = {role: stack.cay.call("POST", "/cay/v1/keys", {"tenant": tenant, "role": role}).json["key"]
           for tenant, role in (("others", "owner"), ("default", "read-only"))}
    assert vault("GET", key=key["owner"]) == [] and vault("GET", "/paginated", key=key["owner"])["total"] == 0
    for method, body in (("GET", None), ("PATCH", {"value": OTHER_VALUE}), ("DELETE", None)):
        there, nowhere = (daytona.call(method, f"/secret/{name}", body, key["owner"]) for name in ("MODEL", "NOWHERE"))
        assert there.status == nowhere.status == 404
        assert there.json["message"] == nowhere.json["message"].replace("NOWHERE", "MODEL")
    daytona.refused(400, "POST", "/sandbox", {"snapshot": "host", "secrets": [{"K": "MODEL"}]}, "Secret with name MODEL not found", key["owner"])
    assert vault("GET", "/MODEL", key=key["read-only"])["name"] == "MODEL"
    for method, path, body in (("POST", "", {"name": "B", "value": VALUE, "hosts": ["a.example"]}), ("PATCH", "/MODEL", {"value": OTHER_VALUE}),
                               ("DELETE", "/MODEL", None)):
        daytona.refused(403, method, f"/secret{path}", body, key=key["read-only"])
    assert len(vault("GET")) == 1


# -- in a sandbox


def test_the_value_is_put_on_outside_for_the_secrets_hosts_alone(stack, vault, own):
    make(vault)
    one = own(secrets=[{"MODEL_KEY": "MODEL"}], env={"PLAIN": "p"})
    assert one.run("echo $MODEL_KEY $PLAIN").out == "cay-secret:MODEL p\n"
    assert came(one) == bearer(VALUE)
    assert came(one, OTHER) == bearer("cay-secret:MODEL")  # the control: that host was reached, without the value
    assert "there is no credential" in came(one, WEB, "-H", '"Authorization: Bearer cay-secret:NONE"')
    assert "not put into" in came(one, f"{WEB}?key=cay-secret:MODEL") and "not put into" in came(one, WEB, "-H", "'X-Own: cay-secret:MODEL'")
    plain = one.run(f"curl -sS --max-time 20 -H \"Authorization: Bearer $MODEL_KEY\" http://{internet.OTHER}/")
    assert json.loads(plain.out)["error"]["type"] == "egress_denied"
    vault("PATCH", "/MODEL", {"value": OTHER_VALUE})
    until(lambda: came(one) == bearer(OTHER_VALUE))  # without anything done to the sandbox
    vault("DELETE", "/MODEL", status=204)
    until(lambda: "was not given" in came(one))
    assert "MODEL" not in json.dumps(one.dto) and one.dto["env"] == {}
    look_for(stack, VALUE, OTHER_VALUE)


@pytest.mark.parametrize("secrets, why", [
    ([{"K": "NOWHERE"}], "Secret with name NOWHERE not found"), ([{"K": "BEARER"}], "not found"), ([{"K": "E2B"}], "has no hosts"),
    ([{"A=B": "MODEL"}], "variable"), ([{"": "MODEL"}], "variable"), ([{"K": "MODEL"}, {"K": "MODEL"}], "twice"), ([{"K": 1}], "name of a secret"),
    (["MODEL"], "secrets[0]"), ({"K": "MODEL"}, "secrets"), ([{"PLAIN": "MODEL"}], "env has that variable"),
    ([{f"K{n}": "MODEL"} for n in range(65)], "at most 64")])
def test_what_cannot_be_mounted(stack, daytona, vault, secrets, why):
    make(vault)
    assert stack.cay.call("POST", "/secrets", {"name": "E2B", "value": VALUE}).status == 201
    assert stack.cay.call("POST", "/cay/v1/secrets", {"name": "BEARER", "value": VALUE, "bind": {
        "kind": "bearer", "domains": ["web.example.com"]}}).status == 201
    assert [(one["name"], one["hosts"]) for one in vault("GET")] == [("E2B", []), ("MODEL", ["web.example.com"])]
    daytona.refused(404, "GET", "/secret/BEARER")
    daytona.refused(400, "POST", "/sandbox", {"snapshot": "host", "env": {"PLAIN": "p"}, "secrets": secrets}, why)


def test_settings_of_the_network_keep_what_is_mounted(stack, vault, own, daytona):
    make(vault)
    one = own(secrets=[{"MODEL_KEY": "MODEL", "SAME_KEY": "MODEL"}], domainAllowList="web.example.com")
    inject = [{"credential": "MODEL", "domains": ["web.example.com"]}]
    policy = lambda: stack.cay.call("GET", f"/cay/v1/sandboxes/{one.id}/policy").json  # noqa: E731
    assert policy()["inject"] == inject and policy()["default"] == "deny" and came(one) == bearer(VALUE)
    daytona.update(one, networkBlockAll=True)
    assert policy() == {"default": "deny", "refusal": "close", "inject": inject} and came(one) != bearer(VALUE)
    daytona.update(one, networkBlockAll=False)
    assert policy() == {"default": "public", "inject": inject} and came(one) == bearer(VALUE)
    vault("DELETE", "/MODEL", status=204)
    daytona.update(one, networkBlockAll=True)  # a mounted secret that is gone is in no way
    daytona.update(one, networkBlockAll=False)
    assert policy() == {"default": "public"}
    make(vault)
    path = f"/sandboxes/{one.id}/network"
    assert stack.cay.call("PUT", path, {"daytona": {"secrets": {"MODEL_KEY": "MODEL"}}}).status == 204  # not to be had from there
    assert "inject" not in policy() and daytona.update(one, domainAllowList="web.example.com") and "inject" not in policy()


def test_what_is_mounted_is_changed_while_it_runs(stack, vault, own, daytona):
    make(vault)
    make(vault, "NEXT", OTHER_VALUE)
    one = own(env={"PLAIN": "p"}, labels={"a": "b"})
    assert mount(daytona, one, MODEL_KEY="MODEL")["id"] == one.id
    assert one.run("echo $MODEL_KEY $PLAIN $E2B_SANDBOX_ID").out == f"cay-secret:MODEL p {one.id}\n" and came(one) == bearer(VALUE)
    mount(daytona, one, OTHER_KEY="NEXT", E2B_SANDBOX_ID="NEXT")
    assert one.run("echo $MODEL_KEY $OTHER_KEY $E2B_SANDBOX_ID").out == f"cay-secret:NEXT {one.id}\n"
    assert came(one, WEB, "-H", '"Authorization: Bearer $OTHER_KEY"') == bearer(OTHER_VALUE)
    assert "there is no credential MODEL" in came(one, WEB, "-H", '"Authorization: Bearer cay-secret:MODEL"')
    path = f"/sandbox/{one.id}/secrets"
    for body, why in (({}, "array"), ({"secrets": None}, "array"), ({"secrets": [{"K": "NOWHERE"}]}, "not found"), ({"secrets": [{"=": "NEXT"}]}, "variable")):
        daytona.refused(400, "PUT", path, body, why)
    assert one.run("echo $OTHER_KEY").out == "cay-secret:NEXT\n" and came(one, WEB, "-H", '"Authorization: Bearer $OTHER_KEY"') == bearer(OTHER_VALUE)
    mount(daytona, one)
    assert one.run("echo -$OTHER_KEY-$PLAIN").out == "--p\n" and stack.cay.call("GET", f"/cay/v1/sandboxes/{one.id}/policy").json == {"default": "public"}
    assert stack.cay.call("PUT", f"/cay/v1/sandboxes/{one.id}/policy", {"default": "public"}).status == 204
    daytona.refused(409, "PUT", path, {"secrets": [{"K": "NEXT"}]}, "another API")
    daytona.refused(501, "GET", path, why="sealed")
    others = stack.cay.call("POST", "/cay/v1/keys", {"tenant": "others", "role": "owner"}).json["key"]
    daytona.refused(404, "PUT", path, {"secrets": []}, key=others)


def test_secrets_outlive_the_daemons(stack, vault, own):
    make(vault, description="d")
    one = own(secrets=[{"MODEL_KEY": "MODEL"}])
    before = vault("GET", "/MODEL")
    for name, old in [(name, stack.kill(name)) for name in ("cayd", "cay-egress")]:
        stack.wait_replaced(name, old)
    until(lambda: is_ready(stack))
    assert vault("GET", "/MODEL") == before
    until(lambda: came(one) == bearer(VALUE))
    assert came(one, OTHER) == bearer("cay-secret:MODEL")


def test_a_fork_and_one_that_was_stopped_have_what_is_mounted(stack, vault, own, daytona):
    if stack.cay.call("GET", "/cay/v1/status").json["disk"]["backend"] == "memory":
        pytest.skip("files are in memory here")
    make(vault)
    one = own(secrets=[{"MODEL_KEY": "MODEL"}])
    forked = daytona.call("POST", f"/sandbox/{one.id}/fork", {})
    assert forked.status == 200, forked.body
    fork = Sandbox(stack.cay, stack.cay.call("GET", f"/sandboxes/{forked.json['id']}").json)
    try:
        assert came(fork) == bearer(VALUE) and came(fork, OTHER) == bearer("cay-secret:MODEL")
        mount(daytona, fork)
        assert fork.run("echo -$MODEL_KEY-").out == "--\n" and came(one) == bearer(VALUE)  # its source has it still
    finally:
        fork.kill()
    for step in ("stop", "start"):
        if step == "start":
            daytona.refused(409, "PUT", f"/sandbox/{one.id}/secrets", {"secrets": []})
        reply = daytona.call("POST", f"/sandbox/{one.id}/{step}", b"")
        assert reply.status == 200, reply.body
    until(lambda: came(one) == bearer(VALUE))
    assert came(one, OTHER) == bearer("cay-secret:MODEL")


# -- by the SDKs


LINES = """
import json, os, sys
from daytona import CreateSandboxFromSnapshotParams, CreateSecretParams, Daytona, UpdateSecretParams
from daytona_api_client.exceptions import ApiException, NotFoundException
value, other = sys.argv[1:]
daytona = Daytona()
made = daytona.secret.create(CreateSecretParams(name="PY", value=value, description="d", hosts=["web.example.com"]))
assert daytona.secret.get(made.id) == made and (made.description, made.hosts) == ("d", ["web.example.com"]), made
page = daytona.secret.list(limit=1)
assert (page.total, page.next_cursor, page.items) == (1, None, [made]), page
for params in (CreateSecretParams(name="PY", value=value, hosts=["a.example"]), CreateSecretParams(name="FREE", value=value)):
    try:
        daytona.secret.create(params)
        sys.exit("a secret was made that cannot be")
    except ApiException as e:
        print(e.status, e.body)
box = daytona.create(CreateSandboxFromSnapshotParams(snapshot="host", secrets={"PY_KEY": "PY"}))
try:
    def ask(host, key="$PY_KEY"):
        done = box.process.exec(f'curl -sS --max-time 20 -H "Authorization: Bearer {key}" https://{host}/v1')
        return json.loads(done.result)
    assert box.process.exec("env | grep PY_KEY").result == f"PY_KEY={made.placeholder}\\n"
    print(ask("web.example.com")["digests"]["Authorization"], ask("other.example.net")["headers"]["Authorization"])
    assert daytona.secret.update(made.id, UpdateSecretParams(value=other)).hosts == made.hosts
    print(ask("web.example.com")["digests"]["Authorization"])
    box.update_secrets({"NEW_KEY": "PY"})
    print(box.process.exec("echo $PY_KEY $NEW_KEY").result, end="")
    print(ask("web.example.com", "$NEW_KEY")["digests"]["Authorization"])
    box.update_secrets({})
    print(box.process.exec("echo -$NEW_KEY-").result, end="")
    print(ask("web.example.com", made.placeholder)["headers"]["Authorization"])
    daytona.secret.delete(made.id)
    try:
        daytona.secret.get(made.id)
        sys.exit("it is still there")
    except NotFoundException:
        pass
finally:
    box.delete()
"""


def environment(stack):
    return {**os.environ, "DAYTONA_API_KEY": stack.server.key(), "DAYTONA_API_URL": f"{stack.server.url}/api", "E2B_API_KEY": stack.server.key()}


def test_the_sdk_of_python(stack, vault):
    if not PYTHON.exists():
        pytest.skip("the SDK's packages are not there: test/run --only=sdk installs them")
    done = subprocess.run([PYTHON, "-c", LINES, VALUE, OTHER_VALUE], env=environment(stack), capture_output=True, text=True, check=False,
                          stdin=subprocess.DEVNULL, timeout=180)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("409 ") and "already exists" in lines[0] and lines[1].startswith("400 ") and "without hosts" in lines[1]
    assert lines[2:] == [f"{bearer(VALUE)} Bearer cay-secret:PY", bearer(OTHER_VALUE), "cay-secret:PY", bearer(OTHER_VALUE), "--",
                         "Bearer cay-secret:PY"], lines
    assert VALUE not in done.stdout + done.stderr and OTHER_VALUE not in done.stdout + done.stderr
    look_for(stack, VALUE, OTHER_VALUE)


def test_the_sdk_of_javascript(stack, vault):
    if not NODE.exists() or not (SDK / "daytona/node_modules").exists():
        pytest.skip("the SDK's packages are not there: test/run --only=sdk installs them")
    done = subprocess.run([NODE, "--test", "--test-reporter=tap", "secret.test.mjs"], cwd=SDK / "daytona",
                          env={**environment(stack), "CAY_TEST_SECRET_HOSTS": "web.example.com other.example.net"}, capture_output=True,
                          text=True, check=False, stdin=subprocess.DEVNULL, timeout=180)
    assert done.returncode == 0 and "# pass 2" in done.stdout and "# skipped 0" in done.stdout, done.stdout + done.stderr
    assert vault("GET") == []
