"""An agent that lies, in place of a sandbox's own: what the sandbox's root could start instead of cay-init. It is served from here,
by a socket of the sandbox's network namespace; the real agent is stopped, and its listener shut."""

import base64
import contextlib
import ctypes
import json
import os
import signal
import socket
import struct
import threading

from agentlib import socket_in

AGENT = ("127.0.0.1", 49983)
PIDFD_GETFD = 438
HONEST = b"honest\n"


def listener_of(pid):
    """A descriptor of the agent's listening socket, and of no other of its."""
    libc = ctypes.CDLL(None, use_errno=True)
    pidfd = os.pidfd_open(pid)
    try:
        for fd in os.listdir(f"/proc/{pid}/fd"):
            got = libc.syscall(PIDFD_GETFD, pidfd, int(fd), 0)
            if got < 0:
                continue
            try:
                s = socket.socket(fileno=os.dup(got))
            except OSError:
                continue
            finally:
                os.close(got)
            if s.family == socket.AF_INET and s.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) and s.getsockname() == AGENT:
                return s
            s.close()
    finally:
        os.close(pidfd)
    raise AssertionError("the agent listens nowhere")


def envelope(value, flags=0):
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    return struct.pack(">BI", flags, len(text)) + text


def event(**what):
    return envelope({"event": what})


def out(text):
    return event(data={"stdout": base64.b64encode(text).decode()})


START, END = event(start={"pid": 7}), event(end={"exitCode": 0, "exited": True, "status": "exit status 0"})
OVER = envelope({}, 2)


def head(status=200, kind="application/json", length=None, more=""):
    framing = "Transfer-Encoding: chunked\r\n" if length is None else f"Content-Length: {length}\r\n"
    return f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\n{framing}{more}\r\n".encode()


def chunk(data):
    return b"%x\r\n" % len(data) + data + b"\r\n"


def answer(body, status=200, kind="application/json"):
    return head(status, kind, len(body)) + body


def stream(*pieces, end=True):
    return head(kind="application/connect+json") + b"".join(map(chunk, pieces)) + (b"0\r\n\r\n" if end else b"")


class Liar:
    """`lie(connection, path)` for each request; the paths are in `asked`."""

    def __init__(self, pid):
        os.kill(pid, signal.SIGSTOP)
        with listener_of(pid) as theirs:
            theirs.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            theirs.shutdown(socket.SHUT_RDWR)
        self.listener = socket_in(pid)
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind(AGENT)
        self.listener.listen(64)
        self.lie, self.asked, self.open = honest, [], set()
        self.stopping = False
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while not self.stopping:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.open.add(connection)
            threading.Thread(target=self.serve, args=[connection], daemon=True).start()

    def serve(self, connection):
        with contextlib.suppress(OSError, ValueError), connection, connection.makefile("rb") as f:
            while True:
                words = f.readline().split()
                if len(words) < 3:
                    break
                fields = {}
                while (line := f.readline().strip()):
                    name, _, value = line.partition(b":")
                    fields[name.lower()] = value.strip()
                if b"chunked" in fields.get(b"transfer-encoding", b""):
                    while (n := int(f.readline(), 16)) > 0:
                        f.read(n + 2)
                    f.readline()
                else:
                    f.read(int(fields.get(b"content-length", 0)))
                path = words[1].decode().partition("?")[0]
                self.asked.append(path)
                self.lie(connection, path)
        self.open.discard(connection)

    def close(self):
        self.stopping = True
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for connection in list(self.open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


ENTRY = {"name": "f", "path": "/home/daytona/f", "type": "FILE_TYPE_FILE", "size": "1", "mode": 420, "owner": "daytona", "group": "daytona",
         "modifiedTime": "2026-01-02T03:04:05Z"}


def honest_answer(path):
    """An agent's answer to each call that the toolbox makes."""
    if path in ("/process.Process/Start", "/process.Process/Connect"):
        return stream(START, out(HONEST), END, OVER)
    if path == "/process.Process/List":
        return answer(b'{"processes":[]}')
    if path == "/filesystem.Filesystem/ListDir":
        return answer(json.dumps({"entries": [ENTRY]}).encode())
    if path == "/filesystem.Filesystem/Stat":
        return answer(json.dumps({"entry": ENTRY}).encode())
    if path == "/files":
        return answer(HONEST, kind="application/octet-stream")
    return answer(b"{}")


def honest(connection, path):
    connection.sendall(honest_answer(path))
