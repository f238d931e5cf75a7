"""Pause with the memory on the disk of a sandbox with IPC objects: System V message queues and semaphores come back as they were; System V
shared memory and POSIX message queues are refused by name, by which they can be found and removed."""

import re

import pytest
from test_dump import needs  # noqa: F401 (fixture)
from test_pause_memory import COUNTER, kept, own, pause, resume, start  # noqa: F401 (fixtures)
from test_pause_memory_ends import goes_on
from waitlib import until

LIBC = """
import ctypes, os, struct, time
libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p
CREATE, REMOVE, NOWAIT, UNDO, GETVAL, SETVAL = 0o1600, 0, 0o4000, 0x1000, 12, 16
def done(value):
    assert value >= 0, os.strerror(ctypes.get_errno())
    return value
def stay():
    open("/tmp/made", "w").write("made")
    time.sleep(1000)
"""
# A first queue that is gone, so that the second does not have the id that it would get in an empty namespace.
KEPT = LIBC + """
done(libc.msgctl(done(libc.msgget(0x51, CREATE)), REMOVE, None))
queue = done(libc.msgget(0x52, CREATE))
for n, text in ((3, b"third"), (1, b"first"), (2, b"")):
    done(libc.msgsnd(queue, struct.pack("q", n) + text, len(text), NOWAIT))
private = done(libc.msgget(0, CREATE))
done(libc.msgsnd(private, struct.pack("q", 7) + b"private", 7, NOWAIT))
numbers = done(libc.semget(0x53, 3, CREATE))
for n, value in enumerate((5, 0, 32767)):
    done(libc.semctl(numbers, n, SETVAL, value))
open("/tmp/ids", "w").write(f"{queue} {private} {numbers}")
stay()
"""
READ = LIBC + """
def messages(queue, *wanted):
    text, found = ctypes.create_string_buffer(64), []
    for kind in wanted:
        size = done(libc.msgrcv(queue, text, 56, kind, NOWAIT))
        found.append((struct.unpack_from("q", text)[0], text.raw[8:8 + size]))
    assert libc.msgrcv(queue, text, 56, 0, NOWAIT) < 0
    return found
queue, private, numbers = map(int, open("/tmp/ids").read().split())
assert queue > 0 and done(libc.msgget(0x52, 0)) == queue and done(libc.semget(0x53, 3, 0)) == numbers
print(messages(queue, 1, 0, 0), messages(private, 0), [libc.semctl(numbers, n, GETVAL) for n in range(3)])
"""


def has_made(box, name, code):
    box.run("rm -f /tmp/made")
    start(box, name, code)
    until(lambda: box.run("cat /tmp/made").out == "made", 20, lambda: box.run(f"cat /tmp/{name}.log").out)


def python(box, code):
    box.write("/tmp/said.py", code.encode())
    return box.run("python3 /tmp/said.py 2>&1").out


def test_queues_and_semaphores_of_system_v_are_kept(kept):  # noqa: F811
    with kept.create() as box:
        start(box, "count", COUNTER)
        has_made(box, "kept", KEPT)
        for _ in range(2):
            assert pause(kept, box).status == 200 and resume(kept, box).status == 201
        goes_on(box)
        assert python(box, READ).strip() == "[(1, b'first'), (3, b'third'), (2, b'')] [(7, b'private')] [5, 0, 32767]"


@pytest.mark.parametrize("pauses", [0, 1])
def test_what_a_semaphore_is_to_undo_is_not_kept(kept, pauses):  # noqa: F811
    """As docs/pause.md says: nothing tells of it. Without a pause the end of a program gives back what it took with SEM_UNDO."""
    take = LIBC + """
numbers = done(libc.semget(0x53, 1, CREATE))
done(libc.semctl(numbers, 0, SETVAL, 1))
done(libc.semop(numbers, (ctypes.c_short * 3)(0, -1, UNDO), 1))
stay()
"""
    with kept.create() as box:
        has_made(box, "holder", take)
        for _ in range(pauses):
            assert pause(kept, box).status == 200 and resume(kept, box).status == 201
        box.run("pkill -f '[h]older.py'")
        until(lambda: box.run("pgrep -f '[h]older.py'").out == "", 20, "it has ended")
        value = python(box, LIBC + "print(libc.semctl(libc.semget(0x53, 1, 0), 0, GETVAL))").strip()
        assert value == ("0" if pauses else "1")


ATTACHED = "libc.shmat(ctypes.c_int(done(libc.shmget(0x54, 8192, CREATE))), None, 0)"
REMOVED = "block = done(libc.shmget(0, 4096, CREATE)); libc.shmat(block, None, 0); done(libc.shmctl(block, REMOVE, None))"
QUEUE = """
posix = ctypes.CDLL("librt.so.1")
descriptor = done(posix.mq_open(b"/a queue", 0o102, 0o600, None))
"""
# Code that makes it, whether that program goes on, the reason that is told, and code that removes what the end of the program leaves.
REFUSED = {
    "attached": (ATTACHED, True, r"System V shared memory cannot be kept: id (?P<id>\d+), key 0x00000054, 8192 bytes, made by process "
                 r"(?P<pid>\d+); ipcrm -m (?P=id) removes it", "libc.shmctl(libc.shmget(0x54, 0, 0), REMOVE, None)"),
    "left": (ATTACHED, False, r"System V shared memory cannot be kept: id (?P<id>\d+), key 0x00000054, 8192 bytes, made by "
             r"a process that has ended; ipcrm -m (?P=id) removes it", "libc.shmctl(libc.shmget(0x54, 0, 0), REMOVE, None)"),
    "removed": (REMOVED, True, r"System V shared memory cannot be kept: id \d+, removed and still attached, 4096 bytes, made by process "
                r"(?P<pid>\d+)", ""),
    "open queue": (QUEUE, True, "the POSIX message queue /a queue cannot be kept; mq_unlink removes it",
                   "ctypes.CDLL('librt.so.1').mq_unlink(b'/a queue')"),
    "queue that nothing has open": (QUEUE, False, "the POSIX message queue /a queue cannot be kept; mq_unlink removes it",
                                    "ctypes.CDLL('librt.so.1').mq_unlink(b'/a queue')"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_the_others_are_refused_by_name(kept, what):  # noqa: F811
    make, stays, told, remove = REFUSED[what]
    with kept.create() as box:
        start(box, "count", COUNTER)
        if stays:
            has_made(box, "maker", LIBC + make + "\nstay()\n")
        else:
            assert python(box, LIBC + make) == ""
        reply = pause(kept, box)
        found = re.search(told, reply.json["message"])
        assert reply.status == 501 and found, reply.body
        if "pid" in found.groupdict():
            assert found["pid"] == box.run("pgrep -f '[m]aker.py'").out.strip()
        goes_on(box)
        box.run("pkill -f '[m]aker.py'")
        python(box, LIBC + remove)
        until(lambda: pause(kept, box).status == 200, 20, "it is paused without that")
        assert resume(kept, box).status == 201
        goes_on(box)
