"""System call filters of what ends without cay-privd (a command sandbox whose PID 1 root inside kills) are held by it, which lets go
of them in turn (src/privd/pins.h)."""

import concurrent.futures
import os
import pathlib
import signal

import leftovers
from client import Client, Sandbox
from egresslib import stack  # noqa: F401: a fixture
from waitlib import until

INNER, SECONDS = 4, 60
# The PIDs 1 of its command sandboxes, as its root sees them: cay-init with a second PID, not its own one.
KILL = """
import os, pathlib, signal
for status in pathlib.Path("/proc").glob("[0-9]*/status"):
    text = dict(line.split(":\\t", 1) for line in status.read_text().splitlines() if ":\\t" in line)
    if text["NSpid"].split()[1:] == ["1"]:
        os.kill(int(text["Pid"]), signal.SIGKILL)
        print(text["Pid"])
"""


def held(privd):
    """Copies of listeners that it has."""
    n = 0
    for fd in pathlib.Path(f"/proc/{privd}/fd").iterdir():
        try:
            n += os.readlink(fd) == "anon_inode:seccomp notify"
        except OSError:
            continue
    return n


def sandboxes(server):
    """PIDs 1 of sandboxes: those that are used and those that wait."""
    return sum(p.inner_pids == ["1"] for p in leftovers.in_sandboxes(server))


def test_filters_of_command_sandboxes_are_held(stack):  # noqa: F811
    (privd,) = leftovers.children(stack.server.keep_pid, "cay-privd")
    key = stack.cay.call("POST", "/cay/v1/keys", {"tenant": "first", "label": "test"}).json["key"]
    cay = Client(stack.server.url, key)
    made = cay.call("POST", "/cay/v1/sandboxes", {"templateID": "host", "timeout": 900, "policy": {"rules": []}})
    box = Sandbox(cay, made.json)
    until(lambda: held(privd) == sandboxes(stack.server) > 1, SECONDS, lambda: (held(privd), sandboxes(stack.server)))
    body = {"shell": "sleep 600", "timeout_ms": 10 * SECONDS * 1000, "policy": "deny"}
    with concurrent.futures.ThreadPoolExecutor(INNER) as pool:
        inner = [pool.submit(cay.call, "POST", f"/cay/v1/sandboxes/{box.id}/exec", body, timeout=2 * SECONDS)
                 for _ in range(INNER)]
        # Another member of the pool may be made meanwhile.
        until(lambda: held(privd) == sandboxes(stack.server) + INNER, SECONDS, lambda: (held(privd), sandboxes(stack.server)))
        os.kill(privd, signal.SIGSTOP)
        try:
            before = held(privd)
            killed = box.run(f"python3 -c '{KILL}'", user="root").out.split()
            assert len(killed) == INNER
            # The processes that held them have ended; while cay-privd does nothing, none of their filters is freed.
            until(lambda: box.run(f"ls -d {' '.join(f'/proc/{pid}' for pid in killed)} 2>&1 | grep -vc 'No such'").out == "0\n",
                  SECONDS, "the command sandboxes' end")
            assert held(privd) == before
        finally:
            os.kill(privd, signal.SIGCONT)
        until(lambda: held(privd) == sandboxes(stack.server), SECONDS, lambda: (held(privd), sandboxes(stack.server)))
    # The same where cay-privd ends it, whose turn that is: nothing is left of it.
    box.kill()
    until(lambda: held(privd) == sandboxes(stack.server), SECONDS, lambda: (held(privd), sandboxes(stack.server)))
