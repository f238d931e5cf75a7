"""Real programs inside a sandbox, against stand-ins of their servers outside, and against a host that is refused: do
they work, do they end, do they show why? Six of them here; all with CAY_EGRESS_CLIENTS=all (`make egress-clients`),
which writes docs/reports/egress-clients.md to CAY_EGRESS_CLIENTS_REPORT. A program that cannot be had on a machine is
skipped with the reason, which is in that table too."""

import dataclasses
import hashlib
import io
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import wave
import zipfile

import pytest

from conftest import BUILD
from egresslib import ZONE, Stack, internet
from test_egress_clients import THRIFTY, make_debian, make_npm_package, make_repository, make_wheel, trusted, write

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "egress/clients"))
import programs  # noqa: E402
from programs import BUNDLE, PROGRAMS  # noqa: E402

ALLOWED, REFUSED = "web.example.com", "other.example.net"
WHOLE = os.environ.get("CAY_EGRESS_CLIENTS") == "all"
SECONDS = 60  # for one run, and a program that is refused and does not end by then hangs
OUTSIDE = pathlib.Path(internet.__file__).parent


# -- what stands outside -----------------------------------------------------------------------------


def as_own_host(home):
    """Registries of the stand-in internet have hosts of their own; the rows have one for all of them."""
    site = home / "site" / ALLOWED
    site.mkdir(parents=True, exist_ok=True)
    for kind, host in (("npm", "registry.npmjs.org"), ("packages", "files.pythonhosted.org/packages"),
                       ("simple", "pypi.org/simple"), ("debian", "deb.debian.org/debian")):
        shutil.copytree(home / "site" / host, site / kind, dirs_exist_ok=True)
    for path in (site / "npm/cay-tiny", site / "simple/cay-tiny/index.html"):
        path.write_text(path.read_text().replace("https://registry.npmjs.org/", f"https://{ALLOWED}/npm/")
                        .replace("https://files.pythonhosted.org/", f"https://{ALLOWED}/"))


def make_go_module(home):
    text = "module example.com/tiny\n\ngo 1.16\n"
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as z:
        z.writestr("example.com/tiny@v1.0.0/go.mod", text)
        z.writestr("example.com/tiny@v1.0.0/tiny.go", "package tiny\n\nconst Answer = 42\n")
    for name, data in (("list", "v1.0.0\n"), ("v1.0.0.info", '{"Version": "v1.0.0", "Time": "2022-01-01T00:00:00Z"}'),
                       ("v1.0.0.mod", text), ("v1.0.0.zip", archive.getvalue())):
        write(home, f"{ALLOWED}/go/example.com/tiny/@v/{name}", data)


def make_crate(home):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as t:
        for name, text in (("Cargo.toml", '[package]\nname = "cay-tiny"\nversion = "1.0.0"\n'), ("src/lib.rs", "")):
            info = tarfile.TarInfo(f"cay-tiny-1.0.0/{name}")
            info.size, info.mode = len(text), 0o644
            t.addfile(info, io.BytesIO(text.encode()))
    write(home, f"{ALLOWED}/index/config.json", json.dumps({"dl": f"https://{ALLOWED}/crates"}))
    write(home, f"{ALLOWED}/index/ca/y-/cay-tiny", json.dumps(
        {"name": "cay-tiny", "vers": "1.0.0", "deps": [], "features": {}, "yanked": False,
         "cksum": hashlib.sha256(packed.getvalue()).hexdigest()}) + "\n")
    write(home, f"{ALLOWED}/crates/cay-tiny/1.0.0/download", packed.getvalue())


def make_files(home):
    write(home, f"{ALLOWED}/files/answer", "42\n")
    tone = io.BytesIO()
    with wave.open(tone, "wb") as w:
        w.setnchannels(1)
        w.setsampwidth(2)
        w.setframerate(8000)
        w.writeframes(bytes(16000))
    write(home, f"{ALLOWED}/files/tone.wav", tone.getvalue())
    write(home, f"{ALLOWED}/sts/index.html", '<GetCallerIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">'
          "<GetCallerIdentityResult><Arn>a</Arn><UserId>u</UserId><Account>424242</Account></GetCallerIdentityResult>"
          "<ResponseMetadata><RequestId>r</RequestId></ResponseMetadata></GetCallerIdentityResponse>")


class Outside:
    """Servers in the stand-in internet; those that do not start are named in absent."""

    def __init__(self, stack):
        self.net, self.home, self.started, self.absent = stack.networks.net, stack.networks.dir, [], {}
        self.networks = stack.networks

    def start(self, *command, until=None, **more):
        self.started.append(subprocess.Popen(["ip", "netns", "exec", self.net, *(str(c) for c in command)],
                                             stdout=subprocess.PIPE, text=True, **more))
        assert not until or self.started[-1].stdout.readline() == until, command[0]

    def start_all(self):
        home = self.home
        self.start(sys.executable, OUTSIDE / "clients/stands.py", until="ready\n")
        self.start("git", "-c", "safe.directory=*", "daemon", f"--base-path={home}/git", "--export-all", "--reuseaddr",
                   f"--port={programs.GIT_PORT}", "--listen=0.0.0.0", env={**os.environ, "HOME": str(home)})
        if shutil.which("node"):
            self.start("node", OUTSIDE / "grpc.cjs", programs.GRPC_PORT, self.networks.cert, self.networks.key, until="ready\n")
        if shutil.which("rsync"):
            (home / "rsyncd.conf").write_text(f"use chroot = no\n[files]\npath = {home}/site/{ALLOWED}/files\n")
            self.start("rsync", "--daemon", "--no-detach", f"--config={home}/rsyncd.conf", f"--port={programs.RSYNC_PORT}")
        if shutil.which("sshd"):
            for name in ("ssh.host", "ssh.key"):
                internet.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", home / name)
            os.makedirs("/run/sshd", exist_ok=True)
            self.start(shutil.which("sshd"), "-D", "-f", "/dev/null", "-p", programs.SSH_PORT, "-h", home / "ssh.host", "-o",
                       f"AuthorizedKeysFile={home}/ssh.key.pub", "-o", "StrictModes=no", "-o", "PidFile=none", "-o",
                       "PermitRootLogin=yes", stderr=subprocess.DEVNULL)

    def close(self):
        for p in self.started:
            p.kill()
            p.wait()


def install(name):
    """An npm package, installed once, as an archive; or why not."""
    place = BUILD / "programs" / name.replace("/", "-")
    if not (place / ".done").exists():
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        r = subprocess.run(["timeout", "60", "npm", "install", "--no-audit", "--no-fund", "--ignore-scripts",
                            "--fetch-retries=1", "--prefix", place, name], capture_output=True, text=True, check=False)
        if r.returncode != 0:
            return f"npm cannot install {name} (status {r.returncode})"
        (place / ".done").touch()
    return subprocess.run(["tar", "-C", place, "-cz", "node_modules"], stdout=subprocess.PIPE, check=True).stdout


@pytest.fixture(scope="module")
def packages():
    """{name: archive, or why it is not to be had}; before this thread is in a network without a way out."""
    names = {need[4:] for p in PROGRAMS if WHOLE for need in p.needs if need.startswith("npm:")}
    return {name: install(name) for name in sorted(names)}


@pytest.fixture(scope="module")
def stack(packages):
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    s = Stack(zone=ZONE)
    yield s
    s.close()


@pytest.fixture(scope="module")
def outside(stack):
    home = stack.networks.dir
    make_wheel(home)
    make_npm_package(home)
    make_repository(home)
    if shutil.which("dpkg-deb") and shutil.which("gpg"):
        make_debian(home)
    else:
        (home / "site/deb.debian.org/debian").mkdir(parents=True)
    as_own_host(home)
    make_go_module(home)
    make_crate(home)
    make_files(home)
    o = Outside(stack)
    try:
        o.start_all()
        yield o
    finally:
        o.close()


@pytest.fixture(scope="module")
def one(stack, outside):
    with trusted(stack) as made:
        rules = {"id": made.id, "tenant": "default", "policy": {"rules": [{"action": "allow", "domains": [ALLOWED]}]},
                 "ceilings": []}
        assert stack.control("PUT", f"/v1/sandboxes/{stack.place(made)}", rules)[0] == 204
        if (key := stack.networks.dir / "ssh.key").exists():
            assert made.write("/tmp/ssh.key", key.read_bytes()).status == 200
            made.run("chmod 600 /tmp/ssh.key")
        yield made


# -- one row -----------------------------------------------------------------------------------------


@dataclasses.dataclass
class Row:
    program: programs.Program
    works: str = "not run"
    refused: str = ""


def absent(need):
    kind, _, name = need.partition(":")
    if not name:
        return None if shutil.which(need) or os.path.exists(f"/usr/sbin/{need}") else f"{need} is not installed"
    if kind == "python":
        found = subprocess.run(["/usr/bin/python3", "-c", f"import {name}"], capture_output=True, check=False)
        return f"python's {name} is not installed" if found.returncode else None
    if kind == "perl":
        found = subprocess.run(["perl", f"-M{name}", "-e", "1"], capture_output=True, check=False)
        return f"perl's {name} is not installed" if found.returncode else None
    return None


def absent_inside(sandbox, needs):
    """A program that the machine has outside of /usr is not in a sandbox."""
    for need in needs:
        if ":" not in need and need != "sshd" and sandbox.run(f"command -v {need}").exit_code != 0:
            return f"{need} is not where sandboxes see it, below /usr"
    return None


def prepare(sandbox, p, work, host, packages):
    sandbox.run(f"rm -rf {work}; mkdir -p {work}")
    for name, text in p.files.items():
        assert sandbox.write(f"{work}/{name}", text.encode()).status == 200
    for need in p.needs:
        if need.startswith("npm:"):
            assert sandbox.write(f"{work}/packages.tgz", packages[need[4:]]).status == 200
            assert sandbox.run(f"tar -C {work} -xzf {work}/packages.tgz").exit_code == 0
    sandbox.write(f"{work}/s", f"deb [trusted=yes] https://{host}/debian bookworm main\n".encode())
    sandbox.run(f"mkdir -p {work}/l/partial")


def run(sandbox, p, host, packages):
    """Exit status and all that it printed."""
    work = f"/tmp/work-{hashlib.sha256(p.name.encode()).hexdigest()[:8]}"
    prepare(sandbox, p, work, host, packages)
    assert sandbox.write(f"{work}/run.sh", p.run.encode()).status == 200
    env = {**THRIFTY, "NODE_EXTRA_CA_CERTS": BUNDLE, "HOST": host, "WORK": work, "HOME": work, "GIT_TERMINAL_PROMPT": "0"}
    r = sandbox.run(f"cd {work}; timeout -k 2 {SECONDS} bash {work}/run.sh < /dev/null", env=env, timeout=SECONDS + 30)
    return r.exit_code, r.out + r.stderr.decode(errors="replace")


def how_refused(status, out):
    if status in (124, 137):
        return "hangs"
    if "egress_denied" in out or "denied, by" in out:
        return "the reason"
    if "403" in out or "forbidden" in out.lower():
        return "403"
    return "an error" if status != 0 or out.strip() else "nothing"


@pytest.fixture(scope="module")
def rows():
    all_rows = {p.name: Row(p) for p in PROGRAMS}
    yield all_rows
    if WHOLE and os.environ.get("CAY_EGRESS_CLIENTS_REPORT"):
        write_report(pathlib.Path(os.environ["CAY_EGRESS_CLIENTS_REPORT"]), all_rows.values())


def commit():
    found = subprocess.run(["git", "-C", pathlib.Path(__file__).parent, "rev-parse", "--short=12", "HEAD"],
                           capture_output=True, text=True, check=False)
    return found.stdout.strip() or "not known"


def write_report(path, all_rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ["# Programs on the way out\n",
             "Written by `make egress-clients`; do not edit. Each program ran inside a sandbox, against a stand-in of its server",
             "outside, and, where it speaks HTTP, against a host that the policy refuses: what it showed then. The table of rows is",
             "`test/egress/clients/programs.py`. Agents and SDKs of model APIs: docs/agents.md.\n",
             f"Commit {commit()}.\n",
             f"{sum(r.works == 'works' for r in all_rows)} work, {sum(r.works.startswith('skipped') for r in all_rows)} could not be "
             f"had, {sum(r.works == 'fails' for r in all_rows)} fail.\n",
             "| program | | shows of a refusal |", "|---|---|---|"]
    lines += [f"| {r.program.name} | {r.works} | {r.refused} |" for r in all_rows]
    path.write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize("p", [p for p in PROGRAMS if p.short or WHOLE], ids=lambda p: p.name)
def test_program(one, rows, packages, p):
    row = rows[p.name]
    npm = (packages[need[4:]] for need in p.needs if need.startswith("npm:"))
    why = next(filter(None, map(absent, p.needs)), None) or absent_inside(one, p.needs) or next(
        (text for text in npm if isinstance(text, str)), None)
    if why:
        row.works = f"skipped: {why}"
        pytest.skip(why)
    status, out = run(one, p, ALLOWED, packages)
    row.works = "works" if any(e in out for e in p.expect.split("|")) else "fails"
    if p.http:
        refused = run(one, p, REFUSED, packages)
        row.refused = how_refused(*refused)
        print(f"{p.name}, refused: {row.refused}: {refused[0]} {refused[1][-2000:]}")
    assert row.works == "works", (status, out[-2000:])
    assert row.refused not in ("hangs", "nothing"), row.refused
