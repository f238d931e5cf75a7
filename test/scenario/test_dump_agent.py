"""The agent of a sandbox that cay-privd dumps and restores: what it refuses, what it serves again and by which key, and who may speak to it
about that."""

import base64
import errno
import pathlib
import re
import socket
import subprocess

import pytest

import privdlib
from agentlib import BACK, TAKE, Agent, go_on, socket_in, started_pid
from privdlib import HOST, MIB
from test_checkpoint import counts, goes_on, is_below, kill_inside
from test_checkpoint_restore import first_id
from test_dump import STAGE_MEMORY, Box, dump, needs, privd, programs_at_work, send_dump, server, steady  # noqa: F401 (fixtures)
from test_kept import create_body, create_on, drop, inside, kepts, marks, pid_of
from waitlib import until

AGENT_UID = 65533
NEW_KEY = b"n" * 32
NO_NEW_PRIVS = ("setsid python3 -c 'import ctypes, time; ctypes.CDLL(None).prctl(38, 1, 0, 0, 0); time.sleep(1000)' "
                "> /dev/null 2>&1 < /dev/null & sleep 2")


# So that each program has something to do.
MUCH = "setsid python3 -c 'import os, time; x = os.urandom(40_000_000); time.sleep(1000)' > /dev/null 2>&1 < /dev/null & sleep 2"


def restore(p, c, name, number, key=NEW_KEY):
    s = c.ask(privdlib.CREATE, create_body(name, number, flags=2, key=key))
    assert s.status == 0, p.log.read_text()[-1500:]
    s.pid = pid_of(p, s)
    s.agent = Agent(49983, s.pid, None, key.hex())
    return s


def health(agent, key=None):
    return agent.raw("GET", "/health", headers={"X-Cay-Agent-Key": key.hex()} if key else None)[0]


def b64(text):
    return base64.b64encode(text.encode()).decode()


def read_until(stream, word):
    """The output of a terminal, up to a word."""
    seen = b""
    while word not in seen:
        _, message = stream.next()
        for event in message.get("event", {}).values():
            seen += base64.b64decode(event.get("pty", ""))
    return seen


def pids(agent):
    status, reply = agent.call("List", {})
    assert status == 200
    return {p["pid"] for p in reply.get("processes", [])}


def addresses(agent):
    """A program asks for a netlink socket, which cay-init makes."""
    code = "import socket; s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0); print(s.family.name)"
    return agent.run("python3", "-c", code, user="root").text().strip()


def terminals(pid):
    """The instances of devpts that are mounted in a sandbox: their options."""
    lines = pathlib.Path(f"/proc/{pid}/mountinfo").read_text().splitlines()
    return sorted(sorted(line.split()[-1].split(",")) for line in lines if line.split()[4] == "/dev/pts")


def mounts(pid):
    """Each mount: its place and type."""
    rows = [line.split() for line in pathlib.Path(f"/proc/{pid}/mountinfo").read_text().splitlines()]
    return sorted((row[4], row[row.index("-") + 1]) for row in rows)


def is_dumpable(pid):
    """Whether the files of PID 1 in /proc are its own user's, and not root's."""
    return pathlib.Path(f"/proc/{pid}/environ").stat().st_uid == first_id(pid) + AGENT_UID


def is_whole(agent):
    """It starts commands in their own control group and makes netlink sockets, and no program inside looks into it."""
    assert addresses(agent) == "AF_NETLINK"
    assert "/work" not in agent.sh("cat /proc/self/cgroup", user="root").text()  # their own is the root of what they see
    stream = agent.start("sleep", "1000")
    pid = started_pid(stream)
    assert pid in pids(agent)
    host = next(p.name for p in pathlib.Path("/proc").iterdir() if p.name.isdigit() and is_that(p, agent.pid, pid))
    assert any(line.endswith("/work") for line in pathlib.Path(f"/proc/{host}/cgroup").read_text().splitlines())
    assert agent.call("SendSignal", {"process": {"pid": pid}, "signal": "SIGNAL_SIGKILL"})[0] == 200
    stream.close()
    assert not is_dumpable(agent.pid)
    return True


def dump_prepared(c, box, number):
    box.agent.prepare()
    r = dump(c, box, number)
    assert r.status == 0, r.text(0, 192)


def is_that(path, init, pid):
    try:
        found = re.search(r"^NSpid:\s+\d+\s+(\d+)$", (path / "status").read_text(), re.M)
        return found and int(found[1]) == pid and (path / "ns/pid").readlink() == pathlib.Path(f"/proc/{init}/ns/pid").readlink()
    except OSError:
        return False


def test_it_goes_on_with_its_new_key_and_all_that_it_had(privd):  # noqa: F811
    c = privd.channel()
    box = Box(privd, c, "ifirst")
    before, mounted = terminals(box.pid), mounts(box.pid)
    shell = box.agent.start("/bin/bash", "--norc", envs={"PS1": "> "}, pty={"size": {"cols": 80, "rows": 24}}, tag="mine")
    pty = started_pid(shell)
    assert box.agent.call("SendInput", {"process": {"pid": pty}, "input": {"pty": b64("word=kept; stty size; tty\n")}})[0] == 200
    assert b"24 80" in read_until(shell, b"/dev/pts/")
    sleeper = started_pid(box.agent.start("sleep", "1000"))
    box.agent.prepare()
    assert dump(c, box, 7).status == 0
    t = restore(privd, c, "iafter", 7)
    assert health(t.agent) == 204 and health(t.agent, b"k" * 32) == 401
    assert {pty, sleeper} <= pids(t.agent)
    again = t.agent.stream("Connect", {"process": {"tag": "mine"}})
    assert started_pid(again) == pty
    assert t.agent.call("SendInput", {"process": {"pid": pty}, "input": {"pty": b64("echo $word-$word; stty size\n")}})[0] == 200
    assert b"24 80" in read_until(again, b"kept-kept\r\n24 80")
    assert t.agent.call("Update", {"process": {"pid": pty}, "pty": {"size": {"cols": 99, "rows": 33}}}) == (200, {})
    assert t.agent.call("SendInput", {"process": {"pid": pty}, "input": {"pty": b64("stty size\n")}})[0] == 200
    assert b"33 99" in read_until(again, b"33 99")
    assert is_whole(t.agent) and terminals(t.pid) == before and len(before) == 2
    assert mounts(t.pid) == mounted
    assert t.agent.sh("cat /etc/hostname; hostname", user="root").text() == "iafter\niafter\n"
    goes_on(t.pid)
    made = c.command_sandbox(t)
    assert made.status == 0 and c.command_sandbox_end(t, made.number).status == 0


HOW_MANY = """
import os
n = 0
try:
    while n < 100:
        os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY)
        n += 1
except OSError:
    print(n)
"""


def in_command_sandbox(init, key=b"r" * 32):
    """The agent of a sandbox's one command sandbox: PID 1 of a pid namespace below the sandbox's."""
    user = pathlib.Path(f"/proc/{init}/ns/user").readlink()
    for p in pathlib.Path("/proc").iterdir():
        try:
            if p.name.isdigit() and (p / "comm").read_text() == "cay-init\n" and (p / "ns/user").readlink() == user and int(p.name) != init:
                return Agent(49983, int(p.name), None, key.hex())
        except OSError:
            continue
    raise AssertionError("there is none")


def test_command_sandboxes_have_terminals_of_their_own_afterwards(privd):  # noqa: F811
    """As many as before: after a dump that was refused, and after a restore."""
    c = privd.channel()
    box = Box(privd, c, "ifirstp")

    def counted(s, agent):
        made = c.command_sandbox(s)
        assert made.status == 0
        n = [a.run("python3", "-c", HOW_MANY, user="root").text() for a in (agent, in_command_sandbox(agent.pid))]
        assert c.command_sandbox_end(s, made.number).status == 0
        return n

    before = counted(box, box.agent)
    assert before == ["64\n", "16\n"]
    assert box.agent.sh(NO_NEW_PRIVS, user="root").end
    assert dump(c, box, 7).status == -errno.EOPNOTSUPP
    assert counted(box, box.agent) == before
    kill_inside(box.pid, b"time.sleep(1000)")
    assert dump(c, box, 7).status == 0
    t = restore(privd, c, "iafterp", 7)
    assert counted(t, t.agent) == before


def test_its_names_are_files_that_a_program_may_have_open(privd):  # noqa: F811
    """They have its new name afterwards, and one that was removed stays away."""
    c = privd.channel()
    box = Box(privd, c, "ifirstwithalongname")
    code = "f = open('/etc/hosts'); open('/tmp/there', 'w'); import time; time.sleep(1000)"
    box.agent.start("python3", "-c", code, user="root")
    until(lambda: pathlib.Path(f"/proc/{box.pid}/root/tmp/there").exists())
    assert box.agent.sh("rm /etc/hostname", user="root").end
    dump_prepared(c, box, 7)
    t = restore(privd, c, "iafterq", 7)
    said = t.agent.sh("cat /etc/hosts; ls /etc/hostname 2> /dev/null; hostname", user="root").text()
    assert said.splitlines()[1:] == ["127.0.1.1\tiafterq", "::1\tlocalhost ip6-localhost ip6-loopback", "iafterq"]
    dump_prepared(c, t, 7)
    u = create_on(c, "ifilesq", 7)  # control: a start makes them anew
    assert inside(privd, u, "cat /etc/hostname").strip() == "ifilesq"


def test_it_goes_on_under_another_privd(privd):  # noqa: F811
    """Whose filters let cay-init make netlink sockets by other numbers."""
    c = privd.channel()
    box = Box(privd, c, "ifirstb")
    mounted = mounts(box.pid)
    box.agent.prepare()
    assert dump(c, box, 7).status == 0
    privd.crash()
    privd.start()
    c = privd.channel()
    t = restore(privd, c, "iafterb", 7)
    assert health(t.agent) == 204 and is_whole(t.agent)
    t.agent.prepare()
    assert dump(c, t, 8).status == 0  # and once more
    u = restore(privd, c, "ithirdb", 8, key=b"3" * 32)
    assert health(u.agent) == 204 and is_whole(u.agent) and mounts(u.pid) == mounted
    assert health(u.agent, NEW_KEY) == 401


def test_after_a_dump_that_is_refused_it_serves_with_its_old_key(privd):  # noqa: F811
    c = privd.channel()
    box = Box(privd, c, "ifirstc")
    before = terminals(box.pid)
    sleeper = started_pid(box.agent.start("sleep", "1000"))
    assert box.agent.sh(NO_NEW_PRIVS, user="root").end
    for _ in range(2):
        box.agent.prepare()
        assert dump(c, box, 7).status == -errno.EOPNOTSUPP
        assert health(box.agent) == 204 and sleeper in pids(box.agent) and is_whole(box.agent)
        assert terminals(box.pid) == before
        goes_on(box.pid)
    kill_inside(box.pid, b"time.sleep(1000)")
    assert dump(c, box, 7).status == 0  # control: it was that process; and without prepare, which the task does itself


def test_one_whose_image_finds_no_room_serves_with_its_old_key(privd):  # noqa: F811
    """Its refusal comes when all processes have stood still."""
    c = privd.channel()
    box = Box(privd, c, "ifirstd", disk=16 * MIB)
    assert box.agent.sh(MUCH, user="root").end
    box.agent.prepare()
    assert dump(c, box, 7).status in (-errno.EDQUOT, -errno.ENOSPC)
    assert health(box.agent) == 204 and is_whole(box.agent) and len(terminals(box.pid)) == 2
    goes_on(box.pid)


def test_what_is_prepared_serves_nothing_until_it_goes_on(privd):  # noqa: F811
    c = privd.channel()
    box = Box(privd, c, "ifirste")
    assert box.agent.raw("POST", "/cay/go-on")[0] == 204  # nothing to undo
    box.agent.prepare()
    box.agent.prepare()
    for method, path in (("GET", "/health"), ("GET", "/metrics"), ("POST", "/process.Process/List"), ("POST", "/init"), ("GET", "/none")):
        assert box.agent.raw(method, path)[0] == 503, path
    assert health(box.agent, b"x" * 32) == 401
    assert not is_dumpable(box.pid)
    assert box.agent.raw("POST", "/cay/go-on")[0] == 204
    assert health(box.agent) == 204 and is_whole(box.agent)


@pytest.mark.parametrize("path", ["/cay/prepare", "/cay/go-on"])
def test_without_the_key_it_is_neither_prepared_nor_gone_on_with(privd, path):  # noqa: F811
    c = privd.channel()
    box = Box(privd, c, "ifirstf" + path[-2:])
    if path == "/cay/go-on":
        box.agent.prepare()
    before = health(box.agent)
    assert box.agent.raw("POST", path, headers={"X-Cay-Agent-Key": "00" * 32})[0] == 401
    assert health(box.agent) == before == (503 if path == "/cay/go-on" else 204)
    assert box.agent.raw("POST", path)[0] == 204  # control
    assert health(box.agent) == (204 if path == "/cay/go-on" else 503)


def test_one_with_filters_of_its_own_is_refused_by_name(privd):  # noqa: F811
    c = privd.channel()
    limits = privdlib.LIMITS.pack(256 * MIB, 256 * MIB, 1000, 256, 1024, 128)
    body = privdlib.struct.pack("<II", HOST, 0) + limits + b"ifirstg".ljust(32, b"\0") + b"k" * 32 + privdlib.struct.pack("<II", 0, 0)
    s = c.ask(privdlib.CREATE, body)
    assert s.status == 0
    agent = Agent(49983, pid_of(privd, s), None, (b"k" * 32).hex())
    status, said, _ = agent.raw("POST", "/cay/prepare")
    assert status == 409 and b"seccompFilters" in said
    r = dump(c, s, 7)
    assert r.status == -errno.EBUSY and "seccompFilters" in r.text(0, 192)
    assert health(agent) == 204 and kepts(c) == set()


INSIDE = """
import errno, socket, struct
def said(kind):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.settimeout(20)
    s.connect("\\0cay-init")
    try:
        s.send(struct.pack("=IIII", kind, 0, 0, 0))
        return s.recv(512)
    except (BrokenPipeError, ConnectionResetError):
        return b""
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
try:
    s.bind("\\0cay-init")
    bound = 0
except OSError as e:
    bound = e.errno
s.bind("\\0cay-init-too")
print([bound, said(1), said(2), said(3)])
"""


def closed_to_its_root(agent):
    return agent.run("python3", "-c", INSIDE, user="root").text().strip() == str([errno.EADDRINUSE, b"", b"", b""])


def test_nothing_inside_speaks_to_it_about_a_dump(privd):  # noqa: F811
    """Nor has the name. Control: from outside of its pid namespace the same message is answered."""
    c = privd.channel()
    box = Box(privd, c, "ifirsth")
    assert closed_to_its_root(box.agent)
    assert health(box.agent) == 204 and not is_dumpable(box.pid)
    assert go_on(box.pid, BACK)[:1] == b"F"
    # a process whose pid namespace is the sandbox's, though it came from outside, is refused as well
    in_both = ["nsenter", "-t", str(box.pid), "-n", "-p", "python3", "-c", INSIDE]
    assert subprocess.run(in_both, capture_output=True, text=True).stdout.strip() == str([errno.EADDRINUSE, b"", b"", b""])
    assert health(box.agent) == 204
    assert dump(c, box, 7).status == 0
    t = restore(privd, c, "iafterh", 7)
    assert closed_to_its_root(t.agent) and health(t.agent) == 204 and not is_dumpable(t.pid)
    assert go_on(t.pid, TAKE) == b"R"
    until(lambda: is_dumpable(t.pid))  # control: what the message does


def test_a_flood_of_connections_from_inside_does_not_keep_privd_out(privd):  # noqa: F811
    c = privd.channel()
    box = Box(privd, c, "ifirsti")
    flood = ("import socket\nwhile True:\n  s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n  s.setblocking(False)\n"
             "  try:\n    s.connect('\\0cay-init')\n  except OSError:\n    pass\n  s.close()\n  open('/tmp/floods', 'w').close()")
    box.agent.start("python3", "-c", flood, user="root")
    until(lambda: pathlib.Path(f"/proc/{box.pid}/root/tmp/floods").exists())
    box.agent.prepare()
    r = dump(c, box, 7)
    if r.status != 0:  # mostly one waits, which is refused; as does CRIU one that was closed before it was taken, of any socket
        assert "cay-init's own socket" in r.text(0, 192) or "in-flight" in r.text(0, 192), r.text(0, 192)
        assert health(box.agent) == 204 and is_whole(box.agent)
        kill_inside(box.pid, b"setblocking")
        assert dump(c, box, 7).status == 0
    t = restore(privd, c, "iafteri", 7)
    assert health(t.agent) == 204 and is_whole(t.agent)


def is_at_work(p, program):
    """For this cay-privd."""
    for d in pathlib.Path("/proc").iterdir():
        try:
            if d.name.isdigit() and (d / "comm").read_text().strip() == program and is_below(p.process.pid, d.name):
                return True
        except OSError:
            continue
    return False


@pytest.mark.parametrize("program", ["cay-checkpoint", "criu", "cay-seal"])
def test_privd_killed_in_a_dump_costs_memory_alone(privd, program):  # noqa: F811
    c = privd.channel()
    box = Box(privd, c, "ifirstj" + program[-2:])
    assert box.agent.sh("echo one > /root/mark; " + MUCH, user="root").end
    box.agent.prepare()
    send_dump(c, box, 7)
    until(lambda: is_at_work(privd, program), every=0.002)
    privd.crash()
    privd.start()
    until(lambda: not programs_at_work(privd))
    c = privd.channel()
    assert c.list() == {} and kepts(c) == {7}
    until(lambda: not pathlib.Path(f"/proc/{box.pid}").exists())
    t = create_on(c, "inextj", 7)
    assert t.status == 0 and "one" in marks(privd, t)


@pytest.mark.parametrize("program", ["cay-seal", "cay-checkpoint", "criu"])
def test_privd_killed_in_a_restore_leaves_it_kept(privd, program):  # noqa: F811
    """With its memory, or where its processes were about to go on, its files alone; and the restored processes are gone."""
    c = privd.channel()
    box = Box(privd, c, "ifirstk" + program[-2:])
    assert box.agent.sh(MUCH, user="root").end
    box.agent.prepare()
    assert dump(c, box, 7).status == 0
    c.send(privdlib.CREATE, create_body("inextk", 7, flags=2))
    until(lambda: is_at_work(privd, program), every=0.002)
    privd.crash()
    privd.start()
    c = privd.channel()
    assert kepts(c) == {7} and c.list() == {}
    t = c.ask(privdlib.CREATE, create_body("ilastk", 7, flags=2, key=NEW_KEY))
    if t.status == 0:
        agent = Agent(49983, pid_of(privd, t), None, NEW_KEY.hex())
        assert health(agent) == 204 and counts(agent.pid) and is_whole(agent)
    else:
        assert t.stage == STAGE_MEMORY and create_on(c, "ilastk", 7).status == 0


def test_one_that_is_killed_before_its_dump_begins_and_one_that_is_not_taken(privd):  # noqa: F811
    """A dump that another's keeps out has not spoken to the agent: it is prepared, and goes on when told."""
    c = privd.channel()
    boxes, other = [Box(privd, c, "ifirstl"), Box(privd, c, "inextl")], Box(privd, c, "iotherl")
    for box in (*boxes, other):
        box.agent.prepare()
    seqs = [send_dump(c, box, 7 + n) for n, box in enumerate(boxes)]  # an account's share
    assert dump(c, other, 9).status == -errno.EAGAIN
    assert health(other.agent) == 503
    assert other.agent.raw("POST", "/cay/go-on")[0] == 204 and health(other.agent) == 204 and is_whole(other.agent)
    assert [c.wait(seq).status for seq in seqs] == [0, 0] and drop(c, 7).status == drop(c, 8).status == 0


OUTSIDE = """
import os, socket
def said(c):
    try:
        return repr(c.recv(9))
    except OSError as e:
        return str(e.errno)
l = socket.create_server(("::", 8000), family=socket.AF_INET6, dualstack_ipv6=True)
out = [socket.create_connection(("198.51.100.7", 443)), socket.create_connection(("127.0.0.1", 3128)), socket.create_connection(("2001:db8:1::7", 80))]
a = socket.create_connection(("127.0.0.1", 8000)), l.accept()[0]
b = socket.create_connection(("::1", 8000)), l.accept()[0]
open("/tmp/ready", "w").close()
outer = l.accept()[0]
open("/tmp/made", "w").close()
text = " ".join(map(said, [*out, outer]))
for one, other in (a, b):
    one.send(b"1"); other.send(b"2")
    text += " " + said(one) + said(other)
open("/tmp/.said", "w").write(text)
os.rename("/tmp/.said", "/tmp/said")
"""


def test_connections_to_the_outside_end(privd):  # noqa: F811
    """With an error, where their programs wait for something to come: CRIU sends a packet on each, and no other end is there. Those among
    the programs inside go on. Here the test is cay-egress, and cayd, which connects to a port inside."""
    c = privd.channel()
    box = Box(privd, c, "ifirsto")
    with socket_in(box.pid, socket.AF_INET6) as egress, socket_in(box.pid) as door:
        egress.bind(("::", 3128))
        egress.listen()
        box.agent.start("python3", "-c", OUTSIDE, user="root")
        taken = [egress.accept()[0] for _ in range(3)]
        until(lambda: pathlib.Path(f"/proc/{box.pid}/root/tmp/ready").exists())
        door.connect(("127.0.0.1", 8000))
        until(lambda: pathlib.Path(f"/proc/{box.pid}/root/tmp/made").exists())
        box.agent.prepare()
        r = dump(c, box, 7)
        assert r.status == 0, r.text(0, 192)
        for s in taken:
            s.close()
    t = restore(privd, c, "iaftero", 7)
    said = pathlib.Path(f"/proc/{t.pid}/root/tmp/said")
    until(said.exists)
    assert said.read_text() == " ".join([str(errno.ECONNRESET)] * 4 + ["b'2'b'1'"] * 2)


CONNECTIONS = """
import os, socket, struct, time
def pair():
    c = socket.create_connection(l.getsockname())
    return c, l.accept()[0]
def said(c):
    try:
        c.send(b"x")
        c.settimeout(20)
        return c.recv(9).decode()
    except OSError as e:
        return str(e.errno)
l = socket.create_server(("127.0.0.1", 0))
(ended, a), (reset, b), (whole, other) = pair(), pair(), pair()
a.close()
b.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
b.close()
other.send(b"before")
open("/tmp/made", "w").close()
while not os.path.exists("/tmp/look"):
    time.sleep(0.05)
new, end = pair()
end.send(b"new")
open("/tmp/.said", "w").write(" ".join([said(whole), said(new), said(ended), said(reset)]))
os.rename("/tmp/.said", "/tmp/said")
"""


def test_connections_inside_go_on_and_those_that_ended_are_not_connected(privd):  # noqa: F811
    """A connection with bytes on their way, a new one, one that its other side closed, and one that it reset."""
    c = privd.channel()
    box = Box(privd, c, "ifirstn")
    box.agent.start("python3", "-c", CONNECTIONS, user="root")
    until(lambda: pathlib.Path(f"/proc/{box.pid}/root/tmp/made").exists())
    box.agent.prepare()
    r = dump(c, box, 7)
    assert r.status == 0, r.text(0, 192)
    t = restore(privd, c, "iaftern", 7)
    assert t.agent.sh("touch /tmp/look", user="root").end
    said = pathlib.Path(f"/proc/{t.pid}/root/tmp/said")
    until(said.exists)
    assert said.read_text() == f"before new {errno.EPIPE} {errno.EPIPE}"


def test_a_connection_that_is_there_ends_with_the_dump(privd):  # noqa: F811
    """Also one from inside, and it can be made anew."""
    c = privd.channel()
    box = Box(privd, c, "ifirstm")
    watcher = box.agent.start("sleep", "1000")
    pid = started_pid(watcher)
    held = ("import socket, time\ns = socket.create_connection(('127.0.0.1', 49983))\nopen('/tmp/there', 'w')\ntry:\n  s.recv(1)\n"
            "except ConnectionResetError:\n  open('/tmp/ended', 'w')\ntime.sleep(1000)")
    box.agent.start("python3", "-c", held, user="root")
    until(lambda: pathlib.Path(f"/proc/{box.pid}/root/tmp/there").exists())
    box.agent.prepare()
    assert dump(c, box, 7).status == 0
    with pytest.raises((ConnectionError, socket.timeout, ValueError, TypeError)):
        while True:
            _, _ = watcher.next()
    t = restore(privd, c, "iafterm", 7)
    until(lambda: pathlib.Path(f"/proc/{t.pid}/root/tmp/ended").exists())
    assert pid in pids(t.agent)
    assert steady(lambda: t.agent.call("SendSignal", {"process": {"pid": pid}, "signal": "SIGNAL_SIGKILL"})[0]) == 200
