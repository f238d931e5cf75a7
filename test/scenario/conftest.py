"""The server that the scenarios talk to.

By default they start one of their own from the build tree (port, state and run directory apart from any
other), and stop it at the end; as root. With CAY_URL and CAY_API_KEY set they use that running server
instead; tests that need a server of their own are then skipped, saying so."""

import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time

import pytest

from client import Client
from leftovers import SLOTS_MAX, cgroup_name
from users import first_there
from waitlib import until

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("CAY_BUILD", REPOSITORY / "build"))
READY_SECONDS = 120
TEMPLATE_INODES = 4096  # the usual number takes 1.3 s of a start, and 20 s of an import
SERVERS_MAX = 4  # of one run, at a time
# Which of the processes that share the files out this is (pytest-xdist); each has users and ranges of its own.
WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
WORKER_UIDS = (SERVERS_MAX + 1) * SLOTS_MAX * 65536  # the last: badworld.World, one at a time
# Beyond the ranges of a server with the usual settings, so that both can run on one machine.
UID_BASE = int(os.environ.get("CAY_TEST_UID_BASE", 1006632960 + 16384 * 65536)) + WORKER * WORKER_UIDS
# Whom cayd and cay-egress run as. The kernel counts processes by user, so that servers side by side want users of
# their own: those that every Debian has and nothing runs as.
USER = os.environ.get("CAY_TEST_USER") or (first_there("cay", "sys"), "games", "news", "man", "mail")[WORKER]
EGRESS_USER = os.environ.get("CAY_EGRESS_USER", ("daemon", "lp", "uucp", "proxy", "backup")[WORKER])


def pytest_addoption(parser):
    parser.addoption("--probe", default=str(BUILD / "test/probe/probe"), help="the static probe")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def hold_port():
    """A socket that holds a free port: as long as it is there no other program is given that port, and a server of ours can
    listen there, as often as it is started anew. So a port that is in use has a listener which that server left."""
    s = socket.socket()
    s.bind(("127.0.0.1", 0))
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return s


class Server:
    def __init__(self, url, key, own=None):
        self.url, self.key, self.own = url, key, own


class OwnServer:
    """cay-keep and what it starts, in directories of their own. build: of another build tree; the rest:
    options beyond the usual ones; wait: for the template host, over plain HTTP; domain: of sandboxes' names, to
    which the port is put."""

    places = set()  # of those that run

    def __init__(self, build=BUILD, privd_args=(), cayd_args=(), keep_args=(), wait=True, user=USER, domain=None):
        if os.geteuid() != 0:
            pytest.skip("starting a server needs root")
        self.base = pathlib.Path(tempfile.mkdtemp(prefix="cay-test-", dir="/var/tmp"))
        self.base.chmod(0o755)
        self.state, self.run, self.log = self.base / "state", self.base / "run", self.base / "log"
        self.held = hold_port()
        self.port = self.held.getsockname()[1]
        # A range of its own: privd goes through all of its slots in turn, and counts are by range.
        self.place = next(i for i in range(SERVERS_MAX) if i not in OwnServer.places)
        OwnServer.places.add(self.place)
        self.uid_base = UID_BASE + self.place * SLOTS_MAX * 65536
        self.cgroup, self.slots_max = cgroup_name(self.state / "privd"), SLOTS_MAX
        programs = {n: build / "src" / d / n for d, n in
                    (("cayd", "cayd"), ("privd", "cay-privd"), ("job", "cay-job"), ("agent", "cay-init"))}
        self.command = [build / "src/keep/cay-keep", "--daemon", f"--listen-port={self.port}",
                        f"--state-dir={self.state}", f"--run-dir={self.run}", f"--log-file={self.log}",
                        f"--cayd={programs['cayd']}", f"--privd={programs['cay-privd']}",
                        f"--job={programs['cay-job']}", f"--agent={programs['cay-init']}",
                        f"--privd-arg=--uid-base={self.uid_base}", f"--user={user}",
                        f"--privd-arg=--template-inodes={TEMPLATE_INODES}",
                        "--cayd-arg=--sandbox-memory=512M", "--cayd-arg=--sandbox-disk=1G", "--cayd-arg=--sandbox-pids=512",
                        "--cayd-arg=--sandbox-answer-timeout=15s",
                        *(f"--privd-arg={arg}" for arg in privd_args), *(f"--cayd-arg={arg}" for arg in cayd_args),
                        *([f"--cayd-arg=--server-domain={domain}:{self.port}"] if domain else []), *keep_args]
        self.start()
        self.url = f"http://127.0.0.1:{self.port}"
        if wait:
            self.wait_for_template()

    def start(self):
        """Also again, after cay-keep was killed."""
        done = subprocess.run([str(part) for part in self.command], capture_output=True, text=True,
                              timeout=READY_SECONDS)
        assert done.returncode == 0, f"{done.stderr}\n{self.log_tail()}"
        self.keep_pid = int((self.run / "keep.pid").read_text())

    def log_tail(self):
        return self.log.read_text()[-4000:] if self.log.exists() else ""

    def key(self):
        return (self.state / "cayd" / "api-key").read_text().strip()

    def wait_for_template(self):
        """The template host is made from the machine's own programs after the first start."""
        client = Client(self.url, self.key())
        until(lambda: any(t["id"] == "host" and t["ready"] for t in client.call("GET", "/cay/v1/templates").json),
              READY_SECONDS, lambda: f"the template host\n{self.log_tail()}", every=0.1)

    def stop(self):
        os.kill(self.keep_pid, signal.SIGTERM)
        for _ in range(600):
            if not pathlib.Path(f"/proc/{self.keep_pid}").exists():
                break
            time.sleep(0.1)
        left = subprocess.run(["grep", "-c", str(self.base), "/proc/self/mountinfo"], capture_output=True, text=True)
        assert left.stdout.strip() == "0", "something is still mounted"
        OwnServer.places.discard(self.place)
        self.held.close()
        shutil.rmtree(self.base, ignore_errors=True)


@pytest.fixture(scope="session")
def server():
    if os.environ.get("CAY_URL"):
        yield Server(os.environ["CAY_URL"], os.environ["CAY_API_KEY"])
        return
    own = OwnServer()
    try:
        yield Server(own.url, own.key(), own)
    finally:
        own.stop()


@pytest.fixture(scope="session")
def own_server(server):
    """The test's own server, or None: tests that count or kill skip then."""
    return server.own


@pytest.fixture(scope="session")
def cay(server):
    return Client(server.url, server.key)


@pytest.fixture(scope="module")
def sandbox(cay):
    """A single sandbox for all tests of a file that do not spoil it."""
    with cay.create(timeout_s=1800) as box:
        yield box


@pytest.fixture(scope="session")
def new_key(cay):
    def make(tenant):
        reply = cay.call("POST", "/cay/v1/keys", {"tenant": tenant, "label": "test"})
        assert reply.status == 201, reply.body
        return reply.json["key"]
    return make


@pytest.fixture(scope="session")
def other_tenant(server, new_key):
    return Client(server.url, new_key("others"))


@pytest.fixture
def sdk_environment(server, monkeypatch):
    monkeypatch.setenv("E2B_API_URL", server.url)
    monkeypatch.setenv("E2B_SANDBOX_URL", server.url)
    monkeypatch.setenv("E2B_DOMAIN", server.url.removeprefix("http://"))


@pytest.fixture(scope="session")
def probe_path(pytestconfig):
    path = pytestconfig.getoption("--probe")
    if not os.path.exists(path):
        pytest.skip(f"the probe is not built: {path}")
    return path
