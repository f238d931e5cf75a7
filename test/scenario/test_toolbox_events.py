"""The stream of events of Daytona's newer clients (Socket.IO over WebSocket): events of sandboxes, told to the tenant of a key,
until the key is revoked; and what a client must not make the server do. The SDKs are in test/sdk."""

import json
import secrets
import select

import pytest
from client import Client
from test_toolbox import Socket
from waitlib import until

PATH = "/api/socket.io/?EIO=4&transport=websocket"


class Events(Socket):
    def __init__(self, cay, key):
        super().__init__(cay, PATH, key="none")
        opened = json.loads(self.read().removeprefix("0"))
        assert (opened["pingInterval"], opened["pingTimeout"], opened["upgrades"]) == (25000, 20000, [])
        self.frame(1, b"40" + json.dumps({"token": key}).encode())

    def next(self):
        while (message := self.read()) == "2":
            self.frame(1, b"3")
        return json.loads(message.removeprefix("42")) if str(message).startswith("42") else message

    def until(self, state):
        """Every event up to a step to that state."""
        seen = []
        while not seen or seen[-1][1].get("newState") != state:
            seen.append(self.next())
            assert len(seen) < 20, seen
        return seen


def follow(cay, key):
    events = Events(cay, key)
    assert events.read().startswith('40{"sid":"')
    return events


@pytest.fixture
def make_key(cay):
    """A client of a tenant with a key of its own, of a role."""
    def make(tenant, role="owner"):
        reply = cay.call("POST", "/cay/v1/keys", {"tenant": tenant, "role": role, "label": "events"})
        assert reply.status == 201, reply.body
        return Client(cay.url, reply.json["key"])
    return make


def create(client, **more):
    reply = client.call("POST", "/api/sandbox", {"snapshot": "host", "autoStopInterval": 60, **more})
    assert reply.status == 200, reply.body
    return reply.json


def names(events):
    return [(name, data.get("oldState"), data.get("newState")) for name, data in events]


def test_each_step_of_a_sandbox_is_told(make_key):
    owner = make_key("steps")
    events = follow(owner, owner.key)
    made = create(owner, labels={"a": "ü\n"})
    begin = events.until("started")
    assert names(begin) == [("sandbox.created", None, None), ("sandbox.state.updated", "creating", "started")]
    created, step = begin[0][1], begin[1][1]["sandbox"]
    assert created == step == made  # as the create itself answers it, address and all
    assert owner.call("POST", f"/api/sandbox/{made['id']}/pause").status == 200
    assert names(events.until("paused")) == [("sandbox.state.updated", "started", "pausing"), ("sandbox.state.updated", "pausing", "paused")]
    assert owner.call("POST", f"/api/sandbox/{made['id']}/start").status == 200
    assert names(events.until("started")) == [("sandbox.state.updated", "paused", "resuming"), ("sandbox.state.updated", "resuming", "started")]
    assert owner.call("DELETE", f"/api/sandbox/{made['id']}").status == 200
    end = events.until("destroyed")
    assert names(end) == [("sandbox.state.updated", "started", "destroying"), ("sandbox.state.updated", "destroying", "destroyed")]
    assert {data["sandbox"]["id"] for _, data in end} == {made["id"]} and end[-1][1]["sandbox"]["state"] == "destroyed"
    events.connection.close()


def test_another_tenants_sandboxes_are_not_told(make_key):
    owner, other = make_key("told-own"), make_key("told-other")
    events, control = follow(owner, owner.key), follow(other, other.key)
    theirs = create(other)
    other.call("DELETE", f"/api/sandbox/{theirs['id']}")
    assert control.until("destroyed")  # they were told
    own = create(owner)
    assert {data.get("sandbox", data)["id"] for _, data in events.until("started")} == {own["id"]}
    owner.call("DELETE", f"/api/sandbox/{own['id']}")


def test_a_read_only_key_is_told_what_it_may_read(make_key):
    owner, reader = make_key("told-reader"), make_key("told-reader", "read-only")
    events = follow(reader, reader.key)
    made = create(owner, labels={"k": "v"})
    told = events.until("started")[-1][1]["sandbox"]
    assert told == reader.call("GET", f"/api/sandbox/{made['id']}").json and told["env"] == {}
    owner.call("DELETE", f"/api/sandbox/{made['id']}")


@pytest.mark.parametrize("reads", [True, False])
def test_a_key_that_is_revoked_ends_its_stream_alone(cay, make_key, reads):
    first, second = make_key("revoked"), make_key("revoked")
    events, control = follow(cay, first.key), follow(cay, second.key)
    key = next(k["id"] for k in first.call("GET", "/cay/v1/keys").json if k["current"])
    if not reads:  # signs of life all the time, and nothing is taken
        stuff(events)
    assert cay.call("DELETE", f"/cay/v1/keys/{key}").status == 204
    if reads:
        assert events.rest() == ([], (1008, "nothing more is told to this key"))
    else:
        assert_cut(events)
    made = create(second)
    assert control.until("started")
    second.call("DELETE", f"/api/sandbox/{made['id']}")
    assert Events(cay, first.key).rest() == (['44{"message":"Invalid credentials"}'], (1008, ""))


def stuff(events):
    """Pings until nothing is read any more: as much waits for the client as may."""
    sock, some, sent = events.connection.sock, b"\x81\x81\0\0\0\x002" * 4000, 0
    sock.setblocking(False)
    while select.select([], [sock], [], 1)[1]:
        sent += sock.send(some[sent % 7:])
        assert sent < 64 << 20, "all was read"


def assert_cut(events):
    """The connection is gone, whatever was left to be read."""
    poll = select.poll()
    poll.register(events.connection.sock, 0)
    until(lambda: any(what & (select.POLLERR | select.POLLHUP) for _, what in poll.poll(0)), 10)


@pytest.mark.parametrize("packet, answer, code", [
    (b"", [], 1002), (b"x", [], 1002), (b"4", [], 1002), (b"49", [], 1002), (b"5", [], 1002), (b"0{}", [], 1002),
    (b"1", [], 1000), (b"41", [], 1000), (b'42["sandbox.state.updated",{}]41', None, None),
    (b"40", ['44{"message":"Invalid credentials"}'], 1008), (b"40{", ['44{"message":"Invalid credentials"}'], 1008),
    (b'40{"token":[]}', ['44{"message":"Invalid credentials"}'], 1008),
    (b'40{"token":"a\\u0000b"}', ['44{"message":"Invalid credentials"}'], 1008),
    (b'40/,{"token":"none"}', ['44{"message":"Invalid credentials"}'], 1008)])
def test_packets_that_are_not_to_be(cay, packet, answer, code):
    socket = Socket(cay, PATH)
    socket.read()
    socket.frame(1, packet)
    if code is None:  # it has no meaning: later packets are answered
        socket.frame(1, b"2")
        assert socket.read() == "3"
        return
    messages, end = socket.rest()
    assert (messages, end[0]) == (answer, code)


def test_another_namespace_is_refused_and_the_main_one_is_there(cay):
    socket = Socket(cay, PATH)
    socket.read()
    socket.frame(1, b'40/admin,{"token":"' + cay.key.encode() + b'"}')
    assert socket.read() == '44{"message":"Invalid namespace"}'
    socket.frame(1, b'40/,{"token":"' + cay.key.encode() + b'"}')
    assert socket.read().startswith('40{"sid":')


def test_a_second_key_on_a_stream_changes_nothing(cay, make_key):
    owner, other = make_key("second-own"), make_key("second-other")
    events = follow(owner, owner.key)
    events.frame(1, b"40" + json.dumps({"token": other.key}).encode())
    theirs = create(other)
    own = create(owner)
    assert {data.get("sandbox", data)["id"] for _, data in events.until("started")} == {own["id"]}
    for client, box in ((owner, own), (other, theirs)):
        client.call("DELETE", f"/api/sandbox/{box['id']}")


def test_binary_and_halves_of_frames(cay):
    socket = Socket(cay, PATH)
    socket.read()
    socket.frame(2, b"2")
    assert socket.rest()[1][0] == 1002
    half = Socket(cay, PATH)
    half.read()
    half.connection.sock.sendall(b"\x81\xfe\x40")  # of a head
    half.connection.close()
    half = Socket(cay, PATH)
    half.read()
    half.frame(1, b"4", fin=False)
    half.frame(0, b"0" + json.dumps({"token": cay.key}).encode())
    assert half.read().startswith('40{"sid":')
    long = Socket(cay, PATH)
    long.read()
    long.frame(1, b"4" * 16385)
    assert long.rest()[1][0] == 1009


def test_so_many_may_follow(cay, make_key):
    """A tenant has no more than its share of the places, and gets them back."""
    owner, other = make_key("many-own"), make_key("many-other")
    held = []
    while (first := (events := Events(cay, owner.key)).read()).startswith("40"):
        held.append(events)
        assert len(held) <= 128
    assert first == '44{"message":"too many connections follow your sandboxes"}' and len(held) > 60
    control = follow(cay, other.key)
    for events in held:
        events.connection.close()
    until(lambda: Events(cay, owner.key).read().startswith("40"), 10)
    control.connection.close()


def test_labels_that_are_long_make_a_short_event(make_key):
    owner = make_key("long")
    events = follow(owner, owner.key)
    made = create(owner, labels={secrets.token_hex(8): "x" * 4000 for _ in range(15)})
    told = events.until("started")[-1][1]["sandbox"]
    assert told["id"] == made["id"] and told["state"] == "started"
    owner.call("DELETE", f"/api/sandbox/{made['id']}")
