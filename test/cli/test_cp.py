"""cp: files and folders, both ways."""

import contextlib
import json
import os
import subprocess


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


def test_a_program_where_the_user_does_not_get_to(cay, box, tmp_path):
    """The agent writes it for its user with root's rights, and gives it its mode at once."""
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\necho it runs\n")
    program.chmod(0o750)
    done = cay("cp", program, f"{box}:/root/program")
    assert done.returncode == 0 and done.stderr == ""
    assert cay("exec", "-u", "root", box, "stat", "-c", "%a %U", "/root/program").stdout == "750 user\n"
    assert cay("cp", program, f"{box}:~/here").returncode == 0
    assert cay("exec", box, "stat", "-c", "%a", "/home/user/here").stdout == "750\n"


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


@contextlib.contextmanager
def hostile(cay, box, tmp_path, name, text):
    """A program of the sandbox's own in front of the one that cp runs there."""
    program = tmp_path / f"hostile-{name}"
    program.write_text(text)
    program.chmod(0o755)
    assert cay("cp", "-u", "root", program, f"{box}:/usr/local/bin/{name}").returncode == 0
    try:
        yield
    finally:
        cay("exec", "-u", "root", box, "rm", f"/usr/local/bin/{name}")


def copied_links(cay, box, tmp_path):
    """A victim, and the folder of a first copy with links to it: links are copied as links."""
    victim, dest = tmp_path / "victim", tmp_path / "dest"
    victim.mkdir()
    (victim / "bashrc").write_text("mine\n")
    dest.mkdir()
    made = cay("exec", box, "sh", "-c", f"rm -rf /tmp/work && mkdir /tmp/work && cd /tmp/work && ln -s {victim} x && "
               f"ln -s {victim}/bashrc y && echo kept > z")
    assert made.returncode == 0
    assert cay("cp", f"{box}:/tmp/work", dest).returncode == 0
    assert (dest / "work/x").readlink() == victim
    return victim, dest / "work"


def left_over(folder):
    return [p for p in folder.rglob(".cay-cp-*")]


def test_a_file_is_not_written_through_a_link_of_an_earlier_copy(cay, box, tmp_path):
    victim, work = copied_links(cay, box, tmp_path)
    with open(work / "y", "w", encoding="utf-8") as through:  # the control: this is what follows it
        through.write("followed\n")
    assert (victim / "bashrc").read_text() == "followed\n"
    assert cay("exec", box, "sh", "-c", "rm /tmp/work/y; echo attacker > /tmp/work/y").returncode == 0
    assert cay("cp", f"{box}:/tmp/work/y", f"{work}/").returncode == 0
    assert (victim / "bashrc").read_text() == "followed\n"
    assert (work / "y").read_text() == "attacker\n" and not (work / "y").is_symlink()
    assert not left_over(tmp_path)


MEMBERS = r"""#!/usr/bin/python3
import io, sys, tarfile
out = tarfile.open(fileobj=sys.stdout.buffer, mode="w|")
for name in NAMES:
    info = tarfile.TarInfo(name)
    info.size = 2
    info.mode = 0o6755
    out.addfile(info, io.BytesIO(b"a\n"))
out.close()
"""


def test_a_folder_is_not_merged_through_a_link_of_an_earlier_copy(cay, box, tmp_path):
    victim, work = copied_links(cay, box, tmp_path)
    text = MEMBERS.replace("NAMES", '["x/authorized_keys2", "new/in", "y"]')
    archive = subprocess.run(["python3", "-c", text], capture_output=True, check=True).stdout
    subprocess.run(["tar", "-C", work, "-xf", "-", "y", "x/authorized_keys2"], input=archive, check=True)
    assert (victim / "authorized_keys2").exists()  # the control: tar alone follows it
    (victim / "authorized_keys2").unlink()
    (work / "y").unlink()
    (work / "y").symlink_to(victim / "bashrc")
    with hostile(cay, box, tmp_path, "tar", text):
        done = cay("cp", f"{box}:/tmp/work", work.parent)
        assert done.returncode == 1 and "x is a folder in the sandbox" in done.stderr
    assert [p.name for p in victim.iterdir()] == ["bashrc"] and (victim / "bashrc").read_text() == "mine\n"
    assert (work / "x").is_symlink() and (work / "z").read_text() == "kept\n"
    assert (work / "new/in").read_text() == "a\n" and (work / "new/in").stat().st_mode & 0o7000 == 0
    assert (work / "y").read_text() == "a\n" and not (work / "y").is_symlink()
    assert not left_over(tmp_path)


def test_a_folder_is_not_put_in_the_place_of_a_link(cay, box, tmp_path):
    victim, work = copied_links(cay, box, tmp_path)
    made = cay("exec", box, "sh", "-c", "rm /tmp/work/x; mkdir /tmp/work/x; echo a > /tmp/work/x/keys")
    assert made.returncode == 0
    done = cay("cp", f"{box}:/tmp/work/x", f"{work}/")
    assert done.returncode == 1 and "is no folder" in done.stderr
    assert not (victim / "keys").exists() and (work / "x").is_symlink()


def test_a_second_copy_merges(cay, box, tmp_path):
    here = tmp_path / "here/merged"
    (here / "sub").mkdir(parents=True)
    (here / "sub/mine").write_text("mine")
    (here / "sub/both").write_text("old")
    made = cay("exec", box, "sh", "-c", "mkdir -p /tmp/merged/sub/closed && cd /tmp/merged/sub && echo -n new > both && "
               "echo -n theirs > theirs && echo -n a > closed/a && chmod 555 closed")
    assert made.returncode == 0
    for _ in range(2):
        assert cay("cp", f"{box}:/tmp/merged", here.parent).returncode == 0
        assert {p.name: p.read_text() for p in (here / "sub").iterdir() if p.is_file()} == {
            "mine": "mine", "both": "new", "theirs": "theirs"}
        assert (here / "sub/closed/a").read_text() == "a" and (here / "sub/closed").stat().st_mode & 0o777 == 0o555
    assert cay("cp", f"{box}:/tmp/merged/.", tmp_path / "here/merged").returncode == 0
    assert not left_over(tmp_path)


def test_what_is_no_file_here_is_not_replaced(cay, box, tmp_path):
    assert cay("exec", box, "sh", "-c", "echo hello > /tmp/hello").returncode == 0
    assert cay("cp", f"{box}:/tmp/hello", "/dev/null").returncode == 0
    assert os.path.exists("/dev/null") and not os.path.isfile("/dev/null")
    (tmp_path / "null").symlink_to("/dev/null")
    done = cay("cp", f"{box}:/tmp/hello", tmp_path / "null")
    assert done.returncode == 1 and "is no file" in done.stderr and (tmp_path / "null").is_symlink()
    (tmp_path / "private").write_text("old")
    (tmp_path / "private").chmod(0o600)
    assert cay("cp", f"{box}:/tmp/hello", tmp_path / "private").returncode == 0
    assert (tmp_path / "private").read_text() == "hello\n" and (tmp_path / "private").stat().st_mode & 0o777 == 0o600


NOISE = r"""#!/usr/bin/python3
import os
os.write(2, b"\x1b]0;owned\x07" + b"\xe2\x80\xae\0" + b"line\n" * 100000)
os.write(1, b'{"bytes": 1, "owned": true}\n')
"""


def test_programs_inside_do_not_reach_the_terminal(cay, box, tmp_path):
    (tmp_path / "folder").mkdir()
    with hostile(cay, box, tmp_path, "tar", NOISE):
        control = cay("exec", box, "tar")
        assert "\x1b" in control.stderr and "owned" in control.stdout
        done = cay("cp", "--json", tmp_path / "folder", f"{box}:/tmp/")
        assert "sandboxID" in json.loads(done.stdout) or "error" in json.loads(done.stdout)
        assert "owned" not in done.stdout
        assert "cay: the sandbox says: ?]0;owned???line" in done.stderr, done.stderr[:200]
        assert not any(c in done.stderr for c in "\x1b\x07\u202e") and len(done.stderr) < 40000


def test_errors_name_what_is_wrong(cay, box, tmp_path):
    assert "/no/such" in cay("cp", "/no/such", f"{box}:").stderr
    assert "there is no nothing" in cay("cp", f"{box}:nothing", tmp_path).stderr
    assert cay("cp", "a", "b").returncode == 2
    assert cay("cp", tmp_path / "x", "i00000000000000000000:").returncode == 1
