"""Calls of a tenant at once against each of its quotas: as many succeed as it leaves, never more, and never fewer."""

import random
import re
import threading

import pytest
from conftest import REPOSITORY
from test_tenants import at_once, create, quota, tenant, used  # noqa: F401 (fixture)
from waitlib import until

CALLERS, LEFT = 12, 3
MIB = 1 << 20


def fork(client, source):
    """Of one: made, or not by the reason of the fork that failed."""
    for _ in range(20):
        reply = client.call("POST", f"/sandboxes/{source}/fork", {"timeout": 300})
        if reply.status != 503:  # busy: others are being made of it
            break
    return reply.status, reply.body.decode()


def asked(method, path, body):
    def ask(client, one):
        reply = client.call(method, path.format(one), body(one) if callable(body) else body)
        return reply.status, reply.body.decode()
    return ask


def creates(client, one):
    reply = create(client)
    return reply.status, reply.body.decode()


volumes = asked("POST", "/cay/v1/volumes", lambda one: {"name": f"v{one}", "sizeBytes": 2 * MIB})
pauses = asked("POST", "/cay/v1/sandboxes/{}/pause", {"tier": "frozen"})
to_files = asked("POST", "/cay/v1/sandboxes/{}/pause", {"tier": "files"})

# quota, what is called at once, its caller's part: "number" of its own, "source" (the same sandbox), "own" sandbox
RACES = [
    ("sandboxes", creates, "number"), ("sandboxes", fork, "source"),
    ("createdPerMinute", creates, "number"), ("createdPerMinute", fork, "source"),
    ("cpuMilli", creates, "number"), ("cpuMilli", fork, "source"),
    ("memoryBytes", creates, "number"), ("memoryBytes", fork, "source"),
    ("diskBytes", creates, "number"), ("diskBytes", fork, "source"), ("diskBytes", volumes, "number"),
    ("paused", pauses, "own"), ("paused", to_files, "own"),
    ("snapshots", asked("POST", "/sandboxes/{}/snapshots", {}), "source"),
    ("volumes", volumes, "number"),
    ("templates", asked("POST", "/v3/templates", lambda one: {"name": f"t{one}"}), "number"),
]
ELSEWHERE = {"templateBytes"}  # how big an image is shows when it is unpacked: test_template_images.py


def clean(client):
    for box in client.call("GET", "/v2/sandboxes?state=running,paused").json:
        client.call("DELETE", f"/sandboxes/{box['sandboxID']}")
    for kind, path in (("/cay/v1/volumes", "/cay/v1/volumes/{}"), ("/snapshots", "/templates/{}"), ("/templates", "/templates/{}")):
        for one in client.call("GET", kind).json:
            name = one.get("name") if kind.endswith("volumes") else one.get("snapshotID") or one.get("templateID")
            client.call("DELETE", path.format(name))


@pytest.fixture
def racer(cay, tenant):  # noqa: F811
    if cay.call("GET", "/cay/v1/status").json["disk"]["backend"] == "memory":
        pytest.skip("files are in memory here")
    yield tenant
    clean(tenant)


def test_each_quota_has_a_race():
    page = (REPOSITORY / "docs/tenants.md").read_text().partition("| quota | counts |")[2].partition("\n\n")[0]
    rows = {name for line in page.splitlines()[2:] for name in re.findall(r"`(\w+)`", line.split("|")[1])}
    assert len(rows) > 8 and {name for name, _, _ in RACES} | ELSEWHERE == rows


def succeeded(status, body):
    """A fork is answered 201 with the error of each that was not made."""
    return status in (200, 201, 202, 204) and '"error"' not in body


@pytest.mark.parametrize("name, call, part", RACES, ids=[f"{name}-{n}" for n, (name, _, _) in enumerate(RACES)])
def test_as_many_as_it_leaves_and_no_more(cay, racer, name, call, part):
    owned = [create(racer).json["sandboxID"] for _ in range({"number": 0, "source": 1, "own": CALLERS}[part])]
    before = used(racer)[name]
    first = owned.pop() if part == "own" else owned[0] if part == "source" else "first"
    status, body = call(racer, first)
    assert succeeded(status, body), body
    cost = used(racer)[name] - before
    assert cost > 0
    quota(cay, racer, **{name: before + (1 + LEFT) * cost + cost // 2})
    mine = iter(owned if part == "own" else owned * CALLERS if part == "source" else range(CALLERS))
    callers = CALLERS - 1 if part == "own" else CALLERS
    answers = at_once(callers, lambda: call(racer, next(mine)))
    good = [a for a in answers if succeeded(*a)]
    assert len(good) == LEFT, answers
    assert used(racer)[name] == before + (1 + LEFT) * cost
    for status, body in (a for a in answers if not succeeded(*a)):
        assert f"the quota {name} of tenant {racer.name}" in body, (status, body)
    quota(cay, racer, **{name: None})


MOST = {"sandboxes": 4, "paused": 2, "snapshots": 2}
FINE = {200, 201, 204, 404, 409, 429, 503}


def one_of(client, rng, state):
    found = client.call("GET", f"/v2/sandboxes?state={state}").json
    return rng.choice(found)["sandboxID"] if found else "i" + "0" * 20


def act(client, rng):
    """Something that charges an account or gives back."""
    def delete_snapshot():
        found = client.call("GET", "/snapshots").json
        return client.call("DELETE", f"/templates/{rng.choice(found)['snapshotID'] if found else 'snone'}")
    tier = rng.choice(["frozen", "files"])
    return rng.choice([
        lambda: create(client), lambda: create(client),
        lambda: client.call("POST", f"/cay/v1/sandboxes/{one_of(client, rng, 'running')}/pause", {"tier": tier}),
        lambda: client.call("POST", f"/v2/sandboxes/{one_of(client, rng, 'paused')}/connect", {"timeout": 300}),
        lambda: client.call("POST", f"/sandboxes/{one_of(client, rng, 'running')}/snapshots", {}),
        lambda: client.call("POST", f"/sandboxes/{one_of(client, rng, 'running')}/fork", {"timeout": 300, "count": 2}),
        lambda: client.call("DELETE", f"/sandboxes/{one_of(client, rng, 'running,paused')}"),
        delete_snapshot,
    ])().status


def fill(client, call):
    """As many as there can be: until one is refused."""
    for _ in range(8):
        if call().status == 429:
            return
    raise AssertionError("none was refused")


def test_all_calls_at_once_leave_each_quota_exact(cay, racer):
    """Creates, pauses, resumes, snapshots, forks and their ends from six clients, while another looks on; afterwards each
    quota can be filled up, and all is given back."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    quota(cay, racer, **MOST)
    answers, over = [], threading.Event()

    def client(n):
        rng = random.Random(seed + n)
        for _ in range(20):
            answers.append(act(racer, rng))

    threads = [threading.Thread(target=client, args=[n]) for n in range(6)]

    def look_on():
        while not over.is_set():
            now = used(racer)
            seen.append(now)
            listed.append(len(racer.call("GET", "/v2/sandboxes?state=running,paused").json))

    seen, listed = [], []
    onlooker = threading.Thread(target=look_on)
    for t in [onlooker, *threads]:
        t.start()
    for t in threads:
        t.join()
    over.set()
    onlooker.join()
    assert set(answers) <= FINE, sorted(answers)
    assert {201, 429} <= set(answers), sorted(answers)  # the control: there was something to be refused
    assert all(now[name] <= most for now in seen for name, most in MOST.items()), seen
    assert max(listed) <= MOST["sandboxes"], listed

    fill(racer, lambda: create(racer))
    assert used(racer)["sandboxes"] == MOST["sandboxes"]
    for box in racer.call("GET", "/v2/sandboxes?state=paused").json:
        assert racer.call("POST", f"/v2/sandboxes/{box['sandboxID']}/connect", {"timeout": 300}).status == 201
    assert used(racer)["paused"] == 0
    running = [box["sandboxID"] for box in racer.call("GET", "/v2/sandboxes?state=running").json]
    assert len(running) == MOST["sandboxes"]
    fill(racer, lambda: racer.call("POST", f"/sandboxes/{running[0]}/snapshots", {}))
    assert used(racer)["snapshots"] == MOST["snapshots"] == len(racer.call("GET", "/snapshots").json)
    waiting = iter(running)
    fill(racer, lambda: racer.call("POST", f"/sandboxes/{next(waiting)}/pause", {}))
    assert used(racer)["paused"] == MOST["paused"]
    clean(racer)
    until(lambda: not any(used(racer)[name] for name in (*MOST, "cpuMilli", "memoryBytes", "diskBytes")), 30,
          lambda: f"all is given back: {used(racer)}")
