"""The cost of cay-kernels beside a kernel: time from a create to the first execute, of each execute, and memory. In
sandboxes of template host, with Debian's ipykernel; jupyter_client speaks to the same kernel there, in turns."""

import http.client
import json
import statistics
import subprocess
import sys
import time

import memory
import server

sys.path.insert(0, str(server.ROOT / "test/scenario"))
from client import Client  # noqa: E402

PORT = 49999
ROUNDS = 3
READY_SECONDS = 60
MIB_KB = 1024
FIRST_MAX = 10  # creates: a kernel takes the better part of a second to start
COMMAND = "/opt/cay/cay-kernels --kernels=/opt/cay/kernels --log=/var/log/cay-kernels.log"
READY = f"curl -sf -m 5 http://127.0.0.1:{PORT}/health"
START = {"cmd": f"exec {COMMAND}", "port": PORT}
SPEC = {"argv": ["/usr/bin/python3", "-m", "cay_kernel", "-f", "{connection_file}"], "env": {"PYTHONPATH": "/opt/cay/python"}}
NAMES = {"kernels_first": ("create of a code interpreter to the end of its first 1+1, through the API", "ms"),
         "kernels_memory_first": ("the same from a template with memory", "ms"),
         "kernels_execute": ("execute of 1+1 in a kernel, through the API", "ms"),
         "kernels_added": ("what each execute takes longer than the kernel itself", "ms"),
         "kernels_memory": ("memory of cay-kernels of its own, beside a kernel", "MiB")}

# Ends as an execution does here: reply and idle are both there.
JUPYTER = """
import glob, sys, time
from jupyter_client import BlockingKernelClient

client = BlockingKernelClient(connection_file=glob.glob('/tmp/cay-kernels-*/*.json')[0])
client.load_connection_file()
client.start_channels()
client.wait_for_ready(timeout=60)
for _ in range(int(sys.argv[1])):
    begun = time.perf_counter()
    sent = client.execute('1+1')
    while True:
        got = client.get_iopub_msg(timeout=60)
        if got['parent_header'].get('msg_id') == sent and got['content'].get('execution_state') == 'idle':
            break
    while client.get_shell_msg(timeout=60)['parent_header'].get('msg_id') != sent:
        pass
    print((time.perf_counter() - begun) * 1000)
"""

# The same kernel from its start to the answer of its first execute. Without wait_for_ready(), which waits 0.2 s of its own.
JUPYTER_FIRST = f"""
import sys, time
from jupyter_client import KernelManager

for _ in range(int(sys.argv[1])):
    begun = time.perf_counter()
    manager = KernelManager()
    manager.kernel_spec.argv, manager.kernel_spec.env = {SPEC['argv']!r}, {SPEC['env']!r}
    manager.start_kernel()
    client = manager.blocking_client()
    client.start_channels()
    sent = client.execute('1+1')
    while client.get_shell_msg(timeout=60)['parent_header'].get('msg_id') != sent:
        pass
    print((time.perf_counter() - begun) * 1000)
    client.stop_channels()
    manager.shutdown_kernel(now=True)
"""


class Kernels:
    """cay-kernels and one kernel in a sandbox; use it with `with`."""

    def __init__(self, own):
        self.client = Client(own.url, own.key)

    def __enter__(self):
        self.box = self.client.create()
        try:
            self.start()
        except BaseException:
            self.box.kill()
            raise
        return self

    def __exit__(self, *_):
        self.box.kill()

    def command(self, text):
        done = self.box.run(text, user="root")
        if done.exit_code != 0:
            raise RuntimeError(f"{text}: {done.stderr.decode()[-500:]}")
        return done.out

    def start(self):
        self.command("mkdir -p /opt/cay/kernels/python3 /opt/cay/python/cay_kernel; chown -R user /opt/cay")
        files = {"kernels/python3/kernel.json": json.dumps(SPEC).encode(), "jupyter.py": JUPYTER.encode(), "first.py": JUPYTER_FIRST.encode(),
                 "cay-kernels": (server.BUILD / "src/kernels/cay-kernels").read_bytes()}
        for path in (server.ROOT / "src/kernels/python/cay_kernel").glob("*.py"):
            files[f"python/cay_kernel/{path.name}"] = path.read_bytes()
        for path, data in files.items():
            self.box.write(f"/opt/cay/{path}", data)
        self.command(f"chmod 0755 /opt/cay/cay-kernels; nohup {COMMAND} >/dev/null 2>&1 &")
        end = time.monotonic() + READY_SECONDS
        while self.box.request("GET", "/health", port=PORT).status != 200:
            if time.monotonic() > end:
                raise RuntimeError("cay-kernels is not ready in time")
            time.sleep(0.1)

    def executes(self, count):
        """Milliseconds each, by one connection."""
        connection, times = http.client.HTTPConnection(self.client.host, self.client.port, timeout=60), []
        for _ in range(count):
            begun = time.perf_counter()
            execute(connection, self.box)
            times.append((time.perf_counter() - begun) * 1000)
        connection.close()
        return times

    def jupyter(self, count, script="jupyter.py"):
        return [float(line) for line in self.command(f"/usr/bin/python3 /opt/cay/{script} {count}").split()]

    def template(self):
        """A template that starts cay-kernels in each sandbox, as `code-interpreter-v1` does."""
        self.command("mkdir -p /etc/cay")
        self.box.write("/etc/cay/start.json", json.dumps(START).encode(), user="root")
        reply = self.client.call("POST", f"/sandboxes/{self.box.id}/snapshots", {})
        if reply.status != 201:
            raise RuntimeError(f"no snapshot: {reply.body[:300]!r}")
        return reply.json["snapshotID"]

    def first(self, template):
        """Milliseconds, by connections of its own."""
        begun = time.perf_counter()
        box = self.client.create(template=template)
        connection = http.client.HTTPConnection(self.client.host, self.client.port, timeout=60)
        execute(connection, box)
        took = (time.perf_counter() - begun) * 1000
        connection.close()
        box.kill()
        return took

    def memory(self):
        """MiB: of its own, and with pages of the program and libraries that others have too."""
        sizes = {}
        for line in self.command("cat /proc/$(pgrep -x cay-kernels)/smaps_rollup").splitlines()[1:]:
            name, value, *_ = line.split()
            sizes[name.rstrip(":")] = int(value) / MIB_KB
        return sizes["Private_Dirty"], sizes["Rss"]


def execute(connection, box):
    connection.request("POST", "/execute", json.dumps({"code": "1+1"}), box.headers(port=PORT))
    said = connection.getresponse().read()
    if b'"text":"2"' not in said or not said.endswith(b'{"type":"end_of_execution"}\n'):
        raise RuntimeError(f"not executed: {said[-500:]!r}")


def why_not():
    done = subprocess.run(["/usr/bin/python3", "-c", "import ipykernel, jupyter_client"], capture_output=True)
    return "the machine has no python3-ipykernel (scripts/deps test)" if done.returncode else None


def measure(own, out, count):
    why = why_not()
    if why:
        for name, (text, unit) in NAMES.items():
            out.absent(name, text, unit, why)
        return
    with Kernels(own) as kernels:
        kernels.executes(10)
        ours, theirs = [], []
        for _ in range(ROUNDS):
            ours += kernels.executes(count)
            theirs += kernels.jupyter(count)
        own_mib, rss_mib = kernels.memory()
        if own.state_disk():
            first(kernels, out, max(2, min(FIRST_MAX, count)))
        else:
            for name in ("kernels_first", "kernels_memory_first"):
                out.absent(name, *NAMES[name], "a state disk of btrfs is not there")
    ours, theirs = statistics.median(ours), statistics.median(theirs)
    out.row("kernels_execute", *NAMES["kernels_execute"], ours, "jupyter_client, in the sandbox", theirs)
    out.row("kernels_added", *NAMES["kernels_added"], ours - theirs, most_value=1.0)
    out.row("kernels_memory", *NAMES["kernels_memory"], own_mib, most_value=5.0,
            note=f"{rss_mib:.1f} with the pages of files (the program and its libraries), which all sandboxes share")


def first(kernels, out, count):
    """In turns."""
    template, ours, theirs, with_memory = kernels.template(), [], [], []
    warm, why = kernels.template(), memory.why_not()
    if not why and kernels.client.call("POST", f"/cay/v1/snapshots/{warm}/memory", {"ready": READY}).status >= 300:
        why = "the template could not be kept with its memory"
    kernels.first(template)  # the files are in memory afterwards
    for _ in range(count):
        ours.append(kernels.first(template))
        theirs += kernels.jupyter(1, "first.py")
        if not why:
            with_memory.append(kernels.first(warm))
    for each in (template, warm):
        kernels.client.call("DELETE", f"/templates/{each}")
    alone, theirs = "start of the kernel alone, by jupyter_client", statistics.median(theirs)
    out.row("kernels_first", *NAMES["kernels_first"], statistics.median(ours), alone, theirs)
    if why:
        out.absent("kernels_memory_first", *NAMES["kernels_memory_first"], why)
    else:
        out.row("kernels_memory_first", *NAMES["kernels_memory_first"], statistics.median(with_memory), alone, theirs, most_value=150.0,
                note=f"{len(with_memory)} times, longest {max(with_memory):.1f} ms; the first opens the image")
