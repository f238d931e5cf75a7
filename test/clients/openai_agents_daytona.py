"""openai-agents: a session of DaytonaSandboxClient with its defaults; commands, files and a program that it is written."""

import asyncio
import io
from pathlib import Path

from agents.extensions.sandbox.daytona import DaytonaSandboxClient, DaytonaSandboxClientOptions


async def main():
    client = DaytonaSandboxClient()
    session = await client.create(options=DaytonaSandboxClientOptions())
    try:
        async with session:
            result = await session.exec("echo $((6 * 7))")
            assert result.exit_code == 0 and b"42" in result.stdout, result
            await session.write(Path("job.py"), io.BytesIO(b"print(sum(n * n for n in range(10)))\n"))
            result = await session.exec("python3 job.py > out.txt; echo $?")
            assert result.exit_code == 0 and result.stdout.strip() == b"0", result
            assert (await session.read(Path("out.txt"))).read() == b"285\n"
            assert (await session.exec("exit 3")).exit_code == 3
    finally:
        await client.delete(session)


asyncio.run(main())
