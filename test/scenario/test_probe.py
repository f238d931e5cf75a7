"""The static probe, put into a sandbox: every case, as the sandbox's user and as its root."""

import subprocess

import pytest

# Cases where the way is open by design, with the reason.
ALLOWED = {}


def cases(probe):
    lines = subprocess.run([probe, "list"], capture_output=True, text=True, check=True).stdout
    return [line.split("\t") for line in lines.splitlines()]


@pytest.fixture(scope="module")
def probed(cay, probe_path):
    with open(probe_path, "rb") as f:
        program = f.read()
    with cay.create() as box:
        assert box.write("/tmp/probe", program, user="root").status == 200
        assert box.run("chmod 755 /tmp/probe", user="root").exit_code == 0
        yield {user: {line.split("\t")[0]: line.split("\t")[1:]
                      for line in box.run("/tmp/probe all", user=user, timeout=300).out.splitlines()}
               for user in ("user", "root")}


def pytest_generate_tests(metafunc):
    if "case" in metafunc.fixturenames:
        path = metafunc.config.getoption("--probe")
        metafunc.parametrize("case", [c[0] for c in cases(path)] if path else [])


@pytest.mark.parametrize("user", ["user", "root"])
def test_refused(probed, user, case):
    verdict, why = probed[user][case]
    if case in ALLOWED:
        pytest.skip(ALLOWED[case])
    if verdict == "not-applicable":
        pytest.skip(why)
    assert verdict == "refused", why


def test_host_control(probe_path):
    """The cases that the host's root can do: here they succeed, so the probe can tell. A machine whose
    kernel lacks a facility cannot show its control: those are named in the output."""
    shown, missing = [], []
    for name, control, _ in cases(probe_path):
        if control != "host-control":
            continue
        line = subprocess.run([probe_path, name], capture_output=True, text=True).stdout.strip()
        (shown if "\tOPEN\t" in line else missing).append(line)
    print("\ncontrols that this machine cannot show:", *missing, sep="\n  ")
    assert len(shown) >= 20
