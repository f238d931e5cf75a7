"""Archives in a bucket, through all of cay: a call, a start, a rollback and an end; cayd killed while an archive is sent and while it is fetched."""

import threading

import pytest
from bucketlib import bucket, credentials  # noqa: F401 (fixtures)
from client import Client
from conftest import OwnServer
from test_archive import SEAL
from test_archive_server import archive, disk, has_files, kept_names, resume, stopped, tier
from test_pause import state
from test_pause_memory import kept  # noqa: F401 (fixture)
from test_recovery import kill_daemons, wait_ready
from waitlib import until


@pytest.fixture(scope="module")
def own(bucket, credentials):  # noqa: F811
    options = [(name.replace("_", "-"), value) for name, value in bucket.options(credentials).items()]
    server = OwnServer(privd_args=(f"--seal={SEAL}", *(f"--{name}={value}" for name, value in options)),
                       cayd_args=tuple(f"--archive-{name.removeprefix('bucket-')}={value}" for name, value in options))
    yield server
    server.stop()


@pytest.fixture
def cay(kept, own, bucket):  # noqa: F811
    yield kept
    bucket.gate.error = None
    bucket.gate.release()


def away(own):
    return [name for name in kept_names(own) if (disk(own) / "kept" / name / "bucket").exists()]


def gone(bucket):
    until(lambda: bucket.keys() == [], seconds=90, what="objects without a sandbox are removed")


def beside(call):
    """Calls it in a thread; the function returned waits for its answer, or gives the error."""
    found = []

    def run():
        try:
            found.append(call())
        except OSError as e:
            found.append(e)

    thread = threading.Thread(target=run)
    thread.start()
    return lambda: thread.join(60) or found[0]


def test_a_call_and_a_start(cay, own, bucket):
    box = stopped(cay, 1 << 20)
    r = archive(cay, box)
    assert r.status == 200 and tier(cay, box) == "archive" and len(away(own)) == 1 and len(bucket.keys()) == 1
    kill_daemons(own, "cayd", "cay-privd")
    wait_ready(cay)
    assert tier(cay, box) == "archive" and len(away(own)) == 1 and len(bucket.keys()) == 1
    assert resume(cay, box).status == 201 and has_files(box, 1 << 20)
    gone(bucket)


def test_an_object_that_was_lost_is_told_and_the_state_is_kept(cay, own, bucket):
    box = stopped(cay)
    assert archive(cay, box).status == 200
    (key,) = bucket.keys()
    whole = bucket.read(key)
    bucket.client.delete_object(Bucket=bucket.name, Key=key)
    r = resume(cay, box)
    assert r.status == 503 and "no such object" in r.json["message"] and state(cay, box) == "paused" and len(away(own)) == 1
    bucket.write(key, whole[:-1] + b"x")
    r = resume(cay, box)
    assert r.status == 503 and "SHA-256" in r.json["message"] and tier(cay, box) == "archive"
    bucket.write(key, whole)
    assert resume(cay, box).status == 201 and has_files(box)
    gone(bucket)


def test_it_ends_in_the_bucket_and_one_that_is_being_fetched_too(cay, own, bucket):
    boxes = [stopped(cay), stopped(cay)]
    for box in boxes:
        assert archive(cay, box).status == 200
    assert len(away(own)) == 2
    assert cay.call("DELETE", f"/sandboxes/{boxes[0].id}").status == 204
    until(lambda: len(bucket.keys()) == 1, what="the object of the sandbox that has ended is removed")
    bucket.gate.hold("GET")
    asker = beside(lambda: resume(cay, boxes[1]))
    until(bucket.gate.reached.is_set, what="the fetch")
    assert cay.call("DELETE", f"/sandboxes/{boxes[1].id}").status == 204
    bucket.gate.release()
    assert asker().status >= 400
    gone(bucket)
    until(lambda: kept_names(own) == [])


@pytest.mark.parametrize("after", [False, True], ids=["before", "stored"])
def test_cayd_killed_while_it_is_sent(cay, own, bucket, after):
    """No answer comes to who asked; the sandbox has all of its files, and the bucket nothing that is no sandbox's."""
    box = stopped(cay, 24 << 20)
    bucket.gate.hold("PUT", after)
    asker = beside(lambda: archive(cay, box))
    until(bucket.gate.reached.is_set, what="the request")
    kill_daemons(own, "cayd")
    bucket.gate.release()
    assert isinstance(asker(), OSError)
    wait_ready(cay)
    assert state(cay, box) == "paused"
    assert resume(cay, box).status == 201 and has_files(box, 24 << 20)
    gone(bucket)


def test_cayd_killed_while_it_is_fetched(cay, own, bucket):
    box = stopped(cay, 1 << 20)
    assert archive(cay, box).status == 200
    bucket.gate.hold("GET")
    asker = beside(lambda: resume(cay, box))
    until(bucket.gate.reached.is_set, what="the request")
    kill_daemons(own, "cayd")
    bucket.gate.release()
    assert isinstance(asker(), OSError)
    wait_ready(cay)
    assert tier(cay, box) == "archive" and len(away(own)) == 1
    assert resume(cay, box).status == 201 and has_files(box, 1 << 20)
    gone(bucket)


def away_of(cay, bucket, n):
    """So many sandboxes whose archives are in the bucket, and the objects' paths."""
    before = set(bucket.keys())
    boxes = [stopped(cay) for _ in range(n)]
    for box in boxes:
        assert archive(cay, box).status == 200
    return boxes, {f"GET /{bucket.name}/{key}" for key in set(bucket.keys()) - before}


def test_tenants_have_turns(cay, own, bucket):
    """A slow bucket, and a tenant that starts six at once: it has two places at most, and another's start has the third, or the next turn."""
    other = Client(own.url, cay.call("POST", "/cay/v1/keys", {"label": "turns", "tenant": "turns"}).json["key"])
    many, paths = away_of(cay, bucket, 6)
    (mine,), of_other = away_of(other, bucket, 1)
    bucket.gate.paths.clear()
    bucket.gate.delay = 2
    try:
        askers = [beside(lambda box=box: resume(cay, box)) for box in many]
        until(lambda: len(paths & set(bucket.gate.paths)) == 2, what="the first tenant's share")
        assert resume(other, mine).status == 201 and has_files(mine)
        fetched = [path for path in bucket.gate.paths if path.startswith("GET")]
        assert set(fetched[:3]) >= of_other, fetched
        bucket.gate.delay = 0
        assert [asker().status for asker in askers] == [201] * 6
        assert all(has_files(box) for box in many)
    finally:
        bucket.gate.delay = 0
    assert other.call("DELETE", f"/sandboxes/{mine.id}").status == 204
    gone(bucket)


def test_a_bucket_that_comes_back_gets_what_it_did_not_take(cay, own, bucket):
    box = stopped(cay)
    bucket.gate.error = "503 Slow Down"
    assert archive(cay, box).status == 200 and tier(cay, box) == "archive" and away(own) == []
    bucket.gate.error = None
    kill_daemons(own, "cayd")
    wait_ready(cay)
    until(lambda: len(away(own)) == 1, what="the next cayd has it sent")
    assert resume(cay, box).status == 201 and has_files(box)
    gone(bucket)


def test_a_rollback_needs_no_fetch(cay, own, bucket):
    """Its own files go, in the bucket too, once it runs on the snapshot's."""
    box = cay.create()
    assert box.run("echo one > here").exit_code == 0
    made = cay.call("POST", f"/sandboxes/{box.id}/snapshots", {})
    assert made.status == 201 and box.run("echo two > here").exit_code == 0
    assert cay.call("POST", f"/sandboxes/{box.id}/pause", {"memory": False}).status == 204
    assert archive(cay, box).status == 200 and len(away(own)) == 1
    bucket.gate.error = "503 Slow Down"
    r = cay.call("POST", f"/cay/v1/sandboxes/{box.id}/rollback", {"snapshotID": made.json["snapshotID"]})
    bucket.gate.error = None
    assert r.status == 200 and box.run("cat here").out.strip() == "one"
    assert cay.call("DELETE", f"/templates/{made.json['snapshotID']}").status == 204
    until(lambda: kept_names(own) == [], what="its own files are removed")
    gone(bucket)
