"""Volumes, through the SDK."""

import asyncio
import io

import pytest
from e2b import AsyncVolume, NotFoundException, Sandbox, Volume, VolumeException, VolumeFileType, VolumeNotFoundException, VolumePathNotFoundException


@pytest.fixture()
def volume():
    volume = Volume.create("py-data")
    yield volume
    assert Volume.destroy(volume.volume_id) is True
    with pytest.raises(VolumeNotFoundException):
        Volume.get_info(volume.volume_id)
    assert Volume.destroy(volume.volume_id) is False


def test_it_outlives_its_sandboxes(volume, template):
    with Sandbox.create(template, timeout=120, volume_mounts={"/mnt/data": volume}) as sandbox:
        sandbox.files.write("/mnt/data/here", "x")
        with pytest.raises(Exception, match=sandbox.sandbox_id):
            Sandbox.create(template, volume_mounts={"/v": "py-data"})
    with Sandbox.create(template, timeout=120, volume_mounts={"/in": "py-data:ro"}) as first, \
            Sandbox.create(template, timeout=120, volume_mounts={"/in": "py-data:ro"}) as second:
        assert first.files.read("/in/here") == second.files.read("/in/here") == "x"
        with pytest.raises(Exception):
            first.files.write("/in/here", "y")
    assert (volume.volume_id, "py-data") in [(one.volume_id, one.name) for one in Volume.list()]
    assert Volume.get_info(volume.volume_id).name == "py-data"


def check_entry(entry, **wanted):
    assert {name: getattr(entry, name) for name in wanted} == wanted
    assert entry.mtime.tzinfo is not None


def test_contents_without_a_sandbox(volume, template):
    """As upstream's tests of this class have it, which are answered by mocks there."""
    assert volume.list("/") == []
    check_entry(volume.make_dir("/dir", uid=1001, gid=1002, mode=0o750), name="dir", path="/dir", type=VolumeFileType.DIRECTORY, uid=1001, gid=1002, mode=0o750)
    check_entry(volume.make_dir("/a/b/c", force=True), path="/a/b/c", uid=1000)
    with pytest.raises(VolumePathNotFoundException):
        volume.make_dir("/none/b")
    check_entry(volume.write_file("/dir/text", "grüße", uid=5, gid=6, mode=0o600), path="/dir/text", type=VolumeFileType.FILE, size=7, uid=5, gid=6, mode=0o600)
    check_entry(volume.write_file("/bytes", bytes(range(256))), size=256, mode=0o644)
    check_entry(volume.write_file("/io", io.BytesIO(b"x" * 300000)), size=300000)
    check_entry(volume.write_file("/lines", io.StringIO("a\nb\n")), size=4)
    check_entry(volume.write_file("/empty", ""), size=0)
    assert volume.read_file("/dir/text") == "grüße" and volume.read_file("/empty") == "" and volume.read_file("/empty", format="bytes") == b""
    assert volume.read_file("/bytes", format="bytes") == bytes(range(256))
    assert b"".join(volume.read_file("/io", format="stream")) == b"x" * 300000
    for wrong in (lambda: volume.read_file("/none"), lambda: list(volume.read_file("/none", format="stream")), lambda: volume.get_info("/none"),
                  lambda: volume.list("/none"), lambda: volume.remove("/none"), lambda: volume.update_metadata("/none", mode=0o600)):
        with pytest.raises(VolumePathNotFoundException):
            wrong()
    with pytest.raises(VolumeException):
        volume.read_file("/dir")
    assert volume.exists("/dir/text") is True and volume.exists("/none") is False
    check_entry(volume.update_metadata("/dir/text", uid=7, mode=0o640), uid=7, gid=6, mode=0o640)
    assert [one.path for one in volume.list("/")] == ["/a", "/bytes", "/dir", "/empty", "/io", "/lines"]
    assert [one.path for one in volume.list("/a", depth=2)] == ["/a/b", "/a/b/c"]
    with Sandbox.create(template, timeout=120, volume_mounts={"/mnt/data": volume}) as sandbox:
        assert sandbox.files.read("/mnt/data/dir/text") == "grüße"
        assert sandbox.commands.run("stat -c '%u %g %a' /mnt/data/dir/text; ln -s dir/text /mnt/data/link", user="root").stdout == "7 6 640\n"
        with pytest.raises(VolumeException, match=sandbox.sandbox_id):
            volume.get_info("/")
    check_entry(volume.get_info("/link"), type=VolumeFileType.SYMLINK, target="dir/text")
    volume.remove("/a")
    assert not volume.exists("/a/b/c")
    again = Volume.connect(volume.volume_id)
    assert again.read_file("/link") == "grüße"
    with pytest.raises(VolumePathNotFoundException):
        Volume(volume.volume_id, volume.name, "0" * 64, domain=volume._domain).get_info("/")


async def test_contents_without_a_sandbox_async():
    volume = await AsyncVolume.create("py-async")
    try:
        check_entry(await volume.make_dir("/a/b", force=True, mode=0o700), path="/a/b", mode=0o700)
        check_entry(await volume.write_file("/a/b/file", b"x" * 200000), size=200000)
        assert await volume.read_file("/a/b/file", format="bytes") == b"x" * 200000
        assert b"".join([piece async for piece in await volume.read_file("/a/b/file", format="stream")]) == b"x" * 200000
        written = await asyncio.gather(*(volume.write_file(f"/a/{i}", str(i)) for i in range(8)))
        assert [one.path for one in written] == [f"/a/{i}" for i in range(8)]
        assert sorted(one.name for one in await volume.list("/a")) == [*"01234567", "b"]
        check_entry(await volume.update_metadata("/a/0", gid=9), gid=9)
        check_entry(await volume.get_info("/a/1"), size=1)
        await volume.remove("/a/b")
        assert await volume.exists("/a/b/file") is False
        with pytest.raises(VolumePathNotFoundException):
            await volume.read_file("/a/b/file")
    finally:
        assert await AsyncVolume.destroy(volume.volume_id) is True
    with pytest.raises(NotFoundException):
        await volume.list("/")
