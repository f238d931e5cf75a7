"""Daytona's calls about one sandbox's ports and state that newer clients make: a signed address that is ended before its time, who
may ask the ports, and what recover and backup are here."""

import contextlib
import os
import pathlib
import signal
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from client import Client
from test_checkpoint import pid_of
from test_daytona_snapshot import Account, account, mine  # noqa: F401 (fixtures)
from test_pause_files import needs_a_disk  # noqa: F401 (a fixture)
from waitlib import until

PORT = 8128


@pytest.fixture
def served(mine):  # noqa: F811
    """A sandbox with a server of /etc on PORT."""
    made = mine.sandbox()
    mine.run(made, f"cd /etc && (python3 -m http.server {PORT} >/dev/null 2>&1 &)")
    link = mine.good("GET", f"sandbox/{made['id']}/ports/{PORT}/preview-url")
    until(lambda: reach(mine, link["url"], link["token"]).status == 200)
    return made


def reach(account, url, token=None):  # noqa: F811
    sent = {"Host": url.partition("//")[2], **({"X-Daytona-Preview-Token": token} if token else {})}
    return account.cay.call("GET", "/hostname", None, sent, key=False)


def sign(account, dto, seconds=3600, port=PORT):  # noqa: F811
    return account.good("GET", f"sandbox/{dto['id']}/ports/{port}/signed-preview-url?expiresInSeconds={seconds}")


def test_a_signed_address_is_ended_before_its_time(mine, account, served):  # noqa: F811
    one, other = sign(mine, served), sign(mine, served, 3000)
    ends = lambda link: f"sandbox/{served['id']}/ports/{PORT}/signed-preview-url/{link['token']}/expire"  # noqa: E731
    assert (reach(mine, one["url"]).status, reach(mine, other["url"]).status) == (200, 200)
    account().refused(404, "POST", ends(one), why="not found")
    assert reach(mine, one["url"]).status == 200
    for _ in range(2):
        assert mine.good("POST", ends(one)) is None
    refused = reach(mine, one["url"])
    assert refused.status == 403 and b"ended by its owner" in refused.body, refused.body
    assert reach(mine, other["url"]).status == 200  # and no other
    token = other["token"]
    for wrong in (token[:-1] + ("a" if token[-1] != "a" else "b"), "x", token.replace(served["id"], "i" + "0" * 19 + "1")):
        mine.refused(404, "POST", ends({"token": wrong}), why="no signed address")
    mine.refused(404, "POST", ends(other).replace(str(PORT), "8129"), why="no signed address")
    mine.refused(400, "POST", ends(other).replace(str(PORT), "0"), why="port")
    assert reach(mine, other["url"]).status == 200
    assert mine.good("POST", ends({"token": other["token"].removeprefix(served["id"])})) is None  # the token alone
    assert reach(mine, other["url"]).status == 403


def test_what_was_ended_is_bounded_and_goes_with_its_sandbox(mine, served, own_server):  # noqa: F811
    if not own_server:
        pytest.skip("looks into the database of a server of the tests' own")
    links = [sign(mine, served, 1000 + i) for i in range(65)]
    ends = [f"sandbox/{served['id']}/ports/{PORT}/signed-preview-url/{link['token']}/expire" for link in links]
    for end in ends[:64]:
        assert mine.good("POST", end) is None
    mine.refused(429, "POST", ends[64], why="64 signed addresses")
    assert mine.good("POST", ends[0]) is None and reach(mine, links[64]["url"]).status == 200

    def rows():
        with sqlite3.connect(f"file:{own_server.state}/cayd/cay.db?mode=ro", uri=True) as db:
            return db.execute("SELECT count(*) FROM signed_ends WHERE sandbox = ?", [served["id"]]).fetchone()[0]

    assert rows() == 64
    assert mine.good("DELETE", f"sandbox/{served['id']}")["state"] == "destroyed"
    until(lambda: rows() == 0, 60, "they are gone with the sandbox")


def test_ports_become_public_and_private_again(mine, account, served):  # noqa: F811
    at = f"sandbox/{served['id']}/public"
    link = mine.good("GET", f"sandbox/{served['id']}/ports/{PORT}/preview-url")
    mine.good("POST", f"sandbox/{served['id']}/network-settings", {"networkBlockAll": True})
    assert reach(mine, link["url"]).status == 403 and not served["public"]
    account().refused(404, "POST", f"{at}/true", why="not found")
    shown = mine.good("POST", f"{at}/true")
    assert (shown["public"], shown["networkBlockAll"]) == (True, True) and reach(mine, link["url"]).status == 200
    assert mine.good("POST", f"sandbox/{served['id']}/network-settings", {"networkBlockAll": False})["public"] is True
    assert mine.good("POST", f"{at}/false")["public"] is False and reach(mine, link["url"]).status == 403
    assert reach(mine, link["url"], link["token"]).status == 200
    for wrong in ("yes", "1", "TRUE"):
        mine.refused(400, "POST", f"{at}/{wrong}", why="true or false")


def test_nothing_is_to_be_recovered_and_a_backup_is_no_act(mine, account):  # noqa: F811
    made = mine.sandbox()
    for call in ("recover", "recover?skipStart=true"):
        mine.refused(400, "POST", f"sandbox/{made['id']}/{call}", why="not in a recoverable state")
    assert mine.good("POST", f"sandbox/{made['id']}/backup")["state"] == "started"
    for call in ("recover", "backup"):
        account().refused(404, "POST", f"sandbox/{made['id']}/{call}", why="not found")
    assert mine.good("POST", f"sandbox/{made['id']}/stop")["state"] == "stopped"
    mine.refused(400, "POST", f"sandbox/{made['id']}/recover", why="is stopped")


def test_one_that_is_paused_is_stopped(mine):  # noqa: F811
    made = mine.sandbox()
    at = f"sandbox/{made['id']}"
    mine.run(made, "echo kept >f; (setsid sleep 7000 &)")
    assert mine.good("POST", f"{at}/pause")["state"] == "paused"
    assert mine.good("POST", f"{at}/stop")["state"] == "stopped" and mine.good("GET", at)["state"] == "stopped"
    mine.refused(400, "POST", f"{at}/pause", why="is stopped")
    assert mine.good("POST", f"{at}/start")["state"] == "started"
    assert mine.run(made, "cat f; pgrep -fc 'sleep 700[0]'") == "kept\n0\n"


COUNT = "setsid sh -c 'i=0; while :; do i=$((i+1)); echo $i > /tmp/count; sleep 0.05; done' > /dev/null 2>&1 < /dev/null &"


def init_of(sandbox_id):
    return pid_of(SimpleNamespace(id=sandbox_id))


@contextlib.contextmanager
def without_an_answer(made):
    """Its agent, which alone has the environment that a stop keeps, does not answer meanwhile."""
    pid = init_of(made["id"])
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_one_that_is_paused_and_cannot_be_stopped_is_paused_again(mine):  # noqa: F811
    """It was left running. Where another client has started it meanwhile it runs."""
    made = mine.sandbox()
    at = f"sandbox/{made['id']}"
    mine.run(made, COUNT)
    count = lambda: int(mine.run(made, "cat /tmp/count") or 0)  # noqa: E731
    assert mine.good("POST", f"{at}/pause")["state"] == "paused"
    with without_an_answer(made):
        mine.refused(503, "POST", f"{at}/stop", why="it is being paused again, with its programs as they were")
        until(lambda: mine.good("GET", at)["state"] == "paused", 20, "it is paused again")
    before = int(pathlib.Path(f"/proc/{init_of(made['id'])}/root/tmp/count").read_text())
    assert mine.good("GET", at)["state"] == "paused" and mine.good("POST", f"{at}/start")["state"] == "started"
    until(lambda: count() > before, 20, "its program goes on")
    assert mine.good("POST", f"{at}/pause")["state"] == "paused"
    with without_an_answer(made), ThreadPoolExecutor() as pool:
        stop = pool.submit(mine.refused, 503, "POST", f"{at}/stop", "does not answer")
        until(lambda: mine.good("GET", at)["state"] == "stopping", 20, "it is being stopped", every=0.01)
        assert mine.good("POST", f"{at}/start")["state"] == "started"
        stop.result()
        assert mine.good("GET", at)["state"] == "started"
    assert mine.good("POST", f"{at}/pause")["state"] == "paused"
    assert mine.good("POST", f"{at}/stop")["state"] == "stopped"  # the control: its agent answers


@pytest.mark.parametrize("tier", ["files", "frozen"])
def test_a_stop_does_not_delete_what_another_client_has_kept(mine, tier):  # noqa: F811
    """autoDeleteInterval is 0 of one that E2B's clients made without autoPause, where no client of Daytona's has chosen it."""
    e2b = Client(mine.cay.url, mine.key)
    box = e2b.create()
    at = f"sandbox/{box.id}"
    box.run("echo kept > f")
    assert e2b.call("POST", f"/cay/v1/sandboxes/{box.id}/pause", {"tier": tier}).status == 200
    assert mine.good("GET", at)["autoDeleteInterval"] == 0
    for _ in range(2):
        assert mine.good("POST", f"{at}/stop")["state"] == "stopped"
    assert e2b.call("POST", f"/v2/sandboxes/{box.id}/connect", {"timeout": 60}).status == 201 and box.run("cat f").out == "kept\n"
    assert mine.good("POST", f"{at}/stop")["state"] == "destroyed"  # the control: it runs


# -- the time without use -------------------------------------------------------------------------------


def times(dto):
    return dto["autoStopInterval"], dto["autoPauseInterval"]


def test_a_time_until_it_is_paused_or_stopped(mine, account):  # noqa: F811
    made = mine.sandbox()
    at = f"sandbox/{made['id']}"
    assert times(made) == (15, 0)
    for call, expected in (("autopause/0", (15, 0)), ("autopause/30", (0, 30)), ("autostop/0", (0, 30)), ("autodelete/60", (0, 30)), ("autostop/20", (20, 0)),
                           ("autopause/0", (20, 0)), ("autopause/5", (0, 5)), ("autopause/0", (0, 0)), ("autostop/7", (7, 0))):
        assert times(mine.good("POST", f"{at}/{call}")) == expected == times(mine.good("GET", at)), call
    for wrong in ("-1", "x", "1.5", "99999999999"):
        mine.refused(400, "POST", f"{at}/autopause/{wrong}")
    account().refused(404, "POST", f"{at}/autopause/1", why="not found")
    assert times(mine.sandbox(autoPauseInterval=9)) == (0, 9) and times(mine.sandbox(autoPauseInterval=0)) == (15, 0)
    mine.refused(400, "POST", "sandbox", {"snapshot": "host", "autoPauseInterval": 1, "autoStopInterval": 1}, "At most one")
    mine.refused(400, "POST", "sandbox", {"snapshot": "host", "autoPauseInterval": 1, "autoDeleteInterval": 0}, "autoPauseInterval")
    assert times(mine.sandbox(autoPauseInterval=9, ttlMinutes=5)) == (0, 9)
    gone = mine.sandbox(autoDeleteInterval=0)
    mine.refused(400, "POST", f"sandbox/{gone['id']}/autopause/1", why="cannot be paused")


def test_one_that_is_not_used_is_paused_with_its_programs_or_stopped(mine):  # noqa: F811
    """Both in the same minute."""
    states = {mine.sandbox(**{which: 1})["id"]: state for which, state in (("autoPauseInterval", "paused"), ("autoStopInterval", "stopped"))}
    for one in states:
        mine.run({"id": one}, "(setsid sleep 7003 &)")
    until(lambda: {one["id"]: one["state"] for one in mine.good("GET", "sandbox")["items"] if one["id"] in states} == states, 300, states)
    for one, state in states.items():
        assert mine.good("POST", f"sandbox/{one}/start")["state"] == "started"
        assert mine.run({"id": one}, "pgrep -fc 'sleep 700[3]'").strip() == ("1" if state == "paused" else "0")


def test_its_use_of_resources_at_this_moment(mine, account):  # noqa: F811
    made = mine.sandbox()
    now = mine.good("GET", f"toolbox/{made['id']}/system/metrics")
    assert {*now} == {"cpuCount", "cpuUsedPct", "memTotal", "memUsed", "memCache", "diskTotal", "diskUsed", "diskFree", "timestamp", "timestampUnix"}
    assert 0 < now["memUsed"] < now["memTotal"] <= made["memory"] << 30 and now["cpuCount"] == made["cpu"], now
    assert now["diskTotal"] == now["diskUsed"] + now["diskFree"] and 0 <= now["cpuUsedPct"] <= 100 and now["timestampUnix"] > 1_700_000_000
    assert account().call("GET", f"toolbox/{made['id']}/system/metrics").status == 404
    assert mine.cay.call("GET", f"/api/toolbox/{made['id']}/system/metrics", key=False).status == 401
