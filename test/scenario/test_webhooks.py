"""Webhooks by the whole server: an event becomes one signed POST, sent by cay-egress to a server of the stand-in internet."""

import base64
import hashlib
import hmac
import json
import os
import subprocess
import sys

import pytest

from client import Client
from egresslib import ZONE, Stack, internet
from waitlib import until

HOOKS = internet.__file__.replace("internet.py", "hooks.py")
HOST = "login.example.com"
ADDRESSES = {HOST: {"a": [[internet.OTHER]]}, "login.inside.example": {"a": [[internet.PRIVATE]]}}
URL = f"https://{HOST}:9445/cay?of=tests"


class Server:
    """The server that is called, from the side of the test."""

    def __init__(self, stack):
        self.directory = stack.networks.dir / "hooks"
        self.directory.mkdir()
        self.reset()
        self.process = subprocess.Popen(["ip", "netns", "exec", stack.networks.net, sys.executable, HOOKS, stack.networks.cert,
                                         stack.networks.key, self.directory], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline() == "ready\n"

    def reset(self):
        self.set("good")
        (self.directory / "log.jsonl").write_text("")

    def set(self, mode):
        (self.directory / "state.new").write_text(json.dumps({"mode": mode}))
        os.replace(self.directory / "state.new", self.directory / "state.json")

    def log(self):
        return [json.loads(line) for line in (self.directory / "log.jsonl").read_text().splitlines()]

    def close(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="module")
def stack():
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    s = Stack({**ZONE, **ADDRESSES})
    try:
        s.hooks = Server(s)
        yield s
        s.hooks.close()
    finally:
        s.close()


@pytest.fixture
def hooks(stack):
    stack.hooks.reset()
    yield stack.hooks
    stack.hooks.set("good")
    for one in listed(stack):
        assert stack.cay.call("DELETE", f"/cay/v1/webhooks/{one['id']}").status == 204


def make(stack, url=URL, **more):
    reply = stack.cay.call("POST", "/cay/v1/webhooks", {"url": url, **more})
    assert reply.status == 201, reply.body
    return reply.json


def listed(stack):
    return stack.cay.call("GET", "/cay/v1/webhooks").json


def only(stack):
    (one,) = listed(stack)
    return one


def is_signed(request, secret):
    """As Standard Webhooks 1.0 says."""
    h = request["headers"]
    key = base64.b64decode(secret.removeprefix("whsec_"))
    text = f"{h['webhook-id']}.{h['webhook-timestamp']}.{request['body']}"
    return h["webhook-signature"] == "v1," + base64.b64encode(hmac.digest(key, text.encode(), hashlib.sha256)).decode()


def test_events_arrive_signed(stack, hooks):
    made = make(stack)
    with stack.cay.create(template="host") as box:
        sandbox = box.id
    until(lambda: len(hooks.log()) == 2)
    requests = hooks.log()
    assert [json.loads(r["body"])["type"] for r in requests] == ["sandbox.created", "sandbox.ended"]
    for r in requests:
        assert r["path"] == "/cay?of=tests" and r["headers"]["host"] == f"{HOST}:9445"
        assert r["headers"]["content-type"] == "application/json"
        assert json.loads(r["body"])["sandbox"] == sandbox
        assert is_signed(r, made["secret"]) and not is_signed({**r, "body": r["body"] + " "}, made["secret"])
    assert len({r["headers"]["webhook-id"] for r in requests}) == 2
    until(lambda: only(stack)["delivered"] == 2)
    assert only(stack)["waiting"] == only(stack)["dead"] == 0 and only(stack)["lastStatus"] == 204
    lines = stack.cay.call("GET", "/cay/v1/audit?limit=50").json
    assert [(line["event"], line["outcome"], line["credential"]) for line in lines if line["event"] == "delivery"] == [
        ("delivery", "delivered", made["id"])] * 2


def test_the_secret_is_told_once(stack, hooks):
    secret = make(stack)["secret"]
    key = secret.removeprefix("whsec_")
    assert stack.cay.call("POST", f"/cay/v1/webhooks/{only(stack)['id']}/ping").status == 202
    until(lambda: hooks.log())
    assert is_signed(hooks.log()[0], secret)
    assert "secret" not in only(stack)
    files = [p for part in ("cayd", "egress") for p in (stack.server.state / part).rglob("*") if p.is_file()]
    assert any(p.name.startswith("cay.db") and only(stack)["id"].encode() in p.read_bytes() for p in files)  # it would be seen
    for path in [*files, stack.server.log]:
        assert key.encode() not in path.read_bytes(), path


def test_only_the_types_that_were_asked_for(stack, hooks):
    make(stack, types=["sandbox.ended"])
    with stack.cay.create(template="host"):
        pass
    until(lambda: only(stack)["delivered"] == 1)
    assert [json.loads(r["body"])["type"] for r in hooks.log()] == ["sandbox.ended"]


@pytest.mark.parametrize("mode,why", [("500", "answered 500"), ("redirect", "answered 307")])
def test_what_is_not_2xx_waits(stack, hooks, mode, why):
    hooks.set(mode)
    one = make(stack, types=["sandbox.created"])
    assert stack.cay.call("POST", f"/cay/v1/webhooks/{one['id']}/ping").status == 202
    until(lambda: only(stack)["lastError"])
    (delivery,) = stack.cay.call("GET", f"/cay/v1/webhooks/{one['id']}/deliveries").json
    assert why in delivery["lastError"] and why in only(stack)["lastError"]
    assert (delivery["state"], delivery["attempts"], delivery["type"]) == ("waiting", 1, "ping")
    assert [r["path"] for r in hooks.log()] == ["/cay?of=tests"]  # a redirect is not followed


def test_a_private_address_is_not_called(stack, hooks):
    make(stack, url="https://login.inside.example:9445/")
    assert stack.cay.call("POST", f"/cay/v1/webhooks/{only(stack)['id']}/ping").status == 202
    until(lambda: only(stack)["lastError"])
    assert "10.0.0.5 is not allowed: it is not public" in only(stack)["lastError"], only(stack)
    assert hooks.log() == []


def test_a_tenants_limit_holds(stack, hooks):
    key = stack.cay.call("POST", "/cay/v1/keys", {"tenant": "bounded"}).json["key"]
    tenant = Client(stack.cay.url, key)
    ceiling = {"rules": [{"action": "allow", "domains": ["web.example.com"]}]}
    assert stack.cay.call("PUT", "/cay/v1/tenants/bounded/ceiling", ceiling).status == 204
    one = tenant.call("POST", "/cay/v1/webhooks", {"url": URL}).json
    assert tenant.call("POST", f"/cay/v1/webhooks/{one['id']}/ping").status == 202

    def last():
        return tenant.call("GET", "/cay/v1/webhooks").json[0]["lastError"]

    until(last)
    assert hooks.log() == []
    assert stack.cay.call("DELETE", "/cay/v1/tenants/bounded/ceiling").status == 204  # the control: what held it back
    assert stack.cay.call("GET", "/cay/v1/webhooks").json == []
    assert stack.cay.call("DELETE", f"/cay/v1/webhooks/{one['id']}").status == 404
    assert tenant.call("POST", f"/cay/v1/webhooks/{one['id']}/ping").status == 202
    until(lambda: len(hooks.log()) == 1)
    assert tenant.call("DELETE", f"/cay/v1/webhooks/{one['id']}").status == 204


def test_one_under_way_survives_cayd(stack, hooks):
    secret = make(stack)["secret"]
    hooks.set("hold")
    assert stack.cay.call("POST", f"/cay/v1/webhooks/{only(stack)['id']}/ping").status == 202
    until(lambda: hooks.log())
    stack.wait_replaced("cayd", stack.kill("cayd"))
    until(lambda: len(hooks.log()) == 2)
    hooks.set("good")
    until(lambda: only(stack)["waiting"] == 0)
    first, second = hooks.log()[:2]
    assert first["headers"]["webhook-id"] == second["headers"]["webhook-id"] and first["body"] == second["body"]
    assert is_signed(first, secret) and is_signed(second, secret)


@pytest.mark.parametrize("body,word", [
    ({}, "url"), ({"url": 1}, "url"), ({"url": "http://web.example.com/"}, "https"), ({"url": "https://203.0.113.1/"}, "digits"),
    ({"url": "https://user:pw@web.example.com/"}, "user"), ({"url": URL, "types": []}, "types"),
    ({"url": URL, "types": ["dropped"]}, "dropped"), ({"url": URL, "types": ["nothing"]}, "nothing"),
    ({"url": URL, "secret": "mine"}, "secret"), ({"url": "https://" + "a" * 1100 + ".example.com/"}, "url")])
def test_bad_input(stack, hooks, body, word):
    reply = stack.cay.call("POST", "/cay/v1/webhooks", body)
    assert reply.status == 400 and word in reply.json["message"], reply.body
    assert listed(stack) == []


def test_no_more_than_the_tenants_own(stack, hooks):
    for _ in range(8):
        make(stack)
    reply = stack.cay.call("POST", "/cay/v1/webhooks", {"url": URL})
    assert reply.status == 429 and "cay webhook rm" in reply.json["hint"]
    assert stack.cay.call("POST", "/cay/v1/webhooks/wnone/ping").status == 404
