"""Pauses and resumes in a row, in each tier: nothing inside is lost, and nothing outside is more than it was. Inside are a counter, a
connection over which each number goes there and back, a shell in an open terminal, a server of Node that counts its requests, a Jupyter kernel
whose client stays connected (both where the machine has them) and whose variable counts what it ran, and `make -j` again and again; with the
files alone the files are, and one more for each pause.

`make pause-leaks`: 1,000 in each tier (CAY_LEAK_TIMES; CAY_LEAK_SECONDS: it stops at that time, and says how many there were);
`make test` has a few of each."""

import os
import time

import leftovers
import pytest
from client import Client
from conftest import OwnServer
from test_dump import needs  # noqa: F401 (fixture)
from test_pause import SERVER, WITNESS, connect, enter, pause
from test_pause_files import pause_files
from test_pause_memory import PROGRAMS
from test_pause_memory import pause as pause_memory
from waitlib import until

TIMES = int(os.environ.get("CAY_LEAK_TIMES", "0"))
SECONDS = int(os.environ.get("CAY_LEAK_SECONDS", "3600"))
FEW = {"frozen": 40, "files": 8, "memory": 8}  # of `make test`
WARM = 3  # after so many, all that is made once is there
NODE = "let n = 0; require('http').createServer((_, answer) => answer.end(String(++n))).listen(8001, '127.0.0.1')"
# A client that keeps its connections to the kernel; each request has the kernel run a line, and is answered with what that printed.
KERNEL = """import http.server
from jupyter_client.manager import start_new_kernel
_, client = start_new_kernel()
client.execute_interactive("kept = 0", timeout=60)
class Ask(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        said = []
        client.execute_interactive("kept += 1; print(kept)", timeout=60, output_hook=lambda m: said.append(m["content"].get("text", "")))
        self.send_response(200)
        self.end_headers()
        self.wfile.write("".join(said).encode())
http.server.HTTPServer(("127.0.0.1", 8002), Ask).serve_forever()
"""
TARGETS = 20
MAKEFILE = f"all: {' '.join(f't{n}' for n in range(TARGETS))}\nt%:\n\t@sleep 0.05; echo $@ >>/home/user/made\n"
MAKES = "while [ ! -e stop ]; do make -s -j4 -f rules || touch make-failed; echo round >>made; done"


def paused(cay, box, tier):
    if tier == "memory":
        return pause_memory(cay, box).json == {"tier": "memory", "memoryError": ""}
    return (pause if tier == "frozen" else pause_files)(cay, box) == 204


class Programs:
    """The programs inside."""

    def __init__(self, box):
        self.box = box
        box.write("/home/user/witness.py", WITNESS.encode())
        assert box.run(f"{SERVER}; (python3 witness.py >/dev/null 2>&1 &)").exit_code == 0
        tty = box.stream("process.Process/Start", {"process": {"cmd": "/bin/bash", "args": ["-i"]}, "pty": {"size": {"cols": 80, "rows": 24}}})
        self.shell = next(tty)["event"]["start"]["pid"]
        enter(box, self.shell, "kept=$$; tty >tty; touch there\n")
        until(lambda: box.read("/home/user/there").status == 200, what="the shell has the variable")
        until(lambda: box.read("/home/user/ticks").status == 200, what="the witness counts")
        self.pids = box.run("pgrep -f 'witness.py|http.server'").out
        box.write("/home/user/kernel.py", KERNEL.encode())
        self.asked = {}  # how often, by port
        if box.run(f"command -v node && (node -e \"{NODE}\" >/dev/null 2>&1 &)").exit_code == 0:
            self.asked[8001] = until(lambda: int(self.ask(8001) or 0), what="the server of Node answers")
        if box.run("python3 -c 'import ipykernel' && (python3 kernel.py >kernel.log 2>&1 &)").exit_code == 0:
            self.asked[8002] = until(lambda: int(self.ask(8002) or 0), what="the Jupyter kernel answers")
        box.write("/home/user/rules", MAKEFILE.encode())
        box.write("/home/user/makes", MAKES.encode())
        self.make()

    def check(self, n):
        """The n-th time."""
        box = self.box
        assert box.run("pgrep -f 'witness.py|http.server'").out == self.pids
        enter(box, self.shell, f"echo $kept $(tty) >said{n}\n")
        said = f"{self.shell} {box.read('/home/user/tty').body.decode()}".encode()
        until(lambda: box.read(f"/home/user/said{n}").body == said, what="the shell in its terminal answers")
        assert box.run(f"rm /home/user/said{n}").exit_code == 0
        ticks, made = self.size("ticks"), self.size("made")
        until(lambda: self.size("ticks") > ticks and self.size("made") > made, what="the counter and make go on")
        for port in self.asked:
            self.asked[port] += 1
            assert self.ask(port).strip() == str(self.asked[port]), (n, port)

    def make(self):
        assert self.box.run("rm -f stop made; (setsid sh makes >/dev/null 2>&1 </dev/null &)").exit_code == 0
        until(lambda: self.box.read("/home/user/made").status == 200, what="make runs")

    def stop_make(self):
        """Each round has made each target once."""
        assert self.box.run("touch stop").exit_code == 0
        until(lambda: self.box.run("pgrep -f '[s]h makes'").exit_code == 1, what="the last round ends")
        assert self.box.read("/home/user/make-failed").status == 404
        rounds = self.box.read("/home/user/made").body.decode().split("round\n")
        assert rounds.pop() == "" and all(sorted(each.split()) == sorted(f"t{n}" for n in range(TARGETS)) for each in rounds)

    def measure(self, own):
        """Of make there are now more and now less processes."""
        self.stop_make()
        found = leftovers.measure(own)
        self.make()
        return found

    def ask(self, port):
        return self.box.run(f"curl -s 127.0.0.1:{port}").out

    def size(self, name):
        return int(self.box.run(f"stat -c %s /home/user/{name}").out)

    def end(self):
        box = self.box
        assert box.read("/home/user/broken").status == 404
        self.stop_make()
        assert box.run("pkill -f '[w]itness.py'; pkill -f '[h]ttp.server'").exit_code == 0
        for name in ("ticks", "trips"):
            numbers = [int(line) for line in box.read(f"/home/user/{name}").body.split(b"\n")[:-1]]
            assert numbers == list(range(1, len(numbers) + 1)) and numbers


class Files:
    """A file is written before each pause."""

    def __init__(self, box):
        self.box, self.n = box, 0
        box.write("/home/user/first", b"x")

    def measure(self, own):
        return leftovers.measure(own)

    def check(self, n):
        self.n = n
        names = self.box.run("ls /home/user").out.split()
        assert set(names) >= {"first", *(f"file{k}" for k in range(n))}
        assert self.box.write(f"/home/user/file{n}", b"%d" % n).status == 200

    def end(self):
        said = self.box.run(f"cd /home/user; for n in $(seq 0 {self.n}); do cat file$n; echo; done").out.split()
        assert said == [str(n) for n in range(self.n + 1)]
        assert self.box.run("rm -f /home/user/file*").exit_code == 0


@pytest.fixture(scope="module")
def own(needs):  # noqa: F811
    server = OwnServer(privd_args=PROGRAMS)
    yield server
    server.stop()


@pytest.mark.parametrize("tier", FEW)
def test_nothing_is_lost_and_nothing_is_left(own, tier):
    cay = Client(own.url, own.key())
    if tier != "frozen" and cay.call("GET", "/cay/v1/status").json["disk"]["backend"] == "memory":
        pytest.skip("files are in memory here")
    times, until_s, done = TIMES or FEW[tier], time.monotonic() + SECONDS, 0
    with cay.create(timeout_s=SECONDS + 600) as box:
        inside = (Files if tier == "files" else Programs)(box)
        while done < times and time.monotonic() < until_s:
            inside.check(done)
            assert paused(cay, box, tier), done
            reply = connect(cay, box, SECONDS + 600)
            assert reply.status == 201, (done, reply.body)
            done += 1
            if done == WARM:
                before = inside.measure(own)
        inside.check(done)
        print(f"{tier}: {done} pauses and resumes, servers asked: {getattr(inside, 'asked', {})}", flush=True)
        after = inside.measure(own)
        assert leftovers.differences(before, after) == []
        inside.end()
