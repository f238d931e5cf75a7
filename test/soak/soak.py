#!/usr/bin/env python3
"""The soak: a mixed load of creates, commands, files, terminals, watches, kills and expiring sandboxes at
the machine's limit, with kills and upgrades of the daemons thrown in. Its own server, as root.

    test/soak/soak.py --build=build [--seconds=120] [--seed=N] [--json=FILE] [--markdown=FILE]

These must hold: every answer is right; a call fails only around a kill of a daemon, by a cut connection or an answer
that says the server is not there (502, 503, 504), and works when it is tried again; no call hangs past its deadline;
no sandbox, file or process that a client knows of is lost; nothing is left at the end (test/scenario/leftovers.py);
the daemons' memory in the last quarter is that of the first.

Kills happen in the two middle quarters: so the daemons are equally old in the first and the last, which
are compared. The seed repeats the sequence of choices, not their timing. Exit status 0: all of it held."""

import argparse
import collections
import json
import os
import pathlib
import random
import signal
import sys
import threading
import time
import traceback

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "test/scenario"))
os.environ["E2B_MAX_KEEPALIVE_CONNECTIONS"] = "0"  # the SDK's idle connections would count as descriptors left
WORKERS = 8
SANDBOXES_MAX = 40
GRACE_SECONDS = 3        # after a server says that it is ready again
RETRIES_SECONDS = 600    # a call that kills cut again and again works in the end
READY_SECONDS = 120      # a server is ready again within this after a kill
MEMORY_KIB = 3072        # a daemon may have this more in the last quarter than in the first
SAMPLE_SECONDS = 5
KILLS = {"cayd": 4, "cay-privd": 4, "both": 2, "upgrade": 3, "cay-keep": 2}


def options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--seconds", type=int, default=120)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--markdown", type=pathlib.Path)
    given = parser.parse_args()
    if given.seconds < 8 * SAMPLE_SECONDS:
        parser.error(f"--seconds: at least {8 * SAMPLE_SECONDS}, so that each quarter has its samples")
    given.seed = random.SystemRandom().randrange(1 << 32) if given.seed is None else given.seed
    return given


class Disturbances:
    """When a daemon was away, as far as a client may notice."""

    def __init__(self):
        self.lock, self.spans, self.counts = threading.Lock(), [], collections.Counter()

    def begin(self, kind):
        with self.lock:
            self.counts[kind] += 1
            self.spans.append([time.monotonic(), None, kind])

    def end(self):
        with self.lock:
            self.spans[-1][1] = time.monotonic() + GRACE_SECONDS

    def overlap(self, begun, ended):
        with self.lock:
            return any(start <= ended and (stop is None or begun <= stop) for start, stop, _ in self.spans)


class Soak:
    def __init__(self, given):
        from conftest import OwnServer
        self.given, self.disturbances = given, Disturbances()
        # A machine that has other work to do is slow: a call may take nearly all of its deadline.
        self.server = OwnServer(build=given.build.resolve(), cayd_args=(
            f"--sandbox-max={SANDBOXES_MAX}", "--sandbox-answer-timeout=100s", "--sandbox-agent-timeout=60s"))
        self.lock, self.failures, self.stop = threading.Lock(), [], threading.Event()
        self.done, self.cut, self.full = collections.Counter(), collections.Counter(), 0
        self.slowest, self.samples, self.restart_slowest = {}, [], 0.0

    # -- the load --------------------------------------------------------------------------------------

    def note(self, kind, text):
        with self.lock:
            self.failures.append(f"{time.monotonic() - self.begun:.1f} s: {kind}: {text}")
        print(f"FAILED {self.failures[-1]}", flush=True)

    def one(self, worker, name, box):
        """An operation until it has an answer; whether it may go on."""
        from load import CUTS, DEADLINE_SECONDS, Cut, Full, Wrong
        first, again = time.monotonic(), False
        while True:
            begun = time.monotonic()
            try:
                if again and box in worker.boxes:
                    worker.tidy(box)
                getattr(worker, "op_" + name)(box)
                break
            except Full:
                self.full += 1
                break
            except Wrong as error:
                self.note(name, error)
                break
            except TimeoutError:
                self.note(name, f"no answer within {DEADLINE_SECONDS} s")
                break
            except (*CUTS, Cut) as error:
                if not self.disturbances.overlap(begun, time.monotonic()):
                    self.note(name, f"failed without a kill: {type(error).__name__}: {error}")
                    break
                self.cut[name], again = self.cut[name] + 1, True
                if time.monotonic() - first > RETRIES_SECONDS:
                    self.note(name, f"does not work again: {error}")
                    break
                if name == "kill":  # it ends in any case, and is no longer known
                    name = "list"
                time.sleep(0.5)
            except Exception as error:  # noqa: BLE001
                self.note(name, "".join(traceback.format_exception(error))[-1500:])
                break
        with self.lock:
            self.done[name] += 1
            self.slowest[name] = max(self.slowest.get(name, 0), time.monotonic() - begun)

    def work(self, worker):
        while not self.stop.is_set():
            self.one(worker, *worker.choose())

    # -- the kills -------------------------------------------------------------------------------------

    def wait_ready(self):
        from client import Client
        client, end = Client(self.server.url, self.server.key()), time.monotonic() + READY_SECONDS
        while time.monotonic() < end:
            try:
                if client.call("GET", "/cay/v1/status", timeout=10).json.get("ready") is True:
                    return True
            except Exception:  # noqa: BLE001
                pass
            time.sleep(0.1)
        return False

    def hit(self, kind):
        import leftovers
        keep, names = self.server.keep_pid, ("cayd", "cay-privd")
        old = {name: leftovers.children(keep, name) for name in names}
        self.disturbances.begin(kind)
        begun = time.monotonic()
        if kind == "upgrade":
            os.kill(keep, signal.SIGHUP)
            self.wait_until(lambda: leftovers.children(keep, "cayd") not in ([], old["cayd"]), "an upgrade")
        elif kind == "cay-keep":
            os.kill(keep, signal.SIGKILL)
            gone = lambda: not any(os.path.exists(f"/proc/{pid}") for pid in [keep, *sum(old.values(), [])])
            self.wait_until(gone, "the daemons without cay-keep")
            self.server.start()
        else:
            for name in names if kind == "both" else (kind,):
                for pid in old[name]:
                    os.kill(pid, signal.SIGKILL)
            self.wait_until(lambda: all(leftovers.children(keep, name) not in ([], old[name])
                                        for name in (names if kind == "both" else (kind,))), f"{kind} again")
        if not self.wait_ready():
            self.note(kind, f"the server is not ready again within {READY_SECONDS} s")
        self.restart_slowest = max(self.restart_slowest, time.monotonic() - begun)
        self.disturbances.end()

    def wait_until(self, condition, what):
        end = time.monotonic() + 90
        while not condition():
            if time.monotonic() > end:
                self.note("kill", f"waited for {what}")
                return
            time.sleep(0.05)

    def disturb(self):
        """In the two middle quarters."""
        choices, seconds = random.Random(f"{self.given.seed}/kills"), self.given.seconds
        pause = max(6, min(45, seconds / 20))
        self.stop.wait(seconds / 4)
        while not self.stop.is_set():
            kind = choices.choices(list(KILLS), list(KILLS.values()))[0]
            wait = choices.uniform(pause / 2, pause * 1.5)
            self.stop.wait(wait)
            if self.stop.is_set() or time.monotonic() - self.begun > seconds * 3 / 4:
                return
            try:
                self.hit(kind)
            except Exception as error:  # noqa: BLE001
                self.note(kind, "".join(traceback.format_exception(error))[-1500:])
                self.disturbances.end()

    def sample(self):
        import leftovers
        while not self.stop.wait(SAMPLE_SECONDS):
            try:
                self.samples.append((time.monotonic() - self.begun, leftovers.memory(self.server)))
            except (OSError, KeyError):  # a daemon has just ended
                continue

    # -- the whole -------------------------------------------------------------------------------------

    def warm_up(self, workers):
        """The resources that a server takes once: each operation, on each connection loop."""
        for worker in workers[:2]:
            worker.op_create(None)
            for name in worker.WEIGHTS:
                if name != "kill":
                    self.one(worker, name, worker.boxes[0])

    def run(self):
        import leftovers
        from load import Worker
        mark = f"s{self.given.seed}"
        self.begun = time.monotonic()
        workers = [Worker(n, self.given.seed, self.server.url, self.server.key(), mark) for n in range(WORKERS)]
        self.warm_up(workers[:1])
        self.end_all()
        self.before = leftovers.measure(self.server)
        workers = [Worker(n, self.given.seed, self.server.url, self.server.key(), mark) for n in range(WORKERS)]
        self.begun, self.done = time.monotonic(), collections.Counter()
        threads = [threading.Thread(target=self.work, args=(w,), daemon=True) for w in workers]
        threads += [threading.Thread(target=f, daemon=True) for f in (self.disturb, self.sample)]
        for thread in threads:
            thread.start()
        while time.monotonic() - self.begun < self.given.seconds and len(self.failures) < 20:
            time.sleep(min(30, self.given.seconds / 8))
            print(f"{time.monotonic() - self.begun:.0f} s: {sum(self.done.values())} operations, "
                  f"{sum(self.cut.values())} cut and tried again, {sum(self.disturbances.counts.values())} kills, "
                  f"{len(self.failures)} failures", flush=True)
        self.elapsed = time.monotonic() - self.begun
        self.stop.set()
        for thread in threads:
            thread.join(3 * 120)
            if thread.is_alive():
                self.note("end", "an operation hangs past its deadline")
        for worker in workers:
            worker.op_list(None)  # nothing that a client knows of was lost
        self.end_all()
        self.check_leftovers()
        self.check_memory()

    def end_all(self):
        """Also those whose create was cut before its answer came."""
        from client import Client
        client = Client(self.server.url, self.server.key())
        while alive := client.call("GET", "/v2/sandboxes?limit=100").json:
            for item in alive:
                client.call("DELETE", f"/sandboxes/{item['sandboxID']}")

    def check_leftovers(self):
        """The daemons were started again meanwhile: their descriptors by sort are compared, too. A new
        cay-privd has to be asked once before it makes slots ready for what is asked for."""
        import leftovers
        from client import Client
        client = Client(self.server.url, self.server.key())
        for _ in range(6):
            client.create().kill()
            self.after = leftovers.measure(self.server)
            found = leftovers.differences(self.before, self.after)
            if not found:
                return
        for text in found:
            self.note("left behind", text)

    def quarter(self, number):
        """Median of each daemon's private memory there."""
        span = self.elapsed / 4
        inside = [m for t, m in self.samples if number * span <= t < (number + 1) * span]
        found = {}
        for sample in inside:
            for name, kib in sample.items():
                if name.endswith("private"):
                    found.setdefault(name.split()[0], []).append(kib)
        return {name: sorted(values)[len(values) // 2] for name, values in found.items()}

    def check_memory(self):
        first, last = self.quarter(0), self.quarter(3)
        if not first or not last:
            self.note("memory", "there are no samples")
        for name in first.keys() - last.keys():
            self.note("memory", f"{name} was not there in the last quarter")
        for name, kib in last.items():
            if kib - first.get(name, 0) > MEMORY_KIB:
                self.note("memory", f"{name} has {kib} KiB in the last quarter, {first[name]} in the first")


def main():
    given = options()
    print(f"soak: seed {given.seed}, {given.seconds} s", flush=True)
    import report
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # told to stop, it takes its server along
    soak = Soak(given)
    os.nice(5)  # the load, not the server
    try:
        soak.run()
    finally:
        soak.stop.set()
        log = [line for line in soak.server.log.read_text().splitlines() if " info " not in line]
        soak.server.stop()
    text, data = report.make(soak, ROOT)
    print(text)
    if given.json:
        given.json.write_text(json.dumps(data, indent=1) + "\n")
    if given.markdown:
        given.markdown.write_text(text)
    if soak.failures:
        print("what the daemons say:", *log[-60:], sep="\n")
        print(f"again: test/soak/soak.py --seconds={given.seconds} --seed={given.seed}")
    return 1 if soak.failures else 0


if __name__ == "__main__":
    sys.exit(main())
