"""Daemons are killed; sandboxes live on and are found again."""

import os
import pathlib
import re
import signal
import sqlite3
import subprocess
import time

import leftovers
import pytest
from waitlib import kill_all, until, wait_replaced


def daemons(own_server, name):
    """The daemons of the tests' own server only: others may run on this machine."""
    return leftovers.children(own_server.keep_pid, name)


def kill_daemons(own_server, *names):
    """All of these, and waits for those that are started in their place: until then those that live may say that all is well."""
    for name, old in [(n, kill_all(lambda n=n: daemons(own_server, n))) for n in names]:
        wait_replaced(lambda n=name: daemons(own_server, n), old)


def host_facts():
    """The paths that cay-job watches to find that the host has changed (make_fingerprint): {path: facts}. When one of it
    changes while a test runs, a cay-privd that starts makes the template host anew, beside the one that sandboxes stand on."""
    source = (pathlib.Path(__file__).resolve().parents[2] / "src/job/host.c").read_text()
    watched = re.findall(r'"([^"]+)"', re.search(r"watched\[\] = \{(.+?)\}", source, re.S)[1])
    facts = {path: (s.st_ino, s.st_mtime_ns, s.st_size) for path in watched if os.path.exists(path) for s in [os.stat(path)]}
    hidden = subprocess.run(["find", "/usr/local", "(", "-type", "f", "!", "-perm", "-4", "-o", "-type", "d", "!", "-perm", "-5",
                             "-o", "-path", "/usr/local/*", "!", "-path", "/usr/local/*/*", ")", "-print"], capture_output=True, text=True)
    return {**facts, "hidden in /usr/local": hidden.stdout.splitlines()}


@pytest.fixture
def check_returned(own_server):
    """Asserts that all counts are what they were before; skips by name what a change of the host has made impossible to tell."""
    at_start = host_facts()

    def check(before):
        now = leftovers.returned(own_server, before)
        changed = [name for name, facts in host_facts().items() if facts != at_start.get(name)]
        if now != before and changed:
            pytest.skip(f"the host changed while the test ran ({', '.join(changed)}): its template was made anew")
        assert now == before

    return check


def wait_ready(cay):
    until(lambda: cay.call("GET", "/cay/v1/status").json.get("ready") is True, what="the server is ready again", patient=True)


def wait_served(cay, box):
    until(lambda: box.run("echo alive").out == "alive\n" and cay.call("GET", f"/sandboxes/{box.id}").status == 200,
          what="the sandbox is served again", patient=True)


@pytest.mark.parametrize("victim", ["cayd", "cay-privd", "both"])
def test_sandbox_survives(cay, own_server, check_returned, victim):
    if not own_server:
        pytest.skip("daemons are killed only in a server of the tests' own")
    with cay.create() as box:
        pid = box.run("sleep 1000 >/dev/null 2>&1 & echo $!").out.strip()
        before = leftovers.settled(own_server)
        kill_daemons(own_server, *(("cayd", "cay-privd") if victim == "both" else (victim,)))
        wait_served(cay, box)
        wait_ready(cay)
        assert box.run(f"kill -0 {pid} && echo there").out == "there\n"
        with cay.create() as another:
            assert another.run("echo new").out == "new\n"
        check_returned(before)
    assert cay.call("GET", f"/sandboxes/{box.id}").status == 404


def test_privd_killed_in_the_middle_of_creates(cay, own_server, check_returned):
    """Each create either answers with a sandbox that works, or with an error; nothing is left."""
    if not own_server:
        pytest.skip("daemons are killed only in a server of the tests' own")
    import concurrent.futures

    def one(_):
        reply = cay.call("POST", "/v2/sandboxes", {"templateID": "host", "metadata": {"r": "crash"}})
        return reply.status, reply.json

    before = leftovers.settled(own_server)
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        futures = [pool.submit(one, n) for n in range(40)]
        time.sleep(0.05)
        kill_daemons(own_server, "cay-privd")
        answers = [f.result() for f in futures]
    assert all(status in (201, 429, 503, 500, 502) for status, _ in answers), answers
    wait_ready(cay)
    alive = {item["sandboxID"] for item in
             cay.call("GET", "/v2/sandboxes?metadata=r%3Dcrash&limit=100").json}
    for status, body in answers:
        if status == 201:
            cay.call("DELETE", f"/sandboxes/{body['sandboxID']}")
    for left in alive:
        cay.call("DELETE", f"/sandboxes/{left}")
    # Slots are made ready for what is asked for: the new privd has to be asked once.
    assert cay.create().kill().status == 204
    check_returned(before)


def write_rows(server, changes, copies):
    """States of rows, as a cayd of another version would have left them: (id, state). copies: (new id, state, of)."""
    db = sqlite3.connect(f"{server.state}/cayd/cay.db", timeout=5)
    for one, state in changes:
        db.execute("UPDATE sandboxes SET state = ? WHERE id = ?", (state, one))
    for new, state, of in copies:
        db.execute("CREATE TEMP TABLE one AS SELECT * FROM sandboxes WHERE id = ?", (of,))
        db.execute("UPDATE one SET id = ?, name = '', state = ?", (new, state))
        db.execute("INSERT INTO sandboxes SELECT * FROM one")
        db.execute("DROP TABLE one")
    db.commit()
    db.close()


PAUSING, PAUSED, RESUMING = 2, 3, 4  # src/core/core.h


def test_rows_in_the_states_of_a_pause_become_what_is_so(cay, own_server):
    """Whatever a row says: what privd has runs, or is paused if it is frozen; what it does not have is lost. cayd starts, and
    the others live on."""
    if not own_server:
        pytest.skip("daemons are killed only in a server of the tests' own")
    states = (PAUSING, PAUSED, RESUMING)
    with cay.create() as kept:
        known, frozen = [cay.create().id for _ in states], [cay.create().id for _ in states]
        unknown = ["i" + "".join(reversed(one[1:])) for one in known]
        for one in frozen:
            assert cay.call("POST", f"/sandboxes/{one}/pause", {}).status == 204
        write_rows(own_server, [*zip(known, states), *zip(frozen, states)],
                   [(new, state, kept.id) for new, state in zip(unknown, states)])
        kill_daemons(own_server, "cayd")
        wait_served(cay, kept)
        wait_ready(cay)
        def lists(state):
            return sorted(one["sandboxID"] for one in cay.call("GET", f"/v2/sandboxes?state={state}").json)
        until(lambda: lists("running") == sorted([*known, kept.id]) and lists("paused") == sorted(frozen),
              what="each is what privd says")
        until(lambda: leftovers._rows(own_server) == 7, what="the rows of the others are gone")
        for one in known + frozen:
            assert cay.call("DELETE", f"/sandboxes/{one}").status == 204


@pytest.mark.parametrize("victim", ["cayd", "cay-privd", "both", "cay-keep"])
def test_a_paused_sandbox_survives(cay, own_server, victim):
    """Frozen through the end of any program: its processes go on afterwards, where they were."""
    if not own_server:
        pytest.skip("daemons are killed only in a server of the tests' own")
    with cay.create() as box, cay.create() as runs:
        pid = box.run("sleep 1000 >/dev/null 2>&1 & echo $!").out.strip()
        assert cay.call("POST", f"/sandboxes/{box.id}/pause", {}).status == 204
        if victim == "cay-keep":
            os.kill(own_server.keep_pid, signal.SIGKILL)  # and with it all its children
            until(lambda: not leftovers.children(own_server.keep_pid, "cay-privd"), what="all are gone")
            own_server.start()
        kill_daemons(own_server, *{"both": ("cayd", "cay-privd"), "cay-keep": ()}.get(victim, (victim,)))
        wait_served(cay, runs)
        wait_ready(cay)
        assert cay.call("GET", f"/sandboxes/{box.id}").json["state"] == "paused"
        assert cay.call("POST", f"/v2/sandboxes/{box.id}/connect", {"timeout": 60}).status == 201
        assert box.run(f"kill -0 {pid} && echo there").out == "there\n"

