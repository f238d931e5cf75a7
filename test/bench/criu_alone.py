"""CRIU alone, by hand: what it takes on this machine to restore one plain process, with no sandbox around it, no seal and no server.
The process is dumped once, into memory; each restore has a pid namespace of its own, which is made before the clock runs."""

import concurrent.futures
import os
import pathlib
import shutil
import subprocess
import tempfile
import time

CRIU = "/usr/local/sbin/criu"
START_SECONDS = 60
# CRIU looks at no control group, no contents and no mode of a file, and logs errors alone. Unprivileged, as cay has it, it has what it
# found out of the kernel where it is told to.
CHEAPEST = ("--unprivileged", "--manage-cgroups=ignore", "--file-validation", "filesize", "--skip-file-rwx-check", "-v1")
# PID 1 of the namespace: waits for a line, restores, says how that ended, and keeps the namespace until its input ends.
INIT = 'read go && "$@"; echo $?; read end'


class Failed(Exception):
    pass


class Alone:
    """A program that was dumped. program is text of Python's that makes the file which {ready} names, and then does nothing."""

    def __init__(self, program):
        self.base = pathlib.Path(tempfile.mkdtemp(prefix="cay-bench-", dir="/dev/shm"))
        # 130: CRIU waits for no breakpoint, as cay has it.
        self.env = {**os.environ, "XDG_RUNTIME_DIR": str(self.base), "CRIU_FAULT": "130"}
        (self.base / "image").mkdir()
        try:
            self.dump(program)
        except BaseException:
            self.close()
            raise

    def command(self, what, *more):
        return [CRIU, what, "--images-dir", f"{self.base}/image", "--log-file", f"{self.base}/{what}.log", *CHEAPEST, *more]

    def dump(self, program):
        ready = self.base / "ready"
        process = subprocess.Popen(["python3", "-c", program.format(ready=ready)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL, start_new_session=True, cwd="/")
        try:
            end = time.monotonic() + START_SECONDS
            while not ready.exists():
                if process.poll() is not None or time.monotonic() > end:
                    raise Failed("the program does not start")
                time.sleep(0.02)
            if subprocess.run(self.command("dump", "--tree", str(process.pid)), env=self.env).returncode:
                raise self.failed("dump")
        finally:
            process.kill()
            process.wait()

    def failed(self, what):
        log = self.base / f"{what}.log"
        return Failed(f"criu {what}: {log.read_text()[-500:] if log.exists() else 'no log'}")

    def prepare(self):
        words = ["unshare", "--pid", "--fork", "--mount", "--mount-proc", "--kill-child", "sh", "-c", INIT, "sh",
                 *self.command("restore", "--restore-detached")]
        return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=self.env, text=True, cwd="/")

    def restore(self, process):
        process.stdin.write("go\n")
        process.stdin.flush()
        if process.stdout.readline() != "0\n":
            raise self.failed("restore")

    def restores(self, count):
        """ms of so many, as many at a time as there are processors; all of them stand until the last has come."""
        processes = [self.prepare() for _ in range(count)]
        time.sleep(0.05 + 0.01 * count)  # they get to their line
        try:
            with concurrent.futures.ThreadPoolExecutor(min(count, os.cpu_count())) as pool:
                begun = time.perf_counter()
                list(pool.map(self.restore, processes))
                return 1000 * (time.perf_counter() - begun)
        finally:
            for process in processes:
                process.stdin.close()
            for process in processes:
                process.wait()
                process.stdout.close()

    def close(self):
        shutil.rmtree(self.base, ignore_errors=True)
