#!/usr/bin/env python3
"""How much memory locks on ranges of files take at most before who holds them is killed (src/privd/locks.h, docs/kernel-pools.md).

    test/vm/locks.py [--build=DIR] [--locks=N]

A sandbox's programs lock as fast as they can: few to many processes, few to many ranges of each file. A step is a line
of the output: how far the kernel's cache of locks grew, looked at about each millisecond, how many processes were killed,
and what stayed. In a machine that is thrown away (test/vm/run.py) each process makes more than could ever stay; elsewhere
--locks has to bound what all of them make together. Exit status 1: more than LIMIT_MIB, or one that was not killed."""

import argparse
import os
import pathlib
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "test/escapes"))
SLAB = pathlib.Path("/sys/kernel/slab/file_lock_cache")
STEPS = ((1, 500), (2, 20), (2, 500), (8, 20), (8, 500), (64, 20), (64, 500))  # {processes, ranges of a file}
WITHOUT_BOUND = 200000  # locks of each process: 38 MiB each
MOST_ELSEWHERE = 100000
LIMIT_MIB = 12


def objects():
    return int((SLAB / "total_objects").read_text().split()[0])


class Watch(threading.Thread):
    def __init__(self):
        super().__init__(daemon=True)
        self.begun = self.most = objects()
        self.over = False

    def run(self):
        while not self.over:
            self.most = max(self.most, objects())
            time.sleep(0.001)


def main():
    import world
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", type=pathlib.Path, default="/cay/build")
    parser.add_argument("--locks", type=int, default=0, help="of all processes together; 0: without a bound, in a machine of its own only")
    options = parser.parse_args()
    if not options.locks and not pathlib.Path("/cay/command").exists():
        sys.exit(f"not in a machine that test/vm/run.py made: say --locks, at most {MOST_ELSEWHERE}")
    each, failed = int((SLAB / "object_size").read_text()), []
    base = world.make_base()
    try:
        with world.Server(options.build, base) as server:
            for processes, ranges in STEPS:
                with server.client.create() as box:
                    box.write("/tmp/lockstorm", (options.build / "test/pools/lockstorm").read_bytes(), user="root")
                    many = min(options.locks, MOST_ELSEWHERE) // processes or WITHOUT_BOUND
                    watch = Watch()
                    watch.start()
                    done = box.run(f"chmod 755 /tmp/lockstorm; ulimit -n 4096; exec /tmp/lockstorm {processes} {many} {ranges} /dev/shm",
                                   user="root", timeout=120)
                    watch.over = True
                    mib = (watch.most - watch.begun) * each / (1 << 20)
                    stayed = objects() - watch.begun
                    print(f"{processes} processes, {ranges} ranges of a file, {many} locks each: {mib:.1f} MiB at most, "
                          f"{done.exit_code} killed, objects of the cache that stayed {stayed}", flush=True)
                    if mib > LIMIT_MIB or not options.locks and done.exit_code != processes:
                        failed.append((processes, ranges))
    finally:
        world.remove_base(base)
    print(f"FAILED: {failed}" if failed else "all as it has to be", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
