"""Cases that the probe cannot make alone: the file API from outside (class 4), and exhaustion with a neighbour
and the host looking on (class 15). Each is a function of a server that returns a verdict and why; with the
defences named in `without` switched off it must say OPEN. All loops are bounded, and every sandbox ends with
its scene."""

import concurrent.futures
import ctypes
import dataclasses
import hashlib
import os
import pathlib
import tempfile
import threading
import time
import traceback
import urllib.parse
from typing import Callable

ALL = []


@dataclasses.dataclass
class Scene:
    name: str
    about: str
    number: int
    run: Callable
    without: tuple = ()
    shown: str = ""  # where the scene has its control in itself
    quick: bool = True


def scene(name, about, without=(), shown="", quick=True):
    def take(function):
        number = 4 if name.startswith("upload.") else 15
        ALL.append(Scene(name, about, number, function, tuple(without), shown, quick))
        return function
    return take


def run(s, server):
    try:
        return s.run(server)
    except Exception as error:  # a scene that breaks has not refused anything
        traceback.print_exc()
        return "broken", f"{type(error).__name__}: {error}"[:300]


def refused(why):
    return "refused", why


def opened(why):
    return "OPEN", why


# -- class 4: the file API -----------------------------------------------------------------------

SECRET = b"host-secret-of-the-test"


class Canary:
    """A file of the host at a path that the sandbox also can make, with other contents."""

    def __enter__(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="cay-canary-", dir="/var/tmp"))
        self.dir.chmod(0o777)
        self.path = self.dir / "canary"
        self.path.write_bytes(SECRET)
        self.path.chmod(0o666)
        self.before = self.state()
        return self

    def state(self):
        st = self.path.stat()
        names = sorted(p.name for p in self.dir.iterdir())
        return hashlib.sha256(self.path.read_bytes()).hexdigest(), st.st_ino, st.st_mode, st.st_uid, names

    def __exit__(self, *_):
        for p in self.dir.iterdir():
            p.unlink()
        self.dir.rmdir()

    def judge(self, answers):
        """Neither read nor changed."""
        if self.state() != self.before:
            return opened("the host's file or its directory was changed")
        for what, body in answers:
            if SECRET in (body or b""):
                return opened(f"{what} read the host's file")
        return refused(f"{len(answers)} requests: the host's file was neither read nor changed; its path there is "
                       "another file system's")


def reads_and_writes(box, path):
    """Both ways, by both users; also by the call that lists, renames, removes."""
    answers = []
    for user in ("user", "root"):
        answers.append((f"GET {path} as {user}", box.read(path, user=user).body))
        answers.append((f"POST {path} as {user}", box.write(path, b"changed", user=user).body))
        for method, message in (("Stat", {"path": path}), ("ListDir", {"path": path, "depth": 1}),
                                ("Move", {"source": path, "destination": path + ".moved"}),
                                ("Remove", {"path": path})):
            answers.append((method, box.rpc(f"filesystem.Filesystem/{method}", message, user=user).body))
    return answers


def path_scene(name, about, make):
    """make(box, canary path) prepares inside as root and returns the path to ask for."""
    def go(server):
        with Canary() as canary, server.client.create() as box:
            path = make(box, str(canary.path))
            return canary.judge(reads_and_writes(box, path))
    scene(name, about, shown="the same request for a file that the sandbox has is answered (upload.control)")(go)


def shell(box, command):
    box.run(command, user="root")


def link_to(box, path):
    shell(box, f"ln -sfn {path} /tmp/last")
    return "/tmp/last"


def link_in_the_middle(box, path):
    shell(box, f"ln -sfn {os.path.dirname(path)} /tmp/middle")
    return "/tmp/middle/" + os.path.basename(path)


def chain_of_links(box, path):
    shell(box, f"ln -sfn {path} /tmp/l0; for i in $(seq 1 45); do ln -sfn /tmp/l$((i-1)) /tmp/l$i; done")
    return "/tmp/l45"


def link_to_itself(box, path):
    shell(box, "ln -sfn /tmp/self /tmp/self")
    return "/tmp/self/" + path


def hard_link(box, path):
    shell(box, f"ln {path} /tmp/hard || ln -L /proc/1/root{path} /tmp/hard")
    return "/tmp/hard"


path_scene("upload.absolute", "the path of a host's file", lambda box, path: path)
path_scene("upload.dots", "`..` beyond the root", lambda box, path: "/tmp" + "/.." * 40 + path)
path_scene("upload.dots_relative", "`..` from the user's home", lambda box, path: "../" * 40 + path.lstrip("/"))
path_scene("upload.slashes", "`//` and `/./`", lambda box, path: "//" + path.replace("/", "//./"))
path_scene("upload.nul", "a NUL in the path", lambda box, path: "/tmp/x\0" + path)
path_scene("upload.encoded", "`..` that is encoded twice", lambda box, path: "/tmp/%2e%2e/%2e%2e" + path)
path_scene("upload.long", "a path of 64 KiB", lambda box, path: "/tmp/" + "a/" * 16000 + "../" * 16001 + path)
path_scene("upload.long_name", "a name of 4,000 bytes", lambda box, path: "/tmp/" + "n" * 4000)
path_scene("upload.link_last", "a link as last element", link_to)
path_scene("upload.link_middle", "a link in the middle", link_in_the_middle)
path_scene("upload.link_chain", "45 links in a row", chain_of_links)
path_scene("upload.link_loop", "a link to itself", link_to_itself)
path_scene("upload.hard_link", "a hard link", hard_link)
path_scene("upload.init_root", "by /proc/1/root", lambda box, path: "/proc/1/root" + path)
path_scene("upload.self_root", "by /proc/self/root: cay-init's own", lambda box, path: "/proc/self/root" + path)
path_scene("upload.self_fd", "by /proc/self/fd", lambda box, path: "/proc/self/fd/0/../../.." + path)
path_scene("upload.self_cwd", "by /proc/self/cwd", lambda box, path: "/proc/self/cwd/../../../.." + path)


@scene("upload.sysctl", "the host's core_pattern as target",
       shown="the same call for an own file is answered (upload.control)")
def upload_sysctl(server):
    path = pathlib.Path("/proc/sys/kernel/core_pattern")
    before = path.read_text()
    with server.client.create() as box:
        statuses = [box.write(str(path), b"|/tmp/x %p", user=user).status for user in ("user", "root")]
    if path.read_text() != before or 200 in statuses:
        return opened(f"answers {statuses}")
    return refused(f"answers {statuses}, the value is as before")


@scene("upload.control", "a file that is there, by the same calls", shown="is the control of the other rows")
def upload_control(server):
    with server.client.create() as box:
        box.write("/tmp/mine", SECRET, user="root")
        box.run("ln -sfn /tmp/mine /tmp/last", user="root")
        for path in ("/tmp/mine", "/tmp/last", "/tmp/../tmp/mine"):
            if box.read(path, user="root").body != SECRET:
                return "broken", f"{path} cannot be read, so that the other rows prove nothing"
    return refused("an own file is read and written, so that the requests of the other rows do work")


@scene("upload.special", "FIFO, device, socket and directory as targets: no call may hang",
       shown="a request that hangs would be one that takes over 20 s")
def upload_special(server):
    make = ("mkfifo -m 666 /tmp/fifo; mkdir -p /tmp/dir; chmod 777 /tmp/dir; python3 -c \"import socket; "
            "socket.socket(socket.AF_UNIX).bind('/tmp/sock')\"; chmod 666 /tmp/sock")
    with server.client.create() as box:
        box.run(make, user="root")
        slowest = 0
        for path in ("/tmp/fifo", "/tmp/sock", "/tmp/dir", "/dev/zero", "/dev/full", "/dev/tty", "/dev/ptmx"):
            for user in ("user", "root"):
                for verb in (box.read, lambda p, user: box.write(p, b"x", user=user)):
                    begun = time.monotonic()
                    reply = verb(path, user=user)
                    slowest = max(slowest, time.monotonic() - begun)
                    if len(reply.body) > 1 << 20 or slowest > 20:
                        return opened(f"{path}: {len(reply.body)} bytes in {slowest:.1f} s")
        if box.run("echo on").out != "on\n":
            return opened("the agent no longer answers")
    return refused(f"each answered at once (slowest {slowest * 1000:.0f} ms), the agent goes on")


@scene("upload.race", "links are swapped while files are uploaded and read, 300 times",
       shown="a file of the sandbox is reached through the same swapped link in between")
def upload_race(server):
    with Canary() as canary, server.client.create(timeout_s=1800) as box:
        box.run("mkdir -p /tmp/own; chmod 777 /tmp/own; echo own > /tmp/own/canary; chmod 666 /tmp/own/canary")
        # Until the reads and writes are done: on a slow machine so many rounds would take longer than the sandbox lives.
        swap = (f"for i in $(seq 1 4000); do [ ! -e /tmp/done ] || break; ln -sfn {canary.dir} /tmp/.n; mv -T /tmp/.n /tmp/swap; "
                "ln -sfn /tmp/own /tmp/.n; mv -T /tmp/.n /tmp/swap; done")
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            swapping = pool.submit(box.run, swap, "user", None, None, 600)
            answers, reached = [], 0
            for i in range(300):
                body = box.read("/tmp/swap/canary").body
                reached += body in (b"own\n", b"changed")
                answers += [("GET", body), ("POST", box.write("/tmp/swap/canary", b"changed").body)]
                if swapping.done():
                    break
            box.write("/tmp/done", b"")
            swapping.result()
        if not reached:
            return "broken", "the sandbox's own file was never reached"
        verdict, why = canary.judge(answers)
        return verdict, f"{why}; the own file was reached {reached} times"


@scene("upload.dev_link", "/dev and /tmp replaced by links", shown="a root that may replace them does so")
def upload_dev_link(server):
    with Canary() as canary, server.client.create() as box:
        box.run(f"mv /tmp /tmp.old && ln -s {canary.dir} /tmp; mv /home /home.old; ln -s {canary.dir} /home",
                user="root")
        return canary.judge(reads_and_writes(box, "/tmp/canary") + reads_and_writes(box, "/home/canary"))


# -- class 15: exhaustion ------------------------------------------------------------------------

def neighbour_works(server, neighbour):
    """Answers quickly enough and may still use what it had: (True, figures) or (False, what not)."""
    begun = time.monotonic()
    out = neighbour.run("echo alive; (sleep 0 & wait); head -c 1M /dev/zero > /tmp/n && rm /tmp/n && echo wrote",
                        timeout=30).out
    took = time.monotonic() - begun
    if out.split() != ["alive", "wrote"]:
        return False, f"the neighbour says {out!r}"
    if server.client.call("GET", "/v2/sandboxes").status != 200:
        return False, "the server does not answer"
    return took < 10, f"the neighbour answers in {took * 1000:.0f} ms"


def beside(server, attack, user="user", timeout=50):
    """attack(box) runs next to a neighbour that is asked before its end; -> result, ok, figures."""
    with server.client.create() as box, server.client.create() as neighbour:
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            attacking = pool.submit(attack, box)
            time.sleep(0.7)
            ok, figures = neighbour_works(server, neighbour)
            result = attacking.result(timeout)
        again, more = neighbour_works(server, neighbour)
        return result, ok and again, more if ok else figures


# Many ids, so that it is not a per-user limit that stops it. Each says when it has its own.
FORKS = r"""
import os, time
made, readers = 0, []
try:
    for uid in range(2000, 2120):
        r, w = os.pipe()
        if os.fork() == 0:
            os.setuid(uid)
            os.write(w, b'.')
            try:
                for _ in range(5):
                    if os.fork() == 0:
                        time.sleep(6)
                        os._exit(0)
                    os.write(w, b'+')
            except OSError:
                pass
            os._exit(0)
        os.close(w)
        os.read(r, 1)
        readers.append(r)
except OSError:
    pass
time.sleep(1)
for r in readers:
    os.set_blocking(r, False)
    try:
        made += 1 + len(os.read(r, 100))
    except OSError:
        pass
print('made', made)
"""


@scene("load.forks", "600 processes of 120 users where 256 are allowed", without=("limits",))
def load_forks(server):
    def attack(box):
        return box.run("/usr/bin/python3", user="root", args=["-c", FORKS], timeout=40).out
    out, ok, figures = beside(server, attack)
    made = int(out.split()[1]) if out.startswith("made") else 0
    if not ok:
        return opened(figures)
    return opened(f"{made} processes; {figures}") if made >= 600 else refused(f"{made} processes of 600; {figures}")


def memory_scene(name, about, script, quick=True):
    """script takes up to 900 MiB where 512 are allowed and says 'took N' MiB at its end."""
    def go(server):
        def attack(box):
            return box.run("/usr/bin/python3", user="root", args=["-c", script], timeout=45)
        result, ok, figures = beside(server, attack)
        if not ok:
            return opened(figures)
        if "took 900" in result.out:
            return opened(f"900 MiB were taken; {figures}")
        return refused(f"ended at the limit (exit {result.exit_code}, {result.out.strip() or 'killed'}); {figures}")
    scene(name, about, without=("limits",), quick=quick)(go)


memory_scene("load.memory", "900 MiB of memory where 512 are allowed",
             "b = [bytearray(b'x' * (1 << 20)) for _ in range(900)]; print('took', len(b))")
memory_scene("load.tmpfs", "the same in files in memory (memfd)",
             "import os\nfd = os.memfd_create('x')\nfor i in range(900):\n os.write(fd, b'x' * (1 << 20))\n"
             "print('took', 900)")
memory_scene("load.shm", "the same in a System V segment", """
import ctypes
libc = ctypes.CDLL(None); libc.shmat.restype = ctypes.c_void_p
i = libc.shmget(0, ctypes.c_size_t(900 << 20), 0o1600); a = libc.shmat(i, None, 0)
try:
    for n in range(900):
        ctypes.memset(a + (n << 20), 1, 1 << 20)
    print('took', 900)
finally:
    libc.shmctl(i, 0, None)
""", quick=False)


@scene("load.disk", "900 MiB of files where 256 are allowed", without=("disk-limit",))
def load_disk(server):
    def attack(box):
        out = box.run("for i in $(seq 1 9); do head -c 100M /dev/zero > /home/user/f$i || break; done; sync; "
                      "du -sm --apparent-size /home/user | cut -f1", timeout=45).out
        return int(out.split()[0])
    got, ok, figures = beside(server, attack)
    if not ok:
        return opened(figures)
    return opened(f"{got} MiB were written") if got >= 900 else refused(f"{got} MiB were written; {figures}")


COUNTS = r"""
import ctypes, sys, time
libc = ctypes.CDLL(None, use_errno=True)
fds = []
for _ in range(int(sys.argv[1])):
    fd = libc.inotify_init1(0)
    if fd < 0:
        break
    fds.append(fd)
print(len(fds), flush=True)
time.sleep(float(sys.argv[2]))
"""


@scene("load.inotify", "inotify instances: one sandbox takes 80, then its neighbour asks for 80",
       without=("own-counts",))
def load_inotify(server):
    with server.client.create() as one, server.client.create() as two:
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            first = pool.submit(one.run, "/usr/bin/python3", "user", None, None, 30, ["-c", COUNTS, "80", "1.5"])
            time.sleep(0.6)
            second = two.run("/usr/bin/python3", args=["-c", COUNTS, "80", "0"]).out.strip()
            took = first.result().out.strip()
    libc = ctypes.CDLL(None, use_errno=True)
    own = libc.inotify_init1(0)
    if own >= 0:
        os.close(own)
    if took != "80":
        return "broken", f"the first got {took}"
    if int(second) < 80 or own < 0:
        return opened(f"the neighbour got {second} of 80")
    return refused("the neighbour got all of its 80, the host has its own")


@scene("load.cpu", "four processes that spin", shown="the processors' time of the sandbox is what the limit says")
def load_cpu(server):
    def attack(box):
        return box.run("for i in 1 2 3 4; do timeout 3 sh -c 'while :; do :; done' & done; wait; echo ended",
                       timeout=40).out
    out, ok, figures = beside(server, attack)
    return refused(figures) if ok and "ended" in out else opened(figures)


@scene("load.stdout", "200 MiB of output that the client reads slowly",
       shown="the same output, read, arrives whole (the SDK tests)")
def load_stdout(server):
    def attack(box):
        stream = box.stream("process.Process/Start", {"process": {"cmd": "/bin/sh", "args": [
            "-c", "head -c 200M /dev/zero"]}, "stdin": False}, timeout=30)
        next(stream)
        time.sleep(2.5)  # it is not read
        stream.close()
        return resident(server)
    before = resident(server)
    after, ok, figures = beside(server, attack)
    if not ok or after - before > 64 << 10:
        return opened(f"the daemons grew by {after - before} KiB; {figures}")
    return refused(f"the daemons grew by {max(after - before, 0)} KiB; {figures}")


def resident(server):
    """KiB of all daemons of the server."""
    total = 0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            text = pathlib.Path(f"/proc/{pid}/status").read_text()
        except OSError:
            continue
        if text.split("\n", 1)[0].split()[1] in ("cayd", "cay-privd", "cay-keep"):
            total += sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("VmRSS"))
    return total


@scene("load.deep", "directories 10,000 deep; the end of the sandbox takes no longer",
       shown="the same without them")
def load_deep(server):
    script = ("import os\nos.chdir('/home/user')\nfor i in range(10000):\n"
              " os.mkdir('d'); os.chdir('d')\nprint('deep')")
    box = server.client.create()
    out = box.run("/usr/bin/python3", args=["-c", script], timeout=50).out.strip()
    status = box.rpc("filesystem.Filesystem/ListDir", {"path": "/home/user", "depth": 1}).status
    return timed_end(server, box, out == "deep" and status == 200, f"{out}, list {status}")


@scene("load.many", "100,000 files in one directory; a list is bounded, the end takes no longer",
       shown="the same without them", quick=False)
def load_many(server):
    script = "for i in range(100000):\n open(f'/home/user/f{i}', 'w').close()\nprint('many')"
    box = server.client.create()
    out = box.run("/usr/bin/python3", args=["-c", script], timeout=55).out.strip()
    begun = time.monotonic()
    reply = box.rpc("filesystem.Filesystem/ListDir", {"path": "/home/user", "depth": 1})
    took = time.monotonic() - begun
    return timed_end(server, box, out == "many" and took < 20,
                     f"{out or 'stopped by the disk limit'}, list {reply.status} in {took:.1f} s")


def timed_end(server, box, good, figures):
    with server.client.create() as neighbour:
        begun = time.monotonic()
        box.kill()
        took = time.monotonic() - begun
        ok, more = neighbour_works(server, neighbour)
    text = f"{figures}; ended in {took * 1000:.0f} ms; {more}"
    return refused(text) if good and ok and took < 10 else opened(text)


@scene("load.conntrack", "30,000 datagrams to the sandbox itself", shown="counted on the host, which has its own")
def load_conntrack(server):
    script = ("import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nfor i in range(30000):\n"
              " try: s.sendto(b'x', ('127.0.0.1', 1024 + i))\n except OSError: pass\nprint('sent')")
    def attack(box):
        return box.run("/usr/bin/python3", args=["-c", script], timeout=40).out
    before = conntrack()
    out, ok, figures = beside(server, attack)
    grown = conntrack() - before
    return refused(f"the host's table grew by {grown}; {figures}") if ok and grown < 1000 else opened(f"{grown}")


def conntrack():
    try:
        return int(pathlib.Path("/proc/sys/net/netfilter/nf_conntrack_count").read_text())
    except OSError:
        return 0


@scene("load.zombies", "processes without a wait of their parent", shown="PID 1 reaps them: their number is asked inside")
def load_zombies(server):
    def attack(box):
        box.run("for i in $(seq 1 150); do (sh -c 'true &' &); done; sleep 1", timeout=40)
        return box.run("grep -l '^State:.Z' /proc/[0-9]*/status 2>/dev/null | wc -l").out.strip()
    left, ok, figures = beside(server, attack)
    return refused(f"{left} zombies are left; {figures}") if ok and int(left) == 0 else opened(f"{left} are left")


@scene("load.connections", "300 connections to the agent's port from inside that say nothing",
       shown="the agent is asked from outside while they are open")
def load_connections(server):
    script = ("import socket, time\nc = []\ntry:\n for i in range(300): c.append(socket.create_connection("
              "('127.0.0.1', 49983), 2))\nexcept OSError: pass\nprint(len(c), flush=True)\ntime.sleep(4)")
    with server.client.create() as box:
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            attacking = pool.submit(box.run, "/usr/bin/python3", "user", None, None, 30, ["-c", script])
            time.sleep(1.5)
            begun = time.monotonic()
            out = box.run("echo alive", timeout=20).out
            took = time.monotonic() - begun
            held = attacking.result().out.strip()
    text = f"{held} held, the agent answers in {took * 1000:.0f} ms"
    return refused(text) if out == "alive\n" and took < 5 else opened(text)
