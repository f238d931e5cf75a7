"""The whole server in a network namespace of its own, with a stand-in internet behind it
(test/egress/internet.py): what the tests of the way out share. The fixtures are per file, since the thread
that runs the tests is in that namespace while they run."""

import ctypes
import importlib.util
import io
import json
import os
import pathlib
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "egress"))
import internet  # noqa: E402
from client import Client  # noqa: E402
from conftest import BUILD, EGRESS_USER, USER, OwnServer  # noqa: E402
from waitlib import kill_all, wait_replaced  # noqa: E402

ZONE = {"web.example.com": {"a": [[internet.WEB]], "aaaa": [[internet.WEB6]]},
        "other.example.net": {"a": [[internet.OTHER]]},
        "inside.example.com": {"a": [[internet.PRIVATE]]},
        "meta.example.com": {"a": [[internet.METADATA]]}}
CLONE_NEWNET = 0x40000000
ANSWER_SECONDS = 30
AS_CAYD = """
import http.client, os, socket, sys
uid, gid, path, method, target = sys.argv[1:]
os.setgroups([])
os.setgid(int(gid))
os.setuid(int(uid))
c = http.client.HTTPConnection("localhost")
c.sock = socket.socket(socket.AF_UNIX)
c.sock.connect(path)
c.request(method, target, sys.stdin.read() or None)
r = c.getresponse()
print(r.status, flush=True)
for line in r:
    print(line.decode(), end="", flush=True)
"""


class Networks(internet.World):
    """The host's namespace and the internet's, without a cay-egress of the test's own."""

    def __init__(self, zone):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="cay-egress-", dir="/var/tmp"))
        self.dir.chmod(0o755)
        number = next(self.numbers)
        self.host, self.net = f"cayt-{os.getpid()}-host{number}", f"cayt-{os.getpid()}-net{number}"
        self.zone, self.sandboxes, self.processes = zone, [], []
        try:
            self.make_networks()
            self.make_certificates()
            self.start_internet()
        except BaseException:
            self.close()
            raise

    def close(self):
        for process in self.processes:
            process.kill()
            process.wait()
        for pid in internet.run("ip", "netns", "pids", self.net).split():
            os.kill(int(pid), signal.SIGKILL)  # what servers there have started, as `git daemon` does
        for name in (self.host, self.net):
            internet.run("ip", "netns", "delete", name)
        shutil.rmtree(self.dir, ignore_errors=True)

    def asked(self):
        return self.asked_log.read_text()

    def requests(self):
        """The requests that the stand-in web servers got: `METHOD TARGET HOST` a line."""
        log = self.dir / "requests.log"
        return log.read_text() if log.exists() else ""


class Stack:
    """A server whose every part runs in the host's namespace, and this thread with it."""

    def __init__(self, zone=None, egress_args=(), cayd_args=(), keep_args=(), user=USER, domain=None,
                 program=BUILD / "src/egress/cay-egress"):
        self.networks, self.server = Networks(zone or ZONE), None
        self.home = os.open("/proc/self/ns/net", os.O_RDONLY)
        with open(f"/run/netns/{self.networks.host}", "rb") as f:
            self.enter(f.fileno())
        try:
            self.server = OwnServer(keep_args=(
                f"--egress={program}", "--egress-processes=1", f"--egress-user={EGRESS_USER}",
                f"--egress-arg=--egress-dns-servers={internet.DNS}",
                f"--egress-arg=--egress-ca-file={self.networks.ca}",
                *(f"--egress-arg={arg}" for arg in egress_args), *keep_args), cayd_args=cayd_args, user=user,
                domain=domain)
        except BaseException:
            self.close()
            raise
        self.cay = Client(self.server.url, self.server.key())

    @staticmethod
    def enter(fd):
        if internet.libc.setns(fd, CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns")

    def pids(self, name):
        """Processes of this server's, without their children of the same name: cay-privd's tasks end by themselves, at
        any time, and have no successor."""
        found = {}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                command = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
                parent = int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            if command.split(b"\0")[0].endswith(f"/{name}".encode()) and str(self.server.run).encode() in command:
                found[int(pid)] = parent
        return [pid for pid, parent in found.items() if parent not in found]

    def trust_internet(self):
        """Where programs inside are given no option for it, the template itself has to know the stand-in's authority. Its tree
        is reachable from privd's mount namespace alone."""
        tree = self.server.state / "privd/disk/templates/1/rootfs/etc/ssl/certs/ca-certificates.crt"
        subprocess.run(["nsenter", "-t", str(self.pids("cay-privd")[0]), "-m", "tee", "-a", tree], check=True,
                       input=self.networks.ca.read_text(), text=True, stdout=subprocess.DEVNULL)

    def kill(self, name, how=signal.SIGKILL):
        return kill_all(lambda: self.pids(name), how)

    def wait_replaced(self, name, old):
        wait_replaced(lambda: self.pids(name), old)

    def ask(self, method, path, body=None):
        """A request to cay-egress as cayd makes it: the process that makes it."""
        who = pwd.getpwnam(USER)
        p = subprocess.Popen([sys.executable, "-c", AS_CAYD, str(who.pw_uid), str(who.pw_gid),
                              str(self.server.run / "egress-0.ctl"), method, path],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        p.stdin.write("" if body is None else json.dumps(body))
        p.stdin.close()
        return p

    def control(self, method, path, body=None):
        """Status and text of its answer."""
        with self.ask(method, path, body) as p:
            status, _, text = p.stdout.read().partition("\n")
        return int(status), text.strip()

    def place(self, sandbox):
        """SLOT/GENERATION of a sandbox: what cay-egress says when that is refused something."""
        with self.ask("GET", "/v1/events") as p:
            try:
                assert p.stdout.readline() == "200\n" and "hello" in p.stdout.readline()
                sandbox.run(f"curl -s --max-time 20 http://{internet.HOST_ADDRESS}/")
                while (event := json.loads(p.stdout.readline()))["sandbox"] != sandbox.id:
                    pass
                return f"{event['slot']}/{event['gen']}"
            finally:
                p.kill()

    def put(self, sandbox, policy, ceiling=None, place=None):
        """A policy that E2B's network object cannot say. Status and text of cay-egress's answer."""
        body = {"id": sandbox.id, "tenant": "tenant1", "policy": policy, "ceilings": [ceiling] if ceiling else []}
        return self.control("PUT", f"/v1/sandboxes/{place or self.place(sandbox)}", body)

    def close(self):
        if self.server:
            self.server.stop()
        self.enter(self.home)
        os.close(self.home)
        self.networks.close()


@pytest.fixture(scope="module")
def stack():
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    s = Stack()
    yield s
    s.close()


@pytest.fixture
def box(stack):
    made = []

    def make(**fields):
        end = time.monotonic() + ANSWER_SECONDS  # the test before may have killed something that is just being started
        while True:
            try:
                made.append(stack.cay.create(**fields))
                return made[-1]
            except AssertionError as e:
                if e.args[0][0] != 503 or time.monotonic() > end:
                    raise
                time.sleep(0.2)

    yield make
    for one in made:
        one.kill()


def library_archive(*names):
    """Python packages of the tests' own environment, for programs inside (PYTHONPATH), or a skip."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as z:
        for name in names:
            spec = importlib.util.find_spec(name)
            if spec is None:
                pytest.skip(f"the tests' Python has no {name}")
            top = pathlib.Path(spec.origin)
            for path in top.parent.rglob("*.py") if top.name == "__init__.py" else (top,):
                z.write(path, path.relative_to(top.parents[1] if top.name == "__init__.py" else top.parent))
    return data.getvalue()


def fetch(sandbox, url, *options):
    """The stand-in web server's account of the request, or the failed curl."""
    r = sandbox.run(f"curl -sS --max-time 20 {' '.join(options)} {url}")
    return json.loads(r.out) if r.exit_code == 0 and r.out.startswith("{") else r


