"""A session of fourteen days with pauses in between, by a clock that cayd alone has (clocklib): it works for an hour a day, is paused at the
end of its time, goes to the disk by its age, and a request wakes it the next day. Daemons end meanwhile. At last its files alone are kept, and
become an archive by their age. Nothing of its state is lost."""

import json
import os
import signal

import badworld
import clocklib
import conftest
import pytest
from client import Client, Sandbox
from test_dump import needs  # noqa: F401 (fixture)
from test_pause_memory import PROGRAMS
from waitlib import until

HOUR_S, DAYS, PORT = 3600, 14, 8000
# Its state is in memory alone: how often it was asked.
SERVER = """
import http.server
asked = 0
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        global asked
        asked += 1
        body = str(asked).encode()
        self.send_response(200); self.send_header("Content-Length", str(len(body))); self.end_headers(); self.wfile.write(body)
http.server.HTTPServer(("127.0.0.1", 8000), Handler).serve_forever()
"""


class Place:
    def __init__(self, world):
        self.world, self.clock = world, clocklib.Clock(world.base)
        done = world.start(cayd=self.clock.lines, privd_args=PROGRAMS,
                           cayd_args=("--pause-to-disk-after=12h", "--pause-archive-after=3d", "--sandbox-disk=256M"))
        assert done.returncode == 0, done.stderr + world.log_tail()
        self.client = Client(world.url, world.key())

    def hours_pass(self, hours):
        """And cayd has looked at the time since."""
        self.clock.real_s += hours * HOUR_S
        self.clock.pass_by(hours * HOUR_S)
        assert self.client.call("GET", "/cay/v1/status").status == 200

    def is_paused(self, box, tier):
        """Whole: its state is told as paused from the beginning of the pause on, and time that passes before its end is none of the tier's."""
        def so():
            lines = self.client.call("GET", f"/cay/v1/events?sandbox={box.id}&since=0&follow=0").body.splitlines()
            last = [e for e in map(json.loads, lines) if e["type"] in ("sandbox.paused", "sandbox.resumed")][-1:]
            return [(e["type"], e.get("tier"), e.get("memoryError")) for e in last] == [("sandbox.paused", tier, None)]

        until(so, 60, lambda: f"{tier}: {self.client.last.body} {self.world.log_tail()}", patient=True)

    def tier(self, box):
        shown = self.client.call("GET", f"/cay/v1/sandboxes/{box.id}").json
        assert shown["memoryError"] == "", shown
        return shown["tier"]

    def end_cayd(self):
        pid = self.world.cayd()
        os.kill(pid, signal.SIGKILL)
        until(lambda: self.world.cayd() not in (None, pid), 30, patient=True)
        until(lambda: self.client.call("GET", "/cay/v1/status").json["ready"] is True, 30, patient=True)


@pytest.fixture
def place(needs):  # noqa: F811
    with badworld.World(conftest.BUILD, conftest.USER, conftest.UID_BASE) as world:
        made = Place(world)
        if made.client.call("GET", "/cay/v1/status").json["disk"]["backend"] == "memory":
            pytest.skip("files are in memory here")
        yield made


def test_fourteen_days(place):
    made = place.client.call("POST", "/cay/v1/sandboxes", {"templateID": "host", "timeout": HOUR_S, "autoPause": True,
                                                          "autoResume": {"enabled": True}, "envVars": {"SESSION": "long"}})
    assert made.status == 201, made.body
    box = Sandbox(place.client, made.json)
    assert box.write("/home/user/server.py", SERVER.encode()).status == 200
    pid = box.run("python3 ~/server.py >/dev/null 2>&1 & echo $!").out.strip()
    until(lambda: box.request("GET", "/", port=PORT).status == 200, 20, "the server inside")
    asked = int(place.client.last.body)
    for day in range(1, DAYS + 1):
        # The request to its port wakes it, from the second day on.
        answer = box.request("GET", "/", port=PORT)
        asked += 1
        assert (answer.status, answer.body) == (200, str(asked).encode()), (day, answer.status, answer.body)
        done = box.run(f"echo day {day} >> ~/diary; echo $SESSION; kill -0 {pid} && wc -l < ~/diary")
        assert done.out.split() == ["long", str(day)], (day, done.out, done.stderr)
        place.hours_pass(1)
        place.is_paused(box, "frozen")
        if day % 4 == 0:
            place.end_cayd()
        place.hours_pass(12)
        place.is_paused(box, "memory")
        if day % 4 == 1:
            place.end_cayd()
        place.hours_pass(11)
    assert place.tier(box) == "memory"
    assert box.request("GET", "/", port=PORT).body == str(asked + 1).encode()
    assert place.client.call("POST", f"/cay/v1/sandboxes/{box.id}/pause", {"tier": "files"}).status == 200
    place.hours_pass(3 * 24)
    until(lambda: place.tier(box) == "archive", 60, "its archive", patient=True)
    assert place.client.call("POST", f"/v2/sandboxes/{box.id}/connect", {"timeout": 300}).status == 201
    done = box.run("cat ~/diary; echo $SESSION; pgrep -fc server.py")
    assert done.out.splitlines() == [*(f"day {n}" for n in range(1, DAYS + 1)), "long", "0"], done.out
    assert box.kill().status == 204
