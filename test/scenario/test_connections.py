"""Places of the server's connections by tenant: a tenant that holds all it can get leaves the others theirs, and connections
that bring no whole request keep none out. A server of its own with few connections."""

import json
import select
import time

import pytest
from client import Client
from conftest import OwnServer
from waitlib import until

CONNECTIONS = 80
PLACES = CONNECTIONS - CONNECTIONS // 4
OF_A_TENANT, OF_A_SANDBOX = PLACES // 2, PLACES // 3
LISTEN = "import socket, time; s = socket.create_server(('127.0.0.1', 8000), backlog=200); time.sleep(3600)"


@pytest.fixture(scope="module")
def few():
    own = OwnServer(cayd_args=(f"--server-max-connections={CONNECTIONS}", "--server-threads=1"))
    try:
        yield own
    finally:
        own.stop()


@pytest.fixture(scope="module")
def tenant(few):
    """The name of a tenant to a client with a key of it."""
    operator = Client(few.url, few.key())

    def make(name):
        reply = operator.call("POST", "/cay/v1/keys", {"tenant": name, "label": "test"})
        assert reply.status == 201, reply.body
        return Client(few.url, reply.json["key"])

    return make


@pytest.fixture(scope="module")
def greedy(tenant):
    return tenant("greedy")


@pytest.fixture(scope="module")
def box(greedy):
    with greedy.create(timeout_s=1800) as box:
        box.run(f"nohup python3 -c \"{LISTEN}\" >/dev/null 2>&1 & until nc -z 127.0.0.1 8000 || ss -ltn | grep -q :8000; do sleep 0.1; done")
        yield box


def send(client, method, path, headers, body=None):
    """A request whose answer is not waited for."""
    connection = client.connect()
    connection.request(method, path, body=json.dumps(body) if body else None, headers=headers)
    return connection


def commands(client, box):
    return lambda: send(client, "POST", f"/cay/v1/sandboxes/{box.id}/exec",
                        {"X-API-Key": client.key, "Content-Type": "application/json"}, {"command": ["sleep", "600"]})


def ports(client, box):
    return lambda: send(client, "GET", "/", box.headers(port=8000))


def terminals(client, box):
    numbers = iter(range(1000))
    return lambda: send(client, "GET", f"/api/toolbox/{box.id}/process/pty/create-connect?id=t{next(numbers)}", {
        "Authorization": f"Bearer {client.key}", "Connection": "Upgrade", "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="})


class Held:
    """So many connections of one kind: those that stay open, and the answers of those that were refused."""

    def __init__(self, one, count):
        self.open, self.answers, self.refusals = [], [], []
        try:
            for _ in range(count):
                self.open.append(one())
        except BaseException:
            self.end()
            raise

    def look(self):
        """Takes what has been answered. The rest is admitted, and has its answer after its end alone, or 101."""
        for connection in select.select([c.sock for c in self.open], [], [], 0)[0]:
            connection = next(c for c in self.open if c.sock is connection)
            self.open.remove(connection)
            answer = connection.getresponse()
            if answer.status == 101:
                self.answers.append((connection, answer))
            else:
                self.refusals.append((answer.status, answer.headers, json.loads(answer.read())))
                connection.close()
        return len(self.refusals)

    def kept(self):
        return len(self.open) + len(self.answers)

    def end(self):
        for connection, answer in self.answers:
            answer.close()
            connection.close()
        for connection in self.open:
            connection.close()


# Ports last: requests to them are on an account of their own, and its places come back when the sandbox's end of them is
# closed, or some seconds after the client's is.
@pytest.mark.parametrize("kind, most", [(commands, OF_A_TENANT), (terminals, OF_A_SANDBOX), (ports, OF_A_SANDBOX)],
                         ids=lambda v: getattr(v, "__name__", None))
def test_a_tenant_that_holds_all_it_can_leaves_others_theirs(greedy, box, tenant, kind, most):
    other, held = tenant("other"), Held(kind(greedy, box), most + 5)
    try:
        until(lambda: held.look() >= 5)
        for status, headers, body in held.refusals:
            assert (status, headers["Retry-After"]) == (429, "1") and "share of the server's connections" in body["message"]
        with other.create() as beside:
            for _ in range(20):
                assert other.call("GET", "/v2/sandboxes").status == 200
                assert beside.run("echo meanwhile").out == "meanwhile\n"
        # A sandbox that is flooded leaves its tenant's other calls theirs; a tenant that has its share does not get more.
        reply = greedy.call("GET", "/v2/sandboxes")
        assert reply.status == (429 if kind is commands else 200)
        held.look()
        assert (held.kept(), len(held.refusals)) == (most, 5)
    finally:
        held.end()
        if kind is ports:
            box.run("pkill -f '[c]reate_server'")
    until(lambda: greedy.call("GET", "/v2/sandboxes").status == 200 and box.run("echo again").out == "again\n", patient=True)


def test_half_heads_keep_no_other_out(few, greedy, box, tenant):
    """More than the server may have. In the first second they may be whole yet: new ones are told to try again."""
    other, held = tenant("other"), []
    try:
        for _ in range(CONNECTIONS):
            connection = greedy.connect()
            connection.connect()
            connection.sock.sendall(b"GET /v2/sandboxes HTTP/1.1\r\nHost: a\r\nX-Slow: ")
            held.append(connection)
        time.sleep(1.2)  # a head is not given up before
        for client in (greedy, other) * 10:
            assert client.call("GET", "/v2/sandboxes").status == 200
        assert box.run("echo meanwhile").out == "meanwhile\n"
        poll = select.poll()
        for connection in held:
            poll.register(connection.sock, select.POLLIN)
        assert poll.poll(0), "none was closed: the server was not full"
        assert "as many connections as may be" in few.log.read_text()
    finally:
        for connection in held:
            connection.close()


def half_bodies(client):
    """More than half of the places, each of which waits for the rest of its body if its key is good."""
    return Held(lambda: send(client, "POST", "/sandboxes", {"X-API-Key": client.key, "Content-Length": "100000"}), OF_A_TENANT - 5)


def test_a_revoked_key_takes_none_of_its_tenants_places(few, tenant):
    good, leaked = tenant("leaking"), tenant("leaking")
    assert leaked.call("GET", "/v2/sandboxes").status == good.call("GET", "/v2/sandboxes").status == 200
    held = half_bodies(leaked)  # the control: a good key's requests wait
    try:
        assert good.call("GET", "/v2/sandboxes").status == 200
        assert (held.look(), held.kept()) == (0, OF_A_TENANT - 5)
    finally:
        held.end()
    key = next(k["id"] for k in leaked.call("GET", "/cay/v1/keys").json if k["current"])
    assert good.call("DELETE", f"/cay/v1/keys/{key}").status == 204
    held = half_bodies(leaked)
    try:
        until(lambda: held.look() == OF_A_TENANT - 5, what="each is refused before its body has come")
        assert {status for status, _, _ in held.refusals} == {401}
    finally:
        held.end()
    assert good.call("GET", "/v2/sandboxes").status == 200


def test_a_key_that_is_not_known_takes_no_place(greedy, box, tenant):
    """Each of so many more requests than places is answered, and the next good one too."""
    for _ in range(2 * CONNECTIONS):
        assert greedy.call("GET", "/v2/sandboxes", key="e2b_" + "0" * 40).status == 401
    assert greedy.call("GET", "/v2/sandboxes").status == tenant("other").call("GET", "/v2/sandboxes").status == 200


def test_strangers_at_public_ports_take_none_of_the_tenants_own_places(few, tenant):
    """As many as one sandbox gives, of each of three: what they get is on an account beside the tenant's."""
    owner = tenant("public")
    made = [owner.create(timeout_s=1800) for _ in range(3)]
    held = Held(lambda: None, 0)
    try:
        for box in made:
            box.run(f"nohup python3 -c \"{LISTEN}\" >/dev/null 2>&1 & until ss -ltn | grep -q :8000; do sleep 0.1; done")
            for _ in range(OF_A_SANDBOX):
                held.open.append(send(owner, "GET", "/", box.headers(port=8000, token=False)))
        until(lambda: held.look() and held.kept() <= OF_A_TENANT)
        assert {status for status, _, _ in held.refusals} == {429} and held.kept() >= OF_A_SANDBOX
        for box in made:
            for _ in range(5):
                assert owner.call("GET", "/v2/sandboxes").status == 200 and box.run("echo meanwhile").out == "meanwhile\n"
    finally:
        held.end()
        for box in made:
            box.kill()
