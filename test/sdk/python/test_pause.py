"""Pause, resume, autoPause, autoResume and the list, through the SDK."""

import pytest
from e2b import Sandbox, SandboxNotFoundException, SandboxQuery, SandboxState


def states_of(sandbox, *states):
    paginator, found = Sandbox.list(query=SandboxQuery(state=list(states))), []
    while paginator.has_next:
        found += [one.state.value for one in paginator.next_items() if one.sandbox_id == sandbox.sandbox_id]
    return found


def test_paused_and_connected_to(factory):
    sandbox = factory(envs={"KEPT": "yes"})
    command = sandbox.commands.run("export X=1; sleep 1000", background=True, timeout=0)
    sandbox.files.write("here", "x")
    assert sandbox.pause() is True
    assert not sandbox.is_running()
    assert states_of(sandbox, SandboxState.PAUSED) == ["paused"] and states_of(sandbox, SandboxState.RUNNING) == []
    assert sandbox.get_info().state == SandboxState.PAUSED
    assert sandbox.pause() is False
    again = sandbox.connect(timeout=100)
    assert again.is_running() and again.files.read("here") == "x"
    assert command.pid in [one.pid for one in again.commands.list()]
    assert again.commands.run("echo $KEPT").stdout == "yes\n"
    assert again.commands.connect(command.pid).pid == command.pid
    assert again.commands.kill(command.pid) is True


def test_paused_at_the_end_of_its_time(factory, until):
    sandbox = factory(timeout=2, lifecycle={"on_timeout": "pause"})
    until(lambda: sandbox.get_info().state == SandboxState.PAUSED, "the pause")
    with pytest.raises(Exception):
        sandbox.commands.run("echo asleep")
    assert sandbox.get_info().state == SandboxState.PAUSED
    assert Sandbox.connect(sandbox.sandbox_id).commands.run("echo awake").stdout == "awake\n"


def test_its_files_alone_are_kept(factory, until):
    sandbox = factory(envs={"KEPT": "yes"}, timeout=3, lifecycle={"on_timeout": {"action": "pause", "keep_memory": False}})
    boot = sandbox.commands.run("cat /proc/sys/kernel/random/boot_id").stdout
    sandbox.files.write("here", "x")
    until(lambda: sandbox.get_info().state == SandboxState.PAUSED, "the pause")
    for _ in range(2):
        again = sandbox.connect(timeout=100)
        assert again.is_running() and again.files.read("here") == "x"
        assert again.commands.run("echo $KEPT").stdout == "yes\n"
        now = again.commands.run("cat /proc/sys/kernel/random/boot_id").stdout
        assert now != boot
        boot = now
        assert sandbox.pause(keep_memory=False) is True and not sandbox.is_running()
    assert Sandbox.kill(sandbox.sandbox_id) is True


def test_woken_by_what_is_asked_of_it(factory):
    sandbox = factory(lifecycle={"on_timeout": "pause", "auto_resume": True})
    for _ in range(3):
        assert sandbox.pause() is True
        assert sandbox.commands.run("echo awake").stdout == "awake\n"


def test_ended_while_paused(factory):
    sandbox = factory()
    assert sandbox.pause() is True
    assert sandbox.kill() is True and sandbox.kill() is False
    with pytest.raises(SandboxNotFoundException):
        Sandbox.connect(sandbox.sandbox_id)
