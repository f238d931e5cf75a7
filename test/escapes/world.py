"""A small world for the escape table: namespaces of the runner's own in which nothing can do harm, a victim
process, sockets and segments that a sandbox must not reach, and servers with defences switched off."""

import contextlib
import ctypes
import fcntl
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "test/scenario"))
from client import Client  # noqa: E402
from users import first_there  # noqa: E402

READY_SECONDS = 120
UID_BASE = 1275068416  # apart from usual servers and from those of the scenarios
INSIDE = "CAY_ESCAPES_INSIDE"
STAMPS, STAMPS_FD = "/proc/sys/net/core/tstamp_allow_data", "CAY_ESCAPES_STAMPS_FD"
TCP_PORTS, UDP_PORTS = (22, 80, 443, 3000), (53, 443)
SHM_KEY = 0x0CA1CA1
USR_SECRET, USR_SETTINGS = pathlib.Path("/usr/local/lib/cay-escapes"), pathlib.Path("/usr/local/etc/cay-escapes")
NODES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
LOCKED_BYTE = 0x0CA1CA1


def enter():
    """Runs this program again in network, ipc, uts, pid and mount namespaces of its own. There `lo` is the
    only interface, so that no packet can leave; all it starts ends with it."""
    if os.environ.get(INSIDE):
        check_inside()
        return
    if os.geteuid() != 0:
        sys.exit("the escape table needs root: it starts servers")
    os.environ[INSIDE] = "1"
    keep_stamps()
    os.execvp("unshare", ["unshare", "--net", "--ipc", "--uts", "--pid", "--mount", "--fork", "--kill-child",
                          "--mount-proc", sys.executable, *sys.argv])


def keep_stamps():
    """A descriptor of the host's setting, which stays that of the host in whatever namespace it is written to."""
    if os.path.exists(STAMPS):
        fd = os.open(STAMPS, os.O_RDWR)
        os.set_inheritable(fd, True)
        os.environ[STAMPS_FD] = str(fd)


@contextlib.contextmanager
def stamps(allowed):
    """Kernels before 6.13 have that setting once for the host, where cay-keep switches it off; in these namespaces it cannot
    see it. So that is done here, and for what switches that defence off it is on. Elsewhere: nothing."""
    fd = int(os.environ.get(STAMPS_FD, -1))
    if fd < 0 or os.path.exists(STAMPS):
        yield
        return
    before = os.pread(fd, 16, 0)
    os.pwrite(fd, b"1" if allowed else b"0", 0)
    try:
        yield
    finally:
        os.pwrite(fd, before, 0)


def check_inside():
    """Nothing is started where an interface could lead out, whatever CAY_ESCAPES_INSIDE says."""
    with open("/proc/net/route") as routes:
        ways_out = [line for line in routes.readlines()[1:] if not line.startswith("lo\t")]
    if ways_out or os.getpid() != 1:
        sys.exit("not in namespaces of its own")


def loopback():
    """lo up, and every address there is on it: what a program dials arrives at listeners made here."""
    for command in ("link set lo up", "route add local default dev lo", "-6 route add local default dev lo"):
        subprocess.run(["ip", *command.split()], check=True)


class Bait:
    """Sockets and files that must not be reached from inside, and are there to be reached."""

    def __init__(self, base):
        self.base, self.sockets, self.files = base, [], []
        self.abstract = f"cay-escapes-{os.getpid()}"
        self.secret = base / "host-secret"
        self.secret.write_text("host-secret\n")
        self.secret.chmod(0o644)
        self.keep_file(USR_SECRET, 0o600)
        self.keep_file(USR_SETTINGS, 0o644)
        self.path = base / "bait.sock"
        for address in ("\0" + self.abstract, "\0/containerd-shim", str(self.path)):
            self.keep(socket.AF_UNIX, address, socket.SOCK_STREAM)
        self.path.chmod(0o777)
        for port in TCP_PORTS:
            self.keep(socket.AF_INET6, ("::", port), socket.SOCK_STREAM)
        for port in UDP_PORTS:
            self.keep(socket.AF_INET6, ("::", port), socket.SOCK_DGRAM)
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.shm = self.libc.shmget(SHM_KEY, 4096, 0o1666)
        self.queue = "/cay-escapes"
        self.libc.mq_open(self.queue.encode(), os.O_CREAT | os.O_RDWR, 0o666, None)
        self.locked = [self.lock(path) for path in (*NODES, "/usr/bin/env")]
        threading.Thread(target=self.serve, daemon=True).start()

    def keep_file(self, path, mode):
        """In the host's /usr, before the template is made of that. remove_files has to be called."""
        path.parent.mkdir(exist_ok=True)
        path.write_text("host-secret\n")
        path.chmod(mode)
        self.files.append(path)

    def remove_files(self):
        for path in self.files:
            path.unlink()

    @staticmethod
    def lock(path):
        """A record lock of the host's on a byte that nothing else locks; kept as long as the file is open."""
        fd = os.open(path, os.O_RDWR if path in NODES else os.O_RDONLY)
        fcntl.lockf(fd, (fcntl.LOCK_EX if path in NODES else fcntl.LOCK_SH) | fcntl.LOCK_NB, 1, LOCKED_BYTE)
        return fd

    def keep(self, family, address, kind):
        s = socket.socket(family, kind)
        if family == socket.AF_INET6:
            s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        s.bind(address)
        if kind == socket.SOCK_STREAM:
            s.listen(64)
        self.sockets.append(s)

    def serve(self):
        import select
        while True:
            for s in select.select(self.sockets, [], [])[0]:
                if s.type == socket.SOCK_STREAM:
                    s.accept()[0].close()
                else:
                    data, peer = s.recvfrom(100)
                    s.sendto(data, peer)

    def env(self):
        return {"CAY_PROBE_ABSTRACT": self.abstract, "CAY_PROBE_SOCKET": str(self.path),
                "CAY_PROBE_QUEUE": self.queue, "CAY_PROBE_SECRET": str(self.secret), "CAY_PROBE_SHM": str(SHM_KEY),
                "CAY_PROBE_USR_SECRET": str(USR_SECRET), "CAY_PROBE_USR_SETTINGS": str(USR_SETTINGS)}


class Victim:
    """A process that stands for PID 1 when the probe runs outside of any sandbox."""

    def __enter__(self):
        self.process = subprocess.Popen(["sleep", "60"])
        return str(self.process.pid)

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait()


# Command sandboxes are made for policies, which need one that knows of them. Nothing leaves all the same: the policies here allow nothing.
WITH_EGRESS = ["--egress-processes=1", f"--egress-user={os.environ.get('CAY_ESCAPES_EGRESS_USER') or first_there('cay-egress', 'sync')}"]


class Server:
    """cay-keep and what it starts, without some defences. The state directory is shared by one after
    another, so that the template is made once."""

    def __init__(self, build, base, without=(), cayd=(), port=13000, egress=False):
        self.base, self.without = base, tuple(without)
        self.state, self.run, self.log = base / "state", base / "run", base / "log"
        src = pathlib.Path(build) / "src"
        # In one network namespace there is room for one agent: no other may wait beside it.
        ahead = 0 if "network-namespace" in without else 2
        command = [src / "keep/cay-keep", "--daemon", f"--listen-port={port}", f"--state-dir={self.state}",
                   f"--run-dir={self.run}", f"--log-file={self.log}", f"--cayd={src}/cayd/cayd",
                   f"--privd={src}/privd/cay-privd", f"--job={src}/job/cay-job",
                   f"--agent={src}/agent/cay-init", f"--privd-arg=--uid-base={UID_BASE}",
                   f"--user={os.environ.get('CAY_ESCAPES_USER') or first_there('cay', 'sys')}", f"--privd-arg=--slots-ready={ahead}",
                   "--privd-arg=--template-inodes=4096",
                   "--cayd-arg=--sandbox-disk=256M",
                   "--cayd-arg=--sandbox-pids=256", "--cayd-arg=--sandbox-memory=512M",
                   *(f"--privd-arg=--without={name}" for name in without), *cayd,
                   *(WITH_EGRESS + [f"--egress={src}/egress/cay-egress"] if egress else ())]
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True,
                              timeout=READY_SECONDS)
        if done.returncode != 0:
            raise RuntimeError(f"the server does not start: {done.stderr}\n{self.log_tail()}")
        self.keep_pid = int((self.run / "keep.pid").read_text())
        self.url = f"http://127.0.0.1:{port}"
        self.client = Client(self.url, (self.state / "cayd/api-key").read_text().strip())
        self.wait()

    def wait(self):
        """Ready is told only after the template was made; this is for the list of it."""
        end = time.monotonic() + READY_SECONDS
        while time.monotonic() < end:
            if any(t["id"] == "host" and t["ready"] for t in
                   self.client.call("GET", "/cay/v1/templates").json):
                return
            time.sleep(0.02)
        raise RuntimeError(f"the template is not ready\n{self.log_tail()}")

    def log_tail(self):
        return self.log.read_text()[-3000:] if self.log.exists() else ""

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind:
            print(f"the server without {', '.join(self.without) or 'nothing'}:\n{self.log_tail()}", file=sys.stderr)
        os.kill(self.keep_pid, signal.SIGTERM)
        end = time.monotonic() + 60
        while pathlib.Path(f"/proc/{self.keep_pid}").exists() and time.monotonic() < end:
            try:  # the runner is PID 1 of its namespace
                os.waitpid(self.keep_pid, os.WNOHANG)
            except ChildProcessError:
                pass
            time.sleep(0.02)


def make_base():
    base = pathlib.Path(tempfile.mkdtemp(prefix="cay-escapes-", dir="/var/tmp"))
    base.chmod(0o755)
    return base


def remove_base(base):
    shutil.rmtree(base, ignore_errors=True)
