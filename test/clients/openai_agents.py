"""openai-agents: a session of E2BSandboxClient with its defaults; commands and files."""

import asyncio
import io
from pathlib import Path

from agents.extensions.sandbox.e2b import E2BSandboxClient, E2BSandboxClientOptions


async def main():
    client = E2BSandboxClient()
    session = await client.create(options=E2BSandboxClientOptions(sandbox_type="e2b"))
    try:
        async with session:
            result = await session.exec("echo $((6 * 7))")
            assert result.exit_code == 0 and b"42" in result.stdout, result
            await session.write(Path("notes.txt"), io.BytesIO(b"kept"))
            assert (await session.read(Path("notes.txt"))).read() == b"kept"
    finally:
        await client.delete(session)


asyncio.run(main())
