#!/usr/bin/env python3
"""A machine of its own for what must not be tried on this one, or needs another kernel: QEMU boots Debian's
kernel with control groups of version 2 only, runs a command as root there, and is thrown away.

    test/vm/run.py [--build=DIR] [--kernel=PACKAGE] [--accel=tcg|kvm] [--seconds=N] [--read-timeout=N] -- COMMAND...

COMMAND is a shell command line, run in /cay, where the programs of the build, test/ and docs/ are; its output and its exit
status are this program's. Status 77: this machine lacks what is needed, and the last line says what.

Nothing is installed: kernel and system are Debian packages unpacked into build/vm (kept, made anew when the list
changes). No network reaches the machine, its disks forget what is written to them."""

import argparse
import hashlib
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = ROOT / "test/vm"
# The first that apt knows: Debian 12 has this one beside its own, of Debian 13 it is its own.
KERNELS = ("linux-image-6.12-cloud-amd64", "linux-image-cloud-amd64")
SKIPPED = 77
NEEDED = ("qemu-system-x86_64", "mmdebstrap", "mke2fs", "dpkg-deb", "apt-get")
# The packages of the libraries of cay's programs, of the programs that they call, and of its tests.
PACKAGES = """python3 nftables iproute2 procps btrfs-progs kmod sudo git curl bash passwd ca-certificates tar
ncurses-bin util-linux libuv1 libjansson4 libssl3 libsqlite3-0 libseccomp2 libmnl0 libbtrfsutil1 libinih1 zlib1g libcurl4
libc-ares2 libldns3 libnghttp2-14""".split()
DISK_BYTES = 3 << 30
SECTOR, FIRST_SECTOR = 512, 2048
SYSTEM, TESTED = 0xca700001, 0xca700002  # signatures of the disks; start.sh names the second one
END = "cay-vm: the command ended with "


class Skipped(Exception):
    pass


def run(*command, **options):
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, **options)
    if done.returncode != 0:
        raise Skipped(f"{command[0]} failed ({done.returncode}): {done.stdout[-400:].strip()}")
    return done.stdout


def release():
    text = pathlib.Path("/etc/os-release").read_text()
    values = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    return values.get("VERSION_CODENAME", "").strip('"')


def check_machine():
    missing = [name for name in NEEDED if not shutil.which(name)]
    if missing:
        raise Skipped(f"not installed: {', '.join(missing)} (scripts/deps vm)")
    if os.geteuid() != 0:
        raise Skipped("needs root: a system is unpacked with its owners")
    if not release():
        raise Skipped("/etc/os-release names no Debian release")


# -- kernel and system ---------------------------------------------------------------------------------------------


def is_known(package):
    return bool(subprocess.run(["apt-cache", "show", package], capture_output=True, text=True).stdout)


def newest_of(package):
    """The package of a kernel itself; the package asked for may be the one that follows the newest."""
    if not package:
        package = next(filter(is_known, KERNELS), KERNELS[-1])
    lines = run("apt-cache", "depends", package).splitlines()
    found = [line.split()[-1] for line in lines if "Depends: linux-image-" in line]
    return found[0] if found else package


def unpack_kernel(cache, package):
    """Downloaded with apt's own checks, unpacked, not installed: its maintainer scripts would change this machine."""
    name = newest_of(package)
    into = cache / "kernels" / name
    if (into / "done").exists():
        return into
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    with tempfile.TemporaryDirectory(dir=cache) as fetched:
        run("apt-get", "download", "-q", name, cwd=fetched)
        run("dpkg-deb", "-x", next(pathlib.Path(fetched).glob("*.deb")), into)
    (into / "done").write_text(next((into / "lib/modules").iterdir()).name)
    return into


def make_system(cache, kernel):
    """An ext4 image of a small Debian with the kernel's modules and our first process."""
    start = (HERE / "start.sh").read_bytes()
    what = "\n".join([release(), kernel.name, *PACKAGES]).encode() + start
    image = cache / f"system-{hashlib.sha256(what).hexdigest()[:16]}.ext4"
    if image.exists():
        return image
    for old in cache.glob("system-*.ext4"):
        old.unlink()
    tree = cache / "tree"
    shutil.rmtree(tree, ignore_errors=True)
    run("mmdebstrap", "--quiet", "--variant=minbase", f"--include={','.join(PACKAGES)}", release(), tree)
    shutil.copytree(kernel / "lib/modules", tree / "usr/lib/modules", symlinks=True, dirs_exist_ok=True)
    run("chroot", tree, "depmod", (kernel / "done").read_text())
    (tree / "sbin/cay-vm").write_bytes(start)
    (tree / "sbin/cay-vm").chmod(0o755)
    for name in ("cay", "cay-egress"):
        run("chroot", tree, "useradd", "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", name)
    write_image(tree, image, DISK_BYTES, SYSTEM)
    shutil.rmtree(tree)
    return image


def write_image(tree, image, size, signature):
    """A disk with one partition, as the kernel finds its root by a partition's number however the disks are numbered:
    a table of the oldest kind, whose entries are {active, first, type, last, first sector, sectors}."""
    part = image.with_suffix(".part")
    sectors = size // SECTOR
    entry = struct.pack("<B3sB3sII", 0, b"\xfe\xff\xff", 0x83, b"\xfe\xff\xff", FIRST_SECTOR, sectors)
    with open(part, "wb") as out:
        out.truncate((FIRST_SECTOR + sectors) * SECTOR)
        out.seek(440)
        out.write(struct.pack("<IH", signature, 0) + entry.ljust(64, b"\0") + b"\x55\xaa")
    run("mke2fs", "-q", "-F", "-t", "ext4", "-E", f"offset={FIRST_SECTOR * SECTOR}", "-d", tree, part,
        f"{sectors * SECTOR >> 10}k")
    part.rename(image)


# -- what is tested ------------------------------------------------------------------------------------------------


def ours(build):
    """Files that go along, by their path below the repository; programs of the build below build/."""
    for top in ("test", "docs"):
        for path in (ROOT / top).rglob("*"):
            if path.is_file() and "corpus" not in path.parts and "__pycache__" not in path.parts:
                yield path, path.relative_to(ROOT)
    for path in [*(build / "src").glob("*/*"), *(build / "test").glob("*/*")]:
        if path.is_file() and os.access(path, os.X_OK) and path.suffix not in (".a", ".so", ".map"):
            yield path, "build" / path.relative_to(build)


def make_ours(scratch, build, command):
    tree = scratch / "ours"
    for path, place in ours(build):
        (tree / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, tree / place)
        (tree / place).chmod(path.stat().st_mode & 0o755 | 0o444)
    (tree / "command").write_text(command + "\n")
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True)
    (tree / "commit").write_text(commit.stdout)
    size = sum(p.stat().st_size for p in tree.rglob("*") if p.is_file())
    image = scratch / "ours.ext4"
    write_image(tree, image, size + size // 4 + (64 << 20), TESTED)
    return image


# -- the machine ---------------------------------------------------------------------------------------------------


def disk(number, path):
    """Of one controller, as the kernel numbers several in the order in which they answer."""
    return ["-drive", f"file={path},format=raw,if=none,id=d{number},snapshot=on",
            "-device", f"nvme-ns,drive=d{number},bus=disks,nsid={number}"]


def machine(options, kernel, system, tested, log):
    image = next((kernel / "boot").glob("vmlinuz-*"))
    append = (f"root=PARTUUID={SYSTEM:08x}-01 rootwait rw init=/sbin/cay-vm console=ttyS0 loglevel=4 "
              f"cgroup_no_v1=all panic=-1 {options.append}")
    return ["qemu-system-x86_64", "-M", "pc", "-accel", options.accel, "-cpu", "max" if options.accel == "kvm" else "qemu64",
            "-smp", str(options.cpus), "-m", str(options.memory), "-nodefaults", "-no-reboot", "-display", "none",
            "-nic", "none", "-kernel", str(image), "-append", append,
            "-device", "nvme,id=disks,serial=cay", *disk(1, system), *disk(2, tested), "-device", "virtio-rng-pci",
            "-serial", f"file:{log}", "-serial", "stdio"]


def follow(process, deadline):
    """Hands the command's output on; its exit status, or None when the machine ended without one."""
    status = None
    for line in process.stdout:
        if line.startswith(END):
            status = int(line.removeprefix(END))
        elif status is None:
            print(line.rstrip("\r\n"), flush=True)
        if time.monotonic() > deadline:
            break
    return status


def boot(options, kernel, system, tested, scratch):
    log = scratch / "kernel.log"
    process = subprocess.Popen(machine(options, kernel, system, tested, log), stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, text=True, errors="replace")
    watchdog = subprocess.Popen(["sh", "-c", f"sleep {options.seconds}; kill -9 {process.pid}"], start_new_session=True)
    try:
        status = follow(process, time.monotonic() + options.seconds)
    finally:
        process.kill()
        process.wait()
        os.killpg(watchdog.pid, 15)
        watchdog.wait()
    text = log.read_text(errors="replace") if log.exists() else ""
    if options.kernel_log or status is None:
        sys.stderr.write(text[-6000:])
    if status is None:
        print("cay-vm: the machine ended, or was ended after its time, before the command did", file=sys.stderr)
        return 1
    return status


def options_of():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--cache", type=pathlib.Path, default=ROOT / "build/vm", help="kernels and systems, kept")
    parser.add_argument("--kernel", default="", help=f"a Debian package of a kernel; else {' or '.join(KERNELS)}")
    parser.add_argument("--accel", default="tcg", choices=("tcg", "kvm"))
    parser.add_argument("--cpus", type=int, default=2)
    parser.add_argument("--memory", type=int, default=2048, help="MiB")
    parser.add_argument("--seconds", type=int, default=900, help="the machine is ended then")
    parser.add_argument("--append", default="", help="more for the kernel's command line")
    parser.add_argument("--kernel-log", action="store_true", help="what the kernel said, on standard error")
    parser.add_argument("command", nargs="+")
    return parser.parse_args()


def main():
    options = options_of()
    try:
        check_machine()
        options.cache.mkdir(parents=True, exist_ok=True)
        kernel = unpack_kernel(options.cache, options.kernel)
        system = make_system(options.cache, kernel)
        with tempfile.TemporaryDirectory(dir=options.cache) as scratch:
            tested = make_ours(pathlib.Path(scratch), options.build.resolve(), " ".join(options.command))
            return boot(options, kernel, system, tested, pathlib.Path(scratch))
    except Skipped as why:
        print(f"SKIPPED: {why}")
        return SKIPPED


if __name__ == "__main__":
    sys.exit(main())
