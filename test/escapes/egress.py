#!/usr/bin/env python3
"""The table of ways past cay-egress: classes 1 and 10 to 14, each case with the tests that try it and its
positive control. Runs those tests and writes what they said.

    test/escapes/egress.py --build=DIR [--write=docs/reports/egress-security-tests.md] [--python=PROGRAM] [--names]

--names only looks whether the tests are there, which is part of the scenarios. As root."""

import argparse
import collections
import json
import os
import pathlib
import platform
import re
import subprocess
import sys
import tempfile
import types
import xml.etree.ElementTree as ElementTree
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader

ROOT = pathlib.Path(__file__).resolve().parents[2]
Case = collections.namedtuple("Case", "number name about tests control")
CASES = [Case(*row) for row in json.loads(pathlib.Path(__file__).with_name("egress_cases.json").read_text())]
TITLES = {1: "Configuration that fails open", 10: "Names", 11: "Addresses", 12: "Side doors",
          13: "TLS, parsing of HTTP, credentials", 14: "Shares of what all need"}
HEAD = """# Security tests of the way out

Written by `make escapes`; do not edit. Kernel {kernel}, commit {commit}: {cases} cases by {tests} tests, {good} as they have
to be, {bad} not.

Attempts of a program in a sandbox to reach what its policy denies, or to get at a secret, and their outcome. Each is tried in sandboxes of a server, or of `cay-egress` alone, against a stand-in internet in network namespaces of the
tests' own (`test/egress/internet.py`) in which the forbidden addresses exist and answer. The positive control of a case is in
the same test, unless another is named: the same attempt gets through where the policy allows it, or where no proxy is in
between.

Attempts that the sandbox itself refuses: [security-tests.md](security-tests.md).
"""


def wanted():
    return sorted({t for c in CASES for t in c.tests})


def kind_of(test):
    """unit (test/unit), cli (test/cli) or scenario (test/scenario, which is not written out in the table)."""
    folder = test.partition("/")[0]
    return folder if folder in ("unit", "cli") else "scenario"


def missing():
    """Tests of the table that are not there."""
    found = []
    for test in wanted():
        kind, (name, _, function) = kind_of(test), test.partition("::")
        source = ROOT / "test" / {"unit": f"{name}.c", "cli": name, "scenario": f"scenario/{name}"}[kind]
        pattern = rf"^static void {function}\(void \*\*" if kind == "unit" else rf"^def {function}\("
        if not source.exists() or function and not re.search(pattern, source.read_text(), re.M):
            found.append(test)
    return found


def run_units(build, tests):
    """The outcome of each: passed or failed."""
    said = {}
    for program in sorted({t.partition("::")[0] for t in tests}):
        done = subprocess.run([build / "test" / program], capture_output=True, text=True)
        good = set(re.findall(r"\[       OK \] (\w+)", done.stdout + done.stderr))
        for test in (t for t in tests if t.startswith(f"{program}::")):
            said[test] = "passed" if test.partition("::")[2] in good else "failed"
    return said


def load_runner():
    """test/run knows what the tests need and installs it into the build directory, and starts a server for the cli tests."""
    loader = SourceFileLoader("test_run", str(ROOT / "test/run"))
    module = module_from_spec(spec_from_loader("test_run", loader))
    loader.exec_module(module)
    return module


def run_pytest(folder, python, tests, env):
    """The outcome of each: passed, failed or skipped. Names are those of files in the folder."""
    said = {t: [] for t in tests}
    with tempfile.TemporaryDirectory() as scratch:
        report = pathlib.Path(scratch) / "report.xml"
        subprocess.run([python, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", *tests],
                       cwd=folder, env={**os.environ, **env, "PYTHONDONTWRITEBYTECODE": "1"})
        for case in ElementTree.parse(report).getroot().iter("testcase"):
            kinds = {child.tag for child in case}
            verdict = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
            name = f"{case.get('classname').rpartition('.')[2]}.py"
            for key in (name, f"{name}::{case.get('name').partition('[')[0]}"):
                if key in said:
                    said[key].append(verdict)
    # A test that did not run at all has failed.
    return {t: next((v for v in ("failed", "skipped", "passed") if v in all_of), "failed") for t, all_of in said.items()}


def run_cli(runner, build, python, tests):
    """Against a server of their own, as test/run has them."""
    names = {t.partition("/")[2]: t for t in tests}
    server = runner.Server(types.SimpleNamespace(build=build))
    if not server.start():
        return dict.fromkeys(tests, "failed")
    try:
        said = run_pytest(ROOT / "test/cli", python, list(names), server.env)
    finally:
        server.stop()
    return {names[t]: verdict for t, verdict in said.items()}


def run_all(build, python):
    tests, runner = {kind: [] for kind in ("unit", "scenario", "cli")}, load_runner()
    for test in wanted():
        tests[kind_of(test)].append(test)
    python = python or runner.python_of(types.SimpleNamespace(build=build), [ROOT / "test/sdk/requirements.txt"])
    return {**run_units(build, tests["unit"]),
            **run_pytest(ROOT / "test/scenario", python, tests["scenario"], {"CAY_BUILD": str(build)}),
            **run_cli(runner, build, python, tests["cli"])}


def cell(text):
    return str(text).replace("|", "\\|")


def git(*words):
    return subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True, check=True).stdout.strip()


def tree():
    """Which tree is tried; asked before the tests run, because HEAD may be another one at their end."""
    changed = git("status", "--porcelain", "--untracked-files=no")
    return git("rev-parse", "--short=12", "HEAD") + (" with changes" if changed else "")


def document(said, commit):
    verdicts = [sorted({said[t] for t in c.tests} - {"passed"}) for c in CASES]
    good = sum(not v for v in verdicts)
    lines = [HEAD.format(kernel=platform.release(), commit=commit, cases=len(CASES), tests=len(said), good=good,
                         bad=len(CASES) - good)]
    for number, title in TITLES.items():
        lines += [f"\n## {title} (class {number})\n", "| case | what is tried | verdict | control | tests |",
                  "|---|---|---|---|---|"]
        for case, bad in zip(CASES, verdicts, strict=True):
            if case.number == number:
                tests = ", ".join(f"`{t}`" for t in case.tests)
                lines.append(f"| `{case.name}` | {cell(case.about)} | {'refused' if not bad else '**' + ', '.join(bad) + '**'} | "
                             f"{cell(case.control)} | {tests} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--write", type=pathlib.Path)
    parser.add_argument("--python", help="one that has pytest and what the tests need; otherwise it is made")
    parser.add_argument("--names", action="store_true")
    options = parser.parse_args()
    lost = missing()
    for test in lost:
        print(f"FAILED: {test} is not there")
    if lost or options.names:
        return bool(lost)
    commit = tree() if options.write else None
    said = run_all(options.build.resolve(), options.python)
    if options.write:
        options.write.write_text(document(said, commit))
    bad = [t for t, verdict in said.items() if verdict != "passed"]
    for test in bad:
        print(f"{said[test].upper()}: {test}")
    print(f"{len(CASES)} cases by {len(said)} tests, {len(bad)} not passed")
    return any(said[t] == "failed" for t in bad)


if __name__ == "__main__":
    sys.exit(main())
