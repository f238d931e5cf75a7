"""A cayd that was taken over: what its channel lets it do to privd and the host. The client is
test/hostile/hostile.c; what must hold is in docs/privsep.md.

`make hostile` sends a million messages; CAY_HOSTILE_SEED repeats a run.
"""

import errno
import json
import os
import pathlib
import random
import re
import shutil
import struct
import subprocess
import tempfile
import time

import pytest

import privdlib
from privdlib import CAPACITY, HOST, JOB
from test_privd import BUILD, REPOSITORY, cgroup_name, left_behind, slot_processes
from waitlib import until

SLOTS, READY = 12, 2
UID_BASE = 1342177280 + os.getpid() % 64 * 16 * 65536  # two runs at a time do not see each other
SURPLUS = 4  # slots that may be under way at a time
PEER = 64999  # of no account
MESSAGES = int(os.environ.get("CAY_HOSTILE_MESSAGES", "60000"))
WATCHED = ["/etc", "/usr", "/boot", "/opt", "/srv", "/root/.ssh", "/var/spool"]
TESTS_OWN = ("/usr/local/etc",  # where test_isolation.py puts a secret
             "/etc/netns")  # and where the tests of the way out, which may run beside this one, say who resolves names
CAPABILITIES = ["chown", "dac_override", "dac_read_search", "fowner", "fsetid", "kill", "setgid", "setuid", "setpcap",
                "linux_immutable", "net_bind_service", "net_broadcast", "net_admin", "net_raw", "ipc_lock", "ipc_owner",
                "sys_module", "sys_rawio", "sys_chroot", "sys_ptrace", "sys_pacct", "sys_admin", "sys_boot", "sys_nice",
                "sys_resource", "sys_time", "sys_tty_config", "mknod", "lease", "audit_write", "audit_control", "setfcap",
                "mac_override", "mac_admin", "syslog", "wake_alarm", "block_suspend", "audit_read", "perfmon", "bpf",
                "checkpoint_restore"]


@pytest.fixture
def privd():
    if os.geteuid() != 0:
        pytest.skip("privd needs root")
    base = pathlib.Path(tempfile.mkdtemp(prefix="cay-test-hostile-", dir="/var/tmp"))
    base.chmod(0o711)
    p = privdlib.Privd(BUILD, base, uid_base=UID_BASE, slots_max=SLOTS, slots_ready=READY, peer_uid=PEER)
    p.start()
    yield p
    assert p.process.poll() is None, p.log.read_text()[-4000:]
    assert p.stop() == 0, p.log.read_text()[-4000:]
    assert left_behind(p) == []
    shutil.rmtree(base, ignore_errors=True)


def channel(privd):
    """As the user that privd expects."""
    os.seteuid(PEER)
    try:
        return privd.channel()
    finally:
        os.seteuid(0)


# -- what there is -----------------------------------------------------------------------------------

def uid_processes():
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            uid = os.stat(f"/proc/{pid}").st_uid
        except OSError:
            continue
        if UID_BASE <= uid < UID_BASE + 65536 * (SLOTS + 1):
            found.append(pid)
    return found


def children(pid):
    found = []
    for task in os.listdir(f"/proc/{pid}/task"):
        found += open(f"/proc/{pid}/task/{task}/children").read().split()
    return found


def cgroups(privd):
    name = cgroup_name(privd.state)
    return sorted(root.split(name)[1] for root, _, _ in os.walk("/sys/fs/cgroup") if f"/{name}" in root)


def mounts(pid):
    """Without the counters that the kernel may renumber: where and what."""
    lines = open(f"/proc/{pid}/mountinfo").read().splitlines()
    return sorted(" ".join(line.split()[3:6]) + line.split(" - ")[1] for line in lines)


def layers(privd):
    return sorted(os.listdir(f"/proc/{privd.process.pid}/root{privd.state}/disk/layers"))


def changed_since(marker, watched=()):
    """Files of the host that were made or changed."""
    places = [place for place in [*WATCHED, *map(str, watched)] if os.path.exists(place)]
    out = subprocess.run(["find", *places, "-xdev", "-newercm", str(marker)], capture_output=True, text=True).stdout
    return sorted(line for line in out.splitlines() if not line.startswith(TESTS_OWN))


def sanitized():
    return b"libasan" in (BUILD / "src/privd/cay-privd").read_bytes()


def own_memory(pid):
    return int(re.search(r"RssAnon:\s+(\d+)", open(f"/proc/{pid}/status").read()).group(1))


def counts(privd):
    """The figures that must be the same before and after. How many slots are pooled may differ by those that were made for
    creates that went away; each has a control group, a layer and two descriptors, and perhaps a cay-init that waits, with one
    more (the listener of its filters, src/privd/pins.h)."""
    pid = privd.process.pid
    open_files = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd") if os.path.lexists(f"/proc/{pid}/fd/{fd}")]
    pins = open_files.count("anon_inode:seccomp notify")
    waiting = slot_processes(privd, claimed=False)
    groups = {path.split("/")[1] for path in cgroups(privd) if re.match(r"/\d+$", path)}
    on_disk = {name.split(".")[0] for name in layers(privd)}
    return {
        "pool": READY <= len(groups & on_disk) <= READY + SURPLUS,
        "groups_alone": sorted(groups - on_disk),
        "layers_alone": sorted(on_disk - groups),
        "descriptors": len(open_files) - pins - 2 * len(groups & on_disk),
        "a_pin_a_slot": pins <= len(groups & on_disk),
        "children": len([child for child in children(pid) if int(child) not in waiting]),
        "uid_processes": len([one for one in uid_processes() if int(one) not in waiting]),
        "job_groups": len([path for path in cgroups(privd) if re.match(r"-jobs/\d", path)]),
        "mounts": mounts(pid),
        "host_mounts": [line for line in mounts("self") if str(privd.base) in line],
        "loops": subprocess.run(["losetup", "-a"], capture_output=True, text=True).stdout.count(str(privd.base)),
        "run_files": sorted(str(path.relative_to(privd.run)) for path in privd.run.rglob("*")),
        "templates": sorted(os.listdir(f"/proc/{pid}/root{privd.state}/disk/templates")),
    }


def settled(privd, wanted=None, seconds=30):
    """When nothing changes any more, or it is as wanted."""
    end, last = time.monotonic() + seconds, None
    while time.monotonic() < end:
        now = counts(privd)
        if now == wanted or (wanted is None and now == last and now["pool"] and not now["children"]
                             and not now["job_groups"] and not now["uid_processes"]):
            return now
        last = now
        time.sleep(0.2)
    return last


def end_everything(privd):
    """The next cayd's answer to sandboxes that it does not know."""
    c = channel(privd)
    for m in c.list().values():
        assert c.kill(m).status == 0
    assert c.list() == {}
    return c


# -- the tests ---------------------------------------------------------------------------------------

def test_hostile(privd, capsys, tmp_path):
    seed = int(os.environ.get("CAY_HOSTILE_SEED", random.randrange(1 << 40)))
    pid = privd.process.pid
    os.makedirs("/etc/netns", exist_ok=True)  # not made beside this test
    before, marker = settled(privd), tmp_path / "marker"
    marker.touch()
    memory = own_memory(pid)
    began = time.monotonic()
    hostile = shutil.copy(BUILD / "test/hostile/hostile", privd.base)  # the build may be where only root may go
    done = subprocess.run([hostile, privd.socket_path, str(SLOTS), str(seed), str(MESSAGES)],
                          capture_output=True, text=True, user=PEER, group=PEER, extra_groups=[])
    seconds = time.monotonic() - began
    assert done.returncode == 0, f"seed {seed}: {done.stderr}"
    said = json.loads(done.stdout)
    assert said["messages"] >= MESSAGES and said["hung_up"] > 0
    assert min(said[key] for key in ("created", "killed", "sockets", "refused")) > 0, said

    assert privd.process.poll() is None and privd.process.pid == pid
    c = end_everything(privd)
    slots_max, _, sandboxes = c.ask(CAPACITY).unpack("III")
    assert (slots_max, sandboxes) == (SLOTS, 0)
    if HOST not in [int(name) for name in counts(privd)["templates"] if name.isdigit()]:
        assert c.ask(JOB, struct.pack("<II", 1, HOST)).status == 0
    c.close()
    after = settled(privd, before)
    assert after == before, f"seed {seed}"
    assert changed_since(marker) == []
    grown = own_memory(pid) - memory
    with capsys.disabled():
        print(f"\n  seed {seed}: {said} in {seconds:.1f} s; memory of privd {memory} KiB, {grown:+} KiB")
    text = privd.log.read_text()
    assert "Sanitizer" not in text and "runtime error" not in text
    if not sanitized():
        assert grown < 12 * 1024  # the queue's maximum is 32,768 packets of 360 bytes
    c = channel(privd)
    box = c.create("iafter")
    assert box.status == 0 and c.kill(box).status == 0


def test_control_leftovers_are_seen(privd, tmp_path):
    """The same counts see a process, a control group, a layer, a mount, files and descriptors that were planted."""
    before = settled(privd)
    marker = tmp_path / "marker"
    marker.touch()
    time.sleep(0.05)
    pid = privd.process.pid
    layer = pathlib.Path(f"/proc/{pid}/root{privd.state}/disk/layers/777777.7")
    template = pathlib.Path(f"/proc/{pid}/root{privd.state}/disk/templates/9")
    group = next(pathlib.Path(root) for root, _, _ in os.walk("/sys/fs/cgroup") if root.endswith(cgroup_name(privd.state)))
    place = privd.base / "mounted"
    sleeper = subprocess.Popen(["sleep", "60"], user=UID_BASE + 5, group=UID_BASE + 5, extra_groups=[])
    try:
        layer.mkdir()
        template.mkdir()
        (group / "777").mkdir()
        (privd.run / "file").touch()
        place.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "planted", place], check=True)
        subprocess.run(["nsenter", f"--mount=/proc/{pid}/ns/mnt", "mount", "-t", "tmpfs", "planted", "/tmp"], check=True)
        c = channel(privd)
        now = counts(privd)
        differing = {key for key in before if before[key] != now[key]}
        assert differing == {"uid_processes", "layers_alone", "templates", "groups_alone", "run_files",
                             "host_mounts", "mounts", "descriptors"}
        (tmp_path / "watched").mkdir()
        (tmp_path / "watched/new").touch()
        assert str(tmp_path / "watched/new") in changed_since(marker, [tmp_path / "watched"])
        c.close()
    finally:
        subprocess.run(["nsenter", f"--mount=/proc/{pid}/ns/mnt", "umount", "/tmp"])
        subprocess.run(["umount", place])
        sleeper.kill()
        sleeper.wait()
        (privd.run / "file").unlink()
        (group / "777").rmdir()
        template.rmdir()
        layer.rmdir()
    assert settled(privd, before) == before


def test_a_create_of_a_gone_cayd_leaves_no_sandbox(privd):
    """Those under way are ended, those that wait are forgotten: the next cayd's first list is all there is."""
    before = settled(privd)
    for turn in range(6):
        c = channel(privd)
        for n in range(SLOTS):
            c.send_create(f"i{turn}x{n}")
        assert c.ask(CAPACITY).status == 0  # all of them were taken up
        if turn % 2:
            c.close()
        c2 = channel(privd)
        first = set(c2.list())
        time.sleep(0.4)
        assert set(c2.list()) <= first
        assert c2.create(f"i{turn}x{SLOTS - 1}").status == 0, "its id is free again"
        c.close()
        c2.close()
        end_everything(privd).close()
    assert "no peer is there to be notified" in privd.log.read_text()
    until(lambda: not slot_processes(privd))
    assert settled(privd, before) == before


def test_capabilities_are_as_documented(privd):
    page = (REPOSITORY / "docs/privsep.md").read_text()
    table = page.split("<!-- table: capabilities -->")[1].split("<!-- end -->")[0]
    documented = set(re.findall(r"^\| ([a-z_]+) \|", table, re.M)) - {"capability"}
    status = dict(line.split(":\t") for line in open(f"/proc/{privd.process.pid}/status") if ":\t" in line)
    mine = int(next(line for line in open("/proc/self/status") if line.startswith("CapBnd")).split()[1], 16)
    for name in ("CapBnd", "CapPrm", "CapEff"):
        bits = int(status[name], 16)
        assert {c for n, c in enumerate(CAPABILITIES) if bits >> n & 1} == documented & {
            c for n, c in enumerate(CAPABILITIES) if mine >> n & 1}


def test_calls_that_nobody_needs_are_refused(privd):
    """The filter is on privd and on what it starts; test_sys.c has what it refuses."""
    def filters(pid):
        status = dict(line.split(":\t") for line in open(f"/proc/{pid}/status") if ":\t" in line)
        return int(status["Seccomp"]), int(status["Seccomp_filters"])
    assert filters(privd.process.pid) == (2, filters("self")[1] + 1)
    c = channel(privd)
    box = c.create("ifiltered")
    assert box.status == 0
    (pid,) = slot_processes(privd)
    assert filters(pid) == (2, filters("self")[1] + 3)
    assert c.kill(box).status == 0


def test_a_full_house_says_so(privd):
    """More creates than slots: each is answered, none is lost, all ids end."""
    c = channel(privd)
    replies = [c.wait(seq) for seq in [c.send_create(f"i{n}") for n in range(SLOTS * 3)]]
    assert [r.status for r in replies].count(0) == SLOTS
    assert {r.status for r in replies} == {0, -errno.EAGAIN}
    end_everything(privd)
