"""Memory on the disk outlives an upgrade: the program of PID 1 is in its image, so that a sandbox that was paused with another cay-init
goes on with its own, and so does a template's memory. Needs CRIU."""

import os
import pathlib
import shutil

import pytest
from conftest import BUILD, OwnServer
from test_dump import needs  # noqa: F401 (fixture)
from test_pause_memory import COUNTER, PROGRAMS, counted, kept, pause, resume, start  # noqa: F401 (fixtures)
from test_pause_memory_ends import goes_on
from test_recovery import kill_daemons, wait_ready
from test_template_memory import asks, begins_with_memory, build, name, with_memory  # noqa: F401 (fixtures)
from waitlib import until


MORE = 8192


def program_bytes(box):
    """The length of the program of its PID 1, which shows no one inside: by the host name, from outside."""
    for one in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if "memfd:cay-init" in os.readlink(one / "exe") and box.id in (one / "root/etc/hostname").read_text():
                return (one / "exe").stat().st_size
        except OSError:
            continue
    raise AssertionError(f"no cay-init of {box.id}")


@pytest.fixture
def own(needs, tmp_path):  # noqa: F811
    """A server with a cay-init of its own, which another can take the place of."""
    agent = tmp_path / "cay-init"
    shutil.copy(BUILD / "src/agent/cay-init", agent)
    server = OwnServer(privd_args=PROGRAMS, keep_args=(f"--agent={agent}",))
    server.agent = agent
    yield server
    server.stop()


def upgrade(server, client):
    """Another cay-init, of another length: CRIU compares that."""
    new = server.agent.with_name("new")
    shutil.copy(server.agent, new)
    with new.open("ab") as f:
        f.write(bytes(MORE))
    os.rename(new, server.agent)
    kill_daemons(server, "cay-privd")
    wait_ready(client)


def test_a_sandbox_goes_on_with_the_program_that_it_was_paused_with(own, kept):  # noqa: F811
    with kept.create() as box:
        start(box, "count", COUNTER)
        until(lambda: counted(box), 20, "the counter runs")
        before = program_bytes(box)
        assert pause(kept, box).json["tier"] == "memory"
        upgrade(own, kept)
        assert resume(kept, box).status == 201
        goes_on(box)
        assert program_bytes(box) == before
        with kept.create() as other:  # the control: that of a new one is another
            assert program_bytes(other) == before + MORE
            assert pause(kept, other).json["tier"] == "memory" and resume(kept, other).status == 201
        # and once more, of one whose program came from an image
        assert pause(kept, box).json["tier"] == "memory"
        assert resume(kept, box).status == 201
        goes_on(box)


def test_a_templates_memory_is_of_use_after_an_upgrade(own, kept, name):  # noqa: F811
    assert with_memory(build(kept, name))
    with begins_with_memory(kept, name) as box:
        word = asks(box)[0]
    upgrade(own, kept)
    with begins_with_memory(kept, name) as box:
        assert asks(box)[0] == word
