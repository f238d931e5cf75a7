"""Three users of an SDK that never saw each other: sandboxes in parallel, streaming output, writing
large files, watching folders, resizing terminals; no error, no mixed-up byte.

CAY_USERS_SECONDS is how long (default 20 s; `make soak` and the full run take 300), CAY_USERS_MIB the
size of the files (default 8; full 100)."""

import hashlib
import os
import random
import threading
import time

import pytest

e2b = pytest.importorskip("e2b", reason="the PyPI package e2b is not installed: see test/sdk")

SECONDS = float(os.environ.get("CAY_USERS_SECONDS", "20"))
MIB = int(os.environ.get("CAY_USERS_MIB", "8"))
USERS, EACH = 3, 8


class Worker(threading.Thread):
    def __init__(self, name, key, seed, end):
        super().__init__(name=name, daemon=True)
        self.key, self.random, self.end, self.failure, self.rounds = key, random.Random(seed), end, None, 0

    def run(self):
        try:
            with e2b.Sandbox.create("host", api_key=self.key, timeout=int(SECONDS) + 600) as box:
                steps = [self.stream, self.large_file, self.watch, self.terminal]
                while time.monotonic() < self.end:
                    self.random.choice(steps)(box)
                    self.rounds += 1
                for step in steps:
                    step(box)
                box.kill()
        except Exception as e:  # noqa: BLE001 - whatever it is, it is what the test reports
            self.failure = e

    def stream(self, box):
        mark, lines = f"{self.name}-{self.random.random()}", []
        result = box.commands.run(f"for i in $(seq 200); do echo {mark} $i; done",
                                  on_stdout=lambda data: lines.append(data))
        want = "".join(f"{mark} {i}\n" for i in range(1, 201))
        assert result.stdout == want and "".join(lines) == want

    def large_file(self, box):
        block = self.random.randbytes(1 << 20)
        data = block * MIB
        box.files.write("big.bin", data)
        want = hashlib.sha256(data).hexdigest()
        assert box.commands.run("sha256sum big.bin | cut -d' ' -f1").stdout.strip() == want
        assert hashlib.sha256(bytes(box.files.read("big.bin", format="bytes"))).hexdigest() == want

    def watch(self, box):
        box.files.make_dir("watched")
        handle = box.files.watch_dir("watched")
        name = f"f{self.random.randrange(10**9)}"
        box.files.write(f"watched/{name}", self.name)
        deadline, names = time.monotonic() + 20, set()
        while name not in names and time.monotonic() < deadline:
            names |= {event.name for event in handle.get_new_events()}
            time.sleep(0.05)
        assert name in names
        handle.stop()
        assert box.files.read(f"watched/{name}") == self.name

    def terminal(self, box):
        pty = box.pty.create(e2b.PtySize(rows=24, cols=80), timeout=60)
        rows, cols = self.random.randrange(10, 90), self.random.randrange(40, 190)
        seen, output = bytearray(), (data or b"" for _, _, data in pty)
        # Readline reads the size and sets it again before each prompt: a change in between is lost.
        while b"$ " not in seen:
            seen.extend(next(output))
        box.pty.resize(pty.pid, e2b.PtySize(rows=rows, cols=cols))
        box.pty.send_stdin(pty.pid, b"stty size; exit\n")
        for data in output:
            seen.extend(data)
        assert f"{rows} {cols}".encode() in bytes(seen)


def test_three_users(cay, new_key, sdk_environment):
    end = time.monotonic() + SECONDS
    workers = [Worker(f"u{user}w{n}", key, user * 100 + n, end)
               for user, key in enumerate(new_key(f"user-{u}") for u in range(USERS))
               for n in range(EACH)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(SECONDS + 300)
    failures = [(w.name, repr(w.failure)) for w in workers if w.failure or w.is_alive()]
    assert not failures, failures
    print(f"\n{sum(w.rounds for w in workers)} rounds by {len(workers)} workers in {SECONDS} s, "
          f"{MIB} MiB files: no error")
