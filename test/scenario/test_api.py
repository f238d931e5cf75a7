"""E2B's control plane beyond what other files show: shapes, defaults, lists, texts of what is missing."""

import datetime
import json
import time

import pytest

from waitlib import until

LISTED = {"templateID", "sandboxID", "clientID", "startedAt", "endAt", "cpuCount", "memoryMB", "diskSizeMB",
          "state", "envdVersion", "metadata", "volumeMounts"}


def when(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def test_health_needs_no_key(cay):
    assert cay.call("GET", "/health", key=False).json == {"status": "ok"}


def test_bearer_is_a_key_too(cay):
    reply = cay.call("GET", "/cay/v1/status", key=False, headers={"Authorization": f"Bearer {cay.key}"})
    assert reply.status == 200 and reply.json["ready"] is True


def test_v1_defaults(cay):
    """15 seconds, and no token unless asked for."""
    reply = cay.call("POST", "/sandboxes", {"templateID": "host"})
    assert reply.status == 201 and "envdAccessToken" not in reply.json
    path = "/sandboxes/" + reply.json["sandboxID"]
    assert abs(when(cay.call("GET", path).json["endAt"]) - time.time() - 15) < 5
    assert cay.call("DELETE", path).status == 204
    reply = cay.call("POST", "/sandboxes", {"templateID": "host", "secure": True, "timeout": 60})
    assert len(reply.json["envdAccessToken"]) >= 32
    assert cay.call("DELETE", "/sandboxes/" + reply.json["sandboxID"]).status == 204


def test_shapes(cay):
    with cay.create(metadata={"k": "v"}, envVars={"A": "secret-value"}) as box:
        made = box.made
        assert {"templateID", "sandboxID", "clientID", "envdVersion", "envdAccessToken", "trafficAccessToken",
                "domain"} <= set(made)
        assert made["trafficAccessToken"] is None
        detail = cay.call("GET", f"/sandboxes/{box.id}").json
        assert LISTED | {"allowInternetAccess", "lifecycle", "envdAccessToken", "domain"} <= set(detail)
        assert detail["envdAccessToken"] == made["envdAccessToken"]
        assert detail["metadata"] == {"k": "v"} and detail["state"] == "running"
        assert detail["lifecycle"] == {"autoResume": False, "onTimeout": "kill"}
        assert detail["allowInternetAccess"] is None
        assert "envVars" not in detail and "secret-value" not in str(detail)
        listed = [s for s in cay.call("GET", "/v2/sandboxes").json if s["sandboxID"] == box.id]
        assert LISTED == set(listed[0]) and "envdAccessToken" not in listed[0]
        assert [s for s in cay.call("GET", "/sandboxes").json if s["sandboxID"] == box.id] == listed


def test_environment_reaches_every_command(cay):
    with cay.create(envVars={"GREETING": "hi there"}) as box:
        assert box.run("echo $GREETING $E2B_SANDBOX $E2B_SANDBOX_ID").out == f"hi there true {box.id}\n"


def test_order_and_started_after(cay):
    boxes = []
    for _ in range(3):
        boxes.append(cay.create(metadata={"group": "order"}))
        time.sleep(0.02)
    try:
        ids = [box.id for box in boxes]

        def listed(extra):
            reply = cay.call("GET", "/v2/sandboxes?metadata=group%3Dorder" + extra)
            assert reply.status == 200, reply.body
            return [s["sandboxID"] for s in reply.json]

        assert listed("") == ids[::-1] == listed("&order=desc")
        assert listed("&order=asc") == ids
        second = cay.call("GET", f"/sandboxes/{ids[1]}").json["startedAt"]
        assert listed("&order=asc&startedAfter=" + second) == ids[1:]
        assert listed("&state=paused") == []
        assert listed("&state=running,paused") == ids[::-1]
        assert listed("&template=host") == ids[::-1]
        assert listed("&template=unknown") == []
        assert int(cay.call("GET", "/v2/sandboxes").headers["X-Total-Running"]) >= 3
    finally:
        for box in boxes:
            box.kill()


@pytest.mark.parametrize("query", ["state=asleep", "order=up", "limit=0", "limit=101", "limit=x", "nextToken=abc",
                                   "startedAfter=yesterday", "metadata=%25zz", "metadata=%zz"])
def test_bad_queries(cay, query):
    reply = cay.call("GET", "/v2/sandboxes?" + query)
    assert reply.status == 400 and reply.json["code"] == 400 and reply.json["message"]


def test_metadata_is_encoded_three_times(cay):
    """As the SDKs send {"a b": "c&d"}."""
    with cay.create(metadata={"a b": "c&d"}) as box, cay.create(metadata={"a b": "c"}):
        found = cay.call("GET", "/v2/sandboxes?metadata=a%252520b%3Dc%252526d").json
        assert [s["sandboxID"] for s in found] == [box.id]


def test_timeouts(cay):
    with cay.create(timeout_s=30) as box:
        path = f"/sandboxes/{box.id}"
        assert cay.call("POST", path + "/refreshes", {"duration": 200}).status == 204
        assert abs(when(cay.call("GET", path).json["endAt"]) - time.time() - 200) < 5
        assert cay.call("POST", path + "/refreshes", {}).status == 204
        assert abs(when(cay.call("GET", path).json["endAt"]) - time.time() - 200) < 5
        assert cay.call("POST", path + "/timeout", {}).status == 400
        assert cay.call("POST", path + "/resume", {"timeout": 5}).status == 409
        assert cay.call("POST", path + "/timeout", {"timeout": 0}).status == 204
        until(lambda: cay.call("GET", path).status == 404, 10)


def test_metrics_list_and_window(cay):
    with cay.create() as box:
        path = f"/sandboxes/metrics?sandbox_ids={box.id},i{'0' * 20}"
        assert cay.call("GET", path).status == 200
        metric = until(lambda: cay.call("GET", path).json["sandboxes"].get(box.id))
        assert metric["memTotal"] > 0
        assert cay.call("GET", f"/sandboxes/{box.id}/metrics?start=1000&end=2000").json == []
        assert cay.call("GET", f"/sandboxes/{box.id}/metrics?start=3000&end=2000").status == 400
        assert cay.call("GET", "/sandboxes/metrics").status == 400


def test_logs_forms(cay):
    with cay.create() as box:
        v1 = cay.call("GET", f"/sandboxes/{box.id}/logs").json
        assert v1["logs"] and set(v1["logs"][0]) == {"timestamp", "line"}
        line = json.loads(v1["logs"][0]["line"])  # @e2b/cli parses it and fails without these three
        assert {"level", "logger", "message"} <= set(line) and line["message"] == v1["logEntries"][0]["message"]
        assert set(v1["logEntries"][0]) == {"timestamp", "level", "message", "fields"}
        v2 = f"/v2/sandboxes/{box.id}/logs"
        everything = cay.call("GET", v2).json["logs"]
        back = cay.call("GET", v2 + "?direction=backward").json["logs"]
        assert [e["message"] for e in back[::-1]][:len(everything)] == [e["message"] for e in everything]
        assert len(cay.call("GET", v2 + "?limit=1").json["logs"]) == 1
        assert cay.call("GET", v2 + "?search=no-such-text").json["logs"] == []
        assert cay.call("GET", v2 + "?level=loud").status == 400


def test_network_is_checked_and_kept(cay):
    bad = cay.call("POST", "/v2/sandboxes", {"templateID": "host", "network": {"denyOut": ["example.com"]}})
    assert bad.status == 400 and "example.com" in bad.json["message"]
    with cay.create(network={"denyOut": ["1.1.1.1"]}, allow_internet_access=False) as box:
        path = f"/sandboxes/{box.id}"
        detail = cay.call("GET", path).json
        assert detail["network"] == {"denyOut": ["1.1.1.1"]} and detail["allowInternetAccess"] is False
        assert cay.call("PUT", path + "/network", {"allowOut": ["8.8.8.8"]}).status == 204
        detail = cay.call("GET", path).json
        assert detail["network"] == {"allowOut": ["8.8.8.8"]} and detail["allowInternetAccess"] is None
        assert cay.call("PUT", path + "/network", {"denyOut": [7]}).status == 400


@pytest.mark.parametrize("fields, says", [
    ({"autoPauseMemory": False}, "autoPause"),
    ({"autoPause": True, "autoPauseMemory": False, "autoResume": {"enabled": True}}, "autoResume"),
    ({"volumeMounts": [{"name": "v", "path": "v"}]}, "no path"), ({"volumeMounts": [{"name": "v"}]}, "path"),
    ({"volumeMounts": [{"name": "v", "path": "/v"}] * 5}, "a sandbox can have 4"),
    ({"iam": {"tokens": {"t": {}}}}, "identity"), ({"network": {"egressProxy": {"address": "p:1"}}}, "egressProxy"),
])
def test_what_is_not_there_is_refused(cay, fields, says):
    reply = cay.call("POST", "/v2/sandboxes", {"templateID": "host", **fields})
    assert reply.status == 400 and says in reply.json["message"]


def test_a_query_has_a_limit(cay):
    assert cay.call("GET", "/v2/sandboxes?x=" + "a" * 16000).status == 200
    long = cay.call("GET", "/v2/sandboxes?x=" + "a" * 17000)
    assert long.status == 400 and "16384" in long.json["message"]


@pytest.mark.parametrize("level", ["gvisor", "vm"])
def test_a_level_that_is_not_there_says_why(cay, level):
    reply = cay.call("POST", "/cay/v1/sandboxes", {"templateID": "host", "level": level})
    assert reply.status == 501, reply.json
    assert f"this build has no driver for the isolation level {level}" in reply.json["message"]
    assert not any(box["state"] == "creating" for box in cay.call("GET", "/v2/sandboxes").json)


def test_a_level_is_one_of_three_names(cay):
    for level in ("", "Process", "docker", 0, ["process"]):
        reply = cay.call("POST", "/cay/v1/sandboxes", {"templateID": "host", "level": level})
        assert reply.status == 400, (level, reply.json)
    reply = cay.call("POST", "/cay/v1/sandboxes", {"templateID": "host", "level": "process"})
    assert reply.status == 201
    path = "/cay/v1/sandboxes/" + reply.json["sandboxID"]
    assert cay.call("GET", path).json["level"] == "process"
    assert cay.call("DELETE", "/sandboxes/" + reply.json["sandboxID"]).status == 204


@pytest.mark.parametrize("template, says", [
    ("code-interpreter-v1", "cay template build code-interpreter"), ("mcp-gateway", "MCP"), ("desktop", "base"), ("python:3.12", "images"),
    ("docker.io/library/python", "images"), ("nothing-of-the-kind", "cay template ls")])
def test_a_template_that_is_not_there_says_what_to_do(cay, template, says):
    reply = cay.call("POST", "/v2/sandboxes", {"templateID": template})
    assert reply.status == 404 and template in reply.json["message"] and says in reply.json["message"]


@pytest.mark.parametrize("method, path", [
    
    ("POST", "/templates"), ("GET", "/api-keys")])
def test_missing_calls_say_so(cay, sandbox, method, path):
    reply = cay.call(method, path.format(sandbox.id), {} if method == "POST" else None)
    assert reply.status == 501 and reply.json["code"] == 501 and "not supported yet" in reply.json["message"]


def test_templates(cay):
    ids = [t["templateID"] for t in cay.call("GET", "/v2/templates").json]
    assert "host" in ids
    assert cay.call("GET", "/templates/aliases/host").json == {"templateID": "host", "public": True}
    assert cay.call("GET", "/templates/aliases/nothing").status == 404
    assert cay.call("DELETE", "/templates/nothing").status == 404
    assert cay.call("DELETE", "/templates/host").status == 403


@pytest.mark.parametrize("name,values", [
    ("X-API-Key", ("own", "own")), ("X-API-Key", ("own", "e2b_" + "0" * 40)), ("Authorization", ("Bearer own", "Bearer x")),
    ("Idempotency-Key", ("a", "b")), ("E2b-Sandbox-Id", ("i1", "i2")), ("X-Access-Token", ("a", "a"))])
def test_who_asks_is_said_once(cay, name, values):
    """The proxy in front may have gone by the other one."""
    def status_with(values):
        connection = cay.connect()
        connection.putrequest("GET", "/cay/v1/status")
        for value in values:
            connection.putheader(name, value.replace("own", cay.key))
        connection.endheaders()
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, text
    status, text = status_with(values)
    assert status == 400 and f"more than one header {name}" in text
    assert f"more than one header {name}" not in status_with(values[:1])[1]


def test_keys(cay, other_tenant):
    assert cay.call("POST", "/cay/v1/keys", {"tenant": "Not A Name"}).status == 400
    assert other_tenant.call("POST", "/cay/v1/keys", {"tenant": "default"}).status == 403
    made = other_tenant.call("POST", "/cay/v1/keys", {"label": "second"})
    assert made.status == 201 and made.json["tenant"] == "others"
    mine = cay.call("GET", "/cay/v1/status", key=made.json["key"]).json
    assert mine["operator"] is False
    with cay.create(), other_tenant.create() as box:  # how many others have is for the operator alone
        theirs, all_of_them = other_tenant.call("GET", "/cay/v1/status").json, cay.call("GET", "/cay/v1/status").json
        assert theirs["sandboxes"] == mine["sandboxes"] + 1 < all_of_them["sandboxes"]
        assert other_tenant.call("GET", f"/sandboxes/{box.id}").status == 200
    assert other_tenant.call("POST", "/cay/v1/templates/host/build", {}).status == 403


def test_keys_are_listed_and_revoked(cay, other_tenant):
    made = other_tenant.call("POST", "/cay/v1/keys", {"label": "leaked"}).json
    listed = other_tenant.call("GET", "/cay/v1/keys").json
    assert {k["tenant"] for k in listed} == {"others"}
    assert [k["label"] for k in listed if k["id"] == made["id"]] == ["leaked"]
    current = next(k["id"] for k in listed if k["current"])
    assert not any(made["key"] in str(k) for k in listed)
    assert {"default", "others"} <= {k["tenant"] for k in cay.call("GET", "/cay/v1/keys").json}
    assert {k["tenant"] for k in cay.call("GET", "/cay/v1/keys?tenant=others").json} == {"others"}
    hidden = [other_tenant.call("GET", f"/cay/v1/keys?tenant={name}") for name in ("default", "nobody")]
    assert [r.status for r in hidden] == [404, 404]
    assert hidden[0].json["message"].replace("default", "nobody") == hidden[1].json["message"]

    operators = cay.call("GET", "/cay/v1/keys?tenant=default").json[0]["id"]
    assert other_tenant.call("DELETE", f"/cay/v1/keys/{operators}").status == 404
    assert other_tenant.call("DELETE", f"/cay/v1/keys/{current}").status == 409
    assert other_tenant.call("DELETE", "/cay/v1/keys/nonsense").status == 400
    assert cay.call("GET", "/v2/sandboxes", key=made["key"]).status == 200
    assert other_tenant.call("DELETE", f"/cay/v1/keys/{made['id']}").status == 204
    assert cay.call("GET", "/v2/sandboxes", key=made["key"]).status == 401
    assert other_tenant.call("DELETE", f"/cay/v1/keys/{made['id']}").status == 404
