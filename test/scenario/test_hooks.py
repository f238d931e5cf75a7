"""Hooks at pause and resume: docs/hooks.md. A hook tells of itself by a file that it writes; a control for each refusal is a hook beside it that runs."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from importerlib import cli  # noqa: F401 - a fixture
from test_pause import connect, pause, state
from waitlib import until

LOG = "/home/user/hooks"
SAY = f'#!/bin/sh\necho "$(basename $0) $CAY_HOOK $CAY_TIER $CAY_REASON $(id -u) $(pwd) $KEPT" >>{LOG}\n'


def put(box, when, name, text=SAY, mode="755"):
    """A hook, by root."""
    box.write("/home/user/new-hook", text.encode())
    done = box.run(f"install -d /etc/cay/{when}.d && install -o root -m {mode} /home/user/new-hook /etc/cay/{when}.d/{name}", user="root")
    assert done.exit_code == 0, done


def said(box, lines):
    """The lines that hooks wrote, once so many are there."""
    return until(lambda: (s := box.run(f"cat {LOG} 2>/dev/null").out.splitlines()) and len(s) >= lines and s, what=f"{lines} hooks ran")


def failures(cay, box):
    lines = cay.call("GET", f"/cay/v1/events?sandbox={box.id}&since=0&follow=0").body.splitlines()
    return [one for one in map(json.loads, lines) if one["type"] == "sandbox.hook_failed"]


def failed(cay, box, number=1):
    return until(lambda: (f := failures(cay, box)) and len(f) >= number and f, what="a hook's failure is told")[number - 1]


def needs_kept_files(cay):
    if cay.call("GET", "/cay/v1/status").json["disk"]["backend"] == "memory":
        pytest.skip("files are in memory here")


# -- what runs, when ---------------------------------------------------------------------------------


def test_a_frozen_pause_runs_them_in_order_and_a_resume_too(cay):
    with cay.create(envVars={"KEPT": "mine"}) as box:
        for name in ("20-b", "10-a", "3-c"):
            put(box, "pause", name)
        put(box, "resume", "up")
        assert pause(cay, box) == 204 and connect(cay, box).status == 201
        assert said(box, 4) == [f"{name} pause frozen api 0 / mine" for name in ("10-a", "20-b", "3-c")] + ["up resume frozen resume 0 / mine"]
        assert failures(cay, box) == []


def test_a_pause_of_the_files_runs_them_and_so_does_the_boot(cay):
    needs_kept_files(cay)
    with cay.create() as box:
        put(box, "pause", "down")
        put(box, "resume", "up")
        assert cay.call("POST", f"/sandboxes/{box.id}/pause", {"memory": False}).status == 204
        assert connect(cay, box).status == 201
        assert said(box, 2) == ["down pause files api 0 / ", "up resume files resume 0 / "]
        assert failures(cay, box) == []


def test_a_rollback_a_fork_and_a_snapshot_are_told_apart(cay):
    needs_kept_files(cay)
    with cay.create() as box:
        put(box, "resume", "up")
        assert box.run(f"cat {LOG}").exit_code != 0  # a create from a template runs none
        snapshot = cay.call("POST", f"/sandboxes/{box.id}/snapshots", {}).json["snapshotID"]
        try:
            with cay.create(template=snapshot) as made:
                assert said(made, 1) == ["up resume files snapshot 0 / "]
            fork = cay.call("POST", f"/sandboxes/{box.id}/fork", {"count": 1, "timeout": 300}).json[0]
            with type(box)(cay, cay.call("POST", f"/sandboxes/{fork['sandbox']['sandboxID']}/connect", {"timeout": 300}).json) as made:
                assert said(made, 1) == ["up resume files snapshot 0 / "]
            assert cay.call("POST", f"/cay/v1/sandboxes/{box.id}/rollback", {"snapshotID": snapshot}).status == 200
            assert said(box, 1) == ["up resume files rollback 0 / "]
        finally:
            cay.call("DELETE", f"/templates/{snapshot}")


def test_the_end_of_its_time_is_a_reason(cay):
    with cay.create(timeout_s=60, autoPause=True) as box:
        put(box, "pause", "down")
        assert cay.call("POST", f"/sandboxes/{box.id}/timeout", {"timeout": 1}).status == 204
        until(lambda: state(cay, box) == "paused", 20)
        assert connect(cay, box).status == 201
        assert said(box, 1) == ["down pause frozen timeout 0 / "]


# -- what fails --------------------------------------------------------------------------------------


def test_one_that_fails_is_told_and_the_pause_is_done(cay):
    with cay.create() as box:
        put(box, "pause", "10-bad", "#!/bin/sh\necho no such table >&2\nexit 3\n")
        put(box, "pause", "20-good")
        assert pause(cay, box) == 204
        event = failed(cay, box)
        assert (event["hook"], event["name"], event["failed"]) == ("pause", "10-bad", 1)
        assert event["error"] == "exit status 3: no such table"
        assert state(cay, box) == "paused" and connect(cay, box).status == 201
        assert said(box, 1) == ["20-good pause frozen api 0 / "]


def test_the_command_line_says_which_failed_and_why(cay, cli):  # noqa: F811
    with cay.create() as box:
        put(box, "pause", "10-bad", "#!/bin/sh\necho no such table >&2\nexit 3\n")
        put(box, "pause", "20-bad", "#!/bin/sh\nexit 4\n")
        assert pause(cay, box) == 204 and connect(cay, box).status == 201
        failed(cay, box)
        assert box.run("rm /etc/cay/pause.d/*-bad; chmod 777 /etc/cay/pause.d", user="root").exit_code == 0
        assert pause(cay, box) == 204
        failed(cay, box, 2)
        said = cli("events", f"--sandbox={box.id}", "--type=sandbox.hook_failed").stdout.splitlines()
        assert said[0].endswith(" sandbox.hook_failed pause.d/10-bad: exit status 3: no such table (2 failed)")
        assert " sandbox.hook_failed pause.d: " in said[1] and len(said) == 2


def test_one_that_hangs_is_ended_with_what_it_started(cay):
    with cay.create() as box:
        put(box, "pause", "10-hangs", "#!/bin/sh\nsetsid sleep 4711 &\nsleep 4712\n")
        put(box, "pause", "20-late")
        assert pause(cay, box) == 204
        event = failed(cay, box)
        assert event["name"] == "10-hangs" and "time" in event["error"] and event["failed"] == 2
        assert connect(cay, box).status == 201
        until(lambda: box.run("pgrep -f 'sleep 471[12]'", user="root").out == "", what="nothing of the hook is left")
        assert box.run(f"cat {LOG}").exit_code != 0
        assert box.run("rm -r /etc/cay/pause.d", user="root").exit_code == 0
        assert pause(cay, box) == 204 and connect(cay, box).status == 201 and len(failures(cay, box)) == 1


def test_a_resume_does_not_wait_for_one_that_hangs(cay):
    with cay.create() as box:
        put(box, "resume", "hangs", "#!/bin/sh\nsleep 4713\n")
        assert pause(cay, box) == 204 and connect(cay, box).status == 201
        until(lambda: box.run("pgrep -f 'sleep 471[3]'", user="root").out != "", what="the hook runs beside others")
        assert failures(cay, box) == []
        assert failed(cay, box)["hook"] == "resume"
        assert box.run("pgrep -f 'sleep 471[3]'", user="root").out == ""


def test_much_output_is_cut(cay):
    with cay.create() as box:
        put(box, "pause", "loud", "#!/bin/sh\nhead -c 20000000 /dev/zero | tr '\\0' x\necho the end\nexit 1\n")
        assert pause(cay, box) == 204
        error = failed(cay, box)["error"]
        assert error.endswith("xxthe end") and len(error) < 300


def test_output_that_is_no_text_hides_no_status(cay):
    with cay.create() as box:
        put(box, "pause", "bytes", "#!/bin/sh\nprintf 'a\\377\\033b'\nexit 3\n")
        assert pause(cay, box) == 204
        assert failed(cay, box)["error"] == "exit status 3: a? b"


def test_only_what_is_roots_alone_is_run(cay):
    """Each is refused by name; the one beside them, which is as it should be, runs."""
    with cay.create() as box:
        put(box, "pause", "90-good")
        put(box, "pause", "10-everybodys", mode="757")
        put(box, "pause", "20-groups", mode="775")
        put(box, "pause", "30-not-executable", mode="644")
        put(box, "pause", "40-users")
        put(box, "pause", ".hidden", "#!/bin/sh\nexit 1\n")
        put(box, "pause", "backup~", "#!/bin/sh\nexit 1\n")
        box.run("cd /etc/cay/pause.d && chown user 40-users && ln -s 90-good 50-link && mkfifo 60-fifo && mkdir 70-dir", user="root")
        assert pause(cay, box) == 204
        event = failed(cay, box)
        assert (event["name"], event["failed"]) == ("10-everybodys", 7) and "root" in event["error"]
        assert connect(cay, box).status == 201
        assert said(box, 1) == ["90-good pause frozen api 0 / "]


@pytest.mark.parametrize("breaks", ["chmod 777 /etc/cay/pause.d", "chown user /etc/cay", "mv /etc/cay/pause.d /tmp/p; ln -s /tmp/p /etc/cay/pause.d",
                                    "cd /etc/cay/pause.d; for i in $(seq 16); do cp good good$i; done",
                                    "cd /etc/cay/pause.d; for i in $(seq 70); do touch .$i; done"])
def test_a_directory_that_is_not_so_runs_none(cay, breaks):
    with cay.create() as box:
        put(box, "pause", "good")
        assert pause(cay, box) == 204 and connect(cay, box).status == 201
        assert len(said(box, 1)) == 1  # the control
        assert box.run(breaks, user="root").exit_code == 0
        assert pause(cay, box) == 204 and connect(cay, box).status == 201
        assert len(said(box, 1)) == 1
        assert "ln -s" in breaks or failed(cay, box)["name"] == "pause.d"


def test_a_kill_does_not_wait_for_hooks(cay):
    box = cay.create()
    put(box, "pause", "hangs", "#!/bin/sh\nsleep 4714\n")
    assert cay.call("POST", f"/sandboxes/{box.id}/timeout", {"timeout": 60}).status == 204
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(pause, cay, box)
        until(lambda: cay.call("GET", f"/cay/v1/sandboxes/{box.id}").json["state"] != "running", what="it is being paused")
        assert box.kill().status == 204
        assert asked.result() in (404, 410, 500, 503)
