"""cay-egress alone in the stand-in internet (test/egress/internet.py), without cayd and cay-privd: what its tests
share."""

import contextlib
import json
import os
import pathlib
import pwd
import shutil
import subprocess
import sys

import pytest

PROGRAMS = pathlib.Path(__file__).resolve().parents[1] / "egress"
sys.path.insert(0, str(PROGRAMS))
from conftest import BUILD, USER  # noqa: E402
from internet import OTHER, WEB, World, run  # noqa: E402


def make_world(zone):
    """The caller closes it."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    for tool in ("ip", "nft", "openssl", "curl", "setpriv"):
        if not shutil.which(tool):
            pytest.skip(f"{tool} is not installed")
    try:
        pwd.getpwnam(USER)
        user = USER
    except KeyError:
        user = "nobody"
    return World(BUILD / "src/egress/cay-egress", zone, user, ["--egress-connect-timeout=3s"])


def world_fixture(zone):
    """`world` of a file: one for all its tests."""
    @pytest.fixture(scope="module")
    def world():
        w = make_world(zone)
        yield w
        w.close()

    return world


def box_fixture(rules):
    """`box` of a file: a sandbox with these rules, of its own for each test."""
    @pytest.fixture
    def box(world):
        with sandbox(world, [], [], rules) as s:
            yield s

    return box


def boxes_fixture(policy):
    """`box` of a file: make(policy, ...) -> a sandbox with that policy; all of them end with the test."""
    @pytest.fixture
    def box(world):
        made = []

        def make(policy=policy, **more):
            made.append(world.sandbox(policy, **more))
            return made[-1]

        yield make
        for s in made:
            world.end(s)

    return box


@contextlib.contextmanager
def restarted(world, *arguments):
    """The same world with a cay-egress of other settings for a while."""
    before, world.arguments = world.arguments, world.arguments + list(arguments)
    try:
        world.kill_egress()
        world.start_egress()
        yield
    finally:
        world.arguments = before
        world.kill_egress()
        world.start_egress()


# -- servers of TLS that tell what they have seen, and sandboxes with credentials for them --------------

API, OTHER_HOST = "api.model.example", "other.example.net"
ZONE = {API: {"a": [[WEB]]}, "s3.model.example": {"a": [[WEB]]}, OTHER_HOST: {"a": [[OTHER]]}}
RULES = [{"action": "allow", "domains": list(ZONE)}]


def make_certificates(world, directory):
    def new(name, subject_names, *more):
        run("openssl", "req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj",
            "/CN=origin", "-keyout", directory / f"{name}.key", "-out", directory / f"{name}.csr")
        config = directory / f"{name}.cnf"
        config.write_text("[ca]\ndefault_ca=d\n[d]\ndatabase=%s\nserial=%s\nnew_certs_dir=%s\ndefault_md=sha256\n"
                          "policy=p\nx509_extensions=e\nunique_subject=no\n[p]\ncommonName=supplied\n"
                          "[e]\nsubjectAltName=%s\n" % (directory / "index", directory / "serial", directory,
                                                        ",".join(f"DNS:{n}" for n in subject_names)))
        (directory / "index").write_text("")
        (directory / "serial").write_text("01\n")
        run("openssl", "ca", "-batch", "-config", config, "-in", directory / f"{name}.csr", "-out",
            directory / f"{name}.pem", "-notext", *more)

    ca = ("-cert", world.ca, "-keyfile", world.dir / "ca.key")
    new("good", ZONE, *ca, "-days", "2")
    new("expired", ZONE, *ca, "-startdate", "20200101000000Z", "-enddate", "20200102000000Z")
    new("wrong-name", ["else.example"], *ca, "-days", "2")
    new("self-signed", ZONE, "-selfsign", "-keyfile", directory / "self-signed.key", "-days", "2")


class Origin:
    """A program of test/egress with servers, in the stand-in internet of a world, and what it says that it was asked."""

    def __init__(self, world, program, log):
        self.directory = world.dir / "origin"
        self.directory.mkdir()
        make_certificates(world, self.directory)
        self.log = self.directory / log
        self.clear()
        self.process = subprocess.Popen(["ip", "netns", "exec", world.net, sys.executable, PROGRAMS / program, "serve",
                                         self.directory], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline() == "ready\n"

    def seen(self):
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def clear(self):
        self.log.write_text("")

    def close(self):
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def world_with_origin(program, log):
    """A world of ZONE whose origin is that program; its log is of that name."""
    w = make_world(ZONE)
    w.origin = None
    try:
        w.origin = Origin(w, program, log)
        yield w
    finally:
        if w.origin:
            w.origin.close()
        w.close()


def seal(world, name, value, tenant="tenant1", **bind):
    bind = {key: value for key, value in {"domains": [API], **bind}.items() if value is not None}
    status, text = world.call("POST", "/v1/seal", {"tenant": tenant, "name": name, "value": value, "bind": bind})
    assert status == 200, text
    return {"name": name, "sealed": json.loads(text)["sealed"], "bind": bind}


def inject(*names, domains=(API,), **more):
    return [{"credential": name, "domains": list(domains), **more} for name in names]


@contextlib.contextmanager
def sandbox(world, credentials, injections, rules=None, **more):
    """A sandbox whose clients trust its tenant's authority; more: of its policy."""
    s = world.sandbox({"rules": rules or RULES, "inject": injections, **more}, credentials=credentials)
    status, pem = world.call("GET", "/v1/ca/tenant1")
    assert status == 200, pem
    s.ca = world.dir / f"{s.name}.pem"
    s.ca.write_text(pem)
    try:
        yield s
    finally:
        world.end(s)
