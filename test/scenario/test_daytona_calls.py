"""Daytona's calls about one sandbox's ports and state that newer clients make: a signed address that is ended before its time, who
may ask the ports, and what recover and backup are here."""

import sqlite3

import pytest
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
