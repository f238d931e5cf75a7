"""Templates with memory: a sandbox begins with its start command's program as it stood at the end of the build, and is another machine
that knows it; where that cannot be, it starts the program anew, and says why. Needs CRIU."""

import json
import uuid

import pytest
from client import Client, Sandbox
from conftest import OwnServer
from test_dump import needs  # noqa: F401 (fixture)
from test_fork_memory import identity
from test_pause_memory import PROGRAMS, detail, kept, own, pause, resume  # noqa: F401 (fixtures)
from test_pause_files import kept_on_disk
from test_pause_memory_ends import told
from test_recovery import kill_daemons, wait_ready
from test_template_builder import ended, request, run, start, status
from waitlib import until

# Answers at once with what it made at its own start, which takes a while, and what it finds now.
SERVER = """
import http.server, os, secrets
word = secrets.token_hex(16)
with open("/tmp/started", "a") as f:
    f.write("started\\n")

class Handler(http.server.BaseHTTPRequestHandler):
    asked = 0
    def do_GET(self):
        Handler.asked += 1
        generation = open("/run/sandbox/generation").read().strip()
        text = " ".join([word, generation, secrets.token_hex(16), str(os.getpid()), str(Handler.asked)]).encode()
        self.send_response(200); self.send_header("Content-Length", str(len(text))); self.end_headers(); self.wfile.write(text)
    def log_message(self, *args):
        pass

http.server.HTTPServer(("127.0.0.1", 8126), Handler).serve_forever()
"""
PORT = 8126
READY = f"curl -sf -o /dev/null http://127.0.0.1:{PORT}/"


@pytest.fixture
def name(kept):  # noqa: F811
    one = "m-" + uuid.uuid4().hex[:12]
    yield one
    until(lambda: kept.call("DELETE", f"/templates/{one}").status in (204, 404), what="the template is deleted")


def build(client, name, server=SERVER, ready=READY, command="exec python3 /opt/server.py", **more):
    """The messages of its log."""
    made = request(client, name, **more)
    steps = [run(f"cat > /opt/server.py <<'END'\n{server}\nEND", "root")]
    assert start(client, made, steps=steps, startCmd=command, readyCmd=ready).status == 202
    said = ended(client, made)
    assert said["status"] == "ready", said
    return [one["message"] for one in status(client, made, "?logsOffset=0")["logEntries"]]


def with_memory(messages):
    return [one for one in messages if "begin with its command running" in one] != []


def told_of(client, box):
    """The event of its create."""
    event, = told(client, box, "sandbox.created")
    return event


def asks(box):
    return box.request("GET", "/", port=PORT).body.decode().split()


def started(box):
    return box.run("cat /tmp/started").out.count("started")


def numbers(server):
    return kept_on_disk(server)


def begins_with_memory(client, name, **fields):
    box = client.create(template=name, **fields)
    event = told_of(client, box)
    assert event.get("memory") is True, event
    return box


def begins_cold(client, name, why, **fields):
    box = client.create(template=name, **fields)
    event = told_of(client, box)
    assert "memory" not in event and why in event["memoryError"], event
    assert why in detail(client, box)["memoryError"]
    until(lambda: asks(box)[:1], 20, "its server answers", patient=True)
    return box


def test_each_sandbox_begins_with_the_server_up(kept, own, name):  # noqa: F811
    before = numbers(own)
    assert with_memory(build(kept, name))
    assert kept.call("GET", "/v2/sandboxes?state=running,paused").json == []  # that which was kept is none of the tenant's
    with begins_with_memory(kept, name) as one, begins_with_memory(kept, name) as two:
        found = [asks(one), asks(two)]  # at once: without a wait
        assert found[0][0] == found[1][0] and found[0][3] == found[1][3]  # the word of its memory, and its process
        assert found[0][1] != found[1][1] and found[0][2] != found[1][2]  # generation and random numbers are their own
        # nor are the maker's processes in the log of one: its server, its ready command
        assert "Process with pid" not in kept.call("GET", f"/sandboxes/{one.id}/logs").body.decode()
        assert [started(box) for box in (one, two)] == [1, 1]
        assert "Process with pid" in kept.call("GET", f"/sandboxes/{one.id}/logs").body.decode()  # the control: its own
        machines = [identity(box) for box in (one, two)]
        assert machines[0][0] != machines[1][0] and [m[1:] for m in machines] == [[one.id, one.id], [two.id, two.id]]
        # what one does is not in the other, nor in the next
        one.run("echo mine > /tmp/mine")
        assert two.run("cat /tmp/mine").exit_code != 0
        assert one.request("GET", "/health").status == 204
        assert one.run("grep core /proc/1/limits").out.split()[4:6] == ["1", "1"]  # as in test_pause_memory.py
        # the sandbox is one as any: paused with its memory, it goes on
        word = asks(one)[0]
        assert pause(kept, one).json["tier"] == "memory" and resume(kept, one).status == 201
        assert asks(one)[0] == word and started(one) == 1
    with begins_with_memory(kept, name) as three:
        assert asks(three)[4] == found[0][4] and three.run("cat /tmp/mine").exit_code != 0
    assert kept.call("DELETE", f"/templates/{name}").status == 204
    until(lambda: numbers(own) == before, 30, lambda: f"its files are given back: {numbers(own)}")


def test_it_outlives_every_program(kept, own, name):  # noqa: F811
    assert with_memory(build(kept, name))
    with begins_with_memory(kept, name) as box:
        word = asks(box)[0]
    kill_daemons(own, "cayd", "cay-privd")
    wait_ready(kept)
    until(lambda: len(numbers(own)) == 2, 30, "kept are its files and its memory, and no step any more")
    with kept.create(template=name) as box:
        assert asks(box)[0] == word and started(box) == 1


GIVEN = "/run/sandbox/environment.json"


def test_variables_of_a_create_are_its_later_commands(kept, name):  # noqa: F811
    """Begun with memory, each with its own. The program finds them in a file; of a create without there are none of another's."""
    assert with_memory(build(kept, name))
    with begins_with_memory(kept, name, envVars={"OWN": "q\"'\n\u00e9"}) as one, begins_with_memory(kept, name, envVars={"OWN": "b", "MORE": "c"}) as two, \
            begins_with_memory(kept, name) as three:
        assert asks(one)[0] == asks(two)[0] == asks(three)[0]
        assert [box.run("printf %s \"$OWN-$MORE\"").out for box in (one, two, three)] == ["q\"'\n\u00e9-", "b-c", "-"]
        for box, wanted in ((one, {"OWN": "q\"'\n\u00e9"}), (two, {"OWN": "b", "MORE": "c"}), (three, {})):
            found = json.loads(box.run(f"cat {GIVEN}", user="root").out)
            assert {n: v for n, v in found.items() if not n.startswith("E2B_")} == wanted and found["E2B_SANDBOX_ID"] == box.id
            assert box.run(f"cat {GIVEN}").exit_code != 0  # root's alone
        # not in its files: a sandbox made of them has none of it
        assert kept.call("POST", f"/sandboxes/{one.id}/snapshots", {"name": name + "-s"}).status == 201
        with kept.create(template=name + "-s") as box:
            assert box.run(f"cat {GIVEN}; echo -$OWN-", user="root").out == "--\n"
        assert kept.call("DELETE", f"/templates/{name}-s").status == 204
        # and it is in its own memory over a pause
        assert pause(kept, one).json["tier"] == "memory" and resume(kept, one).status == 201
        assert json.loads(one.run(f"cat {GIVEN}", user="root").out)["OWN"] == "q\"'\n\u00e9"


def test_what_differs_starts_cold_and_says_so(kept, name):  # noqa: F811
    assert with_memory(build(kept, name))
    reply = kept.call("POST", "/cay/v1/sandboxes", {"templateID": name, "timeout": 300, "startCommand": False})
    assert reply.status == 201, reply.body
    with Sandbox(kept, reply.json) as box:
        assert "start command is not to run" in told_of(kept, box)["memoryError"]


def test_what_cannot_be_kept_leaves_a_template_that_starts_its_command(kept, own, name):  # noqa: F811
    """no_new_privs is refused by name; the template is whole without."""
    until(lambda: numbers(own) == [], 30, lambda: f"the end of what tests before have kept: {numbers(own)}")
    said = build(kept, name, command="exec setpriv --no-new-privs python3 /opt/server.py")
    assert not with_memory(said) and any("no_new_privs" in one for one in said), said
    until(lambda: len(numbers(own)) == 2, 30, "kept are its files and those of its step")
    assert kept.call("GET", "/v2/sandboxes?state=running,paused").json == []
    with kept.create(template=name) as box:
        assert "memory" not in told_of(kept, box) and "memoryError" not in told_of(kept, box)
        until(lambda: asks(box)[:1], 20, "its server answers", patient=True)
