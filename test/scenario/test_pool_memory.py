"""Members of the pool that are restored from the memory of a template before they are asked for (docs/pool.md): a claim has the
template's server running and all else its own; their ends; and which creates never have one. Needs CRIU."""

import json
import os
import pathlib
import signal

from client import Client, Sandbox
from test_dump import needs  # noqa: F401 (fixture)
from test_fork_memory import identity
from test_pause_files import disk, kept_on_disk
from test_pause_memory import detail, kept, own, pause, resume  # noqa: F401 (fixtures)
from test_pool import lives, members
from test_recovery import kill_daemons, wait_ready
from test_template_memory import GIVEN, PORT, asks, build, name, started, told_of, with_memory  # noqa: F401 (fixture)
from waitlib import until

MEMBERS = 2  # POOL_WITH_MEMORY (src/privd/pool.h)


# -- a whole server --------------------------------------------------------------------------------

def make(client, name):  # noqa: F811
    """Its server's command line has the name, by which its processes are found."""
    assert with_memory(build(client, name, command=f"exec python3 /opt/server.py {name}"))


def servers(name):  # noqa: F811
    """Processes of that template's server on this machine: members, and sandboxes."""
    found = set()
    for entry in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"/opt/server.py" in words and name.encode() in words and lives(entry.parent.name):
            found.add(int(entry.parent.name))
    return found


def namespace(pid):
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return None


def standing(own, name):  # noqa: F811
    """Those of members that can be claimed: {process of the server: PID 1}."""
    first = {namespace(pid): pid for pid in members(own).values()}
    return {pid: first[namespace(pid)] for pid in servers(name) if namespace(pid) in first}


def stand(own, name, wanted=MEMBERS):  # noqa: F811
    """Until so many members stand."""
    return until(lambda: len(standing(own, name)) == wanted and standing(own, name), 60,
                 lambda: f"{wanted} members with memory: {standing(own, name)}")


def claims(client):
    return sum(row["claims"] for row in client.call("GET", "/cay/v1/status").json["pool"])


def claimed(client, name, **fields):  # noqa: F811
    """A create that got a member: the counter says so, and the process stood before."""
    stood, before = servers(name), claims(client)
    box = client.create(template=name, **fields)
    assert claims(client) == before + 1
    event = told_of(client, box)
    assert event.get("memory") is True, event
    assert len(servers(name) & stood) == len(stood)  # it goes on; no other was started for it
    return box


def prepared(client, own, name):  # noqa: F811
    """The template, and members of it."""
    make(client, name)
    return asked(client, own, name)


def asked(client, own, name):  # noqa: F811
    """As many creates say that it is asked for as give it its share beside other kinds."""
    for _ in range(16):
        box = client.create(template=name)
        box.kill()
        until(lambda: not servers_in(name, box.id), 20)
        try:
            return until(lambda: len(standing(own, name)) == MEMBERS and standing(own, name), 5)
        except AssertionError:
            pass  # its share is less still
    return stand(own, name)


def servers_in(name, sandbox):  # noqa: F811
    """By its host name, which a member does not have."""
    return {pid for pid in servers(name) if is_in(pid, sandbox)}


def is_in(pid, sandbox):
    try:
        return sandbox in pathlib.Path(f"/proc/{pid}/root/etc/hostname").read_text()
    except OSError:
        return False


def test_a_claim_has_the_server_up_and_is_another_machine(kept, own, name):  # noqa: F811
    prepared(kept, own, name)
    with claimed(kept, name, envVars={"OWN": "a"}) as one:
        first = asks(one)  # at once: without a wait
        stand(own, name)
        with claimed(kept, name, envVars={"OWN": "b"}) as two:
            second = asks(two)
            assert first[0] == second[0] and first[3] == second[3]  # the word of its memory, and its process
            assert first[1] != second[1] and first[2] != second[2]  # generation and random numbers are their own
            assert first[4] == second[4]  # neither was asked before: none was used
            assert [started(box) for box in (one, two)] == [1, 1]
            assert one.run("grep core /proc/1/limits").out.split()[4:6] == ["1", "1"]  # as in test_pause_memory.py
            machines = [identity(box) for box in (one, two)]
            assert machines[0][0] != machines[1][0] and [m[1:] for m in machines] == [[one.id, one.id, "a"], [two.id, two.id, "b"]]
            given = [json.loads(box.run(f"cat {GIVEN}", user="root").out) for box in (one, two)]
            assert [(g["E2B_SANDBOX_ID"], g["OWN"]) for g in given] == [(one.id, "a"), (two.id, "b")]
            assert pause(kept, one).json["tier"] == "memory" and resume(kept, one).status == 201
            assert asks(one)[0] == first[0] and started(one) == 1


def test_none_is_claimed_twice_and_what_was_used_ends(kept, own, name):  # noqa: F811
    prepared(kept, own, name)
    seen = set()
    for n in range(3 * MEMBERS):
        stood = set(stand(own, name))
        with claimed(kept, name) as box:
            assert box.run("cat /tmp/mine").exit_code != 0
            box.run("echo mine > /tmp/mine")
            seen.add(asks(box)[1])
        until(lambda: len(servers(name) & stood) == MEMBERS - 1, 20, "the one that was used is gone")
    assert len(seen) == 3 * MEMBERS


def test_other_creates_have_none_of_them(kept, own, name):  # noqa: F811
    """Of the server's template, and without the start command (limits: test_privd_pool.c). Control: the last create claims one."""
    stood = prepared(kept, own, name)
    cold = kept.call("POST", "/cay/v1/sandboxes", {"templateID": name, "timeout": 300, "startCommand": False})
    boxes = [kept.create(), Sandbox(kept, cold.json)]
    try:
        assert not any(is_in(pid, box.id) for pid in stood for box in boxes)
        assert [len(servers_in(name, box.id)) for box in boxes] == [0, 0]
    finally:
        for box in boxes:
            box.kill()
    asked(kept, own, name)
    with claimed(kept, name):
        pass


def test_a_member_outlives_its_image_and_the_next_begins_cold(kept, own, name):  # noqa: F811
    """The image is damaged: those that stand are whole; then a create begins with the files alone, and says so."""
    prepared(kept, own, name)
    image, = until(lambda: len(found := list(pathlib.Path(disk(own)).glob("kept/*/image"))) == 1 and found, what="the test before left none")
    with open(image, "r+b") as f:
        f.seek(8192)
        byte = f.read(1)
        f.seek(8192)
        f.write(bytes([byte[0] ^ 1]))
    boxes = []
    try:
        for _ in range(MEMBERS + 1):  # fewer may stand by now: other kinds have their shares
            boxes.append(kept.create(template=name))
            event = told_of(kept, boxes[-1])
            if "memory" not in event:
                break
            assert asks(boxes[-1])[0]
        cold = boxes[-1]
        assert len(boxes) > 1 and event["memoryError"], event
        assert detail(kept, cold)["memoryError"]
        until(lambda: asks(cold)[:1], 30, "its server answers", patient=True)
    finally:
        for box in boxes:
            box.kill()


def until_none(own):  # noqa: F811
    """The files of the test before are gone."""
    until(lambda: kept_on_disk(own) == [], 30)
    return []


def test_they_go_with_the_template(kept, own, name):  # noqa: F811
    before = until_none(own)
    prepared(kept, own, name)
    assert kept.call("DELETE", f"/templates/{name}").status == 204
    until(lambda: not servers(name), 30, "its members are ended")
    until(lambda: kept_on_disk(own) == before, 30, lambda: f"its files are given back: {kept_on_disk(own)}")


def test_they_go_while_one_is_being_restored(kept, own, name):  # noqa: F811
    before = until_none(own)
    make(kept, name)
    kept.create(template=name).kill()  # the refill begins
    assert kept.call("DELETE", f"/templates/{name}").status == 204
    until(lambda: kept_on_disk(own) == before and not servers(name), 60,
          lambda: f"nothing of it is left: {kept_on_disk(own)}, {servers(name)}")


def test_another_privd_ends_them_and_makes_new_ones(kept, own, name):  # noqa: F811
    """They stand frozen, so the end of their privd does not end them; the next does."""
    stood = prepared(kept, own, name)
    kill_daemons(own, "cay-privd")
    wait_ready(kept)
    until(lambda: not any(lives(pid) for pid in stood), 30, "those of before are ended")
    assert not set(asked(kept, own, name)) & set(stood)
    with claimed(kept, name) as box:
        assert asks(box)[0]


def test_one_whose_first_process_is_killed_is_never_given(kept, own, name):  # noqa: F811
    """All while it stands still. Control: it was a member, and the next that are made are given."""
    inits = prepared(kept, own, name).values()
    for pid in inits:
        os.kill(pid, signal.SIGKILL)
    for _ in range(MEMBERS):
        with kept.create(template=name) as box:
            until(lambda: box.request("GET", "/", port=PORT).status == 200, 30, "its server answers", patient=True)
    until(lambda: not any(lives(pid) for pid in inits), 20)
    stand(own, name)
    with claimed(kept, name) as box:
        assert asks(box)[0]


def test_one_of_which_the_host_killed_a_program_is_never_given(kept, own, name):  # noqa: F811
    """Of one: another is given. Of all: the create is restored itself. Their PID 1 lives in either case."""
    stood = prepared(kept, own, name)
    *killed, left = stood
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    with kept.create(template=name) as one, kept.create(template=name) as two:
        assert asks(one)[0] and asks(two)[0]
        assert {left} in [servers_in(name, box.id) for box in (one, two)]
        until(lambda: not any(lives(stood[pid]) for pid in killed), 20, "those with a killed program are ended")
    for pid in stand(own, name):
        os.kill(pid, signal.SIGKILL)
    with kept.create(template=name) as box:
        assert told_of(kept, box).get("memory") is True and asks(box)[0] and len(servers_in(name, box.id)) == 1
    stand(own, name)
    with claimed(kept, name) as box:
        assert asks(box)[0]


def test_creates_of_other_kinds_beside_it(kept, own, name):  # noqa: F811
    """It is asked for most and has two members at most; those of another kind stand beyond the share that is left for it. Neither may
    keep a slot from creates of further kinds, which waited for one until their time was over."""
    for _ in range(4):
        kept.create(template="host").kill()
    until(lambda: len(members(own)) >= 8, 60, "as many members of host as there may be")
    make(kept, name)
    for _ in range(16):
        kept.create(template=name).kill()
    stand(own, name)
    boxes = []
    try:
        for pids in range(300, 306):
            assert kept.call("PUT", "/cay/v1/templates/host/limits", {"pids": pids}).status == 204
            boxes.append(kept.create(template="host"))
            assert detail(kept, boxes[-1])["pids"] == pids
    finally:
        assert kept.call("PUT", "/cay/v1/templates/host/limits", {}).status == 204
        for box in boxes:
            box.kill()


def test_another_tenant_has_none_of_a_template_that_is_not_its_own(kept, own, name):  # noqa: F811
    """Control: once it is published it claims one, and finds nothing of its owner's."""
    prepared(kept, own, name)
    reply = kept.call("POST", "/cay/v1/keys", {"tenant": "poolm", "label": "test"})
    other = Client(own.url, reply.json["key"])
    stood, before = servers(name), claims(kept)
    assert other.call("POST", "/v2/sandboxes", {"templateID": name}).status in (400, 404)
    assert other.call("POST", "/sandboxes", {"templateID": name}).status in (400, 404)
    assert claims(kept) == before and servers(name) == stood
    assert kept.call("PATCH", f"/v2/templates/{name}", {"public": True}).status == 200
    box = other.create(template=name)
    try:
        assert claims(kept) == before + 1 and asks(box)[0]
        assert told_of(other, box).get("memory") is True
    finally:
        box.kill()
