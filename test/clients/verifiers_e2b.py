"""verifiers: its E2B runtime, which makes a template first, here of one of this server."""

import asyncio

from verifiers.v1.runtimes import make_runtime
from verifiers.v1.runtimes.e2b import E2BConfig


async def main():
    runtime = make_runtime(E2BConfig(image="base"))
    await runtime.start()
    try:
        result = await runtime.run(["echo", "42"], {})
        assert result.exit_code == 0 and "42" in result.stdout, result
    finally:
        await runtime.teardown()


asyncio.run(main())
