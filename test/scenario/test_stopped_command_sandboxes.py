"""A tenant's root stops what is to become a command sandbox, wherever it sees it: that holds up its own sandbox for seconds, no other
one, and leaves nothing."""

import concurrent.futures

import leftovers
from client import Client, Sandbox
from egresslib import stack  # noqa: F401: a fixture
from waitlib import until

TENANTS, INNER = ("first", "second"), 8
SECONDS = 40

# New processes of this pid namespace have the numbers after the last one. It ends with the file.
STOP = """
import os, signal, time
last, end = os.getpid(), time.monotonic() + 30
open("/tmp/ready", "w").close()
while time.monotonic() < end and not os.path.exists("/tmp/enough"):
    for pid in range(last + 1, last + 40):
        try:
            os.kill(pid, signal.SIGSTOP)
            last = pid
        except OSError:
            pass
"""


class Box:
    def __init__(self, stack, tenant):  # noqa: F811
        key = stack.cay.call("POST", "/cay/v1/keys", {"tenant": tenant, "label": "test"}).json["key"]
        self.cay = Client(stack.server.url, key)
        made = self.cay.call("POST", "/cay/v1/sandboxes", {"templateID": "host", "timeout": 900, "policy": {"rules": []}})
        assert made.status == 201, made.body
        self.box = Sandbox(self.cay, made.json)
        self.path = f"/cay/v1/sandboxes/{self.box.id}"

    def run(self, shell, policy=None, **more):
        body = {"shell": shell, "timeout_ms": SECONDS * 1000, **more, **({"policy": policy} if policy else {})}
        return self.cay.call("POST", f"{self.path}/exec", body, timeout=2 * SECONDS)

    def is_there(self, path):
        """By the agent itself, which starts no process for it."""
        return self.box.read(path, user="root").status == 200


def stopped(server):
    """Processes of its sandboxes that are stopped, and its tasks."""
    return [(p.pid, p.name, p.inner_pids) for p in leftovers.in_sandboxes(server) if p.state == "T"]


def test_stopped_command_sandboxes(stack):  # noqa: F811
    bad, good = [Box(stack, tenant) for tenant in TENANTS], Box(stack, "third")
    with concurrent.futures.ThreadPoolExecutor(len(bad) * (INNER + 1)) as pool:
        for box in bad:
            assert box.run("cat > /tmp/stop.py", stdin=STOP).status == 200
        stoppers = [pool.submit(box.run, "python3 /tmp/stop.py", user="root") for box in bad]
        for box in bad:
            until(lambda b=box: b.is_there("/tmp/ready"), SECONDS, lambda: "nothing stops anything")
        made = [pool.submit(box.run, "true", "deny", timeout_ms=2000) for box in bad for _ in range(INNER)]
        results = [good.run("true", "deny") for _ in range(20)]
        tried = [f.result() for f in made]
        for box in bad:
            box.box.write("/tmp/enough", b"", user="root")
        for stopper in stoppers:
            stopper.result()
    for done in results:  # a neighbour's are made all the while
        assert (done.status, done.json.get("exit_code")) == (200, 0), done.body
    # The control: the attempt takes effect, and is ended by the server.
    assert [r for r in tried if r.status == 500 and b"Connection timed out" in r.body], [r.body for r in tried]
    for box in bad:
        done = box.run("true", "deny")  # and when it stops, all is as it was
        assert (done.status, done.json.get("exit_code")) == (200, 0), done.body
    until(lambda: not stopped(stack.server), SECONDS, lambda: stopped(stack.server))
