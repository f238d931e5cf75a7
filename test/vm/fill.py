#!/usr/bin/env python3
"""The fill of the kernel's filters (docs/kernel-pools.md), tried for real. Only in a machine that is thrown away:
test/vm/run.py runs it there, and it refuses to run elsewhere.

A sandbox's user and its root make thousands of attempts by every way; a sandbox that may have filters makes as many. Then the control:
the same program, as an ordinary user of the machine outside of any sandbox, whose filters are kept while sandboxes
are asked for."""

import json
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, "/cay/test/escapes")

LIMIT = 32 << 20  # of net.core.bpf_jit_limit here, so that the control is quick
ATTEMPTS = 2000

PROGRAM = r'''
import collections, ctypes, errno, json, os, socket, sys, time
ATTEMPTS = int(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
class Code(ctypes.Structure): _fields_ = [("code", ctypes.c_ushort), ("jt", ctypes.c_ubyte), ("jf", ctypes.c_ubyte), ("k", ctypes.c_uint)]
class Program(ctypes.Structure): _fields_ = [("n", ctypes.c_ushort), ("code", ctypes.POINTER(Code))]
lines = (Code * 4096)(*[Code(0x04, 0, 0, i) for i in range(4095)], Code(6, 0, 0, 0x7fff0000))
program = Program(4096, lines)
seen = collections.defaultdict(collections.Counter)
def note(way, result):
    name = "attached" if result >= 0 else errno.errorcode.get(ctypes.get_errno(), str(ctypes.get_errno()))
    seen[way][name] += 1
    return result >= 0
kept = []
def on_socket(way, family, kind, option):
    s = socket.socket(family, kind)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1) if family != socket.AF_UNIX else None
    if note(way, libc.setsockopt(s.fileno(), 1, option, ctypes.byref(program), ctypes.sizeof(program))):
        kept.append(s)
    else:
        s.close()
for i in range(ATTEMPTS):
    on_socket("unix stream", socket.AF_UNIX, socket.SOCK_STREAM, 26)
    on_socket("unix datagram", socket.AF_UNIX, socket.SOCK_DGRAM, 26)
    on_socket("udp", socket.AF_INET, socket.SOCK_DGRAM, 26)
    on_socket("reuseport", socket.AF_INET6, socket.SOCK_DGRAM, 51)
    if len(seen["unix stream"]) > 1: # some were attached, and now it is refused: the pool is full
        break
children = []
libc.prctl(38, 1, 0, 0, 0)
for i in range(int(sys.argv[2])):
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        seen.clear()
        for n in range(ATTEMPTS // int(sys.argv[2])):
            way, result = ("seccomp", libc.syscall(317, 1, 0, ctypes.byref(program))) if n % 2 == 0 else \
                          ("prctl", libc.prctl(22, 2, ctypes.byref(program), 0, 0))
            note(way, result)
        os.write(w, json.dumps({k: dict(v) for k, v in seen.items() if k in ("seccomp", "prctl")}).encode())
        os.close(w)
        time.sleep(600)
    os.close(w)
    text = b""
    while True:
        part = os.read(r, 65536)
        if not part: break
        text += part
    os.close(r)
    children.append(pid)
    for way, counts in json.loads(text).items():
        for name, n in counts.items(): seen[way][name] += n
print(json.dumps({k: dict(v) for k, v in seen.items()}))
for pid in children: os.kill(pid, 9)
for pid in children: os.waitpid(pid, 0)
'''


def in_sandbox(box, user, processes):
    box.write("/tmp/fill.py", PROGRAM.encode(), user="root")
    result = box.run(f"python3 /tmp/fill.py {ATTEMPTS} {processes}", user=user, timeout=600)
    assert result.exit_code == 0, result.stderr
    return json.loads(result.out)


def attached(counts):
    return sum(ways.get("attached", 0) for ways in counts.values())


def told(who, counts):
    print(f"{who}: {sum(sum(w.values()) for w in counts.values())} attempts, {attached(counts)} attached; "
          + "; ".join(f"{way}: {', '.join(f'{n} {k}' for k, n in sorted(w.items()))}" for way, w in counts.items()),
          flush=True)


def main():
    if not pathlib.Path("/cay/command").exists():
        sys.exit("not in a machine that test/vm/run.py made: this fills a pool that a machine does not survive")
    import world
    from client import Sandbox
    for name, value in (("bpf_jit_enable", 1), ("bpf_jit_limit", LIMIT)):
        pathlib.Path("/proc/sys/net/core", name).write_text(str(value))
    base = world.make_base()
    failed = []
    with world.Server("/cay/build", base) as server:
        stamps = pathlib.Path("/proc/sys/net/core/tstamp_allow_data").read_text().strip()
        print(f"net.core.tstamp_allow_data: {stamps}", flush=True)
        failed += [] if stamps == "0" else ["cay-keep left net.core.tstamp_allow_data on"]
        for user in ("user", "root"):
            with server.client.create() as box:
                counts = in_sandbox(box, user, 8)
                told(f"a sandbox's {user}", counts)
                failed += [f"{user} attached"] if attached(counts) else []
        reply = server.client.call("POST", "/cay/v1/sandboxes", {"templateID": "host", "seccompFilters": True})
        with Sandbox(server.client, reply.json) as box:
            counts = in_sandbox(box, "root", 100)
            told("root of a sandbox with seccompFilters", counts)
            failed += [f"{attached(counts)} filters, not 128"] if attached(counts) != 128 else []
            with server.client.create() as neighbour:
                said = neighbour.run("echo there").out
                print(f"a neighbour that is made meanwhile: {said.strip()}", flush=True)
                failed += [] if said == "there\n" else ["no neighbour"]
    print(f"FAILED: {failed}" if failed else "all as it has to be", flush=True)
    # Last, as nothing need work after it: the sockets are kept while a sandbox is asked for.
    with world.Server("/cay/build", base) as server:
        code = PROGRAM.split("children = []")[0] + "print(json.dumps(seen), flush=True); sys.stdin.read()"
        (base / "control.py").write_text(code)
        holder = subprocess.Popen(["sh", "-c", f"ulimit -n 20000; exec setpriv --reuid=1000 --clear-groups python3 {base}/control.py {ATTEMPTS} 1"],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        counts = json.loads(holder.stdout.readline())
        told("control, an ordinary user of the machine, kept", counts)
        failed += [] if attached(counts) > ATTEMPTS // 10 else ["the control attached few"]
        made = [server.client.call("POST", "/v2/sandboxes", {"templateID": "host"}).status for _ in range(12)]
        print("sandboxes asked for meanwhile:", made, flush=True)
        # Where filters run without being compiled too (Debian's kernels), a full pool refuses none of them.
        print(f"FAILED: {failed}" if failed else "the control attached what sandboxes could not", flush=True)
        os.sync()
        os._exit(1 if failed else 0)


if __name__ == "__main__":
    main()
