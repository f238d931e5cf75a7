"""The generation, and the machine's identity: docs/generation.md."""

import re

import pytest
from test_pause import connect, pause
from waitlib import until

GENERATION = "cat /run/sandbox/generation"
MACHINE_ID = "cat /etc/machine-id"


def needs_kept_files(cay):
    if cay.call("GET", "/cay/v1/status").json["disk"]["backend"] == "memory":
        pytest.skip("files are in memory here")


# -- the generation ----------------------------------------------------------------------------------


def generation(box):
    text = box.run(GENERATION).out
    assert re.fullmatch("[0-9a-f]{32}\n", text)
    return text


def test_the_generation_is_new_with_each_resume_and_a_watch_sees_it(cay):
    with cay.create() as box, cay.create() as other:
        assert box.run("stat -c %a /run/sandbox/generation").out == "444\n"
        assert box.run("echo x >/run/sandbox/generation").exit_code != 0
        seen = {generation(box), generation(other)}
        inode = box.run("stat -c %i /run/sandbox/generation").out
        watch = ("import ctypes, os; c = ctypes.CDLL(None); fd = c.inotify_init(); c.inotify_add_watch(fd, b'/run/sandbox/generation', 2); "
                 "open('watching', 'w').close(); os.read(fd, 64); open('noticed', 'w').write(open('/run/sandbox/generation').read())")
        box.run(f'python3 -c "{watch}" >/dev/null 2>&1 &')
        until(lambda: box.read("/home/user/watching").status == 200)
        for n in range(5):
            assert pause(cay, box) == 204 and connect(cay, box).status == 201
            seen.add(generation(box))  # the first command after the answer has it
            assert len(seen) == n + 3
        assert box.run("stat -c %i /run/sandbox/generation").out == inode
        noticed = until(lambda: (r := box.read("/home/user/noticed")).status == 200 and r.body)
        assert noticed.decode() in seen


def test_a_generation_that_root_has_broken_is_made_anew(cay):
    with cay.create() as box:
        for breaks in ("rm /run/sandbox/generation", "rm -r /run/sandbox", "rm /run/sandbox/generation; mkfifo /run/sandbox/generation",
                       "rm /run/sandbox/generation; ln -s /etc/passwd /run/sandbox/generation", "echo longer than it was, by much, for sure >/run/sandbox/generation"):
            before = box.run("sha256sum /etc/passwd").out
            assert box.run(breaks, user="root").exit_code == 0
            assert pause(cay, box) == 204 and connect(cay, box).status == 201
            assert re.match("[0-9a-f]{32}\n", box.run(GENERATION).out)
            assert box.run("sha256sum /etc/passwd").out == before


# -- identity ----------------------------------------------------------------------------------------


def identity(box):
    return box.run(f"{MACHINE_ID}; {GENERATION}; od -An -N16 -tx1 /dev/urandom").out.splitlines()


def test_the_machine_is_another_in_a_fork_and_the_same_after_a_resume(cay):
    needs_kept_files(cay)
    with cay.create() as box:
        first = identity(box)
        assert re.fullmatch("[0-9a-f]{32}", first[0])
        assert pause(cay, box) == 204 and connect(cay, box).status == 201
        frozen = identity(box)
        assert cay.call("POST", f"/sandboxes/{box.id}/pause", {"memory": False}).status == 204
        assert connect(cay, box).status == 201
        files = identity(box)
        forks = [one["sandbox"]["sandboxID"] for one in cay.call("POST", f"/sandboxes/{box.id}/fork", {"count": 3, "timeout": 300}).json]
        made = [type(box)(cay, cay.call("POST", f"/sandboxes/{one}/connect", {"timeout": 300}).json) for one in forks]
        theirs = [identity(one) for one in made]
        for one in made:
            one.kill()
        assert first[0] == frozen[0] == files[0] == identity(box)[0]
        assert len({first[0], *(one[0] for one in theirs)}) == 4
        for column in (1, 2):  # generations, random numbers
            assert len({one[column] for one in (first, frozen, files, *theirs)}) == 6


def test_a_machine_id_of_a_tenants_is_hidden_not_followed(cay):
    needs_kept_files(cay)
    with cay.create() as box:
        own = box.run(MACHINE_ID).out
        for breaks in ("ln -sf /etc/passwd /etc/machine-id", "rm /etc/machine-id; mkdir -p /etc/machine-id/x", "echo tenants >/etc/machine-id"):
            assert box.run(breaks, user="root").exit_code == 0
            assert cay.call("POST", f"/sandboxes/{box.id}/pause", {"memory": False}).status == 204
            assert connect(cay, box).status == 201
            assert box.run(MACHINE_ID).out == own and "root:" in box.run("cat /etc/passwd").out


def test_a_signal_from_inside_makes_no_new_one(cay):
    """Nor the line of the log that cay-privd's other signal stands for."""
    with cay.create() as box:
        before = box.run("cat /run/sandbox/generation").out
        assert box.run("kill -USR1 1 && kill -USR2 1 && sleep 0.2", user="root").exit_code == 0
        assert box.run("cat /run/sandbox/generation").out == before
