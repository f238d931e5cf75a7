"""Other programs that make a sandbox, run `true` in it and end it: how each is called so that it runs on the
machine at hand, and why it does not where it does not."""

import json
import os
import pathlib
import shutil
import subprocess

UNIFIED = "/sys/fs/cgroup/unified"
# crun and podman refuse a machine with both versions of control groups; for them the second is put out of
# sight, in a mount namespace of their own.
HIDE_UNIFIED = ["unshare", "--mount", "--propagation", "private", "sh", "-c", f'umount {UNIFIED}; exec "$@"', "sh"]

# No resource limits: root may lack the right to raise them.
SPEC = {
    "ociVersion": "1.0.2",
    "process": {"terminal": False, "user": {"uid": 0, "gid": 0}, "args": ["/usr/bin/true"],
                "env": ["PATH=/usr/bin:/bin"], "cwd": "/", "noNewPrivileges": True},
    "root": {"path": "rootfs", "readonly": True}, "hostname": "peer",
    "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"},
               {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
               {"destination": "/usr", "type": "bind", "source": "/usr", "options": ["rbind", "ro"]}],
    "linux": {"namespaces": [{"type": kind} for kind in ("pid", "network", "ipc", "uts", "mount")]},
}


def make_bundle(folder):
    """An OCI bundle with the host's /usr, and podman's own state beside it."""
    root = folder / "rootfs"
    for name in ("usr", "proc", "dev", "sys", "tmp", "etc", "run", "var"):
        (root / name).mkdir(parents=True, exist_ok=True)
    for name in ("bin", "sbin", "lib", "lib64"):
        (root / name).symlink_to(f"usr/{name}")
    (folder / "config.json").write_text(json.dumps(SPEC))


def commands(folder):
    bundle = ["--bundle", str(folder), "cay-bench"]
    podman = ["podman", "--cgroup-manager=cgroupfs", f"--root={folder}/storage", f"--runroot={folder}/run", "run",
              "--rm", "--network=none", "--ulimit=host", "--cgroups=disabled", "-v", "/usr:/usr:ro", "--rootfs",
              str(folder / "rootfs"), "/usr/bin/true"]
    return {
        "bwrap": (["bwrap", "--unshare-all", "--ro-bind", "/", "/", "true"], False),
        "crun": (["crun", f"--root={folder}/crun", "run", *bundle], True),
        "runc": (["runc", f"--root={folder}/runc", "run", *bundle], False),
        "podman": (podman, True),
        "runsc": (["runsc", f"--root={folder}/runsc", "--platform=ptrace", "--network=none", "--ignore-cgroups",
                   "--rootless", "do", "true"], False),
    }


NAMES = tuple(commands(pathlib.Path()))
FEW = {"podman", "runsc"}  # a tenth of a second each


def groups():
    """The directories that podman leaves in every hierarchy of control groups. Others may come and go meanwhile."""
    return {pathlib.Path(folder) for folder, _, _ in os.walk("/sys/fs/cgroup") if folder.endswith("/libpod_parent")}


def remove_groups(before):
    for top in groups() - before:
        for folder, _, _ in os.walk(top, topdown=False):
            os.rmdir(folder)


def measure(name, folder, spawn, count):
    """Microseconds of each round, or the reason why there are none."""
    command, hide = commands(folder)[name]
    if not shutil.which(command[0]):
        return "is not installed"
    rounds = max(1, count // 10) if name in FEW else count
    command = [spawn, str(rounds + 1), *command]
    if hide and os.path.ismount(UNIFIED):
        command = HIDE_UNIFIED + command
    try:
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, cwd=folder,
                              timeout=120)
    except subprocess.TimeoutExpired:
        return "does not end here"
    if done.returncode != 0:
        words = " ".join(done.stderr.split())
        return f"does not run here: {words[-160:]}"
    return [int(line) for line in done.stdout.split()][1:]  # the first fills caches
