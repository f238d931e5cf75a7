"""Forks with memory: programs of the source go on in each of them and in itself, as other machines that know that they are."""

import base64
import subprocess
import threading

from client import Sandbox
from conftest import BUILD
from test_dump import needs  # noqa: F401 (fixture)
from test_pause import state
from test_pause_memory import COUNTER, PAIR, counted, detail, kept, own, pause, resume, start  # noqa: F401 (fixtures)
from test_pause_memory_ends import goes_on, refuses_to_be_kept, told
from waitlib import until

# A word that a program had in its memory before the fork, and what it reads anew.
WORD = """
import os, secrets, time
word = secrets.token_hex(16)
while True:
    with open("/tmp/new", "w") as f:
        f.write(" ".join([word, open("/run/sandbox/generation").read().strip(), secrets.token_hex(16)]))
    os.rename("/tmp/new", "/tmp/word")
    time.sleep(0.02)
"""


def fork(client, box, **more):
    reply = client.call("POST", f"/sandboxes/{box.id}/fork", {"timeout": 300, "memory": True, **more})
    if reply.status != 201:
        return reply
    return [Sandbox(client, one["sandbox"]) if "sandbox" in one else one["error"] for one in reply.json]


def words(box, other=None):
    """other: the generation that it is to have no more."""
    until(lambda: len(box.run("cat /tmp/word").out.split()) == 3 and box.run("cat /tmp/word").out.split()[1] != other, 20, "it writes")
    return box.run("cat /tmp/word").out.split()


def identity(box):
    return box.run("cat /etc/machine-id; hostname; echo $E2B_SANDBOX_ID $OWN").out.split()


def test_programs_go_on_in_each_fork_and_in_the_source(kept):  # noqa: F811
    with kept.create(envVars={"OWN": "mine"}) as box:
        for name, code in (("count", COUNTER), ("pair", PAIR), ("word", WORD)):
            start(box, name, code)
        until(lambda: box.run("cat /tmp/pair").out.isdigit(), 20, "the pair talks")
        word, generation, _ = words(box)
        before = counted(box)[-1]
        forks = fork(kept, box, count=3)
        boxes = [box, *forks]
        assert state(kept, box) == "running" and len({one.id for one in boxes}) == 4
        found = [words(one, generation) for one in boxes]
        assert {one[0] for one in found} == {word}  # of its memory, control: each has it
        assert len({one[1] for one in found} | {generation}) == 5 and len({one[2] for one in found}) == 4
        for one in boxes:
            goes_on(one)
            assert counted(one)[before] == before
            assert one.run("grep core /proc/1/limits").out.split()[4:6] == ["1", "1"]  # as in test_pause_memory.py
            pair = int(one.run("cat /tmp/pair").out)
            until(lambda one=one, pair=pair: int(one.run("cat /tmp/pair").out) > pair, 20, "the pair goes on")
            assert one.run("cat /tmp/pair.log /tmp/count.log /tmp/word.log").out == ""
        machines = [identity(one) for one in boxes]
        assert len({one[0] for one in machines}) == 4
        assert [one[1:] for one in machines] == [[one.id, one.id, "mine"] for one in boxes]
        event, = told(kept, box, "sandbox.forked")
        assert sorted(event["forks"]) == sorted(one.id for one in forks) and event["failed"] == 0
        # each is one of its own: ended, paused and forked by itself
        assert pause(kept, forks[0]).json["tier"] == "memory" and resume(kept, forks[0]).status == 201
        goes_on(forks[0])
        again, = fork(kept, forks[1])
        goes_on(again)
        assert words(again)[0] == word


def test_one_that_is_paused_with_its_memory_is_forked_again_and_again(kept):  # noqa: F811
    """It stays paused, and is whole afterwards: a sandbox that is prepared once is the beginning of others."""
    with kept.create() as box:
        start(box, "count", COUNTER)
        until(lambda: counted(box), 20, "it counts")
        assert pause(kept, box).json["tier"] == "memory"
        forks = [one for _ in range(2) for one in fork(kept, box, count=2)]
        assert (detail(kept, box)["state"], detail(kept, box)["tier"]) == ("paused", "memory")
        for one in forks:
            goes_on(one)
        assert resume(kept, box).status == 201
        goes_on(box)


def test_one_that_cannot_be_kept_is_not_forked_and_runs_on(kept):  # noqa: F811
    with kept.create() as box:
        refuses_to_be_kept(box)
        reply = fork(kept, box)
        assert reply.status == 501 and "no_new_privs" in reply.json["message"]
        goes_on(box)
        assert len(kept.call("GET", "/v2/sandboxes?state=running,paused").json) == 1
        forked, = fork(kept, box, memory=False)  # control: its files alone can be
        assert forked.run("cat /tmp/count.py").out == COUNTER


def test_a_shell_at_a_terminal_goes_on_in_a_fork(kept):  # noqa: F811
    with kept.create() as box:
        shell = {"process": {"cmd": "/bin/bash", "args": ["-i"], "envs": {"PS1": "$ "}}, "pty": {"size": {"cols": 80, "rows": 24}}}
        events = box.stream("process.Process/Start", shell)
        pid = next(event["event"]["start"]["pid"] for event in events if "start" in event["event"])

        def type_in(one, text):
            reply = one.rpc("process.Process/SendInput", {"process": {"pid": pid}, "input": {"pty": base64.b64encode(text.encode()).decode()}})
            assert reply.status == 200, reply.body

        type_in(box, "word=typed; cd /var\n")
        type_in(box, "echo $word $PWD > /tmp/before\n")
        until(lambda: box.run("cat /tmp/before").out == "typed /var\n", 20, "the shell has read it")
        forked, = fork(kept, box)
        for one in (forked, box):
            type_in(one, "echo $word $PWD on > /tmp/after\n")
            until(lambda one=one: one.run("cat /tmp/after").out == "typed /var on\n", 20, "the shell goes on")


def test_the_command_line_forks_with_memory(kept):  # noqa: F811
    with kept.create() as box:
        start(box, "count", COUNTER)
        until(lambda: counted(box), 20, "it counts")
        done = subprocess.run([BUILD / "src/cli/cay", "fork", "--memory", box.id], capture_output=True, text=True,
                              env={"E2B_API_KEY": kept.key, "E2B_API_URL": kept.url, "PATH": "/usr/bin:/bin", "HOME": "/nonexistent"})
        assert done.returncode == 0, done.stderr
        reply = kept.call("GET", f"/cay/v1/sandboxes/{done.stdout.strip()}")
        assert reply.status == 200 and reply.json["state"] == "running"


def in_background(call):
    """The thread, and where its result goes."""
    found = []
    thread = threading.Thread(target=lambda: found.append(call()))
    thread.start()
    return thread, found


def test_one_that_is_resumed_while_it_is_forked_runs_afterwards(kept):  # noqa: F811
    """The call waits until all of them are made."""
    with kept.create() as box:
        start(box, "count", COUNTER)
        until(lambda: counted(box), 20, "it counts")
        forking, forks = in_background(lambda: fork(kept, box, count=4))
        until(lambda: state(kept, box) == "paused", 60, "it is paused for the forks", every=0.01)
        reply = resume(kept, box)
        assert reply.status in (200, 201, 503), reply.body  # 200: they were all made by then; 503: they take longer than it may wait
        forking.join()
        assert state(kept, box) == "running"
        for one in [box, *forks[0]]:
            goes_on(one)


def test_two_that_fork_one_at_once_leave_it_running(kept):  # noqa: F811
    with kept.create() as box:
        start(box, "count", COUNTER)
        until(lambda: counted(box), 20, "it counts")
        first, _ = in_background(lambda: fork(kept, box))
        until(lambda: state(kept, box) == "paused", 60, "it is paused for the first", every=0.01)
        until(lambda: isinstance(fork(kept, box, count=4), list), 60, "it is forked again")  # 409 until it is paused, and as it is resumed
        first.join()
        until(lambda: state(kept, box) == "running", 60, "it runs again")
        goes_on(box)
