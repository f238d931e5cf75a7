"""A socket that a command with a policy of its own makes and hands on outlives it, in a program of its sandbox: terminals, and what
keeps its namespaces, by a unix socket that is a file. However many commands do so one after the other, no more stays than
docs/kernel-pools.md says."""

import os
import pathlib
import re

import pytest

from egresslib import ZONE, Stack
from test_command_policy import ALLOW_WEB, SECONDS, Box
from waitlib import until

ROOT = pathlib.Path(__file__).parents[2]
TERMINALS = int(re.search(r"PRIVSEP_COMMAND_TERMINALS_MAX +(\d+)", (ROOT / "src/contract/proto.h").read_text()).group(1))
NAMESPACES = int(re.search(r"COMMAND_NAMESPACES_MAX +(\d+)", (ROOT / "src/runtime/rootfs_proc.c").read_text()).group(1))

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
MAKE = {"terminals": lambda: os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY),
        "sockets": lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).detach(),
        "files": lambda: os.open("/proc/version", os.O_RDONLY),
        "namespaces": lambda: os.open("/proc/self/ns/mnt", os.O_RDONLY)}
made = []
try:
    for i in range(int(sys.argv[2])):
        made.append(MAKE[sys.argv[1]]())
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


@pytest.mark.parametrize("kind", ["sockets", "files", "namespaces"])
def test_what_keeps_namespaces(box, kind):
    made = 0
    for _ in range(NAMESPACES + 1):
        done = box.ask(["python3", "/tmp/hand_on.py", kind, "1"], "deny")
        if done.status != 200:
            break
        assert done.json["stdout"] == "1\n", done.json
        made += 1
    assert made == NAMESPACES, made
    assert done.status == 429 and "hold sockets or files" in done.json["message"], done.body
    assert box.out("echo there") == "there\n"  # without a policy none is needed
    box.out("pkill -f [k]eeper.py")
    until(lambda: box.ask("echo again", "deny").status == 200, SECONDS, "they have gone")


# A queue that is handed on keeps its file system alive, but no namespace.
QUEUE = r"""
import ctypes, errno, os
fd = ctypes.CDLL(None, use_errno=True).mq_open(b"/kept", os.O_CREAT | os.O_RDWR, 0o600, (ctypes.c_long * 8)(0, 1, 1))
print("made" if fd >= 0 else errno.errorcode[ctypes.get_errno()])
"""


@pytest.mark.parametrize("user", ["user", "root"])
def test_no_queues_in_commands(box, user):
    assert box.out(["python3", "-c", QUEUE], "deny", user=user) == "EMFILE\n"
    assert box.out(["python3", "-c", QUEUE], user=user) == "made\n"  # the control: of the sandbox itself it is bounded and charged
