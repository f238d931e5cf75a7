"""Commands with a policy of their own: what they reach, what they cannot reach of their sandbox, and that
nothing of them stays. Against the stand-in internet; each attempt with its control."""

import base64
import concurrent.futures
import hashlib
import http.client
import json
import os
import signal
import subprocess
import urllib.parse

import pytest

import leftovers
from egresslib import BUILD, internet, stack  # noqa: F401: a fixture
from waitlib import until

WEB, OTHER = "http://web.example.com/", "http://other.example.net/"
ALLOW_WEB = {"rules": [{"name": "web only", "action": "allow", "domains": ["web.example.com"]}]}
ALLOW_BOTH = {"rules": [{"name": "both", "action": "allow", "domains": ["web.example.com", "other.example.net"]}]}
CURL = "curl -sS -o /dev/null -w '%{http_code} ' --max-time 20"
SECONDS = 30


class Box:
    """A sandbox that is asked by POST /cay/v1/sandboxes/ID/exec."""

    def __init__(self, stack, policy):  # noqa: F811
        self.cay = stack.cay
        made = self.cay.call("POST", "/cay/v1/sandboxes", {"templateID": "host", "timeout": 900, "policy": policy})
        assert made.status == 201, made.body
        self.id = made.json["sandboxID"]
        self.path = f"/cay/v1/sandboxes/{self.id}"

    def ask(self, command, policy=None, **more):
        body = {"shell" if isinstance(command, str) else "command": command, **more}
        return self.cay.call("POST", f"{self.path}/exec", {**body, "policy": policy} if policy is not None else body)

    def run(self, command, policy=None, **more):
        reply = self.ask(command, policy, **more)
        assert reply.status == 200, reply.body
        return reply.json

    def out(self, command, policy=None, **more):
        done = self.run(command, policy, **more)
        assert done["exit_code"] == 0, done
        return done["stdout"]

    def set_policy(self, policy):
        reply = self.cay.call("PUT", f"{self.path}/policy", policy)
        assert reply.status == 204, reply.body

    def wait_file(self, path):
        self.out(f"until [ -e {path} ]; do sleep 0.05; done", timeout_ms=SECONDS * 1000)

    def kill(self):
        self.cay.call("DELETE", f"/sandboxes/{self.id}")


@pytest.fixture(scope="module")
def box(stack):  # noqa: F811
    one = Box(stack, ALLOW_BOTH)
    yield one
    one.kill()


@pytest.fixture
def own(stack):  # noqa: F811
    made = []

    def make(policy):
        made.append(Box(stack, policy))
        return made[-1]

    yield make
    for one in made:
        one.kill()


def together(*calls):
    with concurrent.futures.ThreadPoolExecutor(len(calls)) as pool:
        return [f.result() for f in [pool.submit(c) for c in calls]]


# -- what it is for ----------------------------------------------------------------------------------

def test_a_shell_and_a_fetch_tool_have_rights_of_their_own_at_once(box):
    def meet(mine, theirs):
        return f"touch /tmp/{mine}; until [ -e /tmp/{theirs} ]; do sleep 0.05; done; {CURL} {WEB}; {CURL} {OTHER}"

    shell, fetch = together(lambda: box.run(meet("a", "b"), "deny"), lambda: box.run(meet("b", "a"), ALLOW_WEB))
    assert shell["stdout"].split() == ["403", "403"] and fetch["stdout"].split() == ["200", "403"]
    assert box.out(f"{CURL} {WEB}; {CURL} {OTHER}").split() == ["200", "200"]  # the sandbox's own
    assert [v["name"] for v in shell["violations"]] == ["web.example.com", "other.example.net"]
    assert [v["name"] for v in fetch["violations"]] == ["other.example.net"]
    assert "allowed: web.example.com" in fetch["violations"][0]["reason"]
    all_of_it = box.cay.call("GET", f"{box.path}/denials").json["denials"]
    assert {v["command"] for v in all_of_it} == {v["command"] for v in shell["violations"] + fetch["violations"]}
    log = box.cay.call("GET", f"/cay/v1/audit?sandbox={box.id}").json
    assert {r.get("command") for r in log if r["name"] == "web.example.com"} > {None, fetch["violations"][0]["command"]}


def test_it_has_no_priority_of_the_daemons(box):
    assert box.out("nice; cut -d' ' -f19 /proc/1/stat", "deny").split() == ["0", "0"]


def test_it_is_never_wider_than_its_sandbox(own):
    one = own(ALLOW_WEB)
    done = one.run(f"{CURL} {WEB}; {CURL} {OTHER}; curl -sS --max-time 20 {OTHER}", "allow")
    assert done["stdout"].startswith("200 403 ") and done["violations"][0]["name"] == "other.example.net"
    body = json.loads(done["stdout"].removeprefix("200 403 "))
    assert body["error"]["type"] == "egress_denied" and "the sandbox's own policy" in body["message"]
    assert body["command_allows"] == ["everything else"] and body["sandbox_allows"] == ["web.example.com"]
    # Nor than the ceiling, here [egress] ceiling = public, when both would let it.
    one.set_policy({"default": "allow"})
    done = one.run(f"{CURL} http://{internet.PRIVATE}/; {CURL} {WEB}", "allow")
    assert done["stdout"].split() == ["403", "200"] and "limit" in done["violations"][0]["reason"]
    for policy in ("everything", {"default": "no"}, {"rules": 1}, 7):
        assert one.ask(["true"], policy).status == 400
    assert "65536" in one.ask(["true"], {"rules": [{"action": "allow", "domains": ["a" * 60 + ".example"] * 1100}]}).json["message"]
    refused = one.ask(["true"], {"inject": [{"credential": "KEY", "domains": ["web.example.com"]}]})
    assert refused.status == 400 and "does not use the credential" in refused.json["message"]


def test_a_placeholder_is_replaced_where_both_policies_name_it(stack, own):  # noqa: F811
    """In a command with a policy of its own: on requests that `inject` of both names its credential for, and on no others."""
    value, name = "sk-of-a-command-0123", "COMMANDS"
    made = stack.cay.call("POST", "/cay/v1/secrets", {"name": name, "value": value, "bind": {
        "kind": "placeholder", "domains": ["web.example.com", "other.example.net"], "insecure": True}})
    assert made.status == 201, made.body

    def inject(**more):
        return {**ALLOW_BOTH, "inject": [{"credential": name, "domains": ["web.example.com"], **more}]}

    one = own(inject(paths=["/v1*"]))
    both = ["web.example.com", "other.example.net"]
    table = [(None, "web.example.com/v1/a", True), (None, "web.example.com/v2", False),
             (inject(), "web.example.com/v1/a", True), (inject(), "web.example.com/v2", False),
             (inject(paths=["/v1/a"]), "web.example.com/v1/a", True), (inject(paths=["/v1/a"]), "web.example.com/v1/b", False),
             (inject(domains=both), "other.example.net/v1/a", False), (ALLOW_BOTH, "web.example.com/v1/a", False),
             ({"mode": "warn", "inject": inject()["inject"]}, "web.example.com/v1/a", False)]
    for policy, target, passes in table:
        for scheme in ("http", "https"):
            said = json.loads(one.out(f"curl -sS --max-time 20 -H 'X-Api-Key: cay-secret:{name}' {scheme}://{target}", policy))
            if passes:
                assert said["digests"]["X-Api-Key"] == hashlib.sha256(value.encode()).hexdigest(), (policy, target, said)
            else:
                assert said["error"]["type"] == "egress_denied" and name in said["message"], (policy, target, said)


def test_what_a_command_reads_is_searched_for_its_sandboxs_secrets(stack, own):  # noqa: F811
    """Its policy injects nothing, or less: what a host has kept of a secret is no more for it than for its sandbox, whose files
    it writes. The control: a sandbox that was not given the secret reads it."""
    value, name = "sk-of-a-sandbox-0123456789", "KEPT"
    made = stack.cay.call("POST", "/cay/v1/secrets", {"name": name, "value": value, "bind": {
        "kind": "bearer", "domains": ["web.example.com"], "insecure": True}})
    assert made.status == 201, made.body
    place = stack.networks.dir / "site/web.example.com"
    place.mkdir(parents=True, exist_ok=True)
    (place / "kept").write_text(f"it was {value}\n")
    inject = {**ALLOW_WEB, "inject": [{"credential": name, "domains": ["web.example.com"]}]}
    get = {"rules": [{"action": "allow", "domains": ["web.example.com"], "methods": ["GET"]}]}
    one, other = own(inject), own(ALLOW_WEB)
    for how in ("http://", "--http1.1 https://", "--http2 https://"):
        ask = f"curl -sS --max-time 20 {how}web.example.com/kept"
        assert other.out(ask) == f"it was {value}\n"
        for policy in (None, inject, ALLOW_WEB, get):
            said = one.out(ask, policy)
            assert said.startswith("it was [redacted]") and value not in said, (how, policy, said)


def test_a_command_denies_the_way(own):
    """A rerouted name leads a command to the sandbox's address too, unless its own policy denies that address, or the name that
    it is resolved from. The control: without the deny rule it goes there."""
    for to in (f"{internet.OTHER}:80", "other.example.net:80"):
        one = own({**ALLOW_BOTH, "reroute": [{"domain": "web.example.com", "to": to}]})
        for rule, status in ((None, "200"), ({"addresses": [f"{internet.OTHER}/32"]}, "403"), ({"addresses": ["0.0.0.0/0"], "ports": [80]}, "403"),
                             ({"addresses": [f"{internet.WEB}/32"]}, "200"),
                             ({"domains": ["other.example.net"]}, "200" if to.startswith(internet.OTHER) else "403")):
            rules = [{"action": "allow", "domains": ["web.example.com"]}]
            if rule:
                rules.insert(0, {"action": "deny", "name": "not there", **rule})
            done = one.run(f"{CURL} http://web.example.com/", {"rules": rules})
            assert done["stdout"].split() == [status], (to, rule, done)


def test_a_policy_that_changes_meanwhile_cuts_commands_too(own):
    one = own(ALLOW_BOTH)
    hold = ("import socket,time\ns = socket.create_connection(('web.example.com', 443))\nopen('/tmp/held', 'w')\n"
            "print('got', s.recv(1))")
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        held = pool.submit(one.run, ["python3", "-c", hold], ALLOW_WEB)
        one.wait_file("/tmp/held")
        one.set_policy({})
        done = held.result()
    assert "ConnectionResetError" in done["stderr"], done
    assert one.out(f"{CURL} {WEB}", ALLOW_WEB).split() == ["403"]


def test_what_it_leaves_running_ends_with_it(box):
    left = "sleep {} >/dev/null 2>&1 & echo started"
    assert box.out(left.format(4321)) == "started\n"
    assert box.out(left.format(4322), "deny") == "started\n"
    running = box.out(["ps", "axo", "args"])
    assert "sleep 4321" in running and "sleep 4322" not in running
    box.out(["pkill", "-f", "sleep 4321"])
    late = box.run("sleep 4323", "deny", timeout_ms=500)
    assert late["timed_out"] and late["exit_code"] is None
    assert "sleep 4323" not in box.out(["ps", "axo", "args"])


# -- ways out of it ----------------------------------------------------------------------------------

VICTIM = """
import ctypes, os, socket, sys, time
for f in ("/tmp/victim.sock", "/tmp/victim.pid"):
    if os.path.exists(f):
        os.unlink(f)
ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_ulong(-1 % 2**64), 0, 0, 0)  # ptrace is allowed: not Yama's doing
abstract, path, tcp = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX), socket.socket()
abstract.bind("\\0victim"); path.bind("/tmp/victim.sock"); tcp.bind(("0.0.0.0", 7777))
for s in (abstract, path, tcp):
    s.listen(8)
os.chmod("/tmp/victim.sock", 0o777)
with open("/tmp/victim.new", "w") as f:
    f.write(str(os.getpid()))
os.rename("/tmp/victim.new", "/tmp/victim.pid")
time.sleep(600)
"""
ATTACK = """
import ctypes, errno, json, os, socket, struct, sys
libc, pid, out = ctypes.CDLL(None, use_errno=True), int(open("/tmp/victim.pid").read()), {}

def call(result):
    return "done" if result >= 0 else errno.errorcode[ctypes.get_errno()]

def attempt(f):
    try:
        return call(f())
    except OSError as e:
        return errno.errorcode[e.errno]

def connect(family, to):
    with socket.socket(family) as s:
        s.connect(to)
    return 0

def trace():
    rc = libc.ptrace(0x4206, pid, 0, 0)  # PTRACE_SEIZE
    ctypes.get_errno() if rc < 0 else libc.ptrace(17, pid, 0, 0)
    return rc

def take_descriptor():
    p = libc.syscall(434, pid, 0)  # pidfd_open
    return libc.syscall(438, p, 3, 0) if p >= 0 else p  # pidfd_getfd

def raw():
    socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)
    return 0

def ask_name(server):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(5)
        s.sendto(struct.pack(">6H", 7, 256, 1, 0, 0, 0) + b"\\x0esecret-in-name\\x07example\\x03com\\0\\0\\x01\\0\\x01", (server, 53))
        return s.recv(512)[-4:].hex()

def named():
    return [p for p in os.listdir("/proc") if p.isdigit() and b"victim" in open(f"/proc/{p}/cmdline", "rb").read()]

namespace = f"/proc/{pid}/ns/net"
out["see"] = "done" if named() else "none"
out["trace"] = attempt(trace)
out["descriptor"] = attempt(take_descriptor)
out["signal"] = attempt(lambda: libc.kill(pid, 0))
out["open namespace"] = attempt(lambda: os.open(namespace, os.O_RDONLY))
out["enter namespace"] = attempt(lambda: libc.setns(os.open(namespace, os.O_RDONLY), 0x40000000))
out["enter own"] = attempt(lambda: libc.setns(os.open("/proc/self/ns/net", os.O_RDONLY), 0))
out["enter PID 1"] = attempt(lambda: libc.setns(os.open("/proc/1/ns/net", os.O_RDONLY), 0))
out["root of PID 1"] = attempt(lambda: os.open("/proc/1/root/proc", os.O_RDONLY))
out["unshare"] = attempt(lambda: libc.unshare(0x40000000))
out["uncover"] = attempt(lambda: libc.umount2(b"/proc", 2))
out["abstract"] = attempt(lambda: connect(socket.AF_UNIX, "\\0victim"))
out["loopback"] = attempt(lambda: connect(socket.AF_INET, ("127.0.0.1", 7777)))
out["agent"] = attempt(lambda: connect(socket.AF_INET, ("192.0.2.2", 7777)))
out["raw"] = attempt(raw)
out["path"] = attempt(lambda: connect(socket.AF_UNIX, "/tmp/victim.sock"))
out["names"] = [ask_name("198.18.0.1"), ask_name("8.8.8.8")]
print(json.dumps(out))
"""
OUTSIDE_OF_IT = {"see": "none", "trace": "ESRCH", "descriptor": "ESRCH", "signal": "ESRCH", "open namespace": "ENOENT",
                       "enter namespace": "ENOENT", "enter own": "EPERM", "enter PID 1": "EACCES", "root of PID 1": "EACCES",
                       "unshare": "EPERM", "uncover": "EPERM", "abstract": "ECONNREFUSED", "loopback": "ECONNREFUSED",
                       "agent": "ECONNREFUSED", "raw": "EPERM"}
REACHED = ("see", "trace", "descriptor", "signal", "open namespace", "abstract", "loopback", "agent")


@pytest.mark.parametrize("as_whom", ["", "sudo "])
def test_nothing_of_the_sandboxs_own_network_is_reached_from_inside(stack, own, as_whom):  # noqa: F811
    one = own(ALLOW_BOTH)
    for name, text in (("victim", VICTIM), ("attack", ATTACK)):
        one.out(["tee", f"/tmp/{name}.py"], stdin=text)
    one.out(f"{as_whom}python3 /tmp/victim.py >/dev/null 2>&1 &")  # the sandbox's own, and of the same user
    one.wait_file("/tmp/victim.pid")
    tried = json.loads(one.out(f"{as_whom}python3 /tmp/attack.py", "deny"))
    control = json.loads(one.out(f"{as_whom}python3 /tmp/attack.py"))
    names = tried.pop("names")
    assert {k: v for k, v in tried.items() if k != "path"} == OUTSIDE_OF_IT
    assert tried["path"] == "done"  # files are shared, and sockets that are files too: docs/policy.md
    assert {k: control[k] for k in REACHED} == dict.fromkeys(REACHED, "done")  # nothing but the command sandbox is in the way
    assert control["enter namespace"] == control["unshare"] == "EPERM"
    # Questions are answered here, with addresses of cay's own, and asked nowhere.
    assert all(a.startswith(("c612", "c613")) for a in names), names
    assert "secret-in-name" not in stack.networks.asked()


def test_a_command_sandbox_has_the_nodes_and_masks_of_its_sandbox(box):
    """And what must not be read is not read there either: an empty answer, but of the one that is no mask."""
    look = "stat -c '%i %d' /dev/null; stat -c '%i %d' /proc/keys; cat /proc/locks; cat /proc/pressure/cpu; " \
           "cut -d: -f3 /proc/self/cgroup | sort -u; wc -c < /proc/cpuinfo"
    lines = box.run(look, "deny")["stdout"].splitlines()
    assert lines[:2] == [box.out("stat -c '%i %d' /dev/null").strip()] * 2
    assert lines[2] == "/" and int(lines[3]) > 0 and len(lines) == 4


def test_every_escape_is_refused_in_a_command_sandbox_too(box, probe_path):
    """The questions of test_probe.py to a sandbox, here as its root. Connections are taken by cay-egress, and then refused."""
    with open(probe_path, "rb") as f:
        probe = f.read()
    for at in range(0, len(probe), 500000):
        box.out("cat >> /tmp/probe; chmod 755 /tmp/probe", user="root", encoding="base64",
                stdin=base64.b64encode(probe[at:at + 500000]).decode())
    lines = box.run(["/tmp/probe", "all"], "deny", user="root", timeout_ms=SECONDS * 1000)["stdout"].splitlines()
    found = {case: verdict for case, verdict, _ in (line.split("\t") for line in lines)}
    assert list(found.values()).count("refused") > 200
    assert {c for c, v in found.items() if v == "OPEN"} <= {f"net.{c}" for c in (
        "tcp_public", "tcp_metadata", "tcp_private", "tcp6_public", "tcp6_metadata", "tcp_mapped", "udp_dns", "udp6")}


def test_commands_do_not_see_each_other(box):
    listen = ("import socket,time,os\ns = socket.socket(socket.AF_UNIX); s.bind('\\0other'); s.listen(1)\n"
              "t = socket.socket(); t.bind(('127.0.0.1', 7788)); t.listen(1)\nopen('/tmp/listens', 'w')\n"
              "while not os.path.exists('/tmp/looked'): time.sleep(0.05)\n")
    look = ("import os,socket\n"
            "print([p for p in os.listdir('/proc') if p.isdigit() and b'listens' in open(f'/proc/{p}/cmdline','rb').read()"
            " and p != str(os.getpid())])\n"
            "for f, a in ((socket.AF_UNIX, '\\0other'), (socket.AF_INET, ('127.0.0.1', 7788))):\n"
            "    print(socket.socket(f).connect_ex(a))\n")
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        listening = pool.submit(box.run, ["python3", "-c", listen], "deny")
        box.wait_file("/tmp/listens")
        seen = box.out(["python3", "-c", look], ALLOW_WEB).split("\n")
        box.out(["touch", "/tmp/looked"])
        assert listening.result()["exit_code"] == 0
    assert seen[:3] == ["[]", "111", "111"]  # ECONNREFUSED


# -- bounds, kills, what stays -----------------------------------------------------------------------

def test_so_many_at_a_time_and_no_more(own):
    """How many command sandboxes there may be: test_privd.py. A machine may have memory for fewer processes of one user."""
    one = own({})
    replies = together(*[lambda: one.ask(["sleep", "1"], "deny")] * 3)
    assert [r.status for r in replies] == [200] * 3, [r.body for r in replies]
    replies = together(*[lambda: one.ask(["sleep", "1"], "deny")] * 12)
    assert {r.status for r in replies} <= {200, 429} and replies[0].status, [r.body for r in replies]
    assert sum(r.status == 429 for r in replies) >= 4
    assert one.run(["true"], "deny")["exit_code"] == 0


def test_a_killed_egress_changes_nothing_of_what_is_allowed(stack, own):  # noqa: F811
    one = own(ALLOW_BOTH)
    # A connection that stays open keeps the old listener's port busy, and is not in the new one's way.
    hold = "import socket,time; s = socket.create_connection(('web.example.com', 80)); open('/tmp/held', 'w'); time.sleep(60)"
    one.out(f'python3 -c "{hold}" >/dev/null 2>&1 &')
    one.wait_file("/tmp/held")
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        running = pool.submit(one.run, f"touch /tmp/runs; until [ -e /tmp/go ]; do sleep 0.05; done; "
                                       f"{CURL} --retry 30 --retry-all-errors --retry-delay 1 {WEB}; {CURL} {OTHER}", ALLOW_WEB)
        one.wait_file("/tmp/runs")
        stack.wait_replaced("cay-egress", stack.kill("cay-egress"))
        one.out(["touch", "/tmp/go"])
        assert running.result()["stdout"].split()[-2:] == ["200", "403"]
    assert one.out(f"{CURL} --retry 30 --retry-all-errors --retry-delay 1 {OTHER}").split()[-1] == "200"


@pytest.mark.parametrize("program", ["cay-privd", "cayd"])
def test_nothing_is_left_when_who_asked_is_killed(stack, own, program):  # noqa: F811
    one = own(ALLOW_BOTH)
    if program == "cay-privd":  # so that as few slots are ready as will be after the next death of it
        restart(stack, program)
        wait_until_it_answers(one)
    before = leftovers.settled(stack.server)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        cut = pool.submit(lambda: one.ask("touch /tmp/there; sleep 600", "deny"))
        one.wait_file("/tmp/there")
        # The control: a command sandbox is seen. Of an ended one the process may not be collected yet: "[cay-init] <defunct>".
        assert one.out(["ps", "axo", "args"]).splitlines().count("cay-init") == 2
        restart(stack, program)
        try:
            assert cut.result().status in (404, 503)
        except (ConnectionError, OSError, AssertionError) as e:
            assert program == "cayd", e
    wait_until_it_answers(one)
    assert leftovers.returned(stack.server, before) == before
    assert one.out(f"{CURL} {WEB}; {CURL} {OTHER}", ALLOW_WEB).split() == ["200", "403"]
    assert one.out(f"{CURL} {WEB}; {CURL} {OTHER}").split() == ["200", "200"]  # its own network lives on


def restart(stack, program):  # noqa: F811
    stack.wait_replaced(program, stack.kill(program))


def wait_until_it_answers(one):
    until(lambda: one.ask(["true"], "deny").status == 200, SECONDS, patient=True)


def test_nothing_is_left_of_many(stack, own):  # noqa: F811
    one = own(ALLOW_BOTH)
    one.run(["true"], "deny")
    before = leftovers.settled(stack.server)
    for i in range(12):
        assert one.run(["sh", "-c", f"exit {i}"], "deny")["exit_code"] == i
    assert leftovers.returned(stack.server, before) == before


# -- the call itself ---------------------------------------------------------------------------------

def test_results(box):
    done = box.run("cat; echo out; echo err >&2; exit 3", stdin="in\n")
    assert (done["stdout"], done["stderr"], done["exit_code"], done["signal"]) == ("in\nout\n", "err\n", 3, None)
    assert done["truncated"] is False and done["timed_out"] is False and done["violations"] == []
    assert box.run("kill -TERM $$", "deny")["signal"] == "SIGTERM"
    assert box.run("echo $A; pwd; id -un", "deny", env={"A": "b"}, cwd="/usr", user="root")["stdout"] == "b\n/usr\nroot\n"
    assert box.run("printf '\\377'")["stdout"] == "\ufffd"
    assert box.run("cat", encoding="base64", stdin="/wA=")["stdout"] == "/wA="
    much = box.run("yes | head -c 3000000", max_output_bytes=1000)
    assert len(much["stdout"]) == 1000 and much["truncated"] and much["exit_code"] == 0
    late = box.run("echo first; sleep 60", timeout_ms=300)
    assert late["timed_out"] and late["stdout"] == "first\n" and late["duration_ms"] >= 300


class Lines:
    """A command whose answer comes in lines, while it runs."""

    def __init__(self, box, command, policy=None, **more):
        where = urllib.parse.urlsplit(box.cay.url)
        self.connection = http.client.HTTPConnection(where.hostname, where.port, timeout=SECONDS)
        self.connection.request("POST", f"{box.path}/exec", json.dumps({
            "shell": command, "stream": True, **({} if policy is None else {"policy": policy}), **more}),
            {"X-API-Key": box.cay.key, "Content-Type": "application/json"})
        self.reply = self.connection.getresponse()
        assert self.reply.status == 200, self.reply.read()

    def line(self):
        return json.loads(self.reply.readline())

    def rest(self):
        """Standard output, standard error, and the last line."""
        lines = [json.loads(line) for line in self.reply.read().splitlines()]
        texts = ["".join(line.get(key, "") for line in lines) for key in ("stdout", "stderr")]
        assert all(line.keys() <= {"stdout", "stderr"} for line in lines[:-1]), lines
        return *texts, lines[-1]

    def close(self):
        self.connection.close()


@pytest.mark.parametrize("policy", [None, "deny"])
def test_output_comes_as_it_is_printed(box, policy):
    box.out("rm -f /tmp/go")
    live = Lines(box, f"echo one; until [ -e /tmp/go ]; do sleep 0.05; done; printf '\\303'; sleep 0.3; printf '\\251 \\377'; "
                 f"echo two >&2; {CURL} {WEB}; exit 3", policy, timeout_ms=SECONDS * 1000)
    assert live.line() == {"stdout": "one\n"}  # while it waits for this:
    box.out("touch /tmp/go")
    out, err, end = live.rest()
    assert (out, err) == (f"\u00e9 \ufffd{'403' if policy else '200'} ", "two\n")
    assert (end["exit_code"], end["signal"], end["truncated"], end["timed_out"]) == (3, None, False, False)
    assert [v["name"] for v in end["violations"]] == (["web.example.com"] if policy else [])


def test_what_a_slow_reader_has_no_room_for_is_dropped_and_said(box):
    box.out("rm -f /tmp/over")
    live = Lines(box, "yes 0123456789abcde | head -c 40000000; touch /tmp/over", max_output_bytes=100000, timeout_ms=SECONDS * 1000)
    box.wait_file("/tmp/over")  # it is not held up
    out, _, end = live.rest()
    assert end["truncated"] and end["exit_code"] == 0 and 100000 < len(out) < 40000000
    assert set(out.split("\n")) >= {"0123456789abcde"}
    out, _, end = Lines(box, "yes | head -c 3000000", max_output_bytes=4 << 20).rest()
    assert len(out) == 3000000 and not end["truncated"]
    late = Lines(box, "echo first; sleep 60", "deny", timeout_ms=500).rest()
    assert late[0] == "first\n" and late[2]["timed_out"] and late[2]["exit_code"] is None
    refused = box.ask(["/not/there"], stream=True)
    assert refused.status == 400 and "/not/there" in refused.json["message"]
    assert box.ask("true", stream="yes").status == 400


def test_a_command_with_a_policy_ends_when_its_reader_goes(box):
    def runs():
        return "sleep 4324" in box.out(["ps", "axo", "args"])

    live = Lines(box, "echo on; sleep 4324", "deny", timeout_ms=600000)
    assert live.line() == {"stdout": "on\n"}
    until(runs)
    live.close()
    until(lambda: not runs())


@pytest.mark.parametrize("body, why", [
    ({}, "either"), ({"command": []}, "command"), ({"command": ["a"], "shell": "b"}, "either"), ({"command": ["a", 1]}, "command[1]"),
    ({"shell": "true", "polcy": "deny"}, "polcy"), ({"shell": "true", "timeout_ms": 0}, "timeout_ms"),
    ({"shell": "true", "max_output_bytes": 10**9}, "max_output_bytes"), ({"shell": "true", "encoding": "hex"}, "encoding"),
    ({"shell": "true", "stdin": "%", "encoding": "base64"}, "base64"), ({"shell": "true", "env": {"a": 1}}, "env"),
    ({"command": ["/not/there"]}, "/not/there"), ({"command": ["true"], "cwd": "/nope"}, "/nope"),
    ({"command": ["true"], "user": "nobody-here", "policy": "deny"}, "nobody-here")])
def test_bad_requests_say_why(box, body, why):
    refused = box.cay.call("POST", f"{box.path}/exec", body)
    assert refused.status == 400 and why in refused.json["message"], refused.body


def test_unknown_sandboxes_and_those_of_others(stack, box):  # noqa: F811
    assert stack.cay.call("POST", "/cay/v1/sandboxes/inothere/exec", {"shell": "true"}).status == 404
    from client import Client
    key = stack.cay.call("POST", "/cay/v1/keys", {"tenant": "others", "label": "test"}).json["key"]
    assert Client(stack.server.url, key).call("POST", f"{box.path}/exec", {"shell": "true"}).status == 404


def test_no_filters_of_its_own(stack):  # noqa: F811
    """Also where the sandbox may have system call filters, a command sandbox may not: their number is the sandbox's."""
    code = ("import ctypes; l = ctypes.CDLL(None, use_errno=True); "
            "print(l.syscall(317, 1, 0, None), ctypes.get_errno())")
    made = stack.cay.call("POST", "/cay/v1/sandboxes", {"templateID": "host", "seccompFilters": True})
    assert made.status == 201, made.body
    try:
        said = [stack.cay.call("POST", f"/cay/v1/sandboxes/{made.json['sandboxID']}/exec",
                               {"command": ["python3", "-c", code], **more}).json["stdout"].split()
                for more in ({}, {"policy": {"rules": []}})]
    finally:
        stack.cay.call("DELETE", f"/sandboxes/{made.json['sandboxID']}")
    assert said == [["-1", "14"], ["-1", "22"]]  # EFAULT: they are there; EINVAL: they are not


def test_refusals_are_read_inside_without_curl(box):
    assert box.out("curl -s -o /dev/null " + WEB + "; cay-denials", "deny").rstrip().endswith("nothing is allowed to leave by name")
    assert box.out(["cay-denials"], ALLOW_WEB) == "Nothing was refused.\n"  # of this command's network
    assert json.loads(box.out(["cay-denials", "--json"]))["denials"][-1]["name"] == "web.example.com"  # of all of them


def test_the_command_line(stack, box):  # noqa: F811
    def cay(*arguments, stdin=b""):
        return subprocess.run([BUILD / "src/cli/cay", *arguments], input=stdin, capture_output=True, timeout=60, check=False,
                              env={**os.environ, "CAY_URL": stack.server.url, "E2B_API_KEY": stack.server.key()})

    done = cay("exec", "--policy=deny", box.id, "sh", "-c", f"cat; {CURL} {WEB}; exit 4", stdin=b"in ")
    assert done.returncode == 4 and done.stdout.split() == [b"in", b"403"] and b"cay: refused: web.example.com" in done.stderr
    with subprocess.Popen([BUILD / "src/cli/cay", "exec", "--policy=deny", box.id, "sh", "-c", "echo now; sleep 4325"],
                          stdout=subprocess.PIPE, stdin=subprocess.DEVNULL,
                          env={**os.environ, "CAY_URL": stack.server.url, "E2B_API_KEY": stack.server.key()}) as p:
        assert p.stdout.readline() == b"now\n"  # as it is printed
        p.kill()
    until(lambda: "sleep 4325" not in box.out(["ps", "axo", "args"]))
    assert cay("exec", "--policy=deny", "--timeout=300ms", box.id, "sleep", "60").returncode == 124
    assert cay("exec", "--policy=deny", box.id, "sh", "-c", "kill $$").returncode == 128 + signal.SIGTERM
    assert cay("exec", "--policy=deny", box.id, "not-there").returncode == 127
    assert cay("exec", "--policy=deny", "-t", box.id, "true").returncode == 2
    assert cay("exec", "--policy=/not/there", box.id, "true").returncode == 2
    told = json.loads(cay("exec", "--json", "--policy=deny", box.id, "sh", "-c", f"{CURL} {WEB}").stdout)
    assert told["exitCode"] == 0 and told["stdout"] == "403 " and told["violations"][0]["name"] == "web.example.com"


def test_a_command_has_the_limits_that_the_sandbox_has_by_then(own):
    box = own(ALLOW_WEB)
    takes = lambda: box.run(["python3", "-c", "bytearray(300 << 20)"], ALLOW_WEB)["exit_code"] == 0  # noqa: E731
    assert takes()
    for size, enough in ((200, False), (512, True)):
        assert box.cay.call("POST", f"{box.path}/resize", {"memoryBytes": size << 20}).status == 200
        assert takes() == enough
