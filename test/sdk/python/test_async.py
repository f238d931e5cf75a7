import asyncio
import resource

import pytest
from e2b import AsyncSandbox, CommandExitException, FilesystemEventType


@pytest.fixture
async def box(template):
    sandbox = await AsyncSandbox.create(template, timeout=120)
    yield sandbox
    await sandbox.kill()


async def test_commands_side_by_side(box):
    hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    if hard != resource.RLIM_INFINITY and hard < 64:
        pytest.skip(f"this machine gives a user {hard} processes (RLIMIT_NPROC), twelve commands need more")
    results = await asyncio.gather(*(box.commands.run(f"for k in $(seq 200); do echo {i}:$k; done")
                                     for i in range(12)))
    for i, result in enumerate(results):
        assert result.stdout == "".join(f"{i}:{k}\n" for k in range(1, 201))


async def test_background_and_kill(box):
    handle = await box.commands.run("sleep 3600", background=True)
    assert await box.commands.kill(handle.pid) is True
    with pytest.raises(CommandExitException):
        await handle.wait()


async def test_files_and_watch(box):
    await box.files.make_dir("watched")
    seen = asyncio.Event()

    def on_event(event):
        if event.type == FilesystemEventType.WRITE and event.name == "file":
            seen.set()

    handle = await box.files.watch_dir("watched", on_event)
    await box.files.write("watched/file", "x")
    await asyncio.wait_for(seen.wait(), 10)
    await handle.stop()
    assert await box.files.read("watched/file") == "x"
