"""The Model Context Protocol on the wire: the answers to each caller, and to messages that are none."""

import base64
import json

import pytest

from client import Client
from mcplib import PREFIX, SESSION, STATELESS, Mcp

HANDSHAKES = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def mcp(cay):
    with Mcp(cay) as session:
        yield session


@pytest.fixture(scope="module")
def stateless(cay):
    return Mcp(cay, STATELESS)


def rpc(id=1, method="tools/list", **more):
    return {"jsonrpc": "2.0", "id": id, "method": method, **more}


# -- keys, origins, routes ---------------------------------------------------------------------------


def test_without_a_key(cay):
    reply = cay.call("POST", "/mcp", rpc(), key=False)
    assert reply.status == 401
    where = f"{cay.url}/.well-known/oauth-protected-resource"
    assert reply.headers["WWW-Authenticate"] == f'Bearer resource_metadata="{where}"'
    told = cay.call("GET", "/.well-known/oauth-protected-resource", key=False)
    assert told.status == 200 and told.json["resource"] == f"{cay.url}/mcp"
    assert told.json == cay.call("GET", "/.well-known/oauth-protected-resource/mcp", key=False).json


def test_with_a_key_that_is_not_known(cay):
    for headers in ({"Authorization": "Bearer e2b_" + "0" * 40}, {"X-API-Key": "e2b_" + "0" * 40}):
        reply = cay.call("POST", "/mcp", rpc(), headers, key=False)
        assert reply.status == 401 and 'error="invalid_token"' in reply.headers["WWW-Authenticate"]


def test_a_key_as_a_bearer_token(cay):
    message = rpc(method="initialize", params={"protocolVersion": SESSION, "capabilities": {}, "clientInfo": {}})
    reply = cay.call("POST", "/mcp", message, {"Authorization": f"Bearer {cay.key}"}, key=False)
    assert reply.status == 200 and reply.headers["Mcp-Session-Id"]


def test_a_key_that_only_reads(cay):
    """It opens no sandbox, so that no tool is for it."""
    made = cay.call("POST", "/cay/v1/keys", {"tenant": "others", "role": "read-only"})
    assert made.status == 201, made.body
    reader = Client(cay.url, made.json["key"])
    for revision in (SESSION, STATELESS):
        answer = Mcp(reader, revision, open_now=False).request("tools/list")
        assert answer.status == 403 and "result" not in answer.last
    assert reader.call("DELETE", "/mcp", headers={"Mcp-Session-Id": "a" * 32}).status == 403


def test_a_host_that_would_end_the_quotes(cay):
    connection = cay.connect()
    connection.putrequest("POST", "/mcp", skip_host=True)
    for name, value in {"Host": f'a"b:{cay.port}', "Content-Length": "2", **JSON}.items():
        connection.putheader(name, value)
    connection.endheaders(b"{}")
    answer = connection.getresponse()
    assert answer.status in (400, 401) and '"b' not in answer.headers.get("WWW-Authenticate", "")
    connection.close()


@pytest.mark.parametrize("origin", ["http://evil.example", "https://localhost.evil.example", "null", "http://localhost@evil",
                                    "http://127.0.0.1.evil.example:3000", "vscode-webview://x", "localhost"])
def test_pages_of_others_are_refused(mcp, origin):
    answer = mcp.send(rpc(), {**mcp.headers(), "Origin": origin})
    assert answer.status == 403 and "result" not in answer.last


def test_pages_of_others_are_refused_before_the_key(cay):
    assert cay.call("POST", "/mcp", rpc(), {"Origin": "http://evil.example"}, key=False).status == 403


@pytest.mark.parametrize("origin", ["http://localhost:6274", "http://127.0.0.1", "https://[::1]:8443", "HTTP://LOCALHOST"])
def test_pages_of_this_machine_may(mcp, origin):
    assert mcp.send(rpc(), {**mcp.headers(), "Origin": origin}).status == 200


def test_there_is_no_stream_to_listen_to(cay, mcp):
    reply = cay.call("GET", "/mcp", headers={"Accept": "text/event-stream", "Mcp-Session-Id": mcp.session})
    assert reply.status == 405 and reply.headers["Allow"] == "POST, DELETE"


def test_other_methods_and_paths(cay):
    assert cay.call("PUT", "/mcp", {}).status == 405
    assert cay.call("POST", "/mcp/other", {}).status == 404


def test_an_error_that_answers_no_request_has_an_id_that_is_null(cay, mcp):
    """Clients show the reason of an error that is a JSON-RPC error as a whole, and of no other."""
    evil = {"Origin": "http://evil.example"}
    replies = {401: cay.call("POST", "/mcp", rpc(), key=False), 403: cay.call("POST", "/mcp", rpc(), evil, key=False),
               405: cay.call("GET", "/mcp"), 404: cay.call("POST", "/mcp/other", {}),
               415: cay.call("POST", "/mcp", rpc(), {"Content-Type": "text/plain"}),
               400: cay.call("POST", "/mcp", b"{", JSON)}
    for status, reply in replies.items():
        assert reply.status == status
        assert reply.json["jsonrpc"] == "2.0" and reply.json["error"]["message"] and "id" in reply.json
        assert reply.json["id"] is None
    assert mcp.request("nothing").last["id"] is not None


# -- messages that are none --------------------------------------------------------------------------


@pytest.mark.parametrize("type", ["text/plain", "application/jsonp", "multipart/form-data", ""])
def test_what_a_page_could_send_without_being_asked(mcp, type):
    assert mcp.send(rpc(), {**mcp.headers(), "Content-Type": type}).status == 415


BAD = {
    "no JSON": (b"{", -32700),
    "nothing": (b"", -32700),
    "too deep": (b"[" * 1000 + b"]" * 1000, -32700),
    "a member twice": (b'{"jsonrpc":"2.0","jsonrpc":"2.0","id":1,"method":"ping"}', -32700),
    "no UTF-8": (b'{"jsonrpc":"2.0","id":"\xff","method":"ping"}', -32700),
    "a batch": ([rpc()], -32600),
    "an empty batch": ([], -32600),
    "a text": ("ping", -32600),
    "another version": ({"jsonrpc": "1.0", "id": 1, "method": "ping"}, -32600),
    "no version": ({"id": 1, "method": "ping"}, -32600),
    "an id that is null": (rpc(id=None), -32600),
    "an id that is a fraction": (rpc(id=1.5), -32600),
    "an id that is long": (rpc(id="x" * 300), -32600),
    "a method that is a number": (rpc(method=7), -32600),
    "a method that is long": (rpc(method="x" * 200), -32600),
    "a method with a NUL": (rpc(method="ping\0"), -32700),
    "parameters in a list": (rpc(params=[1]), -32600),
    "neither of all": ({"jsonrpc": "2.0", "id": 1}, -32600),
    "both result and error": ({"jsonrpc": "2.0", "id": 1, "result": {}, "error": {}}, -32600),
}


@pytest.mark.parametrize("case", BAD)
def test_no_message(mcp, case):
    message, code = BAD[case]
    answer = mcp.send(message)
    assert (answer.status, answer.error["code"]) == (400, code) and answer.error["message"]


def test_a_message_that_is_too_long(mcp):
    assert mcp.send(rpc(params={"x": "y" * (1 << 20)})).status == 413


def test_notifications_and_responses_are_taken(mcp):
    assert mcp.notify("notifications/cancelled", {"requestId": 12345}).status == 202
    assert mcp.notify("notifications/nothing").status == 202
    assert mcp.send({"jsonrpc": "2.0", "id": 1, "result": {}}).status == 202


@pytest.mark.parametrize("version", [5, None, True, {}, []])
@pytest.mark.parametrize("header", [{}, {"MCP-Protocol-Version": STATELESS}, {"MCP-Protocol-Version": "x"}])
def test_a_notification_whose_version_is_no_text(cay, mcp, version, header):
    """It is refused, and cayd goes on: the session, which is in its memory alone, is still there."""
    message = {"jsonrpc": "2.0", "method": "notifications/x", "params": {"_meta": {PREFIX + "protocolVersion": version}}}
    answer = Mcp(cay, open_now=False).send(message, {**JSON, **header})
    assert (answer.status, answer.error["code"]) == (400, -32602)
    assert mcp.request("tools/list").status == 200


# -- sessions ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", HANDSHAKES)
def test_the_revision_that_was_asked_for(cay, revision):
    with Mcp(cay, revision) as session:
        assert session.opened["protocolVersion"] == revision
        assert session.opened["serverInfo"]["name"] == "cay" and session.opened["capabilities"] == {"tools": {}, "resources": {}}
        assert "resultType" not in session.request("tools/list").result
        assert session.request("ping").result == {}


@pytest.mark.parametrize("asked", ["1900-01-01", STATELESS, "x" * 5000])
def test_another_revision_is_answered_with_the_newest(cay, asked):
    answer = Mcp(cay, open_now=False).request("initialize", {"protocolVersion": asked, "capabilities": {}, "clientInfo": {}})
    assert answer.result["protocolVersion"] == "2025-11-25"


@pytest.mark.parametrize("params", [{}, {"protocolVersion": SESSION}, {"protocolVersion": 7, "capabilities": {}, "clientInfo": {}},
                                    {"protocolVersion": SESSION, "capabilities": [], "clientInfo": {}}])
def test_initialize_without_what_it_needs(cay, params):
    answer = Mcp(cay, open_now=False).request("initialize", params)
    assert answer.error["code"] == -32602 and "Mcp-Session-Id" not in answer.headers


def test_without_a_session(cay):
    answer = Mcp(cay, open_now=False).request("tools/list")
    assert answer.status == 400 and "Mcp-Session-Id" in answer.error["message"]


@pytest.mark.parametrize("id", ["x", "a" * 32, "a" * 4000])
def test_a_session_that_is_none(cay, mcp, id):
    assert mcp.send(rpc(), {**mcp.headers(), "Mcp-Session-Id": id}).status == 404


def test_another_tenant_sees_no_session(mcp, other_tenant):
    """A control beside it: with the tenant's own key it is there."""
    theirs = Mcp(other_tenant, open_now=False)
    theirs.session = mcp.session
    assert theirs.request("tools/list").status == 404
    assert other_tenant.call("DELETE", "/mcp", headers={"Mcp-Session-Id": mcp.session}).status == 404
    assert mcp.request("tools/list").status == 200


def test_a_session_ends_by_delete(cay):
    session = Mcp(cay)
    box = session.tool("run", command="true")["sandbox"]
    assert cay.call("GET", f"/sandboxes/{box}").status == 200
    assert cay.call("DELETE", "/mcp", headers=session.headers()).status == 204
    assert session.request("tools/list").status == 404
    assert cay.call("GET", f"/sandboxes/{box}").status == 404
    assert cay.call("DELETE", "/mcp", headers=session.headers()).status == 404
    assert cay.call("DELETE", "/mcp").status == 400


def test_a_revision_that_is_not_known(mcp):
    answer = mcp.send(rpc(), {**mcp.headers(), "MCP-Protocol-Version": "1900-01-01"})
    assert (answer.status, answer.error["code"]) == (400, -32022)
    assert answer.error["data"] == {"supported": [STATELESS, *reversed(HANDSHAKES)], "requested": "1900-01-01"}


def test_methods_that_are_not_there(mcp, stateless):
    for method in ("prompts/list", "logging/setLevel", "server/discover", "x"):
        answer = mcp.request(method)
        assert (answer.status, answer.error["code"]) == (200, -32601)
    for method in ("prompts/list", "initialize2", "ping", "resources/subscribe"):
        answer = stateless.request(method)
        assert (answer.status, answer.error["code"]) == (404, -32601)


def test_parameters_that_are_wrong(mcp, stateless):
    for client in (mcp, stateless):
        assert client.request("tools/call", {"name": "nothing"}).error["code"] == -32602
        assert client.request("tools/list", {"cursor": "x"}).error["code"] == -32602
        assert client.request("resources/list", {"cursor": "x"}).error["code"] == -32602
        assert client.request("resources/read", {"uri": "file:///etc/passwd"}).error["code"] == -32602
    assert mcp.request("tools/call", {}).error["code"] == -32602


# -- without sessions --------------------------------------------------------------------------------


def test_discover(stateless):
    result = stateless.request("server/discover").result
    assert result["supportedVersions"] == [STATELESS, *reversed(HANDSHAKES)]
    assert result["resultType"] == "complete" and result["cacheScope"] == "public" and result["ttlMs"] >= 0
    assert result["_meta"][PREFIX + "serverInfo"]["name"] == "cay"


def test_no_session_is_made_or_read(stateless, mcp):
    answer = stateless.send(stateless.body("tools/list", id=1),
                            {**stateless.headers("tools/list"), "Mcp-Session-Id": "nothing"})
    assert answer.status == 200 and "Mcp-Session-Id" not in answer.headers


def test_a_subscription_to_nothing_ends(stateless):
    answer = stateless.request("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    first, last = answer.messages
    assert first["method"] == "notifications/subscriptions/acknowledged" and first["params"]["notifications"] == {}
    assert last["result"]["_meta"][PREFIX + "subscriptionId"] == last["id"] == first["params"]["_meta"][PREFIX + "subscriptionId"]


@pytest.mark.parametrize("header", ["MCP-Protocol-Version", "Mcp-Method", "Mcp-Name"])
@pytest.mark.parametrize("value", [None, "other", "=?base64?####?="])
def test_headers_have_to_agree_with_the_body(stateless, header, value):
    params = {"name": "nothing", "arguments": {}}
    headers = stateless.headers("tools/call", params)
    headers |= {header: value} if value else {}
    if value is None:
        del headers[header]
    answer = stateless.send(stateless.body("tools/call", params, 1), headers)
    assert (answer.status, answer.error["code"]) == (400, -32020)


def test_a_name_in_base64(stateless):
    params = {"name": "n\u00f6thing", "arguments": {}}
    name = "=?base64?" + base64.b64encode(params["name"].encode()).decode() + "?="
    headers = {**stateless.headers("tools/call"), "Mcp-Name": name}
    answer = stateless.send(stateless.body("tools/call", params, 1), headers)
    assert (answer.status, answer.error["code"]) == (200, -32602)


def test_what_each_request_has_to_carry(stateless):
    whole = stateless.body("tools/list", id=1)
    for name in ("protocolVersion", "clientCapabilities"):
        message = json.loads(json.dumps(whole))
        del message["params"]["_meta"][PREFIX + name]
        answer = stateless.send(message, stateless.headers("tools/list"))
        assert (answer.status, answer.error["code"]) == (400, -32602)


def test_a_revision_of_the_other_generation(stateless):
    message = stateless.body("tools/list", id=1, meta={PREFIX + "protocolVersion": "2027-01-01"})
    headers = {**stateless.headers("tools/list"), "MCP-Protocol-Version": "2027-01-01"}
    answer = stateless.send(message, headers)
    assert (answer.status, answer.error["code"]) == (400, -32022) and answer.error["data"]["requested"] == "2027-01-01"


def test_settings_of_the_connection_that_are_wrong(cay):
    for headers in ({"X-Cay-Rights": "read,all"}, {"X-Cay-Policy": "open"}, {"X-Cay-Template": "x" * 300}):
        answer = Mcp(cay, STATELESS, headers).request("tools/list")
        assert answer.status == 400 and next(iter(headers)) in answer.error["message"]


def test_sessions_are_shared_out(cay, new_key):
    """A tenant cannot take the places of another: its oldest session without a sandbox goes for a new one."""
    greedy = Client(cay.url, new_key("greedy"))
    first = Mcp(greedy)
    ids = [Mcp(greedy, open_now=False).request("initialize", {"protocolVersion": SESSION, "capabilities": {}, "clientInfo": {}})
           .headers["Mcp-Session-Id"] for _ in range(2100)]
    assert len(set(ids)) == 2100 and first.request("tools/list").status == 404
    with Mcp(cay) as mine:
        assert mine.request("tools/list").status == 200
