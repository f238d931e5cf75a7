"""Volumes, through the SDK."""

import pytest
from e2b import Sandbox, Volume, VolumeNotFoundException


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
