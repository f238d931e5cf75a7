"""ttlMinutes of Daytona's API: a sandbox is deleted at a time that its owner has set, in any state. Time is moved for cayd alone,
as in test_auto_delete."""

import datetime

from test_auto_delete import gone, place  # noqa: F401 (fixtures)


def end_of(dto):
    """Minutes from its creation to its end; None where it has none."""
    times = [dto.get(key) and datetime.datetime.fromisoformat(dto[key].replace("Z", "+00:00")) for key in ("createdAt", "autoDestroyAt")]
    return times[1] and (times[1] - times[0]).total_seconds() / 60


def made(place, **fields):  # noqa: F811
    reply = place.call("POST", "sandbox", {"snapshot": "host", **fields})
    assert reply.status == 200, reply.body
    return reply.json


def test_one_that_runs_is_stopped_paused_or_archived_is_deleted_at_its_time(place, gone):  # noqa: F811
    runs, stopped, paused, archived, stays = (made(place, ttlMinutes=ttl)["id"] for ttl in (30, 30, 30, 30, 0))
    place.stop(stopped)
    place.stop(archived)
    assert place.call("POST", f"sandbox/{paused}/pause").json["state"] == "paused"
    assert place.call("POST", f"sandbox/{archived}/archive").json["state"] == "archived"
    place.minutes_pass(28)
    assert [place.state(id) for id in (runs, stopped, paused, archived)] == ["started", "stopped", "paused", "archived"]
    place.minutes_pass(3)
    for id in (runs, stopped, paused, archived):
        gone(id)
        assert place.reasons(id) == ["timeout"]
    assert place.state(stays) in ("stopping", "stopped")  # 15 minutes without use


def test_the_time_is_set_anew_and_taken_away(place, gone):  # noqa: F811
    one, other = made(place, autoStopInterval=0), made(place, ttlMinutes=20, autoDeleteInterval=60)
    assert end_of(one) is None and 19 < end_of(other) < 21 and other["autoDeleteInterval"] == 60
    shown = place.call("POST", f"sandbox/{one['id']}/ttl/20").json
    assert 19 < end_of(shown) < 21
    place.minutes_pass(15)
    again = place.call("POST", f"sandbox/{one['id']}/ttl/20").json
    assert 34 < end_of(again) < 36 and end_of(place.call("GET", f"sandbox/{one['id']}").json) == end_of(again)
    without = place.call("POST", f"sandbox/{other['id']}/ttl/0")
    assert without.status == 200 and end_of(without.json) is None
    place.minutes_pass(10)
    assert (place.state(one["id"]), place.state(other["id"])) == ("started", "started")
    place.minutes_pass(11)
    gone(one["id"])
    assert place.state(other["id"]) == "started"


def test_e2b_shows_the_earlier_of_both_ends(place, gone):  # noqa: F811
    one = made(place, autoStopInterval=60)["id"]

    def left():
        shown = place.client.call("GET", f"/sandboxes/{one}").json
        ends = [datetime.datetime.fromisoformat(shown[key].replace("Z", "+00:00")) for key in ("startedAt", "endAt")]
        return (ends[1] - ends[0]).total_seconds() / 60

    assert 59 < left() < 62
    place.call("POST", f"sandbox/{one}/ttl/20")
    assert 19 < left() < 22
    place.call("POST", f"sandbox/{one}/ttl/90")
    assert 59 < left() < 62
    place.call("POST", f"sandbox/{one}/ttl/0")
    assert 59 < left() < 62


def test_what_is_no_time_is_refused(place, gone):  # noqa: F811
    one = made(place)["id"]
    for minutes in ("x", "-1", "1.5", "0x10", "1e3", str(2**31), "9" * 30):
        assert place.call("POST", f"sandbox/{one}/ttl/{minutes}").status == 400, minutes
    for minutes in (-1, "5", 1.5, True, 2**31):
        assert place.call("POST", "sandbox", {"snapshot": "host", "ttlMinutes": minutes}).status == 400, minutes
    key = place.client.call("POST", "/cay/v1/keys", {"tenant": "else", "label": "t"}).json["key"]
    assert place.call("POST", f"sandbox/{one}/ttl/1", key=key).status == 404
    assert place.call("POST", f"sandbox/{one}/ttl/{2**31 - 1}").status == 200
    assert place.state(one) == "started"


def test_it_goes_on_without_cayd(place, gone):  # noqa: F811
    due, not_due = made(place, ttlMinutes=15)["id"], made(place, ttlMinutes=60)["id"]
    place.stop(due)
    place.stop(not_due)
    place.minutes_pass(10)
    pid = place.kill_cayd()
    place.clock.pass_minutes(6)
    place.is_back(pid)
    gone(due)
    assert place.state(not_due) == "stopped"


def test_a_fork_is_deleted_with_its_source(place, gone):  # noqa: F811
    source = made(place, ttlMinutes=30, name="source")
    at = f"sandbox/{source['id']}"
    assert place.call("GET", f"{at}/forks").json == [] == place.call("GET", f"{at}/ancestors").json
    assert place.call("GET", f"{at}/parent").status == 404
    fork = place.call("POST", f"{at}/fork", {"name": "fork"}).json
    below = place.call("POST", f"sandbox/{fork['id']}/fork", {}).json
    assert 28 < end_of(below) < 31
    ids = lambda path: [one["id"] for one in place.call("GET", path).json]  # noqa: E731
    assert ids("sandbox/source/forks") == ids(f"{at}/forks?includeDestroyed=true") == [fork["id"]]
    assert ids("sandbox/fork/forks") == [below["id"]] and ids("sandbox/fork/ancestors") == [source["id"]]
    assert ids(f"sandbox/{below['id']}/ancestors") == [source["id"], fork["id"]]
    assert place.call("GET", f"sandbox/{below['id']}/parent").json["name"] == "fork"
    key = place.client.call("POST", "/cay/v1/keys", {"tenant": "else", "label": "t"}).json["key"]
    for what in ("forks", "parent", "ancestors"):
        assert place.call("GET", f"sandbox/{fork['id']}/{what}", key=key).status == 404
    pid = place.kill_cayd()
    place.is_back(pid)
    assert ids(f"sandbox/{below['id']}/ancestors") == [source["id"], fork["id"]]
    assert place.call("DELETE", "sandbox/fork").status == 200
    gone(fork["id"])
    assert ids(f"{at}/forks") == ids(f"sandbox/{below['id']}/ancestors") == [] and place.call("GET", f"sandbox/{below['id']}/parent").status == 404
    place.minutes_pass(31)
    gone(source["id"])
    gone(below["id"])
