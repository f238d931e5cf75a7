"""`cay doctor` says which CRIU there is, and what to do where a pause on disk could not work with it."""

import json
import os
import pty
import shutil
import subprocess

import pytest

from conftest import BUILD, REPOSITORY

DIRECTORIES = "/usr/local/sbin /usr/local/bin /usr/sbin /usr/bin"


@pytest.mark.parametrize("program, level, told", [
    (None, "missing", "`make criu` builds 4.2.1"),
    ("echo Version: 4.2.1; echo Changes: cay 8; echo GitID: v4.2.1", "ok", "/usr/local/sbin/criu is CRIU 4.2.1"),
    ("echo Version: 4.10; echo Changes: cay 8", "ok", "CRIU 4.10"),
    ("echo Version: 4.2.1; echo GitID: v4.2.1", "limited", "CRIU 4.2.1 without cay's changes: `make criu`"),
    ("echo Version: 4.2.1; echo Changes: cay 80", "limited", "without cay's changes"),
    ("echo Version: 4.2.1 Changes: cay 8", "limited", "without cay's changes"),
    ("echo Version: 3.17.1", "limited", "CRIU 3.17.1, too old"),
    ("echo Version: 4.2", "limited", "CRIU 4.2, too old"),
    ("echo something else", "limited", "does not tell a version"),
    ("exit 0", "limited", "does not tell a version"),
])
def test_which_criu_there_is(tmp_path, program, level, told):
    if program:
        (tmp_path / "criu").write_text(f"#!/bin/sh\n{program}\n")
        (tmp_path / "criu").chmod(0o755)
    # Only what is there then counts; one that this machine has of its own is hidden.
    hide = "".join(f"[ ! -e {d}/criu ] || mount --bind -o ro /dev/null {d}/criu && " for d in DIRECTORIES.split()[1:])
    shown = f"{hide} mount --bind {tmp_path} /usr/local/sbin && exec {BUILD}/src/cli/cay doctor --json"
    done = subprocess.run(["unshare", "--mount", "sh", "-c", shown], capture_output=True, text=True)
    criu = next(c for c in json.loads(done.stdout) if c["check"] == "criu")
    assert criu["level"] == level and told in criu["text"], criu
    assert not criu["needed"]


def offered(criu, answer=None, env=None):
    """The words of `scripts/criu --offer`, on a terminal where there is an answer."""
    command = [REPOSITORY / "scripts/criu", "--offer", criu]
    if answer is None:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0 and not done.stderr
        return done.stdout
    ours, theirs = pty.openpty()
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=env) as process:
        os.close(theirs)
        os.write(ours, answer.encode())
        said = b""
        while True:
            try:
                said += os.read(ours, 4096)
            except OSError:  # the terminal's last user has ended
                break
        assert process.wait(timeout=60) == 0
    os.close(ours)
    return said.decode()


def test_make_up_offers_to_build_it(tmp_path):
    """Nothing waits for an answer where no terminal is; a CRIU that is there is not spoken of; a build that fails stops nothing."""
    criu = tmp_path / "criu"
    assert "`make criu` builds it" in offered(criu) and "[y/N]" not in offered(criu)
    refused = offered(criu, "n\n")
    assert "[y/N]" in refused and "`make criu` builds it" in refused and not criu.exists()
    tools = tmp_path / "tools"  # without apt-get it cannot be built
    tools.mkdir()
    for name in ("sh", "dirname", "sed", "sort", "head"):
        (tools / name).symlink_to(shutil.which(name))
    failed = offered(criu, "y\n", {"PATH": str(tools)})
    assert "there is no apt-get" in failed and "It was not built; `make criu` tries again." in failed
    criu.write_text("#!/bin/sh\necho Version: 4.2.1; echo Changes: cay 8\n")
    criu.chmod(0o755)
    assert offered(criu) == ""
