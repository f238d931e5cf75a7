"""cp: files and folders, both ways."""

import json
import os


def test_a_file_there_and_back(cay, box, tmp_path):
    source, back = tmp_path / "data", tmp_path / "back"
    source.write_bytes(os.urandom(5_000_000))
    assert cay("cp", source, f"{box}:").returncode == 0
    assert cay("cp", f"{box}:data", back).returncode == 0
    assert back.read_bytes() == source.read_bytes()


def test_a_program_stays_one(cay, box, tmp_path):
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\necho it runs\n")
    program.chmod(0o755)
    assert cay("cp", program, f"{box}:/tmp/program").returncode == 0
    assert cay("exec", box, "/tmp/program").stdout == "it runs\n"
    assert cay("cp", f"{box}:/tmp/program", tmp_path / "again").returncode == 0
    assert (tmp_path / "again").stat().st_mode & 0o777 == 0o755


def test_a_folder_there_and_back(cay, box, tmp_path):
    tree = tmp_path / "tree"
    (tree / "sub" / "empty").mkdir(parents=True)
    (tree / "sub" / "ü b").write_text("x")
    (tree / "sub" / "ü b").chmod(0o755)
    (tree / "link").symlink_to("sub/ü b")
    assert cay("cp", tree, f"{box}:/tmp/").returncode == 0
    assert cay("exec", box, "cat", "/tmp/tree/link").stdout == "x"
    assert cay("cp", f"{box}:/tmp/tree", tmp_path / "back").returncode == 0
    assert (tmp_path / "back/link").readlink().name == "ü b"
    assert (tmp_path / "back/sub/ü b").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "back/sub/empty").is_dir()


def test_to_standard_output_and_json(cay, box, tmp_path):
    (tmp_path / "f").write_text("hello")
    done = cay("cp", "--json", tmp_path / "f", f"{box}:f")
    assert json.loads(done.stdout)["bytes"] == 5
    assert cay("cp", f"{box}:f", "-").stdout == "hello"


def test_a_hostile_folder_stays_in_its_place(cay, box, tmp_path):
    """A tar of the sandbox's own making: names that climb out, a link to write through."""
    fake = r"""#!/usr/bin/python3
import io, sys, tarfile
out = tarfile.open(fileobj=sys.stdout.buffer, mode="w|")
def add(name, data=b"x", **more):
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for key, value in more.items():
        setattr(info, key, value)
    out.addfile(info, io.BytesIO(data))
add("../climbed")
add("/tmp/cay-test-absolute")
add("out", b"", type=tarfile.SYMTYPE, linkname="..", size=0)
add("out/through")
add("device", b"", type=tarfile.CHRTYPE, devmajor=1, devminor=3, size=0)
add("setuid", mode=0o6755)
add("good")
out.close()
"""
    (tmp_path / "tar").write_text(fake)
    (tmp_path / "tar").chmod(0o755)
    assert cay("cp", "-u", "root", tmp_path / "tar", f"{box}:/usr/local/bin/tar").returncode == 0
    try:
        cay("exec", box, "mkdir", "-p", "/tmp/hostile")
        done = cay("cp", f"{box}:/tmp/hostile", tmp_path / "target")
        assert done.returncode != 0
        assert not (tmp_path / "climbed").exists()
        assert not (tmp_path / "through").exists()
        assert not os.path.exists("/tmp/cay-test-absolute")
        assert not (tmp_path / "target/device").exists()
        assert (tmp_path / "target/setuid").stat().st_mode & 0o6000 == 0
        assert (tmp_path / "target/good").read_text() == "x"
    finally:
        cay("exec", "-u", "root", box, "rm", "/usr/local/bin/tar")


def test_errors_name_what_is_wrong(cay, box, tmp_path):
    assert "/no/such" in cay("cp", "/no/such", f"{box}:").stderr
    assert "there is no nothing" in cay("cp", f"{box}:nothing", tmp_path).stderr
    assert cay("cp", "a", "b").returncode == 2
    assert cay("cp", tmp_path / "x", "i00000000000000000000:").returncode == 1
