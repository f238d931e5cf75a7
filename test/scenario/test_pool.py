"""Sandboxes that are started before they are asked for (docs/pool.md): what a claim has and has not of the member before
it, who may have one, how many there are, and what ends them. Against privd alone, and against a whole server."""

import contextlib
import errno
import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import tempfile
import threading
import time

import pytest

import privdlib
from client import Client
from egresslib import Stack, fetch
from privdlib import CAPACITY, CONNECT, FREEZE, HOST, JOB, KILL, MIB, STAT, THAW
from test_privd import BUILD, left_behind
from waitlib import until

READY, SLOTS = 4, 12
POOL = struct.Struct("<IHHIII")  # struct privsep_pool
POOL_AT = 48  # in the answer to CAPACITY (src/contract/proto.h)
PRESTARTED = 10  # enum slot_state
OTHER = {"memory": 128 * MIB}
STALE = -errno.ESTALE


# -- cay-privd alone -------------------------------------------------------------------------------

@contextlib.contextmanager
def a_privd(**options):
    base = tempfile.mkdtemp(prefix="cay-test-", dir="/var/tmp")
    p = privdlib.Privd(BUILD, base, **{"slots_max": SLOTS, "slots_ready": READY, **options}).start()
    try:
        yield p
    finally:
        if p.process.poll() is None:
            assert p.stop() == 0, p.log.read_text()
        assert left_behind(p) == []
        shutil.rmtree(base, ignore_errors=True)


@pytest.fixture
def privd():
    with a_privd() as p:
        yield p


@pytest.fixture
def channel(privd):
    with contextlib.closing(privd.channel()) as c:
        yield c


def pool(c):
    """{template: (ready, target, claims, misses, refills)}, as CAPACITY says."""
    body = c.ask(CAPACITY).body
    rows = [POOL.unpack_from(body, POOL_AT + i * POOL.size) for i in range(8)]
    return {row[0]: row[1:] for row in rows if row[0]}


def ready(c):
    return sum(row[0] for row in pool(c).values())


def lives(pid):
    """Not as a zombie either: a child of a killed privd has no parent here that asks for it."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def members(p):
    """{slot: pid of its cay-init}, by the records of a privd (or a server's) and the kernel."""
    found = {}
    table = (p.run / "slots" / "table").read_bytes()
    for at in range(0, len(table), 256):
        _, _, slot, _, state, pid = struct.unpack_from("<IIIIIi", table, at)
        if state == PRESTARTED and lives(pid):
            found[slot] = pid
    return found


def generations(p):
    table = (p.run / "slots" / "table").read_bytes()
    return {slot: gen for slot, gen in (struct.unpack_from("<II", table, at + 8) for at in range(0, len(table), 256))}


def fill(c, name="ifirst", wanted=READY, **options):
    """Asks for one, ends it, and waits until so many members stand."""
    s = c.create(name, **options)
    assert s.status == 0
    assert c.kill(s).status == 0
    until(lambda: ready(c) == wanted, 20, lambda: f"{wanted} members: {pool(c)}")


def settled(c):
    """Nothing is being made or cleaned any more."""
    last = [None, 0]

    def same():
        now = pool(c)
        last[:] = [now, last[1] + 1 if now == last[0] else 0]
        return last[1] >= 10
    until(same, 20)
    return last[0]


def test_a_create_claims_one_and_it_is_made_again(privd, channel):
    assert pool(channel) == {}  # nothing was asked for
    fill(channel)
    stood = members(privd)
    assert len(stood) == READY
    before = pool(channel)[HOST]
    s = channel.create("iclaim")
    assert s.status == 0 and s.slot in stood
    assert lives(stood[s.slot]) and s.slot not in members(privd)
    until(lambda: ready(channel) == READY)
    after = pool(channel)[HOST]
    assert (after[2] - before[2], after[3] - before[3]) == (1, 0) and after[4] > before[4]
    assert set(channel.list()) == {"iclaim"}
    assert channel.kill(s).status == 0


def test_no_request_reaches_a_member(privd, channel):
    """By its slot and its own generation, as privd's record has them. The control: the same requests reach it once it is
    claimed, but for those that want another state."""
    fill(channel)
    requests = {KILL: b"", CONNECT: struct.pack("<I", 1), STAT: b"", privdlib.COMMAND_SANDBOX: struct.pack("<II", 0, 0) + b"k" * 32,
                privdlib.COMMAND_SANDBOX_END: struct.pack("<II", 1, 0), FREEZE: b"", THAW: b""}
    gens = generations(privd)
    for slot, pid in members(privd).items():
        assert {op: channel.ask(op, body, slot=slot, gen=gens[slot]).status for op, body in requests.items()} == \
            dict.fromkeys(requests, STALE)
        assert lives(pid)
    assert channel.list() == {} and ready(channel) == READY
    s = channel.create("icontrol")
    assert [channel.ask(op, requests[op], slot=s.slot, gen=s.gen).status for op in (STAT, CONNECT, THAW, KILL)] == [0] * 4


def test_a_member_that_was_claimed_is_never_claimed_again(channel):
    """Every claim is another use of a slot, whether the one before was ended, or its reply was lost."""
    fill(channel)
    used = set()
    for n in range(3 * READY):
        s = channel.create(f"iuse{n}")
        assert s.status == 0 and (s.slot, s.gen) not in used
        used.add((s.slot, s.gen))
        assert channel.kill(s).status == 0


def test_kinds_that_are_asked_for_share_the_members(privd, channel):
    """Two sets of limits in turns: both are claimed, and none gets a member of the other's."""
    for n in range(8):
        for name, options in ((f"ia{n}", {}), (f"ib{n}", OTHER)):
            s = channel.create(name, **options)
            assert s.status == 0
            assert channel.kill(s).status == 0
    until(lambda: ready(channel) == READY)
    settled(channel)
    before = pool(channel)[HOST]
    both = [channel.create("iboth1"), channel.create("iboth2", **OTHER)]
    limits = [channel.ask(STAT, slot=s.slot, gen=s.gen).unpack("QQ")[1] for s in both]
    assert limits == [256 * MIB, 128 * MIB]
    after = pool(channel)[HOST]
    assert (after[2] - before[2], after[3] - before[3]) == (2, 0)
    assert all(channel.kill(s).status == 0 for s in both)


@pytest.mark.parametrize("limit, value", [("memory", 128 * MIB), ("disk", 128 * MIB), ("cpu", 500), ("pids", 100), ("files", 512)])
def test_other_limits_are_never_a_members(privd, channel, limit, value):
    fill(channel)
    stood = members(privd)
    s = channel.create("iother", **{limit: value})
    assert s.status == 0 and s.slot not in stood
    assert channel.kill(s).status == 0


def test_a_create_that_finds_no_room_takes_a_members_place(channel):
    """Of all slots: each is answered, and one more is refused for want of a slot."""
    fill(channel)
    made = [channel.create(f"iroom{n}", **(OTHER if n % 2 else {})) for n in range(SLOTS)]
    assert [s.status for s in made] == [0] * SLOTS
    assert ready(channel) == 0
    assert channel.create("imore").status == -errno.EAGAIN
    assert all(channel.kill(s).status == 0 for s in made)
    until(lambda: ready(channel) == READY)


def test_a_storm_of_claims_never_exceeds_the_limit(channel):
    """More at once than there are slots, in turns with ends: as many are refused as have to be."""
    fill(channel)
    for turn in range(5):
        seqs = [channel.send_create(f"istorm{turn}x{n}") for n in range(SLOTS + 6)]
        replies = [channel.wait(seq) for seq in seqs]
        made = [r for r in replies if r.status == 0]
        assert len(made) == SLOTS and {r.status for r in replies if r.status} == {-errno.EAGAIN}
        assert len({r.slot for r in made}) == SLOTS and len(channel.list()) == SLOTS
        ends = [channel.send(KILL, slot=s.slot, gen=s.gen) for s in made]
        assert all(channel.wait(seq).status == 0 for seq in ends)
    until(lambda: ready(channel) == READY)


def test_a_template_that_is_built_anew_loses_its_members(privd, channel):
    fill(channel)
    old = members(privd)
    assert len(old) == READY
    assert channel.ask(JOB, struct.pack("<II", 1, HOST)).status == 0
    until(lambda: ready(channel) == READY)
    assert not set(old.values()) & set(members(privd).values())
    s = channel.create("inew")
    assert s.status == 0
    assert channel.kill(s).status == 0


def test_a_member_that_ends_by_itself_is_not_handed_out(privd, channel):
    fill(channel)
    slot, pid = sorted(members(privd).items())[0]
    os.kill(pid, signal.SIGKILL)
    until(lambda: slot not in members(privd))
    made = [channel.create(f"iafter{n}") for n in range(READY)]
    assert [s.status for s in made] == [0] * READY
    assert not [m for m in channel.events if m.op == privdlib.ENDED]  # no sandbox did
    assert all(channel.kill(s).status == 0 for s in made)
    until(lambda: ready(channel) == READY)


def test_members_go_when_memory_becomes_short(privd, channel):
    """Though no sandbox is created or ended meanwhile. The control: with memory the same privd has them again, from the next create on."""
    fake = privd.run / "meminfo"
    fake.write_text("MemTotal: 4000000 kB\nMemAvailable: 100000 kB\n")
    inside = ["nsenter", f"--mount=/proc/{privd.process.pid}/ns/mnt"]
    fill(channel)
    stood = members(privd)
    subprocess.run([*inside, "mount", "--bind", fake, "/proc/meminfo"], check=True)
    until(lambda: not members(privd), 20, "the members end")
    assert len(stood) == READY and not any(lives(pid) for pid in stood.values())
    subprocess.run([*inside, "umount", "/proc/meminfo"], check=True)  # over it no sandbox may mount a /proc of its own
    fake.unlink()
    time.sleep(1.1)  # the last look at the other file is so long ago that the next create's is at this one
    s = channel.create("iagain")
    assert s.status == 0 and channel.kill(s).status == 0
    until(lambda: len(members(privd)) == READY, 20, lambda: pool(channel))


def test_members_of_a_killed_privd_are_ended(privd):
    with contextlib.closing(privd.channel()) as c:
        fill(c)
        s = c.create("ilives")
        until(lambda: ready(c) == READY)
        old = members(privd)
        assert len(old) == READY
    privd.crash()
    privd.start()
    assert not [pid for pid in old.values() if lives(pid)]
    with contextlib.closing(privd.channel()) as c:
        assert set(c.list()) == {"ilives"}
        assert pool(c) == {}
        fill(c)
        assert not set(members(privd).values()) & set(old.values())
        assert c.kill(s).status == 0


def test_none_are_made_where_none_are_wanted():
    with a_privd(slots_ready=0) as p, contextlib.closing(p.channel()) as c:
        for n in range(4):
            s = c.create(f"inone{n}")
            assert s.status == 0
            assert c.kill(s).status == 0
        now = settled(c)[HOST]
        assert now[0] == 0 and now[1] == 0 and now[2] == 0 and now[3] == 4  # neither ready nor wanted; four misses
        assert members(p) == {}


# -- a whole server ----------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def stack():
    """With a cay-egress, in a network of the test's own."""
    s = Stack(keep_args=("--privd-arg=--slots-ready=4",))
    yield s
    s.close()


@pytest.fixture(scope="module")
def own(stack):
    return stack.server


@pytest.fixture(scope="module")
def cay(stack):
    return stack.cay


def counts(cay):
    return next((p for p in cay.call("GET", "/cay/v1/status").json["pool"] if p["template"] == "host"), None)


def full(cay):
    """Once as many stand as shall; the first create of a test says which."""
    def stands():
        now = counts(cay)
        return now if now and now["ready"] == now["target"] > 0 else None
    return until(stands, 20)


def claimed(cay, **fields):
    """A sandbox that was a member: the counter says so."""
    if not counts(cay):
        cay.create(**fields).kill()
    before = full(cay)
    box = cay.create(**fields)
    now = counts(cay)
    assert (now["claims"] - before["claims"], now["misses"] - before["misses"]) == (1, 0)
    return box


IDENTITY = ("hostname; cat /etc/hostname; grep -c \"$(hostname)\" /etc/hosts; cat /proc/sys/kernel/random/boot_id; "
            "cat /proc/sys/kernel/hostname; cat /proc/sys/kernel/random/uuid; od -An -N16 -tx1 /dev/urandom; "
            "cat /etc/machine-id 2>/dev/null | wc -c")


def test_a_claim_has_an_identity_of_its_own(cay):
    """Id, names, boot id and random numbers of many: right, and no two alike."""
    seen = []
    for n in range(8):
        with claimed(cay) as box:
            said = box.run(IDENTITY).out.split("\n")
            assert said[0] == said[1] == said[4] == box.id and said[2] == "1"
            seen.append((said[0], said[3], said[5], said[6]))
    for column in zip(*seen):
        assert len(set(column)) == len(column)
    assert open("/proc/sys/kernel/random/boot_id").read().strip() not in {s[1] for s in seen}


def test_machine_ids_are_not_shared_with_the_host(cay):
    with claimed(cay) as one, claimed(cay) as two:
        host = pathlib.Path("/etc/machine-id")
        ids = [box.run("cat /etc/machine-id 2>/dev/null", user="root").out.strip() for box in (one, two)]
        assert not host.exists() or host.read_text().strip() not in ids


def said_to(box, what):
    """The output of each command; of processes their names, as the last command's may be still there."""
    said = {name: box.run(command, user="root").out for name, command in what.items()}
    return {**said, "processes": set(said["processes"].split())}


def test_a_claim_has_nothing_but_what_its_create_gave(cay):
    """Environment, processes, files, sockets, mounts: as of a sandbox that was made for its create."""
    what = {"env": "env | grep -v '^PWD=\\|^SHLVL=\\|^_=\\|^HOSTNAME=\\|^E2B_SANDBOX_ID=\\|^CAY_' | sort",
            "processes": "for p in /proc/[0-9]*; do read -r name < $p/comm && echo $name; done 2>/dev/null",
            "files": "find /etc /home /root /tmp /var/tmp /run /srv /opt -xdev -printf '%p %s %m %u\\n' 2>/dev/null | sort",
            "home": "ls -A /home/user /root /tmp /var/tmp",
            "listening": "cat /proc/net/tcp /proc/net/tcp6 | awk '$4 == \"0A\" {print $2}' | sort",
            "mounts": "awk '{print $2, $3}' /proc/mounts | sort"}
    with claimed(cay, envVars={"MINE": "1"}) as one:
        first = said_to(one, what)
        one.run("touch /tmp/dirty /home/user/dirty; echo dirty >> /etc/hosts; sleep 1000 >/dev/null 2>&1 &", user="root")
    with cay.create(envVars={"MINE": "1"}, metadata={"a": "b"}) as two:
        assert said_to(two, what) == first
        assert "dirty" not in two.run("cat /etc/hosts; ls -A /tmp /home/user").out
    assert "MINE=1\n" in first["env"] and first["processes"] == {"cay-init", "bash"}


def test_the_age_that_shows_is_the_members(cay):
    """PID 1 and the clock of the machine tell how long it stood, and nothing more: no process is older than it."""
    with claimed(cay) as box:
        starts = [int(line.rsplit(")", 1)[1].split()[19]) for line in box.run("cat /proc/[0-9]*/stat 2>/dev/null", user="root").out.splitlines()]
        assert min(starts) == starts[0] and len(starts) >= 2


def test_a_policy_is_in_force_before_the_first_instruction(cay):
    """The first connection of the first command meets the policy of the create. The control: the same connection, of a
    sandbox whose policy lets it out."""
    get = "curl -sS --max-time 20 http://web.example.com/a"
    with claimed(cay, network={"denyOut": ["0.0.0.0/0"]}) as box:
        assert "egress_denied" in box.run(get).out
    with claimed(cay, network={"allowOut": ["web.example.com"], "denyOut": ["0.0.0.0/0"]}) as box:
        assert fetch(box, "http://web.example.com/a")["path"] == "/a"


def test_two_tenants_never_share(own, cay):
    keys = [cay.call("POST", "/cay/v1/keys", {"tenant": name, "label": "test"}).json["key"] for name in ("pool1", "pool2")]
    tenants = [Client(own.url, key) for key in keys]
    boxes = []
    for turn in range(4):
        for who, tenant in enumerate(tenants):
            box = tenant.create(envVars={"WHO": str(who)})
            assert box.run("ls -A /tmp /home/user; echo $WHO").out.split()[-1] == str(who)
            assert "of-another" not in box.run("ls -A /tmp").out
            box.run("touch /tmp/of-another")
            assert tenants[1 - who].call("GET", f"/sandboxes/{box.id}").status == 404
            boxes.append(box)
    assert len({box.run("cat /proc/sys/kernel/random/boot_id").out for box in boxes}) == len(boxes)
    assert all(box.kill().status == 204 for box in boxes)


def test_members_count_for_no_tenant(own, cay):
    """Not for its quota of sandboxes, nor in its usage or list; the control: one more sandbox than the quota is refused."""
    tenant = Client(own.url, cay.call("POST", "/cay/v1/keys", {"tenant": "pool3", "label": "test"}).json["key"])
    assert cay.call("PATCH", "/cay/v1/tenants/pool3/quota", {"sandboxes": 2}).status == 200
    with claimed(cay):
        full(cay)
    assert tenant.call("GET", "/cay/v1/tenants/pool3/quota").json["used"]["sandboxes"] == 0
    assert tenant.call("GET", "/v2/sandboxes").json == []
    with tenant.create(), tenant.create():
        assert tenant.call("POST", "/v2/sandboxes", {"templateID": "host"}).status == 429
    assert "pool" not in tenant.call("GET", "/cay/v1/status").json  # what all ask for is the operator's


def test_sixteen_at_once_never_exceed_a_quota(own, cay):
    tenant = Client(own.url, cay.call("POST", "/cay/v1/keys", {"tenant": "pool4", "label": "test"}).json["key"])
    assert cay.call("PATCH", "/cay/v1/tenants/pool4/quota", {"sandboxes": 3}).status == 200
    with claimed(cay):
        full(cay)
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(tenant.call("POST", "/v2/sandboxes", {"templateID": "host"})))
               for _ in range(16)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(a.status for a in answers) == [201] * 3 + [429] * 13
    for a in answers:
        if a.status == 201:
            assert tenant.call("DELETE", f"/sandboxes/{a.json['sandboxID']}").status == 204


def test_a_claimed_sandbox_pauses_forks_and_is_copied(cay):
    """A sandbox that was a member is a sandbox like any."""
    with claimed(cay) as box:
        box.write("/home/user/mark", b"kept")
        assert cay.call("POST", f"/sandboxes/{box.id}/pause").status == 204
        assert cay.call("POST", f"/sandboxes/{box.id}/resume", {"timeout": 300}).status == 201
        assert box.read("/home/user/mark").body == b"kept"
        made = cay.call("POST", f"/sandboxes/{box.id}/snapshots", {})
        assert made.status == 201, made.body
        before = full(cay)
        with cay.create(template=made.json["snapshotID"]) as copy:
            assert copy.read("/home/user/mark").body == b"kept"
            assert copy.run("hostname").out.strip() == copy.id
        forked = cay.call("POST", f"/sandboxes/{box.id}/fork", {})
        assert forked.status == 201, forked.body
        with type(box)(cay, forked.json[0]["sandbox"]) as fork:
            assert fork.read("/home/user/mark").body == b"kept"
        now = counts(cay)  # a member is given the files that are there already
        assert (now["claims"], now["misses"]) == (before["claims"] + 2, before["misses"])
        assert cay.call("DELETE", f"/templates/{made.json['snapshotID']}").status in (200, 204)


def test_a_claimed_sandbox_ends_by_its_ttl(cay):
    box = claimed(cay, timeout_s=1)
    until(lambda: cay.call("GET", f"/sandboxes/{box.id}").status == 404, 30)


@pytest.mark.parametrize("name", ["cayd", "cay-privd", "cay-egress"])
def test_a_daemon_is_killed_while_members_stand(stack, cay, name):
    """A sandbox that lived lives on, new ones are whole, and of members that a lost privd left none is handed out."""
    with claimed(cay) as box:
        full(cay)
        stood = members(stack.server).values()
        old = stack.kill(name)
        stack.wait_replaced(name, old)
        until(lambda: box.run("hostname").out.strip() == box.id, 60, patient=True)
        assert any(map(lives, stood)) == (name != "cay-privd")
        with until(lambda: cay.create(), 60, patient=True) as new:
            assert until(lambda: new.run("hostname").out.strip() == new.id, 60, patient=True)
            assert members(stack.server).keys().isdisjoint(slots_of(stack.server, new.id))


def slots_of(own, name):
    table = (own.run / "slots" / "table").read_bytes()
    return {struct.unpack_from("<I", table, at + 8)[0] for at in range(0, len(table), 256)
            if name.encode() + b"\0" in table[at:at + 256]}


def test_they_are_told_to_the_operator(own, cay):
    with claimed(cay):
        now = counts(cay)
        text = cay.call("GET", "/metrics").body.decode()
        for name in ("ready", "target", "claims_total", "misses_total", "refills_total"):
            assert re.search(rf'^cay_pool_{name}{{template="host"}} \d+$', text, re.M), text
        assert int(re.search(r'^cay_pool_claims_total{template="host"} (\d+)$', text, re.M)[1]) >= now["claims"] > 0
        done = subprocess.run([BUILD / "src/cli/cay", "status"], capture_output=True, text=True,
                              env={**os.environ, "E2B_API_KEY": own.key(), "E2B_API_URL": own.url})
        assert done.returncode == 0 and re.search(r"^pool      host: \d started ahead of \d, \d+ claimed, \d+ missed$",
                                                  done.stdout, re.M), done.stdout + done.stderr
