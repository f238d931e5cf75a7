"""Idempotency-Key of a create: one sandbox for one key, whatever the network does to the answers."""

import concurrent.futures
import time
import uuid

import leftovers
import pytest
from waitlib import kill_all, until

BODY = {"templateID": "host", "timeout": 300}


def create(cay, key, body=None, path="/v2/sandboxes"):
    return cay.call("POST", path, body or BODY, {"Idempotency-Key": key})


def ids(cay):
    return [s["sandboxID"] for s in cay.call("GET", "/v2/sandboxes").json]


@pytest.fixture
def key():
    return str(uuid.uuid4())


@pytest.mark.parametrize("path", ["/sandboxes", "/v2/sandboxes", "/cay/v1/sandboxes"])
def test_the_same_key_gives_the_same_sandbox(cay, key, path):
    first = create(cay, key, path=path)
    assert first.status == 201, first.body
    before = ids(cay)
    again = create(cay, key, path=path)
    assert again.status == 201 and again.json["sandboxID"] == first.json["sandboxID"] and ids(cay) == before
    assert again.json.get("envdAccessToken") == first.json.get("envdAccessToken")
    cay.call("DELETE", f"/sandboxes/{first.json['sandboxID']}")
    ended = create(cay, key, path=path)
    assert ended.status == 409 and first.json["sandboxID"] in ended.json["message"]


def test_without_a_key_each_create_makes_one(cay):
    """The control: what the key prevents."""
    made = [cay.create() for _ in range(2)]
    assert made[0].id != made[1].id
    for box in made:
        box.kill()


def test_another_request_with_the_same_key_is_refused(cay, key):
    first = create(cay, key)
    other = create(cay, key, {**BODY, "timeout": 301})
    assert other.status == 409 and "another request" in other.json["message"]
    cay.call("DELETE", f"/sandboxes/{first.json['sandboxID']}")


def test_a_create_that_failed_has_not_used_its_key(cay, key):
    assert create(cay, key, {"templateID": "no-such-template"}).status == 404
    made = create(cay, key)
    assert made.status == 201, made.body
    cay.call("DELETE", f"/sandboxes/{made.json['sandboxID']}")


@pytest.mark.parametrize("bad", ["", "a b", "a" * 256, "a\x01b", "ü"])
def test_bad_keys(cay, bad):
    before = ids(cay)
    reply = create(cay, bad)
    assert reply.status == 400 and ids(cay) == before


def test_many_at_once_make_one(cay, key):
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        replies = list(pool.map(lambda _: create(cay, key), range(12)))
    assert {r.status for r in replies} <= {201, 503}, [r.body for r in replies]
    made = {r.json["sandboxID"] for r in replies if r.status == 201}
    assert len(made) == 1
    for r in replies:
        if r.status == 503:
            assert r.headers["Retry-After"] == "1" and r.headers["Should-Retry"] == "true"
    for _ in range(50):
        last = create(cay, key)
        if last.status == 201:
            break
        time.sleep(0.1)
    assert last.json["sandboxID"] in made
    cay.call("DELETE", f"/sandboxes/{last.json['sandboxID']}")


def test_a_key_is_its_tenants_own(cay, key):
    other = cay.call("POST", "/cay/v1/keys", {"tenant": "create-key", "label": "test"})
    assert other.status == 201, other.body
    mine, theirs = create(cay, key), cay.call("POST", "/v2/sandboxes", BODY, {"Idempotency-Key": key},
                                              key=other.json["key"])
    assert mine.status == theirs.status == 201 and mine.json["sandboxID"] != theirs.json["sandboxID"]
    for reply, owner in ((mine, True), (theirs, other.json["key"])):
        cay.call("DELETE", f"/sandboxes/{reply.json['sandboxID']}", key=owner)


def test_a_key_survives_a_restart(cay, own_server, key):
    if not own_server:
        pytest.skip("daemons are killed only in a server of the tests' own")
    first = create(cay, key)
    assert first.status == 201
    kill_all(lambda: leftovers.children(own_server.keep_pid, "cayd"))
    until(lambda: cay.call("GET", "/cay/v1/status").json.get("ready") is True, what="the server is ready again",
          patient=True)
    assert create(cay, key).json["sandboxID"] == first.json["sandboxID"]
    cay.call("DELETE", f"/sandboxes/{first.json['sandboxID']}")
