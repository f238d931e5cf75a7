"""What a command with a policy of its own makes and hands on outlives it, in a program of its sandbox: terminals and sockets, by
a unix socket that is a file. However many commands do so one after the other, no more stays than docs/kernel-pools.md
says."""

import os
import pathlib
import re

import pytest

from egresslib import ZONE, Stack
from test_command_policy import ALLOW_WEB, Box

ROOT = pathlib.Path(__file__).parents[2]
TERMINALS = int(re.search(r"PRIVSEP_COMMAND_TERMINALS_MAX +(\d+)", (ROOT / "src/contract/proto.h").read_text()).group(1))
NETWORKS = int(re.search(r"NETWORKS_MAX +(\d+)", (ROOT / "src/runtime/rootfs.c").read_text()).group(1))

# In the sandbox: takes what comes, and keeps it; says how many by a file that is renamed into place.
KEEPER = r"""
import os, socket, sys
kept, name = [], "/tmp/keeper.sock"
s = socket.socket(socket.AF_UNIX); s.bind(name); os.chmod(name, 0o777); s.listen(64)
while True:
    c, _ = s.accept()
    kept += socket.recv_fds(c, 1, 64)[1]
    with open("/tmp/kept.new", "w") as f:
        f.write(str(len(kept)))
    os.rename("/tmp/kept.new", "/tmp/kept")
    c.send(b"k")
"""
# In a command: makes some of a kind, hands them on, ends. Says how many there were.
HAND_ON = r"""
import errno, os, socket, sys
made = []
try:
    for i in range(int(sys.argv[2])):
        made.append(os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY) if sys.argv[1] == "terminals" else
                    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).detach())
except OSError as e:
    assert e.errno == errno.ENOSPC, e
if made:
    c = socket.socket(socket.AF_UNIX); c.connect("/tmp/keeper.sock")
    socket.send_fds(c, [b"x"], made)
    assert c.recv(1) == b"k"
print(len(made))
"""


@pytest.fixture(scope="module")
def stack():
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    s = Stack(zone=ZONE)
    yield s
    s.close()


@pytest.fixture
def box(stack):
    one = Box(stack, ALLOW_WEB)
    for name, text in (("keeper", KEEPER), ("hand_on", HAND_ON)):
        one.out(["tee", f"/tmp/{name}.py"], stdin=text)
    one.out("python3 /tmp/keeper.py >/dev/null 2>&1 & until [ -e /tmp/keeper.sock ]; do sleep 0.05; done")
    yield one
    one.kill()


def hand_on(box, kind, many, policy="deny"):
    return int(box.out(["python3", "/tmp/hand_on.py", kind, str(many)], policy))


def test_terminals_that_are_handed_on(box):
    made = [hand_on(box, "terminals", 6) for _ in range(TERMINALS // 6 + 3)]
    assert sum(made) == TERMINALS and made[0] == 6 and made[-1] == 0, made
    assert hand_on(box, "terminals", 6, policy=None) == 6  # the sandbox's own are others
    box.out("pkill -f [k]eeper.py")
    # The control: it was the keeper that had them.
    assert box.out("until python3 -c 'import os; os.openpty()'; do sleep 0.1; done 2>/dev/null; echo some", "deny") == "some\n"


def test_networks_that_are_kept(box):
    made = 0
    for _ in range(NETWORKS + 1):
        done = box.ask(["python3", "/tmp/hand_on.py", "sockets", "1"], "deny")
        if done.status != 200:
            break
        made += 1
    assert made == NETWORKS, made
    assert done.status == 429 and "holds sockets" in done.json["message"], done.body
    assert box.out("echo there") == "there\n"  # without a policy none is needed
    box.out("pkill -f [k]eeper.py")
    assert box.out("echo again", "deny") == "again\n"  # it waits until they have gone
