"""`cay doctor` and the log of a start name directories of [host] and the key of exported snapshots that are not as they have to be; the
start passes, as each may come later."""

import json
import os
import subprocess

import pytest
from conftest import BUILD, OwnServer

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root reads the key")


def doctor(tmp_path, text):
    (tmp_path / "cay.conf").write_text(text)
    done = subprocess.run([BUILD / "src/cli/cay", "doctor", "--json"], capture_output=True, text=True, timeout=60,
                          env={**os.environ, "CAY_CONFIG": str(tmp_path / "cay.conf")})
    rows = {c["check"]: c for c in json.loads(done.stdout)}
    both = rows["host directories"], rows["exchange key"]
    assert not any(row["needed"] for row in both)
    return [(row["level"], row["text"]) for row in both]


def test_none_are_named(tmp_path):
    assert [level for level, _ in doctor(tmp_path, "")] == ["skipped", "skipped"]


def test_directories(tmp_path):
    given, closed, link = tmp_path / "given", tmp_path / "closed", tmp_path / "link"
    given.mkdir(mode=0o755)
    closed.mkdir(mode=0o700)
    link.symlink_to(given)
    one = f"[host]\ndir_1 = one:{given}\n"
    level, text = doctor(tmp_path, one)[0]
    assert (level, "1 of this host" in text) == ("ok", True), text
    for path, why in ((tmp_path / "none", "No such file"), (closed, "not all users may read"), (link, "symbolic link")):
        level, text = doctor(tmp_path, one + f"dir_2 = two:{path}\n")[0]
        assert level == "limited" and str(path) in text and "dir_2" in text and why in text, text


@pytest.mark.parametrize("made, why", [(None, "cannot be opened"), ((b"k" * 32, 0o644), "root alone"), ((b"short", 0o600), "32 random bytes"),
                                       ((b"k" * 32, 0o600), None), ((b"0a" * 32 + b"\n", 0o600), None)])
def test_the_key(tmp_path, made, why):
    path = tmp_path / "key"
    if made:
        path.write_bytes(made[0])
        path.chmod(made[1])
    level, text = doctor(tmp_path, f"[snapshots]\nexchange_key = {path}\n")[1]
    assert level == ("limited" if why else "ok") and (not why or (why in text and str(path) in text)), text


def test_a_start_logs_a_key_that_is_not_there(tmp_path):
    key = tmp_path / "key"
    said = f"no snapshot is exported or imported: {key} ([snapshots] exchange_key): it cannot be opened"
    for there in (False, True):  # the second is the control
        if there:
            key.write_bytes(b"k" * 32)
            key.chmod(0o600)
        server = OwnServer(privd_args=(f"--exchange-key={key}",))
        try:
            assert (said in server.log.read_text()) != there
        finally:
            server.stop()
