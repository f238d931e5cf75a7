"""A program takes a resource until it is stopped, one case at a time; run inside a sandbox, and a little of it on
the host. Standard library only, as it is given to `python3 -c`.

    exhaust.py CASE MOST HOLD    takes at most MOST, says "COUNT ERRNO" (ERRNO "-": it got all), and keeps what
                                 it has until /tmp/go-on is there, HOLD seconds at most; with 0 it removes it

Loops are bounded by MOST."""

import ctypes
import errno
import fcntl
import mmap
import os
import resource
import signal
import socket
import sys
import threading
import time

libc = ctypes.CDLL(None, use_errno=True)
kept, undo = [], []
IPC_PRIVATE, IPC_CREAT, IPC_RMID = 0, 0o1000, 0
F_SETPIPE_SZ, PR_SET_PDEATHSIG = 1031, 1
SYS = {"add_key": 248, "io_setup": 206, "mq_open": 240, "rt_sigqueueinfo": 129}
MIB = 1 << 20


def c(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), "")
    return result


def call(name, *arguments):
    return c(libc.syscall(SYS[name], *arguments))


def place(folder):
    path = f"{folder}/exhaust-{os.getpid()}-{len(kept)}"
    undo.append(lambda: os.unlink(path))
    return path


def inotify():
    kept.append(c(libc.inotify_init1(0)))


def files():
    kept.append(os.open("/dev/null", os.O_RDONLY))


def processes():
    pid = os.fork()
    if pid == 0:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        os.close(1)
        os.close(2)
        time.sleep(60)
        os._exit(0)
    kept.append(pid)
    undo.append(lambda: os.kill(pid, signal.SIGKILL))


def threads():
    try:
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    except RuntimeError:
        raise OSError(errno.EAGAIN, "") from None


def user_namespaces():
    """In a child, which says how it went."""
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        failed = libc.unshare(0x10000000) < 0
        os.write(w, b"%d" % (ctypes.get_errno() if failed else 0))
        os._exit(0)
    os.close(w)
    code = int(os.read(r, 8))
    os.close(r)
    os.waitpid(pid, 0)
    if code:
        raise OSError(code, "")


def pipes():
    r, w = os.pipe()
    kept.extend((r, w))
    fcntl.fcntl(w, F_SETPIPE_SZ, MIB)


def signals():
    """To itself, while it does not take them."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN])
    info = (ctypes.c_int * 32)(signal.SIGRTMIN, 0, -1)
    call("rt_sigqueueinfo", os.getpid(), signal.SIGRTMIN, info)


def keys():
    call("add_key", b"user", b"k%d" % len(kept), b"x" * 100, 100, -4)
    kept.append(0)


def aio():
    context = ctypes.c_ulong(0)
    call("io_setup", 1024, ctypes.byref(context))


def queues():
    """POSIX."""
    name = f"exhaust-{os.getpid()}-{len(kept)}".encode()
    kept.append(call("mq_open", name, os.O_CREAT | os.O_RDWR, 0o600, None))
    undo.append(lambda: libc.syscall(SYS["mq_open"] + 1, name))


def sysv_queues():
    made = c(libc.msgget(IPC_PRIVATE, IPC_CREAT | 0o600))
    undo.append(lambda: libc.msgctl(made, IPC_RMID, None))


def sysv_segments():
    made = c(libc.shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0o600))
    undo.append(lambda: libc.shmctl(made, IPC_RMID, None))


def sysv_semaphores():
    made = c(libc.semget(IPC_PRIVATE, 1, IPC_CREAT | 0o600))
    undo.append(lambda: libc.semctl(made, 0, IPC_RMID))


def terminals():
    kept.append(os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY))


def passed_descriptors():
    """Descriptors that are on their way in sockets."""
    if not kept:
        kept.extend(socket.socketpair())
    a, b = socket.socketpair()
    a.setblocking(False)
    socket.send_fds(a, [b"x"], [kept[0].fileno()] * 200)
    a.close()
    kept.append(b)


def sockets():
    kept.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))


def tcp_memory():
    """A connection whose peer never reads, filled until nothing more goes in."""
    if not kept:
        kept.append(socket.create_server(("127.0.0.1", 0), backlog=128))
    s = socket.create_connection(kept[0].getsockname(), timeout=5)
    kept.extend((s, kept[0].accept()[0]))
    s.setblocking(False)
    before = fill.sent
    fill(s)
    if fill.sent - before < 64 << 10:  # its windows are closed: the limit
        raise OSError(errno.ENOBUFS, "")


def fill(s):
    try:
        while True:
            fill.sent += s.send(bytes(256 << 10))
    except BlockingIOError:
        time.sleep(0.02)
        try:
            fill.sent += s.send(bytes(256 << 10))
        except BlockingIOError:
            pass


fill.sent = 0


def disk():
    """64 MiB at a time, without writing them."""
    kept.append(os.open(place("/var/tmp"), os.O_CREAT | os.O_RDWR))
    os.posix_fallocate(kept[-1], 0, 64 * MIB)


def inodes():
    """Small files on a disk that has only little left."""
    with open(place("/var/tmp"), "wb") as f:
        f.write(bytes(8000))
        f.flush()
        if len(kept) % 64 == 0:
            os.fsync(f.fileno())
    kept.append(0)


def memory():
    m = mmap.mmap(-1, 16 * MIB)
    m.write(b"x" * 16 * MIB)
    kept.append(m)


def shared_memory():
    """Files in /dev/shm."""
    with open(place("/dev/shm"), "wb") as f:
        f.write(bytes(16 * MIB))
    kept.append(0)


def memfd():
    fd = os.memfd_create("exhaust")
    kept.append(fd)
    os.write(fd, bytes(16 * MIB))


def page_cache():
    """Dirty pages, written again and again over the same file."""
    with open("/var/tmp/dirty", "r+b" if kept else "wb") as f:
        f.seek(len(kept) % 20 * 16 * MIB)
        f.write(os.urandom(MIB) * 16)
    kept.append(0)


def locked_memory():
    m = mmap.mmap(-1, MIB)
    kept.append(m)
    c(libc.mlock(ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(m))), ctypes.c_size_t(MIB)))


def processor():
    """Of all cores, as well as it may."""
    if not kept:
        for _ in range(3):
            if os.fork() == 0:
                end = time.monotonic() + 15
                while time.monotonic() < end:
                    pass
                os._exit(0)
        kept.append(0)


def datagrams():
    """To ports of its own, each a connection in the tracking table."""
    if not kept:
        kept.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    try:
        kept[0].sendto(b"x", ("127.0.0.1", 1024 + call_number[0] % 60000))
    except ConnectionRefusedError:
        pass


call_number = [0]


def main():
    name, most, hold = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    take, code = globals()[name], "-"
    if name in ("files", "sockets", "inotify", "pipes"):
        resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    for count in range(most):
        call_number[0] = count
        try:
            take()
        except OSError as error:
            code = errno.errorcode.get(error.errno, str(error.errno))
            break
        except MemoryError:
            code = "ENOMEM"
            break
    else:
        count = most
    print(count, code, flush=True)
    end = time.monotonic() + hold
    while time.monotonic() < end and not os.path.exists("/tmp/go-on"):
        time.sleep(0.05)
    for step in undo if hold == 0 else ():
        step()
    os._exit(0)


main()
