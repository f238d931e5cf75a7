"""A policy that asks: what nothing allows waits for the owner's yes, told as an event, answered by the API or
`cay policy ask`. Without the mode, or without a follower, the same connection is refused at once (the controls)."""

import datetime
import hashlib
import json
import os
import subprocess
import threading

from conftest import BUILD
from egresslib import internet, stack  # noqa: F401: a fixture
from test_events import Stream, own, tenant  # noqa: F401: fixtures
from waitlib import until

EACH_MAX = 16  # ASKS_EACH_MAX
ASK = {"mode": "ask", "rules": [{"action": "deny", "name": "no", "domains": ["other.example.net"]}]}
CURL = "curl -sS --max-time 70 "


class Held:
    """A command inside whose connection waits, and its question as the event tells it."""

    def __init__(self, stream, sandbox, command):
        self.thread = threading.Thread(target=self.run, args=(sandbox, CURL + command))
        self.thread.start()
        self.event = stream.until(lambda e: e["type"] == "ask") if stream else None

    def run(self, sandbox, command):
        self.result = sandbox.run(command, timeout=90)

    def end(self, seconds=60):
        self.thread.join(seconds)
        assert not self.thread.is_alive()
        return self.result


def answer(client, sandbox, ask, said, how_long="once"):
    return client.call("POST", f"/cay/v1/sandboxes/{sandbox.id}/asks/{ask}", {"answer": said, "for": how_long}).status


def asks(client, sandbox):
    return client.call("GET", f"/cay/v1/sandboxes/{sandbox.id}/asks").json["asks"]


def test_held_told_and_answered(stack, own):
    one = own(policy=ASK)
    r = one.run(CURL + "http://web.example.com/a")
    assert "no one follows" in r.out and json.loads(r.out)["rule"] == "ask", r.out  # no follower to be asked
    with Stream(stack.cay, f"?sandbox={one.id}") as stream:
        for said, how_long, word in (("no", "once", "said no"), ("yes", "once", '"path": "/b"'), ("yes", "always", '"path": "/b"')):
            held = Held(stream, one, "http://web.example.com/b")
            assert (held.event["name"], held.event["port"], held.event["sandbox"]) == ("web.example.com", 80, one.id)
            (listed,) = asks(stack.cay, one)
            assert listed["ask"] == held.event["ask"] and listed["name"] == "web.example.com"
            assert held.thread.is_alive()
            assert answer(stack.cay, one, held.event["ask"], said, how_long) == 204
            out = held.end().out
            assert word.replace(" ", "") in out.replace(" ", ""), out
            assert answer(stack.cay, one, held.event["ask"], "yes") == 404  # it is over
        assert asks(stack.cay, one) == []
        assert '"/c"' in one.run(CURL + "http://web.example.com/c").out  # from now on
        # A rule's deny, and a target never reached, is not asked about.
        for url, rule in (("http://other.example.net/", "no"), ("http://169.254.169.254/", "never")):
            assert json.loads(one.run(CURL + url).out)["rule"] == rule
        kept = stack.cay.call("GET", f"/cay/v1/events?follow=0&since=0&sandbox={one.id}&type=ask")
    assert len(kept.body.splitlines()) == 3
    records = stack.cay.call("GET", f"/cay/v1/audit?sandbox={one.id}&limit=100").json
    assert any(r["event"] == "request" and r.get("source") == "owner" and r["verdict"] == "allow" for r in records)
    assert any(r.get("rule") == "ask" and "said no" in r.get("reason", "") for r in records)


def test_without_an_answer_it_ends_at_its_time(stack, own):
    """60 s, which the event and the list say; the answer after it is too late. Nothing was dialled or asked outside meanwhile."""
    one = own(policy={"mode": "ask"})
    with Stream(stack.cay, f"?sandbox={one.id}") as stream:
        held = Held(stream, one, "http://inside.example.com/late")
        (listed,) = asks(stack.cay, one)
        listed, told = (datetime.datetime.fromisoformat(o["until"].replace("Z", "+00:00")) for o in (listed, held.event))
        assert abs(listed - told) < datetime.timedelta(seconds=1)  # each counts from the moment that it is written
        out = held.end(90).out
        assert json.loads(out)["rule"] == "ask" and asks(stack.cay, one) == [], out
        assert answer(stack.cay, one, held.event["ask"], "yes") == 404
    assert "inside.example.com" not in stack.networks.asked()


def test_nothing_leaves_before_the_answer(stack, own):
    one = own(policy={"mode": "ask"})
    with Stream(stack.cay, f"?sandbox={one.id}") as stream:
        held = Held(stream, one, "-k https://inside.example.com/")  # allowed by name, its address is private
        assert "inside.example.com" not in stack.networks.asked()
        assert answer(stack.cay, one, held.event["ask"], "yes", "always") == 204
        out = held.end().out
        assert "inside.example.com" in stack.networks.asked()  # the control: the yes asks DNS
        assert "egress_denied" in out and "private" in out, out  # a yes to a name opens no private address


def test_a_ceiling_is_not_asked_about(stack, own):
    one = own(policy={"mode": "ask"})
    ceiling = {"default": "public", "mode": "ask", "rules": [{"action": "deny", "domains": ["web.example.com"]}]}
    place = stack.place(one)
    with Stream(stack.cay, f"?sandbox={one.id}") as stream:
        for policy, over in ((ceiling, True), (None, False)):
            assert stack.put(one, {"mode": "ask"}, policy, place)[0] == 204
            if over:
                r = one.run(CURL + "http://web.example.com/")
                assert "egress_denied" in r.out and json.loads(r.out)["rule"] != "ask", r.out
            else:  # the control
                held = Held(stream, one, "http://web.example.com/")
                assert answer(stack.cay, one, held.event["ask"], "no") == 204
                held.end()


def test_another_tenants_question_is_not_there(stack, own, tenant):
    other = tenant("asks-other")
    one = own(policy=ASK)
    with Stream(stack.cay, f"?sandbox={one.id}") as stream:
        held = Held(stream, one, "http://web.example.com/b")
        assert answer(other, one, held.event["ask"], "yes") == 404
        assert other.call("GET", f"/cay/v1/sandboxes/{one.id}/asks").status == 404
        mine = own(policy=ASK)
        assert answer(stack.cay, mine, held.event["ask"], "yes") == 404  # nor by another sandbox
        assert answer(stack.cay, one, "../../x", "yes") == 404 and answer(stack.cay, one, "0" * 16, "yes") == 404
        assert stack.cay.call("POST", f"/cay/v1/sandboxes/{one.id}/asks/{held.event['ask']}", {"answer": "perhaps"}).status == 400
        assert held.thread.is_alive()
        assert stack.cay.call("PUT", f"/cay/v1/sandboxes/{one.id}/policy", {}).status == 204  # asks no more
        assert "egress_denied" in held.end().out


def test_they_are_bounded_and_alike_are_one(stack, own):
    one = own(policy=ASK)
    with Stream(stack.cay, f"?sandbox={one.id}&type=ask") as stream:
        held = Held(stream, one, "http://web.example.com/x " + " ".join(["& " + CURL + "http://web.example.com/x"] * EACH_MAX) + "; wait")
        until(lambda: "too many" in "".join(d["reason"] for d in stack.cay.call("GET", f"/cay/v1/sandboxes/{one.id}/denials").json["denials"]))
        assert len(asks(stack.cay, one)) == 1
        assert answer(stack.cay, one, held.event["ask"], "yes") == 204
        assert held.end().out.count('"/x"') == EACH_MAX


def test_the_command(stack, own):
    one = own(policy=ASK)

    def cay(*arguments):
        return subprocess.run([BUILD / "src/cli/cay", "policy", "ask", *arguments], capture_output=True, text=True, timeout=60,
                              env={**os.environ, "CAY_URL": stack.server.url, "E2B_API_KEY": stack.server.key()})

    with Stream(stack.cay, f"?sandbox={one.id}") as stream:
        held = Held(stream, one, "http://web.example.com/b")
        ask = held.event["ask"]
        assert cay(one.id).stdout.startswith(f"{ask} web.example.com:80 until ")
        assert cay(one.id, ask).returncode != 0 and cay(one.id, "--yes").returncode != 0 and held.thread.is_alive()
        done = cay(one.id, ask, "--yes", "--always")
        assert done.returncode == 0, done.stderr
        assert '"/b"' in held.end().out
        assert cay(one.id).stdout == ""


def test_the_address_that_was_asked_about(stack, own):
    one = own(policy=ASK)
    with Stream(stack.cay, f"?sandbox={one.id}") as stream:
        held = Held(stream, one, f"http://{internet.WEB}/b")
        assert held.event["name"] == internet.WEB
        assert answer(stack.cay, one, held.event["ask"], "yes") == 204
        assert '"/b"' in held.end().out


def test_a_client_that_ends_meanwhile_is_recorded(stack, own):
    """The question has its record, also where its program has not waited for the answer."""
    one = own(policy=ASK)
    with Stream(stack.cay, f"?sandbox={one.id}") as stream:
        held = Held(stream, one, "http://web.example.com/b & echo $! > /tmp/client; wait")
        one.run("kill $(cat /tmp/client)")
        held.end()
        (record,) = until(lambda: [r for r in stack.cay.call("GET", f"/cay/v1/audit?sandbox={one.id}").json if r.get("rule") == "ask"])
        assert (record["verdict"], record["name"], record["port"]) == ("deny", "web.example.com", 80), record
        assert "has ended before" in record["reason"] and asks(stack.cay, one) == []


def test_a_yes_puts_no_key(stack, own):
    """`inject` names the host, which only its owner's yes opens: no placeholder is replaced there. The control: a rule opens it."""
    made = stack.cay.call("POST", "/cay/v1/secrets", {"name": "ASKED", "value": "sk-asked-0123456789", "bind": {
        "kind": "placeholder", "domains": ["web.example.com"], "insecure": True}})
    assert made.status == 201, made.body
    policy = {"mode": "ask", "rules": [{"action": "deny", "domains": ["web.example.com"], "paths": ["/admin*"]}],
              "inject": [{"credential": "ASKED", "domains": ["web.example.com"]}]}
    one, key = own(policy=policy), "-H 'X-Api-Key: cay-secret:ASKED' "
    with Stream(stack.cay, f"?sandbox={one.id}") as stream:
        for scheme in ("http", "https"):
            held = Held(stream, one, f"{scheme}://web.example.com/b")
            assert answer(stack.cay, one, held.event["ask"], "yes", "always") == 204
            assert '"/b"' in held.end().out
            assert "does not name it here" in one.run(f"{CURL}{key}{scheme}://web.example.com/b").out
    policy["rules"].append({"action": "allow", "domains": ["web.example.com"]})
    assert stack.cay.call("PUT", f"/cay/v1/sandboxes/{one.id}/policy", policy).status == 204
    for scheme in ("http", "https"):
        seen = json.loads(one.run(f"{CURL}{key}{scheme}://web.example.com/b").out)
        assert seen["digests"]["X-Api-Key"] == hashlib.sha256(b"sk-asked-0123456789").hexdigest()


def test_a_yes_opens_nothing_that_a_rule_denies(stack, own):
    """Rules of methods and paths need the connection to be read: also one that only its owner's yes lets through. The control:
    what they do not deny."""
    rules = [{"action": "deny", "name": "no admin", "domains": ["web.example.com"], "paths": ["/admin*"]},
             {"action": "deny", "name": "no writes", "domains": ["web.example.com"], "methods": ["PUT"]}]
    one = own(policy={"mode": "ask", "rules": rules})
    with Stream(stack.cay, f"?sandbox={one.id}") as stream:
        for scheme in ("https", "http"):
            held = Held(stream, one, f"{scheme}://web.example.com/admin/first")
            assert answer(stack.cay, one, held.event["ask"], "yes", "always") == 204
            assert "no admin" in held.end().out
            assert '"/x"' in one.run(f"{CURL}{scheme}://web.example.com/x").out
            assert "no admin" in one.run(f"{CURL}{scheme}://web.example.com/admin/x").out
            assert "no writes" in one.run(f"{CURL}-X PUT {scheme}://web.example.com/x").out
