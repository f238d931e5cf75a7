"""Templates with memory, to their ends: made by every client, used by another tenant, damaged, interrupted, made of a snapshot. Needs CRIU."""

import json
import pathlib
import subprocess
import time
import uuid

import pytest
from client import Client
from conftest import BUILD
from e2b import Sandbox as SdkSandbox
from e2b import Template, wait_for_port
from test_code_interpreter import SPEC
from test_code_interpreter import START as KERNELS
from test_code_interpreter import execute
from test_dump import flip, needs  # noqa: F401 (fixture)
from test_pause_files import kept_on_disk
from test_pause_memory import kept, own  # noqa: F401 (fixtures)
from test_pause_memory_ends import image
from test_recovery import kill_daemons, wait_ready
from test_template_builder import of_builds, request, run, start, status
from test_template_memory import PORT, READY, SERVER, asks, begins_cold, begins_with_memory, build, name, started, told_of, with_memory  # noqa: F401
from waitlib import until


@pytest.fixture
def clean(kept, own):  # noqa: F811
    """Nothing is kept: steps of earlier builds go with the last template that used them."""
    until(lambda: kept_on_disk(own) == [], 30, lambda: f"nothing is kept: {kept_on_disk(own)}")


def makers(client):
    return [box for box in client.call("GET", "/v2/sandboxes?state=running,paused").json if "cay.template.memory" in (box.get("metadata") or {})]


def test_a_damaged_memory_is_told_and_removed(kept, own, name, clean):  # noqa: F811
    assert with_memory(build(kept, name))
    with begins_with_memory(kept, name) as box:  # control
        word = asks(box)[0]
    before = kept_on_disk(own)
    at = image(own)
    flip(at, at.stat().st_size // 2)
    kill_daemons(own, "cay-privd")  # and with it what it restored before (test_pool_memory.py)
    wait_ready(kept)
    with begins_cold(kept, name, "damaged") as box:
        assert asks(box)[0] != word and started(box) == 1
    until(lambda: len(kept_on_disk(own)) == len(before) - 1, 30, "its number is given back")
    with kept.create(template=name) as box:  # nothing is told of a memory that is not there
        event = told_of(kept, box)
        assert "memory" not in event and "memoryError" not in event
        until(lambda: asks(box)[:1], 20, "its server answers", patient=True)


def test_another_tenant_begins_with_it_where_it_is_published(kept, own, name):  # noqa: F811
    assert with_memory(build(kept, name))
    tenant = "t-" + uuid.uuid4().hex[:8]
    other = Client(own.url, kept.call("POST", "/cay/v1/keys", {"tenant": tenant, "label": "test"}).json["key"])
    assert other.call("POST", "/v2/sandboxes", {"templateID": name}).status == 404  # control: as long as it is not
    assert kept.call("PATCH", f"/v2/templates/{name}", {"public": True}).status == 200
    with begins_with_memory(kept, name) as mine, begins_with_memory(other, name) as box:
        assert asks(box)[0] == asks(mine)[0] and asks(box)[1] != asks(mine)[1]
        # nothing of a client's is in the program: its environment is the template's
        environment = dict(one.split("=", 1) for one in box.run(f"cat /proc/{asks(box)[3]}/environ", user="root").out.split("\0") if "=" in one)
        assert kept.key not in str(environment) and not [one for one in environment if "KEY" in one or "TOKEN" in one], environment
        assert box.run("cat /proc/1/environ; grep -c . /run/sandbox/generation", user="root").out.count(kept.key) == 0
    names, reads = {"presets": ["package-registries"]}, {"rules": [{"action": "allow", "methods": ["GET"]}]}
    assert created(other, name, names).get("memory") is True
    for policy, ceiling in ((reads, {}), (names, reads)):
        assert kept.call("PUT", f"/cay/v1/tenants/{tenant}/ceiling", {"default": "allow", **ceiling}).status == 204
        assert created(other, name, policy)["memoryError"].endswith("another tenant than the template"), (policy, ceiling)


def created(client, name, policy):  # noqa: F811
    """The event of a create with that policy, which has ended since."""
    reply = client.call("POST", "/cay/v1/sandboxes", {"templateID": name, "timeout": 300, "policy": policy})
    assert reply.status == 201, reply.body
    events = [json.loads(line) for line in client.call("GET", f"/cay/v1/events?sandbox={reply.json['sandboxID']}&since=0&follow=0").body.splitlines()]
    assert client.call("DELETE", f"/sandboxes/{reply.json['sandboxID']}").status == 204
    return [one for one in events if one["type"] == "sandbox.created"][0]


@pytest.mark.parametrize("which", [("cayd",), ("cayd", "cay-privd")])
def test_a_making_that_is_interrupted_leaves_nothing(kept, own, name, which, clean):  # noqa: F811
    """While its sandbox runs: the ready command succeeds in the build's own sandbox alone, which was made of the base."""
    made = request(kept, name)
    steps = [run(f"cat > /opt/server.py <<'END'\n{SERVER}\nEND", "root")]
    ready = 'test "$E2B_TEMPLATE_ID" = host'
    assert start(kept, made, steps=steps, startCmd="exec python3 /opt/server.py", readyCmd=ready).status == 202
    box = until(lambda: makers(kept), 60, "the sandbox of the memory is there")[0]
    kill_daemons(own, *which)
    wait_ready(kept)
    assert status(kept, made)["status"] == "error"
    until(lambda: makers(kept) == [] and of_builds(kept) == [], 60, "nothing of it runs")
    assert kept.call("GET", f"/sandboxes/{box['sandboxID']}").status == 404
    until(lambda: kept_on_disk(own) == [], 60, lambda: f"nothing is kept: {kept_on_disk(own)}")
    assert kept.call("GET", "/cay/v1/tenants/default/quota").json["used"]["snapshots"] == 0
    assert with_memory(build(kept, name))  # it can be begun again


def test_of_a_snapshot_on_request(kept, own, name, clean):  # noqa: F811
    with kept.create() as box:
        box.write("/opt/server.py", SERVER.encode(), user="root")
        box.run("mkdir -p /etc/cay", user="root")
        box.write("/etc/cay/start.json", json.dumps({"cmd": "exec python3 /opt/server.py", "port": PORT}).encode(), user="root")
        assert kept.call("POST", f"/sandboxes/{box.id}/snapshots", {"name": name}).status == 201
    assert kept.call("POST", "/cay/v1/snapshots/no-such/memory", {}).status == 404
    for ready in (None, READY):  # a second one takes the place of the first
        reply = kept.call("POST", f"/cay/v1/snapshots/{name}/memory", {"ready": ready} if ready else {})
        assert reply.status == 200 and reply.json["memory"] is True, reply.body
        with begins_with_memory(kept, name) as box:
            assert asks(box)[0] and started(box) == 1
        assert [one["memory"] for one in kept.call("GET", "/snapshots").json] == [True]
        until(lambda: len(kept_on_disk(own)) == 2, 30, lambda: f"its files and its memory are kept: {kept_on_disk(own)}")
    assert kept.call("GET", "/cay/v1/tenants/default/quota").json["used"]["snapshots"] == 2
    assert kept.call("DELETE", f"/templates/{name}").status == 204
    until(lambda: kept_on_disk(own) == [], 30, lambda: f"nothing is kept: {kept_on_disk(own)}")


def test_the_command_line_keeps_it(kept, name, tmp_path):  # noqa: F811
    (tmp_path / "server.py").write_text(SERVER)
    (tmp_path / "Dockerfile").write_text(f"FROM host\nLABEL cay.ready=\"{READY}\"\nCOPY server.py /opt/server.py\nEXPOSE {PORT}\nCMD exec python3 /opt/server.py\n")
    done = subprocess.run([BUILD / "src/cli/cay", "--json", "template", "build", name, tmp_path], capture_output=True, text=True,
                          env={"E2B_API_KEY": kept.key, "E2B_API_URL": kept.url, "PATH": "/usr/bin:/bin", "HOME": "/nonexistent"})
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["memory"] is True and said["memoryError"] == "", said
    with begins_with_memory(kept, name) as box:
        assert asks(box)[0] and started(box) == 1


def test_the_sdk_of_python(kept, own, name, monkeypatch):  # noqa: F811
    for variable in ("E2B_API_URL", "E2B_SANDBOX_URL"):
        monkeypatch.setenv(variable, own.url)
    monkeypatch.setenv("E2B_DOMAIN", own.url.removeprefix("http://"))
    monkeypatch.setenv("E2B_API_KEY", kept.key)
    template = (Template().from_template("host").run_cmd(f"cat > /opt/server.py <<'END'\n{SERVER}\nEND", user="root")
                .set_start_cmd("exec python3 /opt/server.py", wait_for_port(PORT)))
    Template.build(template, name, cpu_count=1, memory_mb=512)
    boxes = [SdkSandbox.create(name), SdkSandbox.create(name)]
    try:
        found = [box.commands.run(f"curl -s http://127.0.0.1:{PORT}/").stdout.split() for box in boxes]
        assert found[0][0] == found[1][0] and found[0][1] != found[1][1] and boxes[0].sandbox_id != boxes[1].sandbox_id
        assert [box.commands.run("echo $E2B_SANDBOX_ID").stdout.strip() for box in boxes] == [box.sandbox_id for box in boxes]
        # variables of a create reach its commands
        with SdkSandbox.create(name, envs={"OWN": "mine"}) as other:
            assert other.commands.run("echo $OWN").stdout == "mine\n"
    finally:
        for box in boxes:
            box.kill()


def results(lines):
    return [line["text"] for line in lines if line["type"] == "result"]


def test_a_kernel_is_seeded_anew_and_answers(kept, name):  # noqa: F811
    """The code interpreter with memory: what its kernel draws differs in each sandbox, though its state is the same."""
    if subprocess.run(["/usr/bin/python3", "-c", "import ipykernel"], capture_output=True).returncode:
        pytest.skip("the machine has no python3-ipykernel (scripts/deps test)")
    source = pathlib.Path(__file__).resolve().parents[2] / "src/kernels/python/cay_kernel"
    files = {"/opt/cay/cay-kernels": (BUILD / "src/kernels/cay-kernels").read_bytes(),
             "/opt/cay/kernels/python3/kernel.json": json.dumps(SPEC).encode(), "/etc/cay/start.json": json.dumps(KERNELS).encode()}
    files |= {f"/opt/cay/python/cay_kernel/{path.name}": path.read_bytes() for path in source.glob("*.py")}
    with kept.create() as box:
        box.run("mkdir -p /opt/cay/kernels/python3 /opt/cay/python/cay_kernel /etc/cay; chown -R user /opt/cay /etc/cay", user="root")
        assert {box.write(path, data).status for path, data in files.items()} == {200}
        assert box.run("chmod 0755 /opt/cay/cay-kernels").exit_code == 0
        assert kept.call("POST", f"/sandboxes/{box.id}/snapshots", {"name": name}).status == 201
    reply = kept.call("POST", f"/cay/v1/snapshots/{name}/memory", {"ready": "curl -sf -m 5 http://127.0.0.1:49999/health"})
    assert reply.status == 200, reply.body
    drawn = []
    for _ in range(2):
        begun = time.monotonic()
        with begins_with_memory(kept, name) as box:
            assert results(execute(box, "1+1")) == ["2"]
            print(f"create to the first result of 1+1: {time.monotonic() - begun:.3f} s")
            drawn.append(results(execute(box, "import random; random.random()"))[0])
            assert results(execute(box, "import os; os.environ['E2B_SANDBOX_ID']")) == [box.id]
    assert drawn[0] != drawn[1]
    # variables of a create: of the kernel that runs already, of one that starts later, and put back after those of an execution
    with begins_with_memory(kept, name, envVars={"OWN": "q\"'\\n\u00e9"}) as box:
        ask = "import os; os.environ.get('OWN'), os.environ['E2B_SANDBOX_ID']"
        wanted = [repr(("q\"'\\n\u00e9", box.id))]
        assert results(execute(box, ask, env_vars={"OWN": "else"})) == [repr(("else", box.id))]
        assert results(execute(box, ask)) == wanted
        other = box.request("POST", "/contexts", {"language": "python"}, port=49999).json["id"]
        assert results(execute(box, ask, context_id=other)) == wanted
        execute(box, "os.environ['OWN'] = 'changed'")  # as the code likes, over a pause too
        assert kept.call("POST", f"/cay/v1/sandboxes/{box.id}/pause", {"tier": "memory"}).status == 200
        assert kept.call("POST", f"/v2/sandboxes/{box.id}/connect", {"timeout": 300}).status == 201
        assert results(execute(box, ask)) == [repr(("changed", box.id))]
    with begins_with_memory(kept, name) as box:
        assert results(execute(box, ask)) == [repr((None, box.id))]
