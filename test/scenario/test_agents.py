"""Coding agents and SDKs inside real sandboxes, as docs/agents.md sets them up, against stand-ins of their model APIs:
each does a small job with a key that is found nowhere inside while it does. The rows are in test/egress/clients;
those that are large are only run with CAY_EGRESS_CLIENTS=all (`make egress-clients`), or as it names them."""

import base64
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import threading
import urllib.parse

import pytest

from client import Sandbox
from conftest import BUILD
from egresslib import ZONE, Stack, internet
from test_egress_failures import in_files, processes_inside
from waitlib import until

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "egress" / "clients"))
import table  # noqa: E402

KEY = "sk-Zq7" + "/real+model=key-5f21c9e0"  # with characters that encodings change
HOSTS = {name: {"a": [[internet.WEB]]} for name in ("api.openai.com", "api.anthropic.com", "files.example.com")}
ASKED = os.environ.get("CAY_EGRESS_CLIENTS", "").split(",")
ROWS = [c for c in table.CLIENTS if c.short or ASKED == ["all"] or c.name in ASKED]
PRESENT, PAGE = 1 << 63, 4096


@pytest.fixture(scope="module")
def stack():
    for client in ROWS:  # from the registries: not from inside the stand-in internet
        client.install(BUILD)
    s = Stack({**ZONE, **HOSTS}, cayd_args=("--sandbox-disk=3G", "--sandbox-memory=3G"))
    try:
        (s.networks.dir / "model-key").write_text(KEY)
        yield s
    finally:
        s.close()


def forms(text):
    """The key as it is and as it may be encoded."""
    raw = text.encode()
    found = {raw, raw.hex().encode(), raw.hex().upper().encode(), urllib.parse.quote(text, safe="").encode(),
             json.dumps(text)[1:-1].encode(), text.replace("/", "\\/").encode(), raw[::-1], text.encode("utf-16-le")}
    for before, cut in ((0, 0), (1, 2), (2, 3)):
        coded = base64.b64encode(b"x" * before + raw)[cut:(before + len(raw)) * 8 // 6]
        found |= {coded, coded.translate(bytes.maketrans(b"+/", b"-_"))}
    return found


def pages_of(pid):
    """The memory of a process, page by page where only some are there."""
    with open(f"/proc/{pid}/maps", encoding="ascii") as maps, open(f"/proc/{pid}/mem", "rb", 0) as memory, \
            open(f"/proc/{pid}/pagemap", "rb", 0) as pagemap:
        for line in maps:
            start, end = (int(number, 16) for number in line.split()[0].split("-"))
            rights, inode = line.split()[1], line.split()[4]
            if "r" not in rights or "[v" in line or end - start > 1 << 36 or ("w" not in rights and inode != "0"):
                continue  # a path that was a file when read is searched as a file
            pagemap.seek(start // PAGE * 8)
            there = memoryview(pagemap.read((end - start) // PAGE * 8)).cast("Q")
            first = None
            for i in range(len(there) + 1):
                present = i < len(there) and there[i] & PRESENT
                if present and first is None:
                    first = i
                if first is not None and (not present or i - first >= 4096):
                    with contextlib.suppress(OSError):
                        memory.seek(start + first * PAGE)
                        yield memory.read((i - first) * PAGE + 256 * bool(present))
                    first = i if present else None


def search(stack, sought):
    """Where each is found inside: in memory, environment, command lines and files. A place is a kind of these."""
    found = {value: set() for value in sought}
    roots = {}
    for pid in processes_inside(stack):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            environ = pathlib.Path(f"/proc/{pid}/environ").read_bytes()
            for value in sought:
                found[value] |= {"environ"} if value in environ else set()
                found[value] |= {"cmdline"} if value in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes() else set()
            for part in pages_of(pid):
                for value in sought:
                    found[value] |= {"memory"} if value in part else set()
            roots.setdefault(os.readlink(f"/proc/{pid}/ns/mnt"), []).append(pid)
    looked = 0
    for pids in roots.values():
        places = [in_files(pids, value, skip="client") for value in sought]
        looked += None not in places  # else the sandbox ended meanwhile
        for value, place in zip(sought, places):
            found[value] |= {"files"} if place else set()
    assert looked >= 1
    return found


def provision(stack, client, one):
    """Its files, from a web server outside."""
    place = BUILD / "clients" / client.name
    site = stack.networks.dir / "site" / "files.example.com"
    site.mkdir(parents=True, exist_ok=True)
    archive = site / f"{client.name}.tar"
    subprocess.run(["tar", "-C", place, "--owner=1000", "--group=1000", "-cf", archive, "."], check=True)
    r = one.run(f"mkdir -p client work && curl -sS https://files.example.com/{archive.name} | tar -xC client")
    archive.unlink()
    assert r.exit_code == 0, r.out + r.stderr.decode() + one.run("cay-denials").out
    for path, text in client.files.items():
        r = one.write(f"/home/user/{path if path.startswith('.') else 'work/' + path}", text.encode())
        assert r.status == 200, r.body


def policy(client):
    return {"rules": [{"action": "allow", "domains": [client.host, "files.example.com"]}],
            "inject": [{"credential": "MODEL_KEY", "domains": [client.host]}]}


@contextlib.contextmanager
def prepared(stack, client):
    """A sandbox with the program and the placeholder of the key."""
    bind = {"kind": "placeholder", "domains": [client.host], "require": True}
    reply = stack.cay.call("POST", "/cay/v1/secrets", {"name": "MODEL_KEY", "value": KEY, "bind": bind})
    assert reply.status == 201, reply.body
    made = stack.cay.call("POST", "/cay/v1/sandboxes", {
        "templateID": "host", "timeout": 900, "policy": policy(client),
        "envVars": {client.key_variable: table.PLACEHOLDER, "CLIENT": "/home/user/client", **client.env}})
    assert made.status == 201, made.body
    with Sandbox(stack.cay, made.json) as one:
        provision(stack, client, one)
        yield one


def calls(stack):
    log = stack.networks.dir / "models.log"
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


@pytest.mark.parametrize("client", ROWS, ids=lambda c: c.name)
def test_a_small_job(stack, client):
    hold, log = stack.networks.dir / "model-hold", stack.networks.dir / "models.log"
    log.write_text("")
    result = []
    with prepared(stack, client) as one:
        hold.touch()
        work = threading.Thread(target=lambda: result.append(
            one.run(f"cd work && {client.run} > log 2>&1; echo $? >> log", timeout=600)))  # longer than the search takes
        work.start()
        try:
            until(lambda: result or any(c["key"] and c["path"].startswith("/v1/") and c["method"] == "POST" and not c["call"]
                                        for c in calls(stack)), 120,
                  lambda: f"{calls(stack)}\n{one.run('tail -c 3000 work/log').out}")
            found = search(stack, forms(KEY) | {table.PLACEHOLDER.encode()})
        finally:
            hold.unlink()
            work.join(180)
        said = one.run("tail -c 3000 work/log; cat work/done.txt")
        assert said.out.rstrip().endswith("the job is done"), f"{said.out}\n{calls(stack)}\n{one.run('cay-denials').out}"
    placeholder = found.pop(table.PLACEHOLDER.encode())
    assert {"memory", "environ"} <= placeholder  # the control
    assert not any(found.values()), found
    assert all(c["key"] for c in calls(stack) if c["method"] == "POST")
    assert not client.agent or any(c["result"] for c in calls(stack))
