"""A process that nothing can stop or end, while the memory of its sandbox is to be kept: refused, and the rest goes on."""

import contextlib
import errno
import pathlib
import re
import subprocess
import sys

from privdlib import KILL
from test_checkpoint import goes_on
from test_dump import Box, dump, kepts, needs, privd, programs_at_work, restore, send_dump, server  # noqa: F401 (fixtures)
from test_freeze import STUCK, has_ended
from waitlib import until

# A file system that does not answer, as a mount of the sandbox's at argv[1], until a line is read. Made by root of the host:
# inside, none can be mounted; a disk that does not answer is the same.
UNSERVED = STUCK.partition("libc.unshare")[0].replace("if ", "") + """
libc.setns(os.open(f"/proc/{sys.argv[2]}/ns/mnt", os.O_RDONLY), 0x20000)
if libc.mount(b"none", place.encode(), b"fuse", 6, options + b",allow_other"):
    sys.exit(os.strerror(ctypes.get_errno()))
""" + STUCK.partition("        libc.mount")[2].partition("\n")[2].partition("\n")[2].partition("def look")[0] + """
threading.Thread(target=serve, daemon=True).start()
print("there", flush=True)
sys.stdin.read()
over.append(True)
for unique in held:
    try:
        os.write(fd, struct.pack("<IiQ", 16, -2, unique))
    except FileNotFoundError:
        pass  # its process was told to stop, and has given it up
time.sleep(0.5)
if libc.umount2(place.encode(), 2):
    sys.exit(os.strerror(ctypes.get_errno()))
os._exit(0)
"""
PLACE = "/tmp/unserved"


def stuck_child(pid):
    """Of a sandbox's PID 1, waiting in the kernel: the host's number."""
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            status = (entry / "status").read_text()
            if re.search(rf"^PPid:\t{pid}$", status, re.M) and re.search(r"^State:\tD", status, re.M):
                return int(entry.name)
    return None


@contextlib.contextmanager
def stuck(box):
    box.agent.sh(f"mkdir -p {PLACE}", user="root")
    program = subprocess.Popen([sys.executable, "-c", UNSERVED, PLACE, str(box.pid)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    pid = None
    try:
        assert program.stdout.readline() == b"there\n"
        box.agent.sh(f"(setsid stat {PLACE}/x; setsid mkdir {PLACE}/y) > /dev/null 2>&1 < /dev/null & sleep 0.5; "
                     f"setsid mkdir {PLACE}/y > /dev/null 2>&1 < /dev/null &", user="root")
        pid = until(lambda: stuck_child(box.pid), 20, "a process waits in the kernel")
        yield pid
    finally:
        program.stdin.close()
        program.wait(30)
        if pid:
            until(lambda: has_ended(pid), 20, "the stuck process is gone")


def test_it_is_refused_and_the_others_go_on(privd):  # noqa: F811
    """Until it can be stopped: then the same sandbox is kept, and comes back."""
    c = privd.channel(timeout=150)
    box = Box(privd, c, "istuck")
    with stuck(box) as pid:
        box.agent.prepare()
        r = dump(c, box, 7)
        assert r.status == -errno.EOPNOTSUPP and re.search(r"non-zombie \? found, state D", r.text(0, 192)), r.text(0, 192)
        assert list(c.list()) == ["istuck"] and kepts(c) == set()
        goes_on(box.pid)
        assert not has_ended(pid) and programs_at_work(privd) == []
    box.agent.prepare()
    assert dump(c, box, 7).status == 0 and kepts(c) == {7}
    r = restore(c, "inextu", 7)
    assert r.status == 0, privd.log.read_text()[-3000:]


def test_a_kill_meanwhile_waits_for_it_alone(privd):  # noqa: F811
    c = privd.channel(timeout=150)
    box = Box(privd, c, "istuckk")
    with stuck(box):
        box.agent.prepare()
        asked = send_dump(c, box, 7)
        until(lambda: programs_at_work(privd), every=0.005)
        killed = c.send(KILL, slot=box.slot, gen=box.gen)
        assert c.wait(asked).status == -errno.ESTALE
        until(lambda: not programs_at_work(privd), 20)
    assert c.wait(killed).status == 0 and c.list() == {} and kepts(c) == set()
