"""SIGKILL of each program while a template is built and while one is given back: the build ends, with an error or whole; nothing of
it is left on the disk, in the folder of archives or in the tenant's account; and the same build is made again. At phases that are
waited for, and at calls of the daemons that are counted: drawn by a seed that is printed (CAY_CRASH_SEED=N draws the same again),
all of them with CAY_TEMPLATE_KILLS=1. Takes strace. Without a network."""

import os
import random
import shutil
import signal
import uuid

import httpx
import leftovers
import pytest
from client import Client, Sandbox
from conftest import BUILD, EGRESS_USER, OwnServer
from crash_changes import name as hostname
from crash_points import Killer
from test_pause_files import crash, kept_on_disk
from test_recovery import daemons, wait_ready
from test_template_builder import address, archive, copy, of_builds, put, request, run, start, status
from test_template_walls import begin_upload
from waitlib import kill_all, until, wait_replaced

ALL = bool(os.environ.get("CAY_TEMPLATE_KILLS"))
SEED = int(os.environ.get("CAY_CRASH_SEED", random.SystemRandom().randrange(10**6)))
CALLS = ("pwrite64", "openat", "write", "sendmsg", "sendto", "unlinkat", "renameat2")
CALLS_MAX, STRIDE, POINTS = 400, 7, 5
EGRESS = (f"--egress={BUILD}/src/egress/cay-egress", "--egress-processes=1", f"--egress-user={EGRESS_USER}")  # without a network
NAME = "killed"
FILES = archive([("f", b"of the archive\n")])
HASH = "5" * 64
STEPS = [{"type": "ENV", "args": ["GREETING", "hello"]}, run("echo $GREETING > /tmp/said"), copy(HASH, "f", "/srv/f")]


@pytest.fixture(scope="module")
def place():
    place = Place()
    yield place
    place.close()


class Place:
    """A server of its own, made anew after a few kills: cay-keep waits ever longer before it starts again what fails again and
    again."""

    KILLS = 4

    def __init__(self):
        self.server, self.kills = None, 0

    def ready(self):
        if self.kills >= self.KILLS:
            self.close()
        if self.server is None:
            self.server, self.kills = OwnServer(keep_args=EGRESS), 0
            self.cay = Client(self.server.url, self.server.key())
        return self.server, self.cay

    def close(self):
        if self.server is not None:
            self.server.stop()
        self.server = None


def used(cay):
    return cay.call("GET", "/cay/v1/tenants/default/quota").json["used"]["snapshots"]


def send(cay, made):
    there = address(cay, made, HASH).json
    assert there["present"] or put(there["url"], FILES).status_code == 200


def build(cay, name=NAME, steps=STEPS, **more):
    """A build that is asked for and begun; a connection that a kill breaks is an OSError."""
    made = request(cay, name)
    send(cay, made)
    reply = start(cay, made, steps=steps, **more)
    assert reply.status == 202, reply.body
    return made


def over(cay, made):
    return until(lambda: (s := status(cay, made)["status"]) in ("ready", "error") and s, 100, "the build ends", patient=True)


def wait_settled(server, cay):
    wait_ready(cay)
    until(lambda: of_builds(cay) == [], 60, "no build has a sandbox", patient=True)


def of_archives(server):
    return os.listdir(server.state / "cayd" / "builds")


def check_works(cay):
    with cay.create(template=NAME) as box:
        assert box.run("cat /tmp/said /srv/f").out == "hello\nof the archive\n"


def check(server, cay):
    """The template that is there is whole; the same is made again, and given back."""
    wait_settled(server, cay)
    for one in cay.call("GET", "/templates").json:
        assert one["templateID"] in ("host", "base", "debian") or one["buildStatus"] in ("ready", "error", "waiting"), one
    if any(one["buildStatus"] == "ready" and NAME in one["names"] for one in cay.call("GET", "/templates").json):
        check_works(cay)
    until(lambda: all(len(one) == 96 for one in of_archives(server)), what="no part of an archive is left")
    assert over(cay, build(cay)) == "ready"
    check_works(cay)
    until(lambda: cay.call("DELETE", f"/templates/{NAME}").status in (204, 404), what="the template is deleted")
    until(lambda: used(cay) == 0, 60, lambda: f"nothing is charged: {used(cay)}")
    until(lambda: kept_on_disk(server) == [], 60, lambda: f"the disk has none of it: {kept_on_disk(server)}")


def kill(server, cay, victim):
    if victim == "all":
        crash(server)
        server.start()
    elif victim == "cay-init":
        (box,) = of_builds(cay)
        (first,) = [p.pid for p in leftovers.in_sandboxes(server) if p.inner_pids[-1:] == ["1"] and hostname(p.pid) == box["sandboxID"]]
        os.kill(first, signal.SIGKILL)
    else:
        def pids():
            return daemons(server, victim)
        wait_replaced(pids, kill_all(pids))


# -- at a phase ----------------------------------------------------------------------------------------


def says(cay, made, text):
    until(lambda: any(text == line["message"] for line in status(cay, made)["logEntries"]), 60, f"the log says {text}")


GO = "/tmp/go"  # what the build waits for there, so that it is still under way when the kill comes


def in_a_step(cay):
    made = build(cay, steps=[*STEPS, run(f"echo begun; until [ -e {GO} ]; do sleep 0.1; done; : {uuid.uuid4()}")])  # not one that was kept
    says(cay, made, "begun")
    return made


def in_the_start_command(cay):
    made = build(cay, startCmd="echo begun; sleep 1000", readyCmd=f"[ -e {GO} ]")
    says(cay, made, "begun")
    return made


def let_go(cay):
    wait_ready(cay)
    (box,) = of_builds(cay)
    reply = cay.call("POST", f"/sandboxes/{box['sandboxID']}/connect", {"timeout": 300})
    assert Sandbox(cay, reply.json).write(GO, b"").status == 200


PHASES = {"step": in_a_step, "start": in_the_start_command}
LIVES_ON = ("cay-privd", "cay-egress")  # whose end a build does not notice: sandboxes are kept, and it asks for nothing from outside


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("victim", ["cayd", "cay-privd", "cay-egress", "cay-init", "all"])
def test_killed_while_it_is_built(place, victim, phase):
    server, cay = place.ready()
    made = PHASES[phase](cay)
    kill(server, cay, victim)
    place.kills += 1
    if victim in LIVES_ON:
        let_go(cay)
    assert over(cay, made) == ("ready" if victim in LIVES_ON else "error"), status(cay, made)
    check(server, cay)


@pytest.mark.parametrize("victim", ["cayd", "cay-privd"])
def test_killed_while_an_archive_comes(place, victim):
    server, cay = place.ready()
    made = request(cay, NAME)
    sending = begin_upload(address(cay, made, "6" * 64).json["url"])
    until(lambda: any(len(one) == 16 for one in of_archives(server)), what="it is being received")
    kill(server, cay, victim)
    place.kills += 1
    wait_settled(server, cay)
    sending.close()
    until(lambda: all(len(one) == 96 for one in of_archives(server)), what="the part is removed")
    assert address(cay, made, "6" * 64).json["present"] is False
    check(server, cay)


# -- at a call -----------------------------------------------------------------------------------------


def whole_build(cay):
    return over_now(cay, build(cay))


def over_now(cay, made):
    """As over(), but what the kill breaks ends it."""
    return until(lambda: (s := status(cay, made)["status"]) in ("ready", "error") and s, 100, "the build ends")


def rebuild(cay):
    """The template that was there before is given back."""
    return over_now(cay, build(cay, steps=[*STEPS, run("true")]))


def delete(cay):
    return cay.call("DELETE", f"/templates/{NAME}").status


CHANGES = {"build": (None, whole_build), "rebuild": (whole_build, rebuild), "delete": (whole_build, delete)}


def point(place, daemon, what, call, n):
    """Whether the change came as far as that call."""
    server, cay = place.ready()
    before, change = CHANGES[what]
    if before:
        assert before(cay) == "ready"
    pid = until(lambda: daemons(server, daemon))[0]
    killer = Killer(pid, call, n)
    try:
        change(cay)
    except (OSError, httpx.HTTPError, AssertionError):
        pass  # its connection broke, or it was told that the server is not there: check() says what became of it
    finally:
        hit = killer.hit()
    place.kills += hit
    if hit:
        wait_replaced(lambda: daemons(server, daemon), [pid])
    check(server, cay)
    return hit


def test_killed_at_some_calls(place):
    assert shutil.which("strace"), "strace is not installed: scripts/deps test"
    draw = random.Random(SEED)
    print(f"CAY_CRASH_SEED={SEED}")
    for _ in range(POINTS):
        point(place, draw.choice(("cayd", "cay-privd")), draw.choice(list(CHANGES)), draw.choice(CALLS), draw.randrange(1, 40))


@pytest.mark.skipif(not ALL, reason="CAY_TEMPLATE_KILLS=1")
@pytest.mark.parametrize("what", CHANGES)
@pytest.mark.parametrize("daemon", ["cayd", "cay-privd"])
def test_killed_at_its_calls(place, daemon, what):
    hits = {}
    for call in CALLS:
        for n in range(1, CALLS_MAX, STRIDE):
            if not point(place, daemon, what, call, n):
                break
            hits[call] = hits.get(call, 0) + 1
    print(f"{daemon}, {what}: killed at {sum(hits.values())} points: {hits}")
    assert hits  # of a delete cay-privd makes but a few of these calls
