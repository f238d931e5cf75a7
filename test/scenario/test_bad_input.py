"""Bad input, each with a clear error: status, a code in the body, and a text that says what and why."""

import json

import pytest


def error_of(reply, status):
    assert reply.status == status, (reply.status, reply.body)
    body = reply.json
    assert body["code"] == status or isinstance(body["code"], str)
    assert body["message"]
    return body["message"]


@pytest.mark.parametrize("body, status, says", [
    ({"templateID": "no-such-template"}, 404, "no-such-template"),
    ({}, 400, "templateID"),
    ({"templateID": 7}, 400, "templateID"),
    ({"templateID": "host", "timeout": "long"}, 400, "timeout"),
    ({"templateID": "host", "timeout": 0}, 400, "timeout"),
    ({"templateID": "host", "timeout": -5}, 400, "timeout"),
    ({"templateID": "host", "timeout": 10**9}, 400, "timeout"),
    ({"templateID": "host", "metadata": ["a"]}, 400, "metadata"),
    ({"templateID": "host", "metadata": {"a": 1}}, 400, "metadata"),
    ({"templateID": "host", "envVars": {"A": None}}, 400, "envVars"),
    ({"templateID": "../../etc"}, 404, ""),
])
def test_create(cay, body, status, says):
    assert says in error_of(cay.call("POST", "/v2/sandboxes", body), status)


@pytest.mark.parametrize("raw", [b"{", b"[]", b'{"templateID": "host"} x', b"\xff\xfe", b'{"a": 1, "a": 2}',
                                 b"[" * 100000])
def test_bad_json(cay, raw):
    error_of(cay.call("POST", "/v2/sandboxes", raw, {"Content-Type": "application/json"}), 400)


def test_body_too_large(cay):
    error_of(cay.call("POST", "/v2/sandboxes", b'{"a": "' + b"x" * (2 << 20) + b'"}'), 413)


@pytest.mark.parametrize("key", [False, "", "e2b_0000", "nonsense", "e2b_" + "0" * 40])
def test_key(cay, key):
    error_of(cay.call("GET", "/v2/sandboxes", key=key), 401)
    error_of(cay.call("POST", "/v2/sandboxes", {"templateID": "host"}, key=key), 401)


@pytest.mark.parametrize("method, path", [
    ("GET", "/sandboxes/{}"), ("DELETE", "/sandboxes/{}"), ("POST", "/sandboxes/{}/timeout"),
    ("POST", "/v2/sandboxes/{}/connect"), ("GET", "/sandboxes/{}/metrics"), ("GET", "/v2/sandboxes/{}/logs"),
])
@pytest.mark.parametrize("name", ["i00000000000000000000", "..%2f..%2fetc", "x" * 300])
def test_unknown_sandbox(cay, method, path, name):
    body = {"timeout": 10} if method == "POST" else None
    reply = cay.call(method, path.format(name), body)
    assert reply.status in (400, 404), reply.body
    assert reply.json["code"] == reply.status


def test_ids_of_others(cay, other_tenant):
    """Another tenant's sandbox is answered like one that does not exist, to the byte."""
    with cay.create() as box:
        for method, path, body in (("GET", "/sandboxes/{}", None), ("DELETE", "/sandboxes/{}", None),
                                   ("POST", "/sandboxes/{}/timeout", {"timeout": 9})):
            theirs = other_tenant.call(method, path.format(box.id), body)
            unknown = other_tenant.call(method, path.format("i00000000000000000000"), body)
            assert theirs.status == unknown.status == 404
            assert theirs.body.replace(box.id.encode(), b"ID") == \
                unknown.body.replace(b"i00000000000000000000", b"ID")
        assert box.id not in json.dumps(other_tenant.call("GET", "/v2/sandboxes").json)
        assert cay.call("GET", f"/sandboxes/{box.id}").status == 200


def test_unknown_path_and_method(cay):
    error_of(cay.call("GET", "/no/such/path"), 404)
    reply = cay.call("PATCH", "/v2/sandboxes")
    error_of(reply, 405)
    assert "GET" in reply.headers["Allow"]


def test_wrong_token(sandbox):
    assert sandbox.request("POST", "/process.Process/List", {}, token="wrong").status == 401
    assert sandbox.request("POST", "/process.Process/List", {}, token=False).status == 401
    assert sandbox.request("POST", "/process.Process/List", {}).status == 200


def test_agent_internals_are_not_reachable(sandbox):
    assert sandbox.request("POST", "/init", {}).status == 404
    assert sandbox.request("GET", "/cay/logs").status == 404


def test_program_that_does_not_exist(sandbox):
    result = sandbox.run("no-such-program", args=[])
    assert result.pid is None
    assert "no-such-program" in result.error["message"]


def test_cwd_that_does_not_exist(sandbox):
    result = sandbox.run("true", cwd="/no/such/dir")
    assert result.error["code"] == "invalid_argument" and "/no/such/dir" in result.error["message"]


def test_user_that_does_not_exist(sandbox):
    result = sandbox.run("true", user="nobody-like-that")
    assert result.error["code"] == "unauthenticated"
    assert sandbox.read("/etc/passwd", user="nobody-like-that").status == 401


def test_directory_where_a_file_should_be(sandbox):
    assert "directory" in error_of(sandbox.read("/tmp"), 400)
    assert "directory" in error_of(sandbox.write("/tmp", b"x"), 400)
    reply = sandbox.rpc("filesystem.Filesystem/ListDir", {"path": "/etc/passwd"})
    assert reply.status == 400 and reply.json["code"] == "invalid_argument"


def test_missing_file(sandbox):
    error_of(sandbox.read("/tmp/no-such-file"), 404)
    reply = sandbox.rpc("filesystem.Filesystem/Stat", {"path": "/tmp/no-such-file"})
    assert reply.status == 404 and reply.json["code"] == "not_found"


def test_closed_port(sandbox):
    reply = sandbox.request("GET", "/", port=5999)
    assert reply.status == 502
    assert reply.json["port"] == 5999 and reply.json["sandboxId"] == sandbox.id


def test_half_a_route(cay, sandbox):
    for header in ("E2b-Sandbox-Id", "E2b-Sandbox-Port"):
        value = sandbox.id if header.endswith("Id") else "49983"
        error_of(cay.call("GET", "/health", headers={header: value}, key=False), 400)


def test_killed_sandbox_is_gone(cay):
    box = cay.create()
    assert box.kill().status == 204
    assert box.kill().status == 404
    assert box.request("GET", "/health").status == 502
    error_of(cay.call("POST", f"/v2/sandboxes/{box.id}/connect", {"timeout": 5}), 404)
