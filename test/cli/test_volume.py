"""cay volume create, ls and rm, and create --volume."""

import json

import pytest


@pytest.fixture()
def volume(cay):
    made = cay("volume", "create", "--size=8M", "cli-data")
    if made.returncode and "btrfs" in made.stderr:
        pytest.skip("a state disk of btrfs is needed for volumes")
    assert made.returncode == 0, made.stderr
    yield made.stdout.strip()
    assert cay("volume", "rm", "-q", "cli-data").returncode == 0


def box_with(cay, mount):
    made = cay("create", "host", "--ttl=10m", "-q", f"--volume={mount}")
    assert made.returncode == 0, made.stderr
    return made.stdout.strip()


def test_files_are_there_in_the_next_sandbox(cay, volume):
    box = box_with(cay, "cli-data:/mnt/data")
    assert cay("exec", box, "--", "sh", "-c", "echo kept > /mnt/data/file").returncode == 0
    listed = next(line.split() for line in cay("volume", "ls").stdout.splitlines() if line.startswith(volume))
    assert listed[1:4] == ["cli-data", "8", "1"]
    assert cay("volume", "ls", "-q").stdout.split() == [volume]
    told = json.loads(cay("volume", "ls", "--json").stdout)
    assert [(one["volumeID"], one["sandboxes"]) for one in told] == [(volume, [box])]
    second, removed = cay("create", "host", "--volume=cli-data:/v"), cay("volume", "rm", "cli-data")
    assert second.returncode == removed.returncode == 1 and box in second.stderr and box in removed.stderr
    assert cay("kill", "-q", box).returncode == 0
    box = box_with(cay, "cli-data:/v:ro")
    read = cay("exec", box, "--", "sh", "-c", "cat /v/file; echo x > /v/file || echo refused")
    assert read.stdout == "kept\nrefused\n"
    assert cay("kill", "-q", box).returncode == 0


@pytest.mark.parametrize("arguments, said", [
    (("volume", "create", "--size=much", "cli-x"), "--size: \"much\" is not a size such as 500M or 10G"),
    (("volume", "create", "--size=1", "cli-x"), '"sizeBytes" must be between 1048576 and 4398046511104'),
    (("volume", "create", "a/b"), "is no name of a volume"),
    (("volume", "rm", "a/b"), "is no name of a volume"),
    (("volume", "rm", "cli-x"), "there is no volume 'cli-x'"),
    (("create", "host", "--volume=cli-x"), "--volume: not NAME:PATH or NAME:PATH:ro"),
    (("create", "host", "--volume=cli-x:/v"), "there is no volume 'cli-x'"),
    (("create", "host", "--volume=cli-x:v"), "is no path to mount at"),
])
def test_errors_say_what_is_wrong(cay, arguments, said):
    done = cay(*arguments)
    assert done.returncode == (2 if said.startswith("--") else 1) and said in done.stderr.replace("\n", " "), done.stderr
