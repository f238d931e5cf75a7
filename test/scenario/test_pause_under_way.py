"""Requests that are under way, without an answer, when their sandbox is paused."""

import os
import pathlib
import signal
from concurrent.futures import ThreadPoolExecutor

from test_pause import connect, pause
from test_stopped_agent import agent_of  # noqa: F401: a fixture
from waitlib import until

# Takes a request and never answers it.
SILENT = """
import socket, time
with socket.create_server(("127.0.0.1", 8000)) as s:
    open("/tmp/listens", "w").close()
    c, _ = s.accept()
    c.recv(4096)
    open("/tmp/asked", "w").close()
    time.sleep(600)
"""


def there(box, path):
    until(lambda: box.read(path).status == 200, what=path)


def test_a_request_without_an_answer_is_told_of_the_pause(cay):
    """Of a service: until its client gives up otherwise."""
    with cay.create() as box, ThreadPoolExecutor(1) as pool:
        box.write("/tmp/silent.py", SILENT.encode())
        box.run("python3 /tmp/silent.py >/dev/null 2>&1 &")
        there(box, "/tmp/listens")
        asked = pool.submit(lambda: box.request("GET", "/", port=8000))
        there(box, "/tmp/asked")
        assert not asked.done() and pause(cay, box) == 204
        reply = asked.result()
        assert reply.status == 502 and reply.json["sandboxId"] == box.id and "was paused" in reply.json["message"]


def unread_by_agent(pid):
    """Bytes in the sandbox's network that its agent was sent and has not read."""
    rows = [line.split() for line in pathlib.Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    return sum(int(row[4].split(":")[1], 16) for row in rows if row[1].endswith(":C33F") and row[3] == "01")


def test_health_under_way_when_it_is_paused_means_that_it_does_not_run(cay, agent_of):
    """502, the SDKs' is_running() == False; 504 is an error to them. The agent is stopped, so that it cannot answer first."""
    with cay.create() as box, ThreadPoolExecutor(1) as pool:
        pid = agent_of(box)
        os.kill(pid, signal.SIGSTOP)
        try:
            asked = pool.submit(lambda: box.request("GET", "/health", token=False))
            until(lambda: unread_by_agent(pid) > 0, what="the request has arrived")
            assert not asked.done() and pause(cay, box) == 204
            reply = asked.result()
        finally:
            os.kill(pid, signal.SIGCONT)
        assert reply.status == 502 and "was paused" in reply.json["message"]
        assert connect(cay, box).status == 201
        assert box.request("GET", "/health", token=False).status == 204
