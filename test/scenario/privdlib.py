"""privd without the rest: started alone, spoken to over its channel. Message layout: src/contract/proto.h."""

import array
import contextlib
import itertools
import os
import pathlib
import signal
import socket
import stat
import struct
import subprocess
import time

HELLO, CREATE, KILL, CONNECT, STAT, LIST, TEMPLATES, JOB, CAPACITY, COMMAND_SANDBOX, COMMAND_SANDBOX_END, FREEZE, THAW = range(1, 14)
ITEM, TEMPLATE, ENDED, PROGRESS = range(64, 68)
SIZE, HEAD = 288, struct.Struct("<IHHQIIiI")
LIMITS = struct.Struct("<QQIIII")
HOST, BASE = 1, 2
MIB = 1024 * 1024


class Message:
    def __init__(self, packet, fds):
        (self.version, self.op, _, self.seq, self.slot, self.gen, self.status, self.stage) = HEAD.unpack_from(packet)
        self.body, self.fds = packet[HEAD.size:], fds

    def unpack(self, layout):
        return struct.unpack_from("<" + layout, self.body)

    def text(self, at, size):
        return self.body[at:at + size].split(b"\0")[0].decode()


def socket_of(fd):
    """Which socket it is, as each has an inode of its own; None: of another kind."""
    s = os.fstat(fd)
    return s.st_ino if stat.S_ISSOCK(s.st_mode) else None


class Channel:
    def __init__(self, path, timeout=60):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(timeout)
        self.socket.connect(str(path))
        self.seqs, self.replies, self.events = itertools.count(1), {}, []
        self.received = []  # sockets that came: descriptor, socket_of
        self.hello = self.ask(HELLO, struct.pack("<II", 1, 0))

    def close(self):
        self.socket.close()

    def close_received(self):
        """Those that no test has closed: a number that has been given to another file since stays open."""
        for fd, which in self.received:
            with contextlib.suppress(OSError):
                if socket_of(fd) == which:
                    os.close(fd)
        self.received.clear()

    def send(self, op, body=b"", slot=0, gen=0):
        seq = next(self.seqs)
        self.socket.send(HEAD.pack(1, op, 0, seq, slot, gen, 0, 0) + body.ljust(SIZE - HEAD.size, b"\0"))
        return seq

    def receive(self):
        packet, control, _, _ = self.socket.recvmsg(SIZE + 1, socket.CMSG_SPACE(16 * 4))
        if not packet:
            raise ConnectionResetError("privd hung up")
        fds = array.array("i")
        for level, kind, data in control:
            assert (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS)
            fds.frombytes(data)
        assert len(packet) == SIZE
        m = Message(packet, list(fds))
        self.received += [(fd, socket_of(fd)) for fd in fds if socket_of(fd)]
        if m.seq:
            self.replies[m.seq] = m
        else:
            self.events.append(m)
        return m

    def wait(self, seq):
        while seq not in self.replies:
            self.receive()
        return self.replies.pop(seq)

    def ask(self, op, body=b"", slot=0, gen=0):
        return self.wait(self.send(op, body, slot, gen))

    def wait_event(self, op, seconds=10):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for m in self.events:
                if m.op == op:
                    self.events.remove(m)
                    return m
            self.receive()
        raise TimeoutError(op)

    def send_create(self, name, template=HOST, memory=256 * MIB, disk=256 * MIB, cpu=1000, pids=256, files=1024,
                    key=b"k" * 32, level=0, flags=0):
        limits = LIMITS.pack(memory, disk, cpu, pids, files, 0)
        return self.send(CREATE, struct.pack("<II", template, level) + limits +
                         name.encode().ljust(32, b"\0") + key + struct.pack("<II", flags, 0))

    def create(self, name, **options):
        return self.wait(self.send_create(name, **options))

    def kill(self, s):
        return self.ask(KILL, slot=s.slot, gen=s.gen)

    def connect(self, s, count=1):
        return self.ask(CONNECT, struct.pack("<I", count), slot=s.slot, gen=s.gen)

    def command_sandbox(self, s, key=b"r" * 32):
        """A command sandbox: the reply has number and sockets."""
        r = self.ask(COMMAND_SANDBOX, struct.pack("<II", 0, 0) + key, slot=s.slot, gen=s.gen)
        r.number = r.unpack("I")[0]
        return r

    def freeze(self, s):
        return self.ask(FREEZE, slot=s.slot, gen=s.gen)

    def thaw(self, s):
        return self.ask(THAW, slot=s.slot, gen=s.gen)

    def command_sandbox_end(self, s, number):
        return self.ask(COMMAND_SANDBOX_END, struct.pack("<II", number, 0), slot=s.slot, gen=s.gen)

    def list(self):
        self.events = [m for m in self.events if m.op != ITEM]
        assert self.ask(LIST).status == 0
        return {m.text(0, 32): m for m in self.events if m.op == ITEM}


class Privd:
    """A cay-privd with directories of its own."""

    def __init__(self, build, base, agent=None, **options):
        self.base = pathlib.Path(base)
        self.state, self.run = self.base / "state", self.base / "run"
        self.socket_path, self.log = self.run / "privd.sock", self.base / "log"
        values = {"state-dir": self.state, "run-dir": self.run, "peer-uid": os.getuid(),
                  "agent": agent or build / "src/agent/cay-init", "job": build / "src/job/cay-job", "disk-size": 2 << 30,
                  "template-inodes": 4096}
        values.update({name.replace("_", "-"): value for name, value in options.items()})
        self.command = [str(build / "src/privd/cay-privd")] + [f"--{k}={v}" for k, v in values.items()]
        self.process, self.channels = None, []

    def start(self, seconds=60):
        reading, writing = os.pipe()
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(self.command + [f"--ready-fd={writing}"], stdin=subprocess.DEVNULL,
                                            stdout=log, stderr=log, pass_fds=[writing])
        os.close(writing)
        with os.fdopen(reading, "rb") as ready:
            said = ready.read()
        assert said == b"R", f"{said!r}\n{self.log.read_text()}"
        return self

    def channel(self, **options):
        self.channels.append(Channel(self.socket_path, **options))
        return self.channels[-1]

    def crash(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def leave(self):
        self.process.send_signal(signal.SIGUSR1)
        return self.process.wait(10)

    def stop(self):
        for channel in self.channels:
            channel.close_received()
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)
