"""The unmodified Python SDK of the Model Context Protocol against cayd, in both generations of the protocol, over HTTP and
through `cay mcp`: it lists and calls every tool, and checks each result against the tool's schema by itself. A scripted
agent solves a small task. Newer and older clients, and others, stand in docs/compatibility.md."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess

import httpx2
import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from conftest import BUILD
from waitlib import until

CAY = BUILD / "src/cli/cay"
CALLS = {  # each tool once, in an order that works
    "run": {"command": "echo hi; exit 3"}, "write": {"path": "a b.txt", "content": "one\ntwo\n"}, "read": {"path": "a b.txt"},
    "edit": {"path": "a b.txt", "old": "two", "new": "three"}, "list": {}, "search": {"by": "content", "pattern": "thr.e"},
    "expose": {"port": 8000}, "pause": {}, "resume": {}, "kill": {}}


def environment(server):
    return {**os.environ, "CAY_URL": server.url, "E2B_API_KEY": server.key}


@contextlib.asynccontextmanager
async def connected(server, how, mode):
    if how == "stdio":
        command = StdioServerParameters(command=str(CAY), args=["mcp"], env=environment(server))
        async with Client(stdio_client(command), mode=mode) as client:
            yield client
    else:
        async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {server.key}"}, timeout=60) as http:
            async with Client(streamable_http_client(f"{server.url}/mcp", http_client=http), mode=mode) as client:
                yield client


async def structured(client, name, arguments):
    result = await client.call_tool(name, arguments)
    assert not result.is_error, result.content
    return result.structured_content


async def all_tools(server, how, mode):
    async with connected(server, how, mode) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        assert names == ["create", "run", "read", "write", "list", "edit", "search", "expose", "pause", "resume", "kill"]
        box = (await structured(client, "create", {}))["sandbox"]
        got = {name: await structured(client, name, {**arguments, "sandbox": box}) for name, arguments in CALLS.items()}
        assert {"create", *got} == {*names}
        assert got["run"]["exit_code"] == 3 and got["run"]["stdout"] == "hi\n"
        assert got["read"]["content"] == "one\ntwo\n" and got["search"]["matches"][0]["text"] == "three"
        refused = await client.call_tool("run", {"command": "true", "sandbox": box})
        assert refused.is_error and "ended" in refused.content[0].text


@pytest.mark.parametrize("mode", ["legacy", "auto"])
@pytest.mark.parametrize("how", ["http", "stdio"])
def test_every_tool(server, how, mode):
    asyncio.run(all_tools(server, how, mode))


async def progress_and_resources(server, how, mode):
    told = []

    async def on_progress(progress, total, message):
        told.append((progress, message))

    async with connected(server, how, mode) as client:
        box = (await structured(client, "create", {}))["sandbox"]
        command = {"command": "for i in 1 2 3; do echo line $i; sleep 0.4; done", "sandbox": box}
        result = await client.call_tool("run", command, progress_callback=on_progress)
        assert result.structured_content["stdout"] == "line 1\nline 2\nline 3\n" and len(told) >= 2, told
        await structured(client, "write", {"path": "/tmp/x", "content": "text", "sandbox": box})
        read = await client.read_resource(f"cay://{box}/tmp/x")
        assert read.contents[0].text == "text"
        assert f"cay://{box}/" in [str(r.uri) for r in (await client.list_resources()).resources]
        assert (await client.list_resource_templates()).resource_templates[0].name == "file"
        await structured(client, "kill", {"sandbox": box})


@pytest.mark.parametrize("mode", ["legacy", "auto"])
@pytest.mark.parametrize("how", ["http", "stdio"])
def test_progress_and_resources(server, how, mode):
    asyncio.run(progress_and_resources(server, how, mode))


async def give_up(server, cay, how, mode):
    """A client that waits no longer: the command is killed."""
    async with connected(server, how, mode) as client:
        box = (await structured(client, "create", {}))["sandbox"]

        async def running():
            got = await structured(client, "run", {"command": "pgrep -f '[m]arker' || true", "sandbox": box})
            return got["stdout"] != ""

        async def wait_until(wanted):
            for _ in range(300):
                if await running() == wanted:
                    return
                await asyncio.sleep(0.05)
            raise AssertionError(f"never {wanted}")

        call = asyncio.create_task(client.call_tool("run", {"command": "exec -a marker sleep 300", "sandbox": box}))
        await wait_until(True)
        call.cancel()
        await wait_until(False)
        await structured(client, "kill", {"sandbox": box})


@pytest.mark.parametrize("mode", ["legacy", "auto"])
@pytest.mark.parametrize("how", ["http", "stdio"])
def test_a_client_that_gives_up(server, cay, how, mode):
    asyncio.run(give_up(server, cay, how, mode))


async def agent(server):
    """A task as a model would go about it: look, try, see the error, mend, check."""
    async with connected(server, "http", "legacy") as client:
        async def call(name, **arguments):
            result = await client.call_tool(name, arguments)
            return result.structured_content, result.content[-1].text, result.is_error

        await call("write", path="fib.py", content="def fib(n):\n    return n if n < 1 else fib(n - 1) + fib(n - 2)\n")
        await call("write", path="test_fib.py", content="from fib import fib\nassert [fib(n) for n in range(6)] == [0, 1, 1, 2, 3, 5]\n")
        got, text, _ = await call("run", command="timeout 20 python3 test_fib.py")
        assert got["exit_code"] != 0 and ("RecursionError" in text or "AssertionError" in text)
        _, text, failed = await call("edit", path="fib.py", old="n < 0", new="n <= 1")
        assert failed and "read the file" in text
        got, text, _ = await call("read", path="fib.py")
        assert "n < 1" in text
        await call("edit", path="fib.py", old="n < 1", new="n <= 1")  # Python keeps what it compiled of a file as long as one
        # of the same size and second is there
        got, _, _ = await call("run", command="python3 test_fib.py && echo passed")
        assert got["stdout"] == "passed\n"
        assert [m["path"] for m in (await call("search", by="content", pattern="n <= 1"))[0]["matches"]] == ["fib.py"]


def test_a_scripted_agent_solves_a_task(server):
    asyncio.run(agent(server))


# -- cay mcp -----------------------------------------------------------------------------------------


def line(method, id=None, **params):
    return json.dumps({"jsonrpc": "2.0", "method": method} | ({"id": id} if id is not None else {}) |
                      ({"params": params} if params else {})) + "\n"


OPEN = line("initialize", 0, protocolVersion="2025-06-18", capabilities={}, clientInfo={"name": "x", "version": "1"})


def bridge(server, *options, **more):
    return subprocess.Popen([CAY, "mcp", *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env=environment(server), **more)


def answers(server, text, *options):
    """By id; messages without one stand under None."""
    process = bridge(server, *options)
    out, err = process.communicate(text, timeout=60)
    assert process.returncode == 0 and err == "", err
    return {answer.get("id"): answer for answer in map(json.loads, out.splitlines())}


def test_lines_that_are_none(server):
    got = answers(server, OPEN + "nonsense\n\n[]\n" + line("nothing", 1) + line("ping", "\u00fc") + line("notifications/x"))
    assert got[0]["result"]["serverInfo"]["name"] == "cay" and got["\u00fc"]["result"] == {}
    assert got[1]["error"]["code"] == -32601 and got[None]["error"]["code"] in (-32700, -32600)


def test_a_line_that_is_too_long(server):
    got = answers(server, OPEN + line("ping", 1, x="y" * (3 << 20)) + line("ping", 2) + line("tools/list", 3, x="y" * (3 << 19)))
    assert got[None]["error"]["code"] == -32600 and got[2]["result"] == {}
    assert "413" in got[3]["error"]["message"]


def test_without_a_session_it_is_said(server):
    assert "initialize" in answers(server, line("tools/list", 1))[1]["error"]["message"]


def test_options_of_its_owner(server):
    got = answers(server, OPEN + line("tools/list", 1), "--rights=read")
    assert [tool["name"] for tool in got[1]["result"]["tools"]] == ["read", "list", "search"]
    assert "X-Cay-Policy" in answers(server, OPEN, "--policy=x")[0]["error"]["message"]


@pytest.mark.parametrize("how", ["the end of the input", signal.SIGTERM])
def test_its_sandbox_ends_with_it(server, cay, how):
    process = bridge(server)
    process.stdin.write(OPEN + line("tools/call", 1, name="run", arguments={"command": "true"}))
    process.stdin.flush()
    process.stdout.readline()
    box = json.loads(process.stdout.readline())["result"]["structuredContent"]["sandbox"]
    assert cay.call("GET", f"/sandboxes/{box}").status == 200
    if how == signal.SIGTERM:
        process.send_signal(how)
    else:
        process.stdin.close()
    assert process.wait(30) == 0
    until(lambda: cay.call("GET", f"/sandboxes/{box}").status == 404)
    process.stdout.close()
    process.stderr.close()


def test_a_session_that_the_server_has_forgotten(server, cay):
    """Its client cannot be told by a status: another one is begun for it, and the message sent again."""
    process = bridge(server)

    def ask(text):
        process.stdin.write(text)
        process.stdin.flush()
        return json.loads(process.stdout.readline())

    ask(OPEN)
    run = {"name": "run", "arguments": {"command": "cat f || echo new; echo 1 > f"}}
    first = ask(line("tools/call", 1, **run))["result"]["structuredContent"]
    (session,) = {s["metadata"]["cay.mcp.session"] for s in cay.call("GET", "/v2/sandboxes").json
                  if s["sandboxID"] == first["sandbox"]}
    assert cay.call("DELETE", "/mcp", headers={"Mcp-Session-Id": session}).status == 204
    for id, expected in ((2, "new\n"), (3, "1\n")):
        again = ask(line("tools/call", id, **run))
        assert again["id"] == id and again["result"]["structuredContent"]["stdout"] == expected, again
    out, _ = process.communicate(timeout=60)
    assert out == ""


def test_a_server_that_is_not_there(server):
    process = bridge(server, "--url=http://127.0.0.1:1")
    out, _ = process.communicate(OPEN, timeout=60)
    assert "cannot reach a cay server" in json.loads(out)["error"]["message"]


def test_a_key_that_is_not_known(server):
    process = bridge(server, "--api-key=e2b_" + "0" * 40)
    out, _ = process.communicate(OPEN, timeout=60)
    assert json.loads(out)["id"] == 0 and json.loads(out)["error"]["code"] == 401


def test_a_key_that_is_revoked_while_its_command_runs(server, cay):
    """The stream of the answer ends without one: the client is told so, and does not wait for it for good."""
    reply = cay.call("POST", "/cay/v1/keys", {"label": "revoked"})
    others = {s["sandboxID"] for s in cay.call("GET", "/v2/sandboxes").json}
    process = bridge(type(server)(server.url, reply.json["key"]))
    arguments = {"command": "echo begun; sleep 4327"}
    process.stdin.write(OPEN + line("tools/call", 1, name="run", arguments=arguments, _meta={"progressToken": 1}))
    process.stdin.flush()
    process.stdout.readline()
    assert json.loads(process.stdout.readline())["method"] == "notifications/progress"
    assert cay.call("DELETE", f"/cay/v1/keys/{reply.json['id']}").status == 204
    answer = json.loads(process.stdout.readline())
    assert answer["id"] == 1 and "revoked" in answer["error"]["message"], answer
    process.stdin.write(line("ping", 2))
    process.stdin.flush()
    assert "error" in json.loads(process.stdout.readline())
    process.stdin.close()
    assert process.wait(30) == 0
    process.stdout.close()
    process.stderr.close()
    (own,) = {s["sandboxID"] for s in cay.call("GET", "/v2/sandboxes").json} - others  # the session's, which its end leaves
    assert cay.call("DELETE", f"/sandboxes/{own}").status == 204
