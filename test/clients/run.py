#!/usr/bin/env python3
"""Runs integrations that people use above E2B's SDKs, unmodified, against a server, with nothing set but what
`cay env` prints.

    test/clients/run.py [--build=DIR] [--short] [--installed] [--only=NAME,...] [--write=FILE] [--json=FILE]
                        [--state=DIR] [--policy=FILE] [--ceiling=WHAT]

Each is installed from PyPI or npm into a directory of its own below BUILD/clients, in the newest version and in the
pinned one (catalogue.py; where both are the same it runs once), and does what its quick start does: the scripts beside
this file. --short: a few that work, pinned versions only. --installed: what an earlier run installed as newest is not
looked for again. With E2B_DOMAIN set that server is used, with the templates that it has; otherwise one is
started, with the template base and those of the catalogue, and ended. --state: its state directory, which stays, with the
templates: the next run does not build them again. --policy: what the steps of such a build reach (`cay template build`),
--ceiling: [egress] ceiling, where the registries have no public addresses. --write puts the table between the marks in FILE,
where rows of what was not run stay.

Exit status 1 when one fails of which nothing is known to be missing, or one works of which something is."""

import argparse
import dataclasses
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from catalogue import CLIENTS, NODE

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
INSTALL_SECONDS, RUN_SECONDS, BUILD_SECONDS = 900, 400, 1800
REASON_CHARS = 150
FIRST_UID, SLOTS = 59510 * 65536, 1024  # beyond those of a server with the usual settings, which may run beside it
MARKS = ("<!-- clients: begin -->\n", "<!-- clients: end -->\n")
NAMES = ("E2B_API_URL", "E2B_SANDBOX_URL", "E2B_DOMAIN", "E2B_API_KEY", "E2B_DEBUG", "CAY_URL", "CAY_CONFIG", "CAY_CA_FILE",
         "DAYTONA_API_URL", "DAYTONA_API_KEY", "DAYTONA_TARGET")


class CannotBeHad(Exception):
    """Why an integration is not there to be run."""


@dataclasses.dataclass
class Result:
    versions: str
    works: bool
    reason: str = ""


def run(command, seconds, **more):
    """Exit status and what was said."""
    try:
        done = subprocess.run([str(part) for part in command], timeout=seconds, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace", stdin=subprocess.DEVNULL, **more)
    except subprocess.TimeoutExpired:
        return 124, f"Error: not done after {seconds} s"
    return done.returncode, done.stdout


def clean_environment():
    return {name: value for name, value in os.environ.items() if name not in NAMES}


# -- installing ------------------------------------------------------------------------------------

def find_python(least):
    """A Python that is new enough and runs: a shim that stands for none does not count."""
    pyenv = sorted(pathlib.Path("~/.pyenv/versions").expanduser().glob("3.*/bin/python3"))
    for name in ("python3", "/usr/bin/python3", "python3.12", "python3.13", "python3.14", *pyenv):
        status, said = run(["env", name, "-c", "import sys; print(*sys.version_info[:2])"], 30)
        if status == 0 and tuple(map(int, said.split())) >= least:
            return name
    raise CannotBeHad(f"needs Python {'.'.join(map(str, least))}, which is not here")


def bare(name):
    """Without extras."""
    return name.split("[")[0]


def wanted(client, pinned):
    """The packages as pip and npm take them."""
    if client.is_python:
        return [f"{name}=={version}" if pinned and version else name for name, version in client.packages]
    return [f"{name}@{version}" if pinned and version else f"{name}@latest" for name, version in client.packages]


def install_python(client, pinned, folder):
    python = find_python(client.python)
    run([python, "-m", "venv", "--clear", folder], INSTALL_SECONDS)
    command = [folder / "bin/pip", "install", "-q", "--disable-pip-version-check", *wanted(client, pinned)]
    lock = HERE / "lock" / client.script.replace(".py", ".txt")
    if pinned and lock.exists():
        command += ["-c", lock]
    return run(command, INSTALL_SECONDS, env=clean_environment())


def install_node(client, pinned, folder):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "package.json").write_text('{"private": true}\n')
    return run(["npm", "install", "--no-audit", "--no-fund", "--silent", f"node@{NODE}", *wanted(client, pinned)],
               INSTALL_SECONDS, cwd=folder, env=clean_environment())


def install(client, pinned, folder, keep):
    """Kept: packages installed once are not installed again. Newest ones are looked for each time."""
    stamp, text = folder / ".cay-stamp", json.dumps([wanted(client, pinned), NODE])
    if (pinned or keep) and stamp.exists() and stamp.read_text() == text:
        return
    status, said = (install_python if client.is_python else install_node)(client, pinned, folder)
    if status != 0:
        last = [line for line in said.splitlines() if line.strip()][-1:] or ["no reason given"]
        raise CannotBeHad(f"cannot be installed: {last[0].strip()[:REASON_CHARS]}")
    stamp.write_text(text)


def versions_of(client, folder):
    """Of the packages that the catalogue names, and of E2B's SDKs below them."""
    names = [bare(name) for name, _ in client.packages]
    if client.is_python:
        script = "import sys, importlib.metadata as m\nfor n in sys.argv[1:]:\n try: print(n, m.version(n))\n except Exception: pass"
        _, said = run([folder / "bin/python", "-c", script, *names, "e2b", "e2b-code-interpreter"], 60)
        return dict(line.split() for line in said.splitlines() if len(line.split()) == 2)
    found = {}
    for name in (*names, "e2b"):
        path = folder / "node_modules" / name / "package.json"
        if path.exists():
            found[name] = json.loads(path.read_text())["version"]
    return found


# -- running ---------------------------------------------------------------------------------------

def reason_of(said):
    """The line that says what is missing: the last one of Python's trace, the first one that names an error in Node's."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line for line in lines if re.search(r"(Error|Exception)\b.*:|^harbor: |^\d+ failed", line)
              and not line.startswith("at ")]
    line = (errors or lines or ["no reason given"])[-1]
    line = re.sub(r"^[\w.]*\.(\w+(Error|Exception))", r"\1", line)
    line = re.sub(r"\bi[a-z0-9]{20}\b", "ID", line.replace("|", "/"))
    return line if len(line) <= REASON_CHARS else line[:REASON_CHARS - 1] + "…"


def try_one(client, pinned, folder, env, keep):
    script = HERE / client.script
    install(client, pinned, folder, keep)
    versions = ", ".join(f"{name} {version}" for name, version in versions_of(client, folder).items())
    if client.is_python:
        command = [folder / "bin/python", script]
    else:
        shutil.copy(script, folder)
        command = [folder / "node_modules/node/bin/node", script.name]
    status, said = run(command, RUN_SECONDS, cwd=folder, env={**clean_environment(), **env})
    ended = f" (exit status {status})" if status not in (0, 1) else ""  # by a signal, say: then nothing says why
    return Result(versions, status == 0, "" if status == 0 else reason_of(said) + ended)


def try_client(client, build, env, options):
    """Results by kind; a string says why there is none."""
    results = {}
    for kind in ("pinned",) if options.short else ("newest", "pinned"):
        folder = build / "clients" / f"{kind}-{pathlib.Path(client.script).stem}{'' if client.is_python else '-js'}"
        before = results.get("newest")
        if isinstance(before, Result) and all(f"{bare(name)} {version}" in before.versions
                                              for name, version in client.packages if version):
            results[kind] = before
            continue
        try:
            results[kind] = try_one(client, kind == "pinned", folder, env, options.installed)
        except CannotBeHad as error:
            results[kind] = str(error)
        print(f"{client.name} ({kind}): {told(client, results[kind])}", flush=True)
    return results


def told(client, result):
    if isinstance(result, str):
        return result
    if result.works:
        return f"works, with `cay template build {client.template}`" if client.template else "works"
    return f"fails: {client.missing or 'unknown'}: {result.reason}"


def is_as_known(client, result):
    return isinstance(result, str) or result.works == (not client.missing)


# -- a server --------------------------------------------------------------------------------------

class Server:
    def __init__(self, build, options):
        self.cay, self.policy, self.kept = build / "src/cli/cay", options.policy, options.state
        self.base = pathlib.Path(tempfile.mkdtemp(prefix="cay-clients-", dir="/var/tmp"))
        self.base.chmod(0o755)
        config = self.base / "cay.conf"
        config.write_text(f"[listen]\nport = {3800 + os.getpid() % 100}\n[state]\ndir = {self.kept or self.base / 'state'}\n"
                          f"run = {self.base}/run\nlog = {self.base}/log/cay.log\n"
                          f"[sandbox]\nfirst_uid = {FIRST_UID}\nslots_max = {SLOTS}\n"
                          + (f"[egress]\nceiling = {options.ceiling}\n" if options.ceiling else ""))
        self.env = {**clean_environment(), "CAY_CONFIG": str(config)}

    def call(self, *arguments, seconds=120):
        status, said = run([self.cay, *arguments], seconds, env=self.env)
        if status != 0:
            sys.exit(f"cay {' '.join(arguments)}: {said[-2000:]}")
        return said

    def has(self):
        """The templates that are there, by the names that `cay template build` knows them by."""
        snapshots = [name.split(":")[0] for one in json.loads(self.call("snapshot", "ls", "--json")) for name in one["names"]]
        return {one["id"] for one in json.loads(self.call("template", "ls", "--json")) if one["ready"]} | {
            name.removesuffix("-v1") for name in snapshots}

    def start(self, templates):
        self.call("up", "--no-build", "--no-proof")
        has = self.has()
        for name in ["base", *sorted(templates)]:
            policy = [f"--policy={self.policy}"] if self.policy and name != "base" else []
            if name not in has:
                self.call("template", "build", name, *policy, seconds=BUILD_SECONDS)
        return json.loads(self.call("env", "--json"))

    def stop(self):
        self.call("down", *([] if self.kept else ["--purge"]))
        shutil.rmtree(self.base, ignore_errors=True)


# -- the table -------------------------------------------------------------------------------------

def rows_of(text):
    """The text of a table about each integration."""
    return {line.split(" | ")[0].removeprefix("| "): line for line in text.splitlines() if line.startswith("| ")}


def table(found, before):
    """Rows of what was not run stay as they are."""
    lines, rows, found = ["| integration | versions | newest | pinned |", "|---|---|---|---|"], rows_of(before), dict(found)
    for client in CLIENTS:
        results = found.get(client)
        if results is None:
            lines += [rows[client.name]] if client.name in rows else []
            continue
        newest, pinned = results.get("newest"), results.get("pinned")
        shown = next((r.versions for r in (newest, pinned) if isinstance(r, Result)), "")
        cells = [told(client, r) if r is not None else "not run" for r in (newest, pinned)]
        if newest is pinned:
            cells[1] = "the same versions"
        lines.append(f"| {client.name} | {shown} | {cells[0]} | {cells[1]} |")
    return "\n".join(lines) + "\n"


def write_table(path, found):
    page = path.read_text()
    begin, end = page.index(MARKS[0]) + len(MARKS[0]), page.index(MARKS[1])
    path.write_text(page[:begin] + "\n" + table(found, page[begin:end]) + "\n" + page[end:])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--installed", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--write", type=pathlib.Path)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--state", type=pathlib.Path)
    parser.add_argument("--policy", type=pathlib.Path)
    parser.add_argument("--ceiling", default="")
    options = parser.parse_args()
    build, names = options.build.resolve(), options.only.split(",") if options.only else []
    unknown = [name for name in names if name not in {c.name for c in CLIENTS}]
    if unknown:
        parser.error(f"--only: there is no {', '.join(unknown)}; there are: {', '.join(c.name for c in CLIENTS)}")
    chosen = [c for c in CLIENTS if (not options.short or c.short) and (not names or c.name in names)]
    server = None if os.environ.get("E2B_DOMAIN") else Server(build, options)
    try:
        env = server.start({c.template for c in chosen if c.template}) if server else {
            name: os.environ[name] for name in NAMES if name in os.environ}
        found = [(client, try_client(client, build, env, options)) for client in chosen]
    finally:
        if server:
            server.stop()
    if options.write:
        write_table(options.write, found)
    wrong = [f"{client.name} ({kind}): {told(client, result)}" for client, results in found
             for kind, result in results.items()
             if not is_as_known(client, result) or (options.short and isinstance(result, str))]
    if options.json:
        options.json.write_text(json.dumps({"run": len(found), "wrong": wrong}))
    print(f"{len(found)} integrations, {len(wrong)} not as known")
    for line in wrong:
        print(f"not as known: {line}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
