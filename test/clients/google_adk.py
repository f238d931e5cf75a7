"""google-adk: E2BEnvironment with commands and files, as its documentation shows it."""

import asyncio

from google.adk.integrations.e2b import E2BEnvironment


async def main():
    environment = E2BEnvironment()
    await environment.initialize()
    try:
        result = await environment.execute("python3 -c 'print(6 * 7)'; exit 3")
        assert (result.exit_code, result.stdout.strip()) == (3, "42"), result
        await environment.write_file("notes.txt", "kept")
        assert (await environment.read_file("notes.txt")) == b"kept"
    finally:
        await environment.close()


asyncio.run(main())
