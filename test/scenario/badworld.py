"""A whole server of a test's own in a world that lacks something: system calls, a writable file system,
descriptors. Nothing here is global to the machine: all of it holds for one process tree, or for a mount
namespace of its own.

As a program it is that process tree's beginning:
    badworld.py refuse NAME=ERRNO... -- COMMAND...   these system calls fail so, in COMMAND and its children
    badworld.py no-userns -- COMMAND...              clone3(CLONE_NEWUSER) fails with ENOSPC, as with
                                                     user.max_user_namespaces=0"""

import ctypes
import errno
import os
import pathlib
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile

from waitlib import until

SELF = pathlib.Path(__file__).resolve()
CALLS = {"clone3": 435, "close_range": 436, "fsconfig": 431, "fsmount": 432, "fsopen": 430, "memfd_create": 319,
         "mount_setattr": 442, "move_mount": 429, "open_tree": 428, "openat2": 437, "pidfd_open": 434,
         "pidfd_send_signal": 424}
PLACES_BEYOND = 4  # conftest.SERVERS_MAX


# -- a server ---------------------------------------------------------------------------------------

class World:
    """Directories and a port; start() as often as wanted. Use with `with`: at the end it is stopped, and
    nothing may be left of it."""

    def __init__(self, build, user, uid_base):
        self.build, self.user, self.uid_base = build, user, uid_base + PLACES_BEYOND * 1024 * 65536
        self.base = pathlib.Path(tempfile.mkdtemp(prefix="cay-test-bad-", dir="/var/tmp"))
        self.base.chmod(0o755)
        self.state, self.run, self.log = self.base / "state", self.base / "run", self.base / "log"
        self.mounted = []
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.stop()
        if kind is None:
            # The kernel takes mounts, loops and processes apart a moment after their end.
            until(lambda: self.left() == [], 5, lambda: f"left: {self.left()}")
        for place in reversed(self.mounted):
            subprocess.run(["umount", "-l", place], check=True)
        shutil.rmtree(self.base, ignore_errors=True)

    def tmpfs(self, place, options):
        """A small file system at place. Its size can be changed by calling it again."""
        place.mkdir(parents=True, exist_ok=True)
        again = str(place) in self.mounted
        subprocess.run(["mount", "-t", "tmpfs", "-o", ("remount," if again else "") + options, "tmpfs", place],
                       check=True)
        if not again:
            self.mounted.append(str(place))

    def wrapper(self, name, lines):
        """The daemon `name`, started by a shell that has run these lines."""
        real = self.build / "src" / {"cayd": "cayd", "cay-privd": "privd"}[name] / name
        path = self.base / "bin" / name
        path.parent.mkdir(exist_ok=True)
        if name == "cayd":  # the shell is cayd's user, who may not be let into the build's place
            real = shutil.copy(real, path.with_name("cayd-itself"))
        path.write_text(f"#!/bin/sh\n{lines}\nexec {real} \"$@\"\n")
        path.chmod(0o755)
        return path

    def command(self, prefix=(), cayd=None, privd=None, privd_args=(), cayd_args=(), options=()):
        src = self.build / "src"
        return [str(part) for part in (
            *prefix, src / "keep/cay-keep", "--daemon", f"--listen-port={self.port}", f"--state-dir={self.state}",
            f"--run-dir={self.run}", f"--log-file={self.log}", f"--user={self.user}",
            f"--cayd={self.wrapper('cayd', cayd) if cayd else src / 'cayd/cayd'}",
            f"--privd={self.wrapper('cay-privd', privd) if privd else src / 'privd/cay-privd'}",
            f"--job={src}/job/cay-job", f"--agent={src}/agent/cay-init", f"--privd-arg=--uid-base={self.uid_base}",
            "--privd-arg=--slots-ready=2", "--privd-arg=--slots-max=32", "--privd-arg=--disk-size=1073741824",
            "--privd-arg=--template-inodes=4096",
            "--cayd-arg=--sandbox-disk=64M", "--cayd-arg=--sandbox-pids=64",
            *(f"--privd-arg={a}" for a in privd_args), *(f"--cayd-arg={a}" for a in cayd_args), *options)]

    def start(self, **how):
        return subprocess.run(self.command(**how), capture_output=True, text=True, timeout=300)

    def pid(self):
        try:
            return int((self.run / "keep.pid").read_text())
        except (OSError, ValueError):
            return None

    def alive(self):
        pid = self.pid()
        try:
            return pid and pathlib.Path(f"/proc/{pid}/comm").read_text().strip() == "cay-keep"
        except OSError:
            return False

    def stop(self):
        pid = self.pid()
        if not pid or not self.alive():
            return
        os.kill(pid, signal.SIGTERM)
        until(lambda: not pathlib.Path(f"/proc/{pid}").exists(), 60, lambda: self.log_tail())

    def cayd(self):
        """Its process, also where a shell began it."""
        keep = self.pid()
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                parent = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1]
                if int(parent) == keep and b"\0--listen-fd=" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes():
                    return int(pid)
            except OSError:
                continue
        return None

    def key(self):
        return (self.state / "cayd" / "api-key").read_text().strip()

    def log_tail(self):
        return self.log.read_text(errors="replace")[-6000:] if self.log.is_file() else ""

    def left(self):
        """The traces that are still there of a server that has stopped."""
        found = [f"mount: {line.split()[4]}" for line in open("/proc/self/mountinfo")
                 if f"{self.base}/" in line and line.split()[4] not in self.mounted]
        loops = subprocess.run(["losetup", "-a"], capture_output=True, text=True).stdout
        found += [f"loop: {line}" for line in loops.splitlines() if str(self.base) in line]
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                status = pathlib.Path(f"/proc/{pid}/status").read_text()
                command = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
            except OSError:
                continue
            uid = int(status.split("\nUid:\t")[1].split()[0])
            if self.uid_base <= uid < self.uid_base + 32 * 65536 or f"{self.base}/state".encode() in command:
                found.append(f"process {pid}: {command[:80]}")
        return found


def in_mount_namespace(script):
    """A prefix: the command runs in a mount namespace in which the shell has run script."""
    return ["unshare", "--mount", "--propagation=private", "sh", "-c", f'set -e\n{script}\nexec "$0" "$@"']


def refusing(**calls):
    return [sys.executable, SELF, "refuse", *(f"{name}={number}" for name, number in calls.items()), "--"]


def without_userns():
    return [sys.executable, SELF, "no-userns", "--"]


# -- the process tree's beginning --------------------------------------------------------------------

PR_SET_SECCOMP_FILTER = (22, 2)
SYS_SECCOMP, SET_MODE_FILTER, FLAG_NEW_LISTENER = 317, 1, 8
RET_ALLOW, RET_ERRNO, RET_NOTIFY = 0x7FFF0000, 0x00050000, 0x7FC00000
NOTIF_RECV, NOTIF_SEND, NOTIF_CONTINUE = 0xC0502100, 0xC0182101, 1
CLONE_NEWUSER = 0x10000000
libc = ctypes.CDLL(None, use_errno=True)


class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


def install(answers, flags=0):
    """A filter that gives each call of answers {number: action} its action, and allows all else."""
    code = struct.pack("HBBI", 0x20, 0, 0, 0)  # load the call's number
    for number, action in answers.items():
        code += struct.pack("HBBI", 0x15, 0, 1, number) + struct.pack("HBBI", 0x06, 0, 0, action)
    code += struct.pack("HBBI", 0x06, 0, 0, RET_ALLOW)
    held = ctypes.create_string_buffer(code, len(code))
    program = Program(len(code) // 8, ctypes.addressof(held))
    got = libc.syscall(SYS_SECCOMP, SET_MODE_FILTER, flags, ctypes.byref(program))
    if got < 0:
        sys.exit(f"seccomp: {os.strerror(ctypes.get_errno())}")
    return got


def flags_of_clone3(pid, address):
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        memory.seek(address)
        return struct.unpack("Q", memory.read(8))[0]


def answer(listener):
    """A clone3: refused when it asks for a user namespace. False: no process is left that could ask."""
    asked = ctypes.create_string_buffer(80)
    if libc.ioctl(listener, ctypes.c_ulong(NOTIF_RECV), asked) < 0:
        return ctypes.get_errno() in (errno.EINTR, errno.ENOENT)
    ident, pid = struct.unpack_from("QI", asked)
    address = struct.unpack_from("Q", asked, 32)[0]  # seccomp_data.args[0]
    try:
        refuse = address and flags_of_clone3(pid, address) & CLONE_NEWUSER
    except OSError:
        refuse = False
    reply = struct.pack("QqiI", ident, 0, -errno.ENOSPC if refuse else 0, 0 if refuse else NOTIF_CONTINUE)
    libc.ioctl(listener, ctypes.c_ulong(NOTIF_SEND), ctypes.create_string_buffer(reply, len(reply)))
    return True


def supervise(command):
    """The command's calls of clone3 are looked at by this process, until all of its tree has ended."""
    import select
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        listener = install({CALLS["clone3"]: RET_NOTIFY}, FLAG_NEW_LISTENER)
        socket.send_fds(theirs, [b"l"], [listener])
        os.close(listener)
        os.execvp(command[0], command)
    theirs.close()
    listener = socket.recv_fds(ours, 1, 1)[1][0]
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    while not any(event & select.POLLHUP for _, event in poll.poll()):
        answer(listener)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def main():
    what, *rest = sys.argv[1:]
    given, command = rest[:rest.index("--")], rest[rest.index("--") + 1:]
    if what == "no-userns":
        sys.exit(supervise(command))
    pairs = [pair.split("=") for pair in given]
    install({CALLS[name]: RET_ERRNO | int(number) for name, number in pairs})
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
