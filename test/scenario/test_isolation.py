"""A sandbox sees nothing of the host, and the host sees nothing of it but its own uid range."""

import os
import shutil
import signal
import subprocess
import tempfile

import pytest

import conftest
from client import Client
from conftest import OwnServer
from waitlib import until


def test_only_own_processes(sandbox):
    pids = sandbox.run("ls -d /proc/[0-9]* | wc -l", user="root")
    assert int(pids.out) < 10
    names = sandbox.run("cat /proc/[0-9]*/comm", user="root").out.split()
    assert "cay-init" in names
    assert not {"cayd", "cay-privd", "cay-keep", "pytest"} & set(names)


def test_no_host_mounts(sandbox):
    mounts = sandbox.run("cat /proc/self/mountinfo", user="root").out
    for line in mounts.splitlines():
        target = line.split()[4]
        assert target.split("/")[1] in ("", "proc", "sys", "dev", "run", "tmp", "usr", "home"), line
    assert "cay" not in " ".join(line.split()[4] for line in mounts.splitlines())


def test_no_host_files(sandbox, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("host-secret")
    assert sandbox.read(str(secret), user="root").status == 404
    for path in ("/root/.ssh", "/etc/shadow-", "/var/lib/cay", "/run/cay", "/usr/local/etc/secret",
                 os.getcwd()):
        if path != "/etc/shadow-" and path == os.path.realpath("/usr"):
            continue
        assert sandbox.run(f"ls -A {path} 2>/dev/null", user="root").out.strip() == "", path


# Of the host's /usr: name, mode, and whether the template host shows it.
HOST_FILES = (("/usr/local/etc/cay-test", 0o644, False), ("/usr/local/cay-test/open", 0o644, False),
              ("/usr/local/lib/cay-test/secret", 0o600, False), ("/usr/local/lib/cay-test/group", 0o640, False),
              ("/usr/local/lib/cay-test/open", 0o644, True), ("/usr/lib/cay-test/secret", 0o600, False),
              ("/usr/lib/cay-test/open", 0o644, True), ("/usr/lib/cay-test-closed/open", 0o644, False))


@pytest.fixture
def host_files():
    dirs = {os.path.dirname(path) for path, _, _ in HOST_FILES if os.path.basename(os.path.dirname(path)) != "etc"}
    os.makedirs("/usr/local/etc", exist_ok=True)
    try:
        for path, mode, _ in HOST_FILES:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w") as f:
                f.write("host-secret")
            os.chmod(path, mode)
        os.chmod("/usr/lib/cay-test-closed", 0o700)
        yield
    finally:
        os.unlink("/usr/local/etc/cay-test")
        for path in dirs:
            shutil.rmtree(path)


@pytest.mark.alone
def test_what_not_everybody_may_read_of_usr_is_hidden(host_files):
    """By passwordless sudo as little as by its user; those that all users may read are the control. A file that
    comes later is hidden when the template is refreshed, which a start of cay-privd does."""
    own = OwnServer()
    later = "/usr/local/lib/cay-test/later"
    try:
        cay = Client(own.url, own.key())
        with cay.create() as box:
            for path, _, shown in HOST_FILES:
                done = box.run(f"sudo cat {path}")
                assert (done.exit_code == 0, done.out) == (shown, "host-secret" if shown else ""), path
            listed = box.run("ls -A /usr/local", user="root").out.split()
            assert "lib" in listed and not {"etc", "src", "cay-test"} & set(listed)
            for path in ("/usr/lib/cay-test", "/usr/local/lib/cay-test"):  # root inside may go on from there
                assert box.run(f"echo mine > {path}/secret && cat {path}/secret", user="root").out == "mine\n"
        with open(later, "w") as f:
            os.fchmod(f.fileno(), 0o600)
            f.write("host-secret")
        with cay.create() as box:
            assert box.run(f"sudo cat {later}").out == "host-secret"  # the control of the refresh
        os.kill(own.keep_pid, signal.SIGHUP)
        until(lambda: not visible(cay, later), 60, lambda: own.log_tail())
    finally:
        own.stop()


def visible(cay, path):
    try:
        with cay.create() as box:
            return box.run(f"sudo cat {path}").out == "host-secret"
    except (AssertionError, OSError):  # while the daemons are replaced
        return True


def test_users_and_keys(sandbox):
    users = sandbox.run("cut -d: -f1 /etc/passwd").out.split()
    assert "user" in users and "root" in users
    with open("/etc/passwd") as f:
        people = [line.split(":")[0] for line in f if 1000 <= int(line.split(":")[2]) < 60000]
    assert not (set(people) - {"user"}) & set(users)
    assert sandbox.run("ls /etc/ssh /root/.ssh /etc/ssl/private 2>/dev/null", user="root").out == ""


def test_environment_is_its_own(cay):
    os.environ["CAY_TEST_HOST_SECRET"] = "host-secret"
    with cay.create(envVars={"MINE": "yes"}) as box:
        env = box.run("env; cat /proc/1/environ 2>/dev/null | tr '\\0' '\\n'", user="root").out
        assert "MINE=yes" in env
        assert "host-secret" not in env and "CAY_TEST" not in env


def test_hostname_and_boot_id(cay):
    host_boot = open("/proc/sys/kernel/random/boot_id").read().strip()
    with cay.create() as one, cay.create() as two:
        names = {one.run("hostname").out.strip(), two.run("hostname").out.strip()}
        boots = {one.run("cat /proc/sys/kernel/random/boot_id").out.strip(),
                 two.run("cat /proc/sys/kernel/random/boot_id").out.strip()}
        assert len(names) == 2 and os.uname().nodename not in names
        assert len(boots) == 2 and host_boot not in boots


def test_host_sees_only_the_range(cay):
    """All processes of a sandbox have host uids of cay's ranges, its root too."""
    with cay.create() as box:
        mark = f"31415.{os.getpid()}"  # of this run, whatever runs beside it
        assert box.run(f"sudo sleep {mark} >/dev/null 2>&1 & sleep {mark} >/dev/null 2>&1 & sleep 1").exit_code == 0
        found = subprocess.run(["pgrep", "-f", f"^(sudo )?sleep {mark}"], capture_output=True, text=True)
        pids = found.stdout.split()
        assert pids, "the processes of the sandbox should be visible to the host's root"
        for pid in pids:
            assert os.stat(f"/proc/{pid}").st_uid >= conftest.UID_BASE


@pytest.mark.parametrize("user", ["user", "root"])
def test_the_daemons_priority_is_not_had_inside(sandbox, user):
    """test_keep.py: the daemons have one. The control: a value can be raised."""
    assert sandbox.run("nice; cut -d' ' -f19 /proc/1/stat; nice -n 5 nice", user=user).out.split() == ["0", "0", "5"]
    refused = sandbox.run("nice -n -1 nice; renice -n -1 -p $$; nice", user=user)
    assert refused.out.split() == ["0", "0"] and refused.stderr.count(b"Permission denied") == 2, refused.stderr


# Of a file of its own: which labels of security modules it can set.
LABELS = """
import os, sys
path = sys.argv[1]
os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o644))
for name in ("security.apparmor", "security.evm", "security.ima", "security.SMACK64", "security.selinux", "trusted.overlay.opaque"):
    try:
        os.setxattr(path, name, b"x")
        print(name, "set")
    except OSError as e:
        print(name, e.errno)
os.remove(path)
"""


@pytest.mark.parametrize("user", ["user", "root"])
def test_labels_of_security_modules(sandbox, user):
    """An attribute that is a security module's is refused inside, to root too, or is what any user of the host can do with a
    file of their own (security.selinux on some kernels; docs/shared-objects.md)."""
    with tempfile.TemporaryDirectory(prefix="cay-test-", dir="/var/tmp") as place:
        os.chmod(place, 0o777)
        host = subprocess.run(["/usr/bin/python3", "-c", LABELS, f"{place}/own"], user=65534, group=65534, extra_groups=[],
                              capture_output=True, text=True, cwd="/")
    assert host.returncode == 0, host.stderr
    inside = sandbox.run("/usr/bin/python3", args=["-c", LABELS, "/tmp/labels"], user=user)
    assert inside.exit_code == 0, inside.stderr
    on_host, here = [dict(line.split() for line in text.splitlines()) for text in (host.stdout, inside.out)]
    assert here["security.apparmor"] == here["security.ima"] == "1"  # EPERM
    assert {name for name, said in here.items() if said == "set"} <= {name for name, said in on_host.items() if said == "set"}


def test_sudo_works_inside(sandbox):
    result = sandbox.run("sudo id -u && sudo -n cat /etc/shadow | head -1 | cut -d: -f1")
    assert result.out.split() == ["0", "root"], (result.out, result.stderr)


def test_writable_places(sandbox):
    assert sandbox.run("touch /home/user/a /tmp/b && echo ok").out == "ok\n"
    assert sandbox.run("touch /etc/x").exit_code != 0
    assert sandbox.run("touch /etc/x /usr/x && echo ok", user="root").out == "ok\n"
    assert not os.path.exists("/usr/x")


def test_network_is_refused_at_once(sandbox):
    script = """
import socket, time
for family, address in ((socket.AF_INET, ("1.1.1.1", 443)), (socket.AF_INET6, ("2606:4700:4700::1111", 443))):
    start = time.monotonic()
    try:
        socket.socket(family).connect(address)
        print("connected")
    except OSError as e:
        print("refused" if time.monotonic() - start < 1 else "slow", e.errno)
"""
    out = sandbox.run(f"python3 -c '{script}'").out.split("\n")
    assert [line.split()[0] for line in out if line] == ["refused", "refused"], out


def test_two_sandboxes_do_not_meet(cay):
    with cay.create() as one, cay.create() as two:
        one.run("echo secret > /tmp/shared; (python3 -m http.server 8123 >/dev/null 2>&1 &) ; sleep 1")
        assert two.run("cat /tmp/shared").exit_code != 0
        assert two.run("curl -s -m 2 http://127.0.0.1:8123/").exit_code != 0
        assert one.run("curl -s -m 2 -o /dev/null -w '%{http_code}' http://127.0.0.1:8123/").out == "200"


@pytest.mark.parametrize("user", ["user", "root"])
def test_agent_does_not_answer_inside(sandbox, user):
    """Programs inside cannot use the agent as a way to become another user."""
    code = sandbox.run("curl -s -m 5 -o /dev/null -w '%{http_code}' -X POST "
                       "http://127.0.0.1:49983/process.Process/List -H 'content-type: application/json' -d '{}'",
                       user=user).out
    assert code == "401"
