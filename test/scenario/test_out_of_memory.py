"""PID 1 of a sandbox is killed at the sandbox's memory limit: it ends, and its end says so and names that process."""

import json
import pathlib
import subprocess
import sys

from test_stopped_agent import agent_of  # noqa: F401 (fixture)
from waitlib import until

# A process of the host's in the sandbox's control group takes what is left below its limit until PID 1 has gone, which the
# kernel is to kill first: the file counts for the group, and for no process. Bounded.
EATER = """
import os, sys
print("ready", flush=True)
sys.stdin.readline()
held = os.memfd_create("held")
for _ in range(int(sys.argv[2])):
    try:
        if open(f"/proc/{sys.argv[1]}/stat").read().rpartition(")")[2].split()[0] in "ZX":
            break
    except OSError:
        break
    os.write(held, b"x" * (1 << 16))
"""
SPARE = 32 << 20


def memory_group(pid):
    """The control group that PID 1 counts in; and the file of its limit."""
    for line in pathlib.Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        if names == "memory":
            return pathlib.Path("/sys/fs/cgroup/memory" + path), "memory.limit_in_bytes", "memory.usage_in_bytes"
        if names == "" and pathlib.Path(f"/sys/fs/cgroup{path}/memory.max").exists():
            return pathlib.Path("/sys/fs/cgroup" + path), "memory.max", "memory.current"
    raise AssertionError(f"no memory group of {pid}")


def ended(cay, box):
    lines = cay.call("GET", f"/cay/v1/events?sandbox={box.id}&since=0&follow=0").body.splitlines()
    return [event for event in map(json.loads, lines) if event["type"] == "sandbox.ended"]


def test_the_agents_end_is_told_with_its_name(cay, agent_of):  # noqa: F811
    """Control: one whose PID 1 was killed in another way names none."""
    with cay.create() as other, cay.create() as box:
        pid = agent_of(box)
        group, limit, now = memory_group(pid)
        eater = subprocess.Popen([sys.executable, "-c", EATER, str(pid), str((SPARE >> 16) * 4)], stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert eater.stdout.readline() == b"ready\n"
        pathlib.Path(f"/proc/{pid}/oom_score_adj").write_text("1000")
        (group / "cgroup.procs").write_text(str(eater.pid))
        (group / limit).write_text(str(int((group / now).read_text()) + SPARE))
        eater.stdin.close()
        until(lambda: ended(cay, box), 30, "its end is told")
        eater.wait(20)
        event, = ended(cay, box)
        assert (event["reason"], event["process"]) == ("out_of_memory", "cay-init"), event
        assert cay.call("GET", f"/sandboxes/{box.id}").status == 404
        subprocess.run(["kill", "-9", str(agent_of(other))], check=True)
        until(lambda: ended(cay, other), 30, "its end is told")
        event, = ended(cay, other)
        assert event["reason"] == "lost" and "process" not in event, event
