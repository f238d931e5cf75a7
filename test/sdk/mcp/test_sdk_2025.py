"""The unmodified Python SDK of November 2025 against a cay server: a session with one sandbox."""

import asyncio
import os

from mcp import ClientSession
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
