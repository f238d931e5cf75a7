"""The fate of sandboxes, their connections and their secrets when cay-egress is killed, away, or looked through: the
whole server against the stand-in internet of egresslib.py."""

import contextlib
import hashlib
import json
import os
import pathlib
import signal

import pytest

from client import Client, Sandbox
from conftest import SLOTS_MAX
from egresslib import Stack, box, fetch, internet  # noqa: F401: fixtures
from test_egress_api import look_for, writable_memory
from waitlib import until

CONNECTIONS = 40
# Bytes both ways over so many connections, each made again when it was cut.
LOAD = """
import select, socket, time
poll, held, trips, cuts = select.epoll(), {}, 0, 0
def dial():
    s = socket.create_connection(("web.example.com", %d), 20)
    s.settimeout(5)
    s.sendall(b"x\\n")
    held[s.fileno()] = s
    poll.register(s, select.EPOLLIN)
while True:
    while len(held) < %d:
        try:
            dial()
        except OSError:
            cuts += 1
    for fd, _ in poll.poll(1):
        try:
            assert held[fd].recv(100)
            held[fd].sendall(b"x")
            trips += 1
        except (OSError, AssertionError):
            poll.unregister(fd)
            held.pop(fd).close()
            cuts += 1
    with open("/dev/shm/load.new", "w") as f:
        f.write(f"{trips} {cuts}")
    import os
    os.rename("/dev/shm/load.new", "/dev/shm/load")
""" % (internet.ECHO_PORT, CONNECTIONS)
# Whatever is denied, all the time: by name, by address, through the explicit proxy, and datagrams.
PROBE = """
import os, socket
targets = [("other.example.net", 80), (%r, 80), (%r, 80), (%r, 8080), ("127.0.0.1", 3128)]
counts = {"refused": 0, "nothing": 0, "leak": 0}
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
n = 0
while True:
    n += 1
    host, port = targets[n %% len(targets)]
    what = b"http://other.example.net/leak" if port == 3128 else b"/leak"
    try:
        udp.sendto(b"leak", (%r, 5353))
    except OSError:
        pass
    try:
        with socket.create_connection((host, port), 0.3) as s:
            s.settimeout(0.3)
            s.sendall(b"GET %%s HTTP/1.1\\r\\nHost: other.example.net\\r\\nConnection: close\\r\\n\\r\\n" %% what)
            text = s.recv(65536)
        counts["refused" if b"egress_denied" in text else "leak" if text else "nothing"] += 1
    except OSError:
        counts["nothing"] += 1
    with open("/dev/shm/probe.new", "w") as f:
        f.write(" ".join(f"{k}={v}" for k, v in counts.items()))
    os.rename("/dev/shm/probe.new", "/dev/shm/probe")
""" % (internet.OTHER, internet.METADATA, internet.PRIVATE, internet.DNS)


@pytest.fixture(scope="module")
def stack(tmp_path_factory):
    """The key that its credentials are sealed with is a file that only root can read, and only root can get to."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    key = tmp_path_factory.mktemp("root-only", numbered=True) / "seal.key"
    key.parent.chmod(0o700)
    key.write_bytes(os.urandom(32))
    key.chmod(0o600)
    s = Stack(keep_args=(f"--egress-key-file={key}",))
    s.seal_key = key
    yield s
    s.close()


def start(sandbox, name, program):
    assert sandbox.write(f"/dev/shm/{name}.py", program.encode()).status == 200
    sandbox.run(f"setsid python3 /dev/shm/{name}.py >/dev/shm/{name}.log 2>&1 </dev/null &")


def test_killed_under_load(stack, box):
    """Connections are cut, and made again once it is back; the sandbox lives; denied traffic never passes, neither
    while it is away nor when it comes back. Every denied target answers others: the control."""
    one = box(network={"denyOut": ["0.0.0.0/0"], "allowOut": ["web.example.com"]})
    for address in (internet.OTHER, internet.METADATA, internet.PRIVATE):
        reached = internet.inside(stack.networks.host,
                                  lambda a=address: internet.http.client.HTTPConnection(a, 80, timeout=10))
        internet.inside(stack.networks.host, lambda c=reached: c.request("GET", "/control"))
        assert reached.getresponse().status == 200
        reached.close()
    start(one, "probe", PROBE)
    start(one, "load", LOAD)

    def load():
        text = one.run("cat /dev/shm/load").out.split()
        return [int(n) for n in text] or [0, 0]

    def probe():
        return {k: int(v) for k, v in (part.split("=") for part in one.run("cat /dev/shm/probe").out.split())}

    until(lambda: load()[0] > 1000 and probe().get("refused", 0) > 5)
    for _ in range(2):
        cuts = load()[1]
        killed = stack.kill("cay-egress")
        assert one.run("echo alive").out == "alive\n"
        # Not all: one that was just being made when it died has not been cut.
        until(lambda c=cuts: load()[1] >= c + CONNECTIONS // 2, 90)
        # The rest is counted from when the next one is there, not from before the kill.
        stack.wait_replaced("cay-egress", killed)
        before, seen = load(), probe()
        until(lambda b=before: load()[0] > b[0] + 1000, 90)
        until(lambda s=seen: probe()["refused"] > s["refused"] + 5)
    counts = probe()
    assert counts["leak"] == 0, counts
    assert "/leak" not in stack.networks.requests() and "/control" in stack.networks.requests()
    assert "other.example.net" not in stack.networks.asked()


def test_a_paused_sandbox_outlives_it(stack, box):
    """Its processes go on afterwards, where they were, and have the network that they had."""
    one = box(network={"denyOut": ["0.0.0.0/0"], "allowOut": ["web.example.com"]})
    pid = one.run("sleep 1000 >/dev/null 2>&1 & echo $!").out.strip()
    assert stack.cay.call("POST", f"/sandboxes/{one.id}/pause", {}).status == 204
    stack.wait_replaced("cay-egress", stack.kill("cay-egress"))
    assert stack.cay.call("GET", f"/sandboxes/{one.id}").json["state"] == "paused"
    assert stack.cay.call("POST", f"/v2/sandboxes/{one.id}/connect", {"timeout": 60}).status == 201
    assert one.run(f"kill -0 {pid} && echo there").out == "there\n"
    until(lambda: "path" in (got if isinstance(got := fetch(one, "http://web.example.com/"), dict) else {}))
    assert "egress_denied" in one.run("curl -sS --max-time 20 http://other.example.net/").out


def certificate(sandbox):
    return sandbox.run("cat /etc/ssl/certs/cay-egress.pem").out


def test_made_while_it_is_away(stack):
    """cay-keep is held still, so that cay-egress is not started again. The sandbox is made; nothing leaves it; then it
    has its network, and the certificate of its tenant, which did not exist before."""
    key = stack.cay.call("POST", "/cay/v1/keys", {"tenant": "later", "label": "test"}).json["key"]
    cay = Client(stack.server.url, key)
    until(lambda: stack.pids("cay-egress"))  # a cay-keep that is held still would not start it
    os.kill(stack.server.keep_pid, signal.SIGSTOP)
    try:
        for pid in stack.kill("cay-egress"):
            until(lambda p=pid: pathlib.Path(f"/proc/{p}/stat").read_text().rpartition(")")[2].split()[0] == "Z")
        reply = cay.call("POST", "/cay/v1/sandboxes", {
            "templateID": "host", "timeout": 300,
            "policy": {"rules": [{"action": "allow", "domains": ["web.example.com"], "paths": ["/good"]}]}})
        assert reply.status == 201, reply.body
        one = Sandbox(cay, reply.json)
        for where in (f"http://{internet.OTHER}/away", f"http://{internet.METADATA}/away", "http://web.example.com/away"):
            assert one.run(f"curl -sS --max-time 1 {where}").exit_code != 0
        assert certificate(one) == ""
    finally:
        os.kill(stack.server.keep_pid, signal.SIGCONT)
    with contextlib.closing(contextlib.ExitStack()) as ending:
        ending.callback(one.kill)
        until(lambda: certificate(one))
        assert until(lambda: one.run("tail -c 2000 /etc/ssl/certs/ca-certificates.crt").out.endswith(certificate(one)))
        assert fetch(one, "https://web.example.com/good")["tls"]
        assert "egress_denied" in one.run("curl -sS --max-time 20 https://web.example.com/bad").out
        assert "/away" not in stack.networks.requests()


def test_cayd_dies_before_the_certificate_came(stack):
    """cay-egress is held still: the sandbox is made without its tenant's certificate, and cayd, which knows that,
    is killed. The next one finds it out, once; a sandbox that has it is not given it again."""
    has = stack.cay.create()
    kept = certificate(has)
    key = stack.cay.call("POST", "/cay/v1/keys", {"tenant": "restarted", "label": "test"}).json["key"]
    cay = Client(stack.server.url, key)
    held = until(lambda: stack.pids("cay-egress"))
    assert kept
    for pid in held:
        os.kill(pid, signal.SIGSTOP)
    try:
        one = cay.create()
        stack.wait_replaced("cayd", stack.kill("cayd"))
        until(lambda: [b.run("echo alive").out for b in (one, has)] == ["alive\n"] * 2, patient=True)
        assert certificate(one) == ""  # the control: it is not there by itself
        has.run("rm /etc/ssl/certs/cay-egress.pem", user="root")
    finally:
        for pid in held:
            os.kill(pid, signal.SIGCONT)
    with contextlib.ExitStack() as ending:
        ending.callback(one.kill)
        ending.callback(has.kill)
        until(lambda: certificate(one))
        assert one.run("tail -c 2000 /etc/ssl/certs/ca-certificates.crt").out.endswith(certificate(one))
        assert certificate(has) == ""


def test_a_key_of_the_administrators(stack):
    """It is opened anew at each start, and none is made beside it."""
    body = {"tenant": "tenant1", "name": "k", "value": "a-value-of-some-length", "bind": {"kind": "bearer", "domains": ["a.example"]}}
    status, text = stack.control("POST", "/v1/seal", body)
    assert status == 200, text
    record = {"name": "k", "sealed": json.loads(text)["sealed"], "bind": body["bind"]}
    put = {"id": "x", "tenant": "tenant1", "policy": {}, "ceilings": [], "credentials": [record], "proxy": None}
    assert answer_of(stack, put) == ""
    kept = stack.seal_key.read_bytes()
    try:
        stack.seal_key.write_bytes(os.urandom(32))
        stack.kill("cay-egress")
        until(lambda: "was not made here" in answer_of(stack, put))  # the control: another key
        stack.seal_key.write_bytes(b"too short")
        stack.kill("cay-egress")
        until(lambda: "32 bytes" in stack.server.log.read_text())
    finally:
        stack.seal_key.write_bytes(kept)
    until(lambda: answer_of(stack, put) == "")
    assert not (stack.server.state / "egress/seal.key").exists()


def answer_of(stack, put):
    """Why it refuses that, "" if it does not; or that it is not there."""
    try:
        return stack.control("PUT", "/v1/sandboxes/4000/1", put)[1]
    except ValueError:
        return "away"


# -- where a secret is, and where it is not ------------------------------------------------------------

SECRET, HOLDER = "vB3-" + "real-model-key-90c1", "cay-secret:MODEL_KEY"
AGENT = """
import json, os, ssl, time, urllib.request
key = os.environ["API_KEY"]
request = urllib.request.Request("https://web.example.com/v1/chat", b"x", {"Authorization": f"Bearer {key}", "X-Own": key})
answer = urllib.request.urlopen(request).read()
kept = [answer, json.loads(answer)]
with open(os.path.expanduser("~/answer"), "wb") as f:
    f.write(answer + key.encode())
time.sleep(300)
"""


def processes_inside(stack):
    """Of this server's sandboxes: by whom they belong to."""
    first, found = stack.server.uid_base, []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            status = pathlib.Path(f"/proc/{pid}/status").read_text()
            uid = int(status.split("\nUid:")[1].split()[0])
            if first <= uid < first + SLOTS_MAX * 65536:
                found.append(pid)
    return found


def in_files(pids, value, skip=None):
    """Of those that these processes, which share a mount namespace, see and that are a sandbox's own, so not of the machine's
    /usr. The first one that lives through the search tells. skip: directories of that name."""
    for pid in pids:
        found, seen = [], 0
        for top in ("home", "root", "tmp", "var", "run", "dev/shm", "etc", "opt", "srv"):
            for folder, inner, names in os.walk(f"/proc/{pid}/root/{top}"):
                inner[:] = [name for name in inner if name != skip]
                for path in (f"{folder}/{name}" for name in names):
                    with contextlib.suppress(OSError):
                        if os.path.isfile(path) and not os.path.islink(path):
                            seen += 1
                            found += [path] if value in pathlib.Path(path).read_bytes() else []
        if os.path.exists(f"/proc/{pid}/root/usr"):
            assert seen > 100
            return found
    return None


def holders(stack, program):
    return [pid for pid in stack.pids(program) if any(SECRET.encode() in part for part in writable_memory(pid))]


def test_a_secret_is_nowhere_inside(stack, box):
    """An agent that speaks to a model through it has the placeholder in its environment, memory and files: the
    control of a search that finds the key nowhere, the server's own side included."""
    reply = stack.cay.call("POST", "/cay/v1/secrets", {
        "name": "MODEL_KEY", "value": SECRET, "bind": {"kind": "placeholder", "domains": ["web.example.com"], "headers": ["Authorization", "X-Own"]}})
    assert reply.status == 201, reply.body
    made = stack.cay.call("POST", "/cay/v1/sandboxes", {
        "templateID": "host", "timeout": 300, "envVars": {"API_KEY": HOLDER},
        "policy": {"rules": [{"action": "allow", "domains": ["web.example.com"]}],
                   "inject": [{"credential": "MODEL_KEY", "domains": ["web.example.com"]}]}}).json
    with Sandbox(stack.cay, made) as one:
        start(one, "agent", AGENT)
        answer = json.loads(until(lambda: one.run("cat ~/answer").out).removesuffix(HOLDER))
        for name, value in (("Authorization", f"Bearer {SECRET}"), ("X-Own", SECRET)):
            assert answer["digests"][name] == hashlib.sha256(value.encode()).hexdigest()
        keys = [stack.seal_key, stack.server.state / "egress/ca/default.key"]
        never = [SECRET.encode(), keys[0].read_bytes(), keys[1].read_bytes().splitlines()[1]]
        sought = {value: [] for value in (*never, HOLDER.encode())}
        looked = 0
        for pid in processes_inside(stack):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended, with what it had
                for value, found in sought.items():
                    found += [f"memory of {pid}" for part in writable_memory(pid) if value in part]
                    found += [f"{name} of {pid}" for name in ("environ", "cmdline")
                              if value in pathlib.Path(f"/proc/{pid}/{name}").read_bytes()]
                looked += 1
        assert looked >= 2  # cay-init and the agent
        agents = [place.split()[-1] for place in sought[HOLDER.encode()] if place.startswith("environ")]
        for value, found in sought.items():
            found += in_files(agents, value)
        assert [sought[value] for value in never] == [[], [], []]
        control = " ".join(sought[HOLDER.encode()])
        assert "memory of" in control and "environ of" in control and "/answer" in control, control
        for program in ("cayd", "cay-privd", "cay-keep"):  # cay-egress has it while it may be needed
            assert not holders(stack, program), program
        assert SECRET not in json.dumps(stack.cay.call("GET", "/cay/v1/audit?limit=1000").json)
        assert SECRET.encode() not in stack.cay.call("GET", f"/sandboxes/{one.id}/metrics").body
        assert SECRET not in one.run("curl -sS http://cay.internal/denials; curl -sS http://cay.internal/allowed").out
    assert stack.cay.call("DELETE", "/cay/v1/secrets/MODEL_KEY").status == 204
    until(lambda: not holders(stack, "cay-egress"))
    look_for(stack, SECRET)
