"""cay-init on its own, without a daemon: in namespaces made for the test, spoken to by raw HTTP."""

import base64
import ctypes
import fcntl
import http.client
import json
import os
import pathlib
import resource
import signal
import socket
import struct
import subprocess
import threading
import time

import pytest
from waitlib import until

PASSWD = "root:x:0:0:root:/root:/bin/bash\nuser:x:1000:1000::/home/user:/bin/bash\n"
GROUP = "root:x:0:\nuser:x:1000:\nextra:x:2000:user\n"

# A root file system of the machine's own, with users and a home that belong to the test.
SET_UP = """
set -e
mount --make-rprivate /
mount -t proc proc /proc
mount -t tmpfs -o mode=755 home /home
mkdir -m 755 /home/user && chown 1000:1000 /home/user
cp {binary} /home/cay-init
mount -t tmpfs -o mode=1777 tmp /tmp
printf '{passwd}' > /home/passwd && mount --bind /home/passwd /etc/passwd
printf '{group}' > /home/group && mount --bind /home/group /etc/group
for name in hosts hostname; do touch /home/$name && mount --bind /home/$name /etc/$name; done
mount -t devpts -o newinstance,ptmxmode=666,mode=620,gid=5 devpts /dev/pts
[ "$(readlink /dev/ptmx)" = pts/ptmx ] || mount --bind /dev/pts/ptmx /dev/ptmx
ip link set lo up 2>/dev/null || true
"""


def need_plain_build():
    """The memory and libraries that a sanitizer adds are not what such a test measures (`make asan`)."""
    if os.environ.get("CAY_SANITIZED"):
        pytest.skip("a sanitized build is larger, slower and not static")


def need_processes(count):
    """A hard RLIMIT_NPROC that is low binds every user of a sandbox, and no program here may raise it."""
    hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    if hard != resource.RLIM_INFINITY and hard < count:
        pytest.skip(f"this machine gives a user {hard} processes (RLIMIT_NPROC), the test needs {count}")


def set_up_script(binary):
    escape = lambda text: text.replace("\n", "\\n")
    return SET_UP.format(binary=binary, passwd=escape(PASSWD), group=escape(GROUP))


def socket_in(pid, *kind):
    """A TCP socket, or one of another kind, of the network namespace of pid; only a thread of its own enters it."""
    made = []

    def enter():
        libc = ctypes.CDLL(None, use_errno=True)
        ns = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
        if libc.setns(ns, 0x40000000) == 0:
            made.append(socket.socket(*kind))
        os.close(ns)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert made, "cannot enter the network namespace"
    return made[0]


TAKE, BACK = 1, 2  # AGENT_GO_ON_* of src/contract/agent_go_on.h


def go_on(pid, kind, listener=0, cgroup_fds=0, oom=0):
    """A message for the cay-init of that pid's network, from outside; its answer."""
    with socket_in(pid, socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
        s.settimeout(20)
        s.connect(b"\0cay-init")
        s.send(struct.pack("=IIII", kind, listener, cgroup_fds, oom))
        return s.recv(512)


class Connection(http.client.HTTPConnection):
    def __init__(self, agent, timeout):
        super().__init__("127.0.0.1", agent.port, timeout=timeout)
        self.agent = agent

    def connect(self):
        self.sock = socket_in(self.agent.pid)
        self.sock.settimeout(self.timeout)
        self.sock.connect(("127.0.0.1", self.agent.port))


class Stream:
    """A server stream: iterates over (flags, object)."""

    def __init__(self, connection, response):
        self.connection, self.response = connection, response

    def next(self):
        head = self.response.read(5)
        if len(head) < 5:
            return None
        flags, length = struct.unpack(">BI", head)
        return flags, json.loads(self.response.read(length))

    def __iter__(self):
        while (item := self.next()) is not None:
            yield item
            if item[0] == 2:
                self.close()
                return

    def close(self):
        self.connection.close()


class Result:
    """The contents of a whole stream."""

    def __init__(self, stream):
        self.pid, self.end, self.error, self.out, self.events = None, None, None, {}, []
        for flags, message in stream:
            if flags == 2:
                self.error = message.get("error")
                continue
            (kind, value), = message["event"].items()
            self.events.append(kind)
            if kind == "start":
                self.pid = value["pid"]
            elif kind == "end":
                self.end = value
            elif kind == "data":
                for name, text in value.items():
                    self.out.setdefault(name, bytearray()).extend(base64.b64decode(text))

    def text(self, name="stdout"):
        return self.out.get(name, b"").decode()


class Agent:
    def __init__(self, port, pid, process, key=None):
        self.port, self.pid, self.process, self.key = port, pid, process, key

    def _headers(self, headers, user):
        out = dict(headers or {})
        if self.key:
            out.setdefault("X-Cay-Agent-Key", self.key)
        if user is not None:
            out["Authorization"] = "Basic " + base64.b64encode((user + ":").encode()).decode()
        return out

    def raw(self, method, path, body=None, headers=None, user=None, timeout=20):
        connection = Connection(self, timeout)
        connection.request(method, path, body, self._headers(headers, user))
        response = connection.getresponse()
        data = response.read()
        connection.close()
        return response.status, data, response.headers

    def call(self, method, request, user=None, headers=None, timeout=20):
        """A unary call: (status, object)."""
        status, data, _ = self.raw("POST", f"/process.Process/{method}", json.dumps(request).encode(),
                                   {"Content-Type": "application/json", **(headers or {})}, user, timeout)
        return status, json.loads(data)

    def stream(self, method, request, user=None, headers=None, timeout=20):
        text = json.dumps(request).encode()
        connection = Connection(self, timeout)
        connection.request("POST", f"/process.Process/{method}", struct.pack(">BI", 0, len(text)) + text,
                           self._headers({"Content-Type": "application/connect+json", **(headers or {})}, user))
        response = connection.getresponse()
        assert response.status == 200, response.read()
        return Stream(connection, response)

    def start(self, cmd, *args, envs=None, cwd=None, user=None, headers=None, timeout=20, **more):
        process = {"cmd": cmd, "args": list(args)}
        if envs is not None:
            process["envs"] = envs
        if cwd is not None:
            process["cwd"] = cwd
        return self.stream("Start", {"process": process, **more}, user, headers, timeout)

    def run(self, cmd, *args, **more):
        return Result(self.start(cmd, *args, **more))

    def sh(self, script, **more):
        return self.run("/bin/sh", "-c", script, **more)

    def prepare(self):
        """To be dumped."""
        status, body, _ = self.raw("POST", "/cay/prepare")
        assert status == 204, body

    def stop(self):
        # unshare's --kill-child ends with the change of uid (prctl(2), PR_SET_PDEATHSIG).
        if self.pid and self.process.poll() is None:
            os.kill(self.pid, signal.SIGKILL)
        self.process.wait()


def started_pid(stream):
    flags, message = stream.next()
    assert flags == 0 and list(message["event"]) == ["start"], message
    return message["event"]["start"]["pid"]


def child_of(process):
    """The host's pid of the one child of unshare; None when that ended already."""
    for _ in range(200):
        children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        if children:
            return int(children[0])
        if process.poll() is not None:
            return None
        time.sleep(0.02)
    raise AssertionError("the namespaces were not made")


def spawn(binary, arguments, pass_fds=()):
    process = subprocess.Popen(["unshare", "-m", "-p", "-n", "-u", "-i", "-f", "--kill-child", "bash", "-c",
                                set_up_script(binary) + "exec /home/cay-init " + arguments], pass_fds=pass_fds)
    return process, child_of(process)


def start_plain(binary):
    """Development mode: no key, nothing bounded."""
    process, pid = spawn(binary, "--no-boot --listen=127.0.0.1:49983")
    agent = Agent(49983, pid, process)

    def healthy():
        try:
            return agent.raw("GET", "/health")[0] == 204
        except OSError:
            assert process.poll() is None, "cay-init ended"
            return False

    until(healthy, 10, "cay-init answers")
    return agent


BOOT_VERSION = 5  # AGENT_BOOT_VERSION
BOOT = struct.Struct("=IIIIQIIIIII")  # src/contract/agent_boot.h
CLAIM = struct.Struct("=32s32s")


def start_booted(binary, caps, cgroup_file, open_files=512, oom_file=None):
    """With a boot block, as the runtime starts it. Returns the agent and what it said. oom_file: where it reads how many
    were killed at the memory limit."""
    ours, theirs = socket.socketpair()
    key = bytes(range(32))
    ours.sendall(BOOT.pack(BOOT_VERSION, 1, open_files, 0, caps, 0, 0, 0, 0, oom_file is not None, 0) + CLAIM.pack(key, b"itest"))
    cgroup = os.open(cgroup_file, os.O_WRONLY | os.O_APPEND)
    oom = os.open(oom_file or os.devnull, os.O_RDONLY)
    # Out of the way of 3, 4 and 9 before they are put there.
    moved = [fcntl.fcntl(fd, fcntl.F_DUPFD, 50) for fd in (theirs.fileno(), cgroup, oom)]
    process, pid = spawn(binary, "3<&{0} 4>&{1} 9<&{2} {0}<&- {1}>&- {2}<&-".format(*moved), pass_fds=moved)
    for fd in [*moved, cgroup, oom]:
        os.close(fd)
    theirs.close()
    ours.settimeout(20)
    said = ours.recv(4096)
    while said[:1] == b"F" and not said.endswith(b"\0"):
        said += ours.recv(4096)
    ours.close()
    return Agent(49983, pid, process, key.hex()), said
