"""The unmodified Python SDK of November 2025 against a cay server: a session with one sandbox."""

import asyncio
import json
import os
import pathlib
import subprocess
import tomllib

import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamablehttp_client

URL = f"https://{os.environ['E2B_DOMAIN']}/mcp"
TOOLS = {"write": {"path": "f", "content": "one two"}, "read": {"path": "f"}, "edit": {"path": "f", "old": "two", "new": "three"},
         "list": {}, "search": {"by": "name", "pattern": "f"}, "expose": {"port": 80}, "pause": {}, "resume": {}, "kill": {}}


async def session():
    told = []

    async def on_progress(progress, total, message):
        told.append(message)

    async with streamablehttp_client(URL, headers={"X-API-Key": os.environ["E2B_API_KEY"]}) as (read, write, session_id):
        async with ClientSession(read, write) as client:
            opened = await client.initialize()
            assert opened.protocolVersion == "2025-06-18" and session_id()
            assert len((await client.list_tools()).tools) == 2 + len(TOOLS)
            made = await client.call_tool("create", {})
            ran = await client.call_tool("run", {"command": "echo a; sleep 0.5; echo b"}, progress_callback=on_progress)
            assert ran.structuredContent["stdout"] == "a\nb\n" and told
            assert ran.structuredContent["sandbox"] == made.structuredContent["sandbox"]
            for name, arguments in TOOLS.items():
                result = await client.call_tool(name, arguments)
                assert not result.isError and result.structuredContent["sandbox"] == made.structuredContent["sandbox"], result
            refused = await client.call_tool("read", {"path": "/nothing"})
            assert refused.isError and "/nothing" in refused.content[-1].text


def test_a_session():
    asyncio.run(session())


# -- the configuration of examples/mcp, which docs/mcp.md shows -----------------------------------

ROOT = pathlib.Path(__file__).resolve().parents[3]
CONFIGURATION = ROOT / "examples/mcp"


def test_the_page_shows_the_same():
    page = (ROOT / "docs/mcp.md").read_text()
    files = sorted(CONFIGURATION.iterdir())
    assert len(files) == 5
    for path in files:
        assert path.read_text() in page, path


def configured(name):
    """As the client reads it: variables are replaced by their values. The port is that of the test's server."""
    text = (CONFIGURATION / name).read_text()
    for variable in ("${E2B_API_KEY}", "${env:E2B_API_KEY}"):
        text = text.replace(variable, os.environ["E2B_API_KEY"])
    text = text.replace("localhost:3000", f"localhost:{os.environ['E2B_DOMAIN'].rpartition(':')[2]}")
    return tomllib.loads(text)["mcp_servers"]["cay"] if name.endswith(".toml") else json.loads(text)["mcpServers"]["cay"]


async def ask_policy(streams):
    """A sandbox of the connection runs a command; what it may reach at most."""
    async with streams as (read, write, *_):
        async with ClientSession(read, write) as client:
            await client.initialize()
            ran = await client.call_tool("run", {"command": "echo $((6 * 7))"})
            assert ran.structuredContent["stdout"] == "42\n"
            shown = subprocess.run([os.environ["CAY"], "policy", "show", ran.structuredContent["sandbox"]], capture_output=True, check=True)
            await client.call_tool("kill", {})
            return json.loads(shown.stdout)["default"]


@pytest.mark.parametrize("name, policy", [("claude-code.mcp.json", "public"), ("codex.config.toml", "public"), ("cursor.mcp.json", "deny"),
                                          ("gemini-cli.settings.json", "public")])
def test_a_client_that_speaks_http(name, policy):
    server = configured(name)
    headers = {**server.get("headers", {}), **server.get("http_headers", {})}
    if "bearer_token_env_var" in server:
        headers["Authorization"] = f"Bearer {os.environ[server['bearer_token_env_var']]}"
    assert asyncio.run(ask_policy(streamablehttp_client(server.get("url") or server["httpUrl"], headers=headers))) == policy


def test_a_client_that_starts_a_program():
    server = configured("stdio.mcp.json")
    path = f"{pathlib.Path(os.environ['CAY']).parent}:{os.environ['PATH']}"
    started = StdioServerParameters(command=server["command"], args=server["args"], env={**os.environ, "PATH": path})
    assert asyncio.run(ask_policy(stdio_client(started))) == "public"
