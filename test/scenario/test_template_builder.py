"""The template builder that E2B's SDKs speak to, with the unmodified SDK of Python and raw calls: the template is as the steps
say, a failure is said with its step and output, another tenant sees nothing of it, and nothing is left. Without a
network."""

import hashlib
import io
import os
import re
import signal
import socket
import subprocess
import tarfile
import urllib.parse
import uuid

import httpx
import pytest
from client import Client
from conftest import BUILD, OwnServer
from e2b import AsyncTemplate, Sandbox, Template, wait_for_port
from e2b.exceptions import BuildException
from leftovers import children
from test_pause_files import needs_a_disk  # noqa: F401 (a fixture)
from waitlib import until

UUID = re.compile(r"^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$")
PORT = 8125


@pytest.fixture
def sdk(sdk_environment, server, monkeypatch):
    monkeypatch.setenv("E2B_API_KEY", server.key)


@pytest.fixture
def name(cay):
    """A template's name for the test; what it stands for goes with the test."""
    one = "b-" + uuid.uuid4().hex[:12]
    yield one
    until(lambda: cay.call("DELETE", f"/templates/{one}").status in (204, 404), what="the template is deleted")


def of_builds(cay):
    return [box for box in cay.call("GET", "/v2/sandboxes").json if "cay.build" in (box.get("metadata") or {})]


def request(client, name, **more):
    reply = client.call("POST", "/v3/templates", {"name": name, **more})
    assert reply.status == 202, reply.body
    return reply.json


def start(client, made, **spec):
    return client.call("POST", f"/v2/templates/{made['templateID']}/builds/{made['buildID']}", {"fromTemplate": "host", **spec})


def status(client, made, query=""):
    reply = client.call("GET", f"/templates/{made['templateID']}/builds/{made['buildID']}/status{query}")
    assert reply.status == 200, reply.body
    return reply.json


def ended(client, made):
    return until(lambda: (s := status(client, made))["status"] in ("ready", "error") and s, 100, "the build ends")


def answers(cay):
    """After a restart: a refused connection, or 503 until it is ready."""
    try:
        return cay.call("GET", "/v2/sandboxes").status == 200
    except OSError:
        return False


def run(*args):
    return {"type": "RUN", "args": list(args)}


def test_a_template_has_what_its_steps_made(sdk, cay, name):
    lines = []
    template = (Template().from_template("host").set_envs({"GREETING": "hello you", "MORE": "$GREETING!", "PATH": "/opt/tools:$PATH"})
                .make_dir("/opt/tools", user="root").set_workdir("/srv/files").run_cmd("id -un > who; pwd >> who; echo to see; echo odd >&2")
                .set_user("root").run_cmd("echo \"$MORE\" > /srv/said; printf '#!/bin/sh\\necho tool\\n' > /opt/tools/tool; chmod 755 /opt/tools/tool")
                .set_user("user"))
    made = Template.build(template, name, cpu_count=1, memory_mb=256, on_build_logs=lambda entry: lines.append((entry.level, entry.message)))
    assert UUID.match(made.build_id) and made.tags == ["default"] and Template.exists(name) and not Template.exists(name + "-no")
    assert ("info", "to see") in lines, lines
    assert ("warn", "odd") in lines
    assert of_builds(cay) == []
    with Sandbox.create(name) as box:
        assert box.commands.run("cat /srv/files/who /srv/said; tool; echo $GREETING").stdout == \
            "user\n/srv/files\nhello you!\ntool\nhello you\n"
        assert box.commands.run("stat -c %U:%G /srv/files").stdout == "user:user\n"
    with Sandbox.create(made.template_id) as box:
        assert box.get_info().memory_mb == 256
    # built on: variables, user and folder go on to hold, and the name moves
    again = Template.build(Template().from_template(name).run_cmd("pwd > more; echo $GREETING >> more"), name)
    assert again.template_id == made.template_id and again.build_id != made.build_id
    with Sandbox.create(name) as box:
        assert box.commands.run("cat /srv/files/more").stdout == "/srv/files\nhello you\n"
    assert Template.get_build_status(made).status.value == "ready"
    assert [one["tag"] for one in cay.call("GET", f"/templates/{name}/tags").json] == ["default"]
    assert cay.call("GET", "/snapshots").json == [] or name not in str(cay.call("GET", "/snapshots").json)


async def build_async(name):
    await AsyncTemplate.build(AsyncTemplate().from_template("host").run_cmd("echo 1 > /tmp/kept"), name)


def test_the_asynchronous_client(sdk, cay, name):
    import asyncio
    asyncio.run(build_async(name))
    with cay.create(template=name) as box:
        assert box.run("cat /tmp/kept").out == "1\n"


def test_a_step_that_fails_is_said_and_leaves_nothing(sdk, cay, name):
    template = Template().from_template("host").run_cmd("true").run_cmd("echo so far; echo why not >&2; exit 7")
    with pytest.raises(BuildException) as failed:
        Template.build(template, name)
    assert "status 7" in str(failed.value) and "why not" in str(failed.value)
    made = request(cay, name)
    assert start(cay, made, steps=[run("true"), run("kill -9 $$"), run("echo never")]).status == 202
    said = ended(cay, made)
    assert said["reason"]["step"] == "2" and "SIGKILL" in said["reason"]["message"]
    assert not any("[3/3]" in line["message"] for line in said["logEntries"])
    assert not Template.exists(name) and of_builds(cay) == []
    with pytest.raises(BuildException, match="no-such-template"):
        Template.build(Template().from_template("no-such-template"), name)
    image = request(cay, name)
    assert start(cay, image, fromTemplate=None, fromImage="debian:12").status == 202
    assert ended(cay, image)["reason"]["step"] == "base" and "cay template import" in ended(cay, image)["reason"]["message"]


def archive(members):
    """A tar of (name, bytes or None for a folder, or a link's target as text)."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for path, what in members:
            info = tarfile.TarInfo(path)
            info.mode = 0o755 if what is None else 0o644
            if what is None:
                info.type = tarfile.DIRTYPE
            elif isinstance(what, str):
                info.type, info.linkname = tarfile.SYMTYPE, what
            else:
                info.size = len(what)
            tar.addfile(info, io.BytesIO(what) if isinstance(what, bytes) else None)
    return out.getvalue()


def address(client, made, files_hash):
    return client.call("GET", f"/templates/{made['templateID']}/files/{files_hash}")


def put(url, body):
    return httpx.put(url, content=body, timeout=60)


def send(client, made, body):
    files_hash = hashlib.sha256(body).hexdigest()
    said = address(client, made, files_hash)
    assert said.status == 201 and said.json["present"] is False, said.body
    assert put(said.json["url"], body).status_code == 200
    assert address(client, made, files_hash).json["present"] is True
    return files_hash


def copy(files_hash, *args):
    return {"type": "COPY", "args": list(args), "filesHash": files_hash}


def test_files_are_copied(sdk, cay, name, tmp_path):
    (tmp_path / "tools/deep").mkdir(parents=True)
    (tmp_path / "tools/deep/one").write_text("1\n")
    (tmp_path / "tools/run").write_text("#!/bin/sh\necho ran\n")
    (tmp_path / "tools/run").chmod(0o755)
    (tmp_path / "tools/link").symlink_to("run")
    (tmp_path / "a.txt").write_text("a\n")
    (tmp_path / "b.txt").write_text("b\n")
    (tmp_path / "big").write_bytes(os.urandom(3 << 20))
    lines = []

    def built():
        lines.clear()
        template = (Template(file_context_path=str(tmp_path)).from_template("host").copy("tools", "/opt/tools", user="root")
                    .copy("a.txt", "/srv/renamed").copy("a.txt", "/srv/into/").copy("*.txt", "/srv/all/").set_workdir("/srv/here")
                    .copy("b.txt", ".").copy("tools/deep", "deep", mode=0o700).copy("big", "/srv/big").run_cmd("/opt/tools/link"))
        Template.build(template, name, on_build_logs=lambda entry: lines.append(entry.message))

    built()
    assert "ran" in lines and any(line.startswith("Uploaded 'tools'") for line in lines)
    with Sandbox.create(name) as box:
        said = box.commands.run("cd /srv; cat renamed into/a.txt all/a.txt all/b.txt here/b.txt here/deep/one; readlink /opt/tools/link; "
                                "stat -c '%U %a' /opt/tools/run renamed here/deep here/deep/one; ls /tmp | grep -c cay-copy; sha256sum < big")
    assert said.stdout.split() == ["a", "a", "a", "b", "b", "1", "run", "root", "755", "user", "644", "user", "700", "user", "700", "0",
                                   hashlib.sha256((tmp_path / "big").read_bytes()).hexdigest(), "-"]
    built()
    assert not any(line.startswith("Uploaded") for line in lines)  # they are there


def test_folders_that_a_copy_makes_are_its_users(sdk, cay, name, tmp_path):
    (tmp_path / "a.txt").write_text("a\n")
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools/one").write_text("1\n")
    template = (Template(file_context_path=str(tmp_path)).from_template("host").copy("a.txt", "/srv/new/of/a.txt").copy("a.txt", "/srv/into/")
                .copy("a.txt", "mine/a.txt", mode=0o600).copy("*.txt", "/srv/all/./").copy("tools", "/srv/deep/tools", mode=0o700)
                .copy("a.txt", "/srv/roots/a.txt", user="root").copy("a.txt", "/srv/gone/../here.txt")
                .copy("tools", "/srv/number", user="1000").copy("tools", "/srv/both", user="user:root"))
    Template.build(template, name)
    with Sandbox.create(name) as box:
        said = box.commands.run("cd /srv; stat -c '%U %a %n' . new new/of into ~/mine ~/mine/a.txt all deep deep/tools roots gone here.txt").stdout
        groups = box.commands.run("cd /srv; stat -c '%G %n' . new/of into/a.txt deep/tools/one roots number/one both/one").stdout
    assert said.splitlines() == ["root 755 .", "user 755 new", "user 755 new/of", "user 755 into", "user 755 /home/user/mine",
                                 "user 600 /home/user/mine/a.txt", "user 755 all", "user 755 deep", "user 700 deep/tools",
                                 "root 755 roots", "user 755 gone", "user 644 here.txt"]
    assert groups.splitlines() == ["root .", "user new/of", "user into/a.txt", "user deep/tools/one", "root roots", "user number/one", "root both/one"]


def test_a_hostile_archive_harms_its_sandbox_alone(cay, own_server, name):
    made = request(cay, name)
    mark = f"cay-mark-{uuid.uuid4().hex}"
    evil = [archive([(f"../../../../../tmp/{mark}", b"x")]), archive([(f"/tmp/{mark}", b"x")]),
            archive([("d", "/"), (f"d/tmp/{mark}", b"x")]), b"no archive", b"", archive([("x", b"y")])[:40]]
    for body in evil:
        one = request(cay, name)
        assert start(cay, one, steps=[copy(send(cay, one, body + bytes([evil.index(body)])), ".", "/srv/evil/")]).status == 202
        ended(cay, one)
        assert not os.path.exists(f"/tmp/{mark}") and of_builds(cay) == []
    for args in (("x", "/srv/x", "no-such-user"), ("x", "/srv/x", "", "99999"), ("$(touch /srv/oops)", "/srv/`id`"), ("-rf", "-x")):
        one = request(cay, name)
        files_hash = hashlib.sha256(b"quoted").hexdigest()
        body = archive([("x", b"y")])
        assert put(address(cay, one, files_hash).json["url"], body).status_code == 200
        assert start(cay, one, steps=[copy(files_hash, *args), run("! ls /srv | grep oops", "root")]).status == 202
        ended(cay, one)
    assert cay.call("GET", f"/templates/{made['templateID']}/files/{'0' * 64}").status == 201


def test_files_of_others_and_addresses_of_ones_own(cay, other_tenant, own_server, name):
    made, body = request(cay, name), archive([("x", b"mine")])
    files_hash = send(cay, made, body)
    assert address(other_tenant, made, files_hash).status == 404
    theirs = request(other_tenant, name)
    assert address(other_tenant, theirs, files_hash).json["present"] is False  # the same hash, and not theirs
    assert start(other_tenant, theirs, steps=[copy(files_hash, "x", "/srv/x")]).status == 202
    said = ended(other_tenant, theirs)
    assert said["reason"]["step"] == "1" and "not sent" in said["reason"]["message"]
    assert other_tenant.call("DELETE", f"/templates/{name}").status == 204
    for bad in ("x" * 64, "0" * 63, "0" * 65, "A" * 64, "..%2f..%2fcay.db", "%2e%2e"):
        assert address(cay, made, bad).status == 400, bad
    url = address(cay, made, "1" * 64).json["url"]
    base, token = url.split("?upload=")
    owner, mac, until = token.split(".")
    other = base.replace("1" * 64, "2" * 64)
    for wrong in (f"{other}?upload={token}", f"{base}?upload={'0' * 32}.{mac}.{until}", f"{base}?upload={owner}.{mac}.{int(until) + 1}",
                  f"{base}?upload={owner}.{'0' * 64}.{until}", f"{base}?upload={owner}.{mac}.", f"{base}?upload=x",
                  f"{base}?upload={token}x"[:-1].replace(mac, mac.upper()) + "0"):
        assert put(wrong, b"x").status_code == 403, wrong
    assert put(base, b"x").status_code == 400
    assert put(base.replace("1" * 64, "..%2f..%2fx") + "?upload=" + token, b"x").status_code in (400, 403)
    assert address(cay, made, "1" * 64).json["present"] is False
    if own_server:
        kept = os.listdir(own_server.state / "cayd" / "builds")
        assert kept and all(re.fullmatch("[0-9a-f]{96}", one) for one in kept)


def test_an_archive_that_is_cut_or_too_long(cay, own_server, name):
    made = request(cay, name)
    url = urllib.parse.urlsplit(address(cay, made, "3" * 64).json["url"])
    target = f"{url.path}?{url.query}"
    with socket.create_connection((url.hostname, url.port)) as s:  # it says 100 bytes, sends ten and goes
        s.sendall(f"PUT {target} HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n0123456789".encode())
    with socket.create_connection((url.hostname, url.port)) as s:
        s.sendall(f"PUT {target} HTTP/1.1\r\nHost: x\r\nContent-Length: {(512 << 20) + 1}\r\n\r\n".encode())
        assert s.recv(100).startswith(b"HTTP/1.1 413")
    if own_server:
        until(lambda: all(len(one) == 96 for one in os.listdir(own_server.state / "cayd" / "builds")), what="the cut one is removed")
    assert address(cay, made, "3" * 64).json["present"] is False
    assert put(urllib.parse.urlunsplit(url), iter([b"in ", b"pieces"])).status_code == 200  # chunked
    assert address(cay, made, "3" * 64).json["present"] is True


def test_start_and_ready(sdk, cay, name):
    template = Template().from_template("host").set_workdir("/srv/www").run_cmd("echo served > page").set_start_cmd(
        f"exec python3 -m http.server --bind 127.0.0.1 {PORT}", wait_for_port(PORT))
    Template.build(template, name)
    with cay.create(template=name) as box:
        assert box.request("GET", "/page", port=PORT).body == b"served\n"
    with pytest.raises(BuildException) as failed:
        Template.build(Template().from_template("host").set_start_cmd("echo broken >&2; exit 3", "false"), name)
    assert "start command" in str(failed.value) and "status 3" in str(failed.value) and "broken" in str(failed.value)
    with cay.create(template=name) as box:  # the one before is as it was
        assert box.request("GET", "/page", port=PORT).body == b"served\n"
    assert of_builds(cay) == []


def test_the_ready_command_ends_the_build(cay, name):
    """Also where the start command would fail later: that is seen in the sandboxes."""
    made = request(cay, name)
    assert start(cay, made, startCmd="sleep 1000; exit 4", readyCmd="true").status == 202
    assert ended(cay, made)["status"] == "ready"


def listed(cay, name):
    return [t for t in cay.call("GET", "/cay/v1/templates").json if t["id"] == name]


def test_one_that_is_not_begun_is_shown_as_that(cay, name):
    """As where the client found its files missing after it had asked for the template."""
    request(cay, name)
    (shown,) = listed(cay, name)
    assert not shown["ready"] and shown["note"].startswith("asked for, and not begun, by the tenant")


def test_tags(sdk, cay, name):
    def built(text, tag):
        return Template.build(Template().from_template("host").run_cmd(f"echo {text} > /tmp/said"), f"{name}:{tag}")

    def says(tag):
        with cay.create(template=f"{name}:{tag}") as box:
            return box.run("cat /tmp/said").out.strip()

    one, two = built("one", "v1"), built("two", "v2")
    assert one.tags == ["v1"] and not Template.exists(name) and Template.exists(f"{name}:v1")
    assert says("v1") == "one" and says("v2") == "two"
    assert Template.assign_tags(f"{name}:v1", ["default", "stable"]).build_id == one.build_id
    assert says("stable") == "one" and says("default") == "one" and Template.exists(name)
    Template.assign_tags(f"{name}:v2", "stable")
    assert says("stable") == "two"
    assert {(t.tag, t.build_id) for t in Template.get_tags(name)} == \
        {("v1", one.build_id), ("default", one.build_id), ("v2", two.build_id), ("stable", two.build_id)}
    assert sorted(sorted(t["tags"]) for t in listed(cay, name)) == [["default", "v1"], ["stable", "v2"]]
    shown = subprocess.run([BUILD / "src/cli/cay", "template", "ls"], stdout=subprocess.PIPE, text=True, check=True,
                           env={**os.environ, "CAY_URL": cay.url, "E2B_API_KEY": cay.key})
    assert sorted(",".join(sorted(line.split()[1].split(","))) for line in shown.stdout.splitlines() if line.startswith(f"{name} ")) == \
        ["default,v1", "stable,v2"]
    Template.remove_tags(name, ["v2", "stable"])
    assert [sorted(t["tags"]) for t in listed(cay, name)] == [["default", "v1"]]  # the other's files are gone
    assert not Template.exists(f"{name}:v2") and cay.call("POST", "/v2/sandboxes", {"templateID": f"{name}:v2"}).status == 404
    for bad in (":bad", f"{name}:", "", "a b", "x" * 65, "../x"):
        with pytest.raises(Exception, match="no tag"):
            Template.assign_tags(f"{name}:v1", bad)
    with pytest.raises(Exception, match="not found"):
        Template.remove_tags(name + "-no", "v1")


def test_the_log_comes_page_by_page(cay, name):
    made = request(cay, name)
    assert start(cay, made, steps=[run("seq 1 350; printf '\\033[31mred\\377\\n'; head -c 5000 /dev/zero | tr '\\0' x")]).status == 202
    assert ended(cay, made)["status"] == "ready"
    texts, offset = [], 0
    while page := status(cay, made, f"?logsOffset={offset}")["logEntries"]:
        assert len(page) <= 100
        texts += [line["message"] for line in page]
        offset += len(page)
    assert [t for t in texts if t.isdigit()] == [str(i) for i in range(1, 351)]
    assert any(t.startswith("?[31mred") for t in texts) and "\x1b" not in "".join(texts)
    assert sum(t.count("x") for t in texts if set(t) == {"x"}) == 5000
    assert len(status(cay, made, "?logsOffset=2&limit=3")["logEntries"]) == 3
    for bad in ("?logsOffset=-1", "?limit=101", "?logsOffset=x"):
        assert cay.call("GET", f"/templates/{made['templateID']}/builds/{made['buildID']}/status{bad}").status == 400


def test_the_log_has_an_end(cay, name):
    made = request(cay, name)
    assert start(cay, made, steps=[run("seq 1 20000; echo at last >&2; exit 1")]).status == 202
    said = ended(cay, made)
    assert "at last" in said["reason"]["message"]
    last = status(cay, made, "?logsOffset=4095")["logEntries"]
    assert [line["message"] for line in last] == ["the log is full: lines from here on are not kept"]


@pytest.mark.parametrize("spec, text", [
    ({"fromTemplate": None}, "fromTemplate"), ({"fromTemplate": "host", "fromImage": "x"}, "one of"),
    ({"fromImageRegistry": {"type": "registry"}}, "username"), ({"steps": {}}, "array"),
    ({"fromTemplate": None, "fromImage": "x", "fromImageRegistry": {"type": "gcp"}}, "\"gcp\" is not supported"),
    ({"steps": [run("true")] * 257}, "256"), ({"steps": [{"type": "NOPE", "args": []}]}, "step 1"),
    ({"steps": [run("true"), {"type": "RUN"}]}, "step 2"), ({"steps": [run(1)]}, "strings"), ({"steps": [run("a\0b")]}, ""),
    ({"steps": [run("x" * 65537)]}, "65536"), ({"steps": [{"type": "ENV", "args": ["A"]}]}, "args"),
    ({"steps": [{"type": "ENV", "args": ["A=B", "c"]}]}, "names"), ({"steps": [{"type": "USER", "args": ["a", "b"]}]}, "1 args"),
    ({"startCmd": "x" * 65537}, "startCmd"), ({"startCmd": 1}, "startCmd")])
def test_what_is_no_build_is_refused_before_it_begins(cay, name, spec, text):
    made = request(cay, name)
    reply = start(cay, made, **spec)
    assert reply.status in (400, 501) and text in reply.json["message"], reply.body
    assert status(cay, made)["status"] == "waiting" and of_builds(cay) == []


@pytest.mark.parametrize("fields", [{"name": ""}, {"name": "a/b"}, {"name": "../x"}, {"name": "x" * 101}, {"name": 5}, {"name": "a:b:c"},
                                    {"name": "a:"}, {"name": "a", "tags": ["x,y"]}, {"name": "a", "tags": [1]}, {"name": "a", "tags": "x"},
                                    {"name": "a", "tags": [f"t{i}" + "x" * 60 for i in range(40)]}, {"name": "a", "cpuCount": 0}, {},
                                    {"name": "a", "memoryMB": -1}])
def test_what_is_no_template_is_refused(cay, fields):
    reply = cay.call("POST", "/v3/templates", fields)
    assert reply.status == 400, reply.body


def test_a_name_of_the_servers_is_not_given(cay):
    assert [cay.call("POST", "/v3/templates", {"name": n}).status for n in ("host", "base", "debian")] == [409] * 3


def test_another_tenant_sees_nothing(cay, other_tenant, name):
    made = request(cay, name)
    assert start(other_tenant, made, steps=7).status == 404  # a fault of the steps is said to its owner
    assert start(other_tenant, made).status == 404 and start(cay, made, steps=[run("true")]).status == 202
    assert ended(cay, made)["status"] == "ready"
    paths = [("GET", f"/templates/{made['templateID']}/builds/{made['buildID']}/status", None), ("GET", f"/templates/aliases/{name}", None),
             ("GET", f"/templates/{made['templateID']}", None), ("GET", f"/templates/{name}/tags", None),
             ("DELETE", f"/templates/{made['templateID']}", None), ("PATCH", f"/v2/templates/{made['templateID']}", {"public": False}),
             ("POST", "/templates/tags", {"target": name, "tags": ["x"]}), ("DELETE", "/templates/tags", {"name": name, "tags": ["x"]}),
             ("POST", "/v2/sandboxes", {"templateID": name}), ("POST", "/v2/sandboxes", {"templateID": made["templateID"]})]
    assert [other_tenant.call(*p).status for p in paths] == [404] * len(paths)
    assert name not in str(other_tenant.call("GET", "/templates").json) and name in str(cay.call("GET", "/templates").json)
    # a template of the same name is another
    theirs = request(other_tenant, name)
    assert theirs["templateID"] != made["templateID"] and cay.call("GET", f"/templates/{name}").json["buildStatus"] == "ready"
    assert other_tenant.call("DELETE", f"/templates/{name}").status == 204 and cay.call("GET", f"/templates/aliases/{name}").status == 200


def test_the_list_and_the_end(sdk, cay, name):
    made = request(cay, name, tags=["a", "b"])
    one = next(t for t in cay.call("GET", "/v2/templates").json if t["templateID"] == made["templateID"])
    assert one["buildStatus"] == "waiting" and one["names"] == [name] and one["public"] is False
    assert start(cay, made, steps=[run("sleep 1000")]).status == 202
    assert [start(cay, made).status, start(cay, made, steps=7).status] == [409, 409]  # it was started
    assert cay.call("DELETE", f"/templates/{name}").status == 409
    assert cay.call("PATCH", f"/v2/templates/{name}", {"public": True}).json == {"names": [name]}
    assert cay.call("PATCH", f"/v2/templates/{name}", {"public": False}).json == {"names": [name]}
    box = until(lambda: of_builds(cay), what="its sandbox is there")[0]
    assert box["metadata"]["cay.build"] == name
    assert cay.call("DELETE", f"/sandboxes/{box['sandboxID']}").status == 204  # its owner may end it
    assert "ended" in ended(cay, made)["reason"]["message"]
    assert cay.call("DELETE", f"/templates/{made['templateID']}").status == 204
    assert cay.call("GET", f"/templates/{name}").status == 404


def test_so_many_at_a_time(cay, name):
    made = [request(cay, f"{name}:{i}") for i in range(5)]
    try:
        assert [start(cay, one, steps=[run("sleep 1000")]).status for one in made] == [202] * 4 + [429]
        assert start(cay, made[4], steps=7).status == 429
    finally:
        until(lambda: len(of_builds(cay)) == 4, what="their sandboxes are there")
        for box in of_builds(cay):
            cay.call("DELETE", f"/sandboxes/{box['sandboxID']}")
    assert [ended(cay, one)["status"] for one in made[:4]] == ["error"] * 4
    assert start(cay, made[4], steps=[run("true")]).status == 202 and ended(cay, made[4])["status"] == "ready"


def test_two_of_one_name(cay, name):
    """The last to be ready has it; both have succeeded, and what the other had is given back."""
    made = [request(cay, name), request(cay, name)]
    assert [start(cay, one, steps=[run(f"echo {i} > /tmp/said")]).status for i, one in enumerate(made)] == [202, 202]
    assert [ended(cay, one)["status"] for one in made] == ["ready", "ready"]
    (tag,) = cay.call("GET", f"/templates/{name}/tags").json
    with cay.create(template=name) as box:
        assert box.run("cat /tmp/said").out.strip() == str([one["buildID"] for one in made].index(tag["buildID"]))


def test_a_create_says_how_far_the_build_is(cay, name):
    def said():
        reply = cay.call("POST", "/v2/sandboxes", {"templateID": name})
        assert reply.status == 404, reply.body
        return reply.json["message"]

    made = request(cay, name)
    assert f"template '{name}' is not ready: its build was not started" in said()
    assert start(cay, made, steps=[run("sleep 1000")]).status == 202
    assert f"template '{name}' is not ready: it is being built" in said()
    box = until(lambda: of_builds(cay), what="it has a sandbox")[0]
    assert cay.call("DELETE", f"/sandboxes/{box['sandboxID']}").status == 204
    assert ended(cay, made)["status"] == "error"
    assert f"template '{name}' was not built: " in said() and "\n" not in said()
    assert "there is no template 'no-such'" in cay.call("POST", "/v2/sandboxes", {"templateID": "no-such"}).json["message"]


def test_a_command_that_forks_without_end(cay, name):
    made = request(cay, name)
    assert start(cay, made, steps=[run(":(){ :|:& };: & sleep 1; exit 5", "user")]).status == 202
    until(lambda: of_builds(cay), what="its sandbox is there")
    until(lambda: cay.call("GET", "/cay/v1/status").status == 200, what="the server answers")
    box = of_builds(cay)
    if box:  # it may have ended by itself, as the shell got no process
        cay.call("DELETE", f"/sandboxes/{box[0]['sandboxID']}")
    assert ended(cay, made)["status"] == "error" and of_builds(cay) == []


def test_a_restart_in_the_middle(cay, own_server, name):
    if own_server is None:
        pytest.skip("needs a server of its own")
    made, waits = request(cay, name), request(cay, name + "-waits")
    assert start(cay, made, steps=[run("echo begun; sleep 1000")]).status == 202
    until(lambda: any(line["message"] == "begun" for line in status(cay, made)["logEntries"]), what="the step runs")
    (box,) = of_builds(cay)
    (cayd,) = children(own_server.keep_pid, "cayd")
    os.kill(cayd, signal.SIGKILL)
    until(lambda: answers(cay), 60, "cayd is back")
    said = status(cay, made)
    assert said["status"] == "error" and "anew" in said["reason"]["message"] and said["reason"]["step"] == "base"
    until(lambda: of_builds(cay) == [], what="its sandbox is gone")
    assert cay.call("GET", f"/sandboxes/{box['sandboxID']}").status == 404
    assert start(cay, waits, steps=[run("true")]).status == 202 and ended(cay, waits)["status"] == "ready"
    assert cay.call("DELETE", f"/templates/{name}-waits").status == 204


@pytest.fixture
def short_lived():
    """A server whose sandboxes live half a minute, and whose builds half of that."""
    server = OwnServer(cayd_args=["--sandbox-default-ttl=20s", "--sandbox-max-ttl=30s"])
    yield Client(server.url, server.key())
    server.stop()


def test_a_step_that_does_not_end(short_lived):
    made = request(short_lived, "endless")
    assert start(short_lived, made, steps=[run("true"), run("echo begun; sleep 1000"), run("true")]).status == 202
    said = ended(short_lived, made)
    assert said["status"] == "error" and said["reason"]["step"] == "2"
    assert "the time of the build is over (15 s)" in said["reason"]["message"]
    assert of_builds(short_lived) == []
    assert short_lived.call("DELETE", "/templates/endless").status == 204
