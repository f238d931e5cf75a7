"""The agent's process service, PTYs, start-up and small questions: cay-init alone, in namespaces that
the tests make. Its service of files is tested in test_agent_files.py."""

import base64
import concurrent.futures
import hashlib
import json
import os
import pathlib
import struct
import time

import pytest

import agentlib
from agentlib import Result, started_pid
from conftest import BUILD
from waitlib import until

BINARY = BUILD / "src/agent/cay-init"
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="namespaces of the tests' own need root")


@pytest.fixture(scope="module")
def agent():
    a = agentlib.start_plain(BINARY)
    yield a
    a.stop()


def b64(text):
    return base64.b64encode(text if isinstance(text, bytes) else text.encode()).decode()


def status_of(agent, pid):
    """The state letter of a process inside, or None."""
    try:
        return pathlib.Path(f"/proc/{agent.pid}/root/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return None


# -- start and end ------------------------------------------------------------------------------------


def test_output_and_end(agent):
    r = agent.sh("echo out; echo err >&2")
    assert r.events[0] == "start" and r.events[-1] == "end"
    assert (r.out["stdout"], r.out["stderr"]) == (b"out\n", b"err\n")
    assert r.end == {"exited": True, "status": "exit status 0"} and r.error is None


def test_exit_status(agent):
    assert agent.sh("exit 7").end == {"exitCode": 7, "exited": True, "status": "exit status 7",
                                      "error": "exit status 7"}


def test_end_by_signal(agent):
    assert agent.sh("kill -SEGV $$").end["status"].startswith("signal: segmentation fault")
    assert agent.sh("kill -TERM $$").end == {"exitCode": -1, "status": "signal: terminated",
                                             "error": "signal: terminated"}


def test_environment_and_place(agent):
    status, _, _ = agent.raw("POST", "/init", json.dumps({"envVars": {"A": "sandbox", "B": "sandbox"}}).encode())
    assert status == 204
    r = agent.sh('echo "$A $B $C $HOME $USER $LOGNAME $PWD $(id -u -n) $(id -G)"', envs={"B": "call", "C": "x y"})
    assert r.text() == "sandbox call x y /home/user user user /home/user user 1000 2000\n"
    assert agent.sh("pwd", cwd="/usr/../usr/bin").text() == "/usr/bin\n"
    assert agent.sh("echo $HOME $(id -u)", user="root").text() == "/root 0\n"
    assert json.loads(agent.raw("GET", "/envs")[1]) == {"A": "sandbox", "B": "sandbox"}


def test_only_its_own_descriptors_and_signals(agent):
    r = agent.sh("ls /proc/self/fd; grep -E '^Sig(Blk|Ign)' /proc/self/status; umask", stdin=False)
    assert r.text().split() == ["0", "1", "2", "3", "SigBlk:", "0" * 16, "SigIgn:", "0" * 16, "0022"]


def test_standard_streams_can_be_reopened(agent):
    assert agent.sh("echo again > /dev/stdout; echo more > /proc/self/fd/2").out == {
        "stdout": b"again\n", "stderr": b"more\n"}


@pytest.mark.parametrize("request_, code, text", [
    ({"process": {"cmd": "no-such-program"}}, "invalid_argument", "not found in PATH '/usr/local/sbin:"),
    ({"process": {"cmd": "/no/such"}}, "invalid_argument", "does not exist"),
    ({"process": {"cmd": "/etc/passwd"}}, "invalid_argument", "Permission denied"),
    ({"process": {"cmd": "/etc"}}, "invalid_argument", "Permission denied"),
    ({"process": {"cmd": "ls", "cwd": "/nowhere"}}, "invalid_argument", "cwd '/nowhere' does not exist"),
    ({"process": {"cmd": "ls", "cwd": "/etc/passwd"}}, "invalid_argument", "not a directory"),
    ({"process": {"cmd": "ls", "cwd": "~other"}}, "invalid_argument", "home"),
    ({"process": {"cmd": ""}}, "invalid_argument", "cmd"),
    ({"process": {"cmd": "ls", "args": "x"}}, "invalid_argument", "args"),
    ({"process": {"cmd": "ls", "args": [1]}}, "invalid_argument", "args[0]"),
    ({"process": {"cmd": "ls", "args": ["x" * 200000]}}, "invalid_argument", "args[0]"),
    ({"process": {"cmd": "ls", "envs": {"A=B": "x"}}}, "invalid_argument", "A=B"),
    ({"process": {"cmd": "ls", "envs": {"A": 1}}}, "invalid_argument", "envs"),
    ({}, "invalid_argument", "process"),
    ([], "invalid_argument", ""),
])
def test_start_refused(agent, request_, code, text):
    r = Result(agent.stream("Start", request_))
    assert r.pid is None and r.error["code"] == code
    assert text in r.error["message"]


def test_unknown_user(agent):
    assert agent.run("ls", user="nobody-here").error["code"] == "unauthenticated"


def test_script_without_interpreter_line(agent):
    script = "echo 'echo script $1' > /tmp/script && chmod +x /tmp/script"
    assert agent.sh(script).end["exited"]
    assert agent.run("/tmp/script", "one").text() == "script one\n"


def test_path_of_the_call_is_searched(agent):
    agent.sh("mkdir -p /tmp/bin && printf '#!/bin/sh\\necho mine' > /tmp/bin/mine && chmod +x /tmp/bin/mine")
    assert agent.run("mine", envs={"PATH": "/nowhere::/tmp/bin:/bin"}).text() == "mine\n"


# -- lists, connections, tags -------------------------------------------------------------------------


def test_list_connect_and_kill(agent):
    s = agent.start("sleep", "100", tag="sleeper", envs={"K": "v"}, cwd="/tmp")
    pid = started_pid(s)
    listed = [p for p in agent.call("List", {})[1]["processes"] if p["pid"] == pid]
    assert listed == [{"pid": pid, "tag": "sleeper",
                       "config": {"cmd": "sleep", "args": ["100"], "envs": {"K": "v"}, "cwd": "/tmp"}}]
    other = agent.stream("Connect", {"process": {"tag": "sleeper"}})
    assert started_pid(other) == pid
    assert agent.call("SendSignal", {"process": {"pid": pid}, "signal": "SIGNAL_SIGKILL"}) == (200, {})
    killed = {"exitCode": -1, "status": "signal: killed", "error": "signal: killed"}
    assert Result(s).end == killed and Result(other).end == killed
    assert status_of(agent, pid) is None, "not reaped"
    assert agent.call("SendSignal", {"process": {"pid": pid}, "signal": "SIGNAL_SIGKILL"})[0] == 404
    late = Result(agent.stream("Connect", {"process": {"pid": pid}}))
    assert (late.pid, late.end) == (pid, killed)


@pytest.mark.parametrize("method", ["SendSignal", "SendInput", "CloseStdin", "Update"])
def test_unknown_process(agent, method):
    body = {"process": {"pid": 4000000}, "signal": 9, "input": {"stdin": ""}}
    status, reply = agent.call(method, body)
    assert (status, reply["code"]) == (404, "not_found")
    assert agent.call(method, {})[0] == 400
    assert agent.call(method, {"process": {"pid": 1, "tag": "x"}})[0] == 400


def test_connect_to_unknown(agent):
    assert Result(agent.stream("Connect", {"process": {"pid": 4000000}})).error["code"] == "not_found"


def test_two_subscribers_get_the_same(agent):
    first = agent.start("/bin/sh", "-c", "read x; seq 1 20000", stdin=True)
    pid = started_pid(first)
    second = agent.stream("Connect", {"process": {"pid": pid}})
    assert started_pid(second) == pid
    agent.call("SendInput", {"process": {"pid": pid}, "input": {"stdin": b64("go\n")}})
    with concurrent.futures.ThreadPoolExecutor() as pool:
        a, b = pool.map(Result, [first, second])
    assert a.text() == b.text() == "".join(f"{i}\n" for i in range(1, 20001))


# -- signals ------------------------------------------------------------------------------------------


def test_kill_takes_descendants_along(agent):
    s = agent.start("/bin/bash", "-c", "sleep 1000 & set -m; sleep 1000 & echo ready; wait")
    pid = started_pid(s)
    assert base64.b64decode(s.next()[1]["event"]["data"]["stdout"]) == b"ready\n"
    def sleepers():
        found = agent.sh("pgrep -x sleep").text().split()
        return found if len(found) == 2 else None

    inside = until(sleepers)  # ready is said once they are forked: they may not be sleep yet
    agent.call("SendSignal", {"process": {"pid": pid}, "signal": "SIGNAL_SIGKILL"})
    assert Result(s).end["status"] == "signal: killed"
    until(lambda: all(status_of(agent, p) is None for p in inside), what="descendants end")


def test_terminate_lets_it_finish(agent):
    s = agent.start("/bin/sh", "-c", "trap 'echo bye; exit 3' TERM; echo ready; while :; do sleep 0.05; done")
    pid = started_pid(s)
    s.next()
    assert agent.call("SendSignal", {"process": {"pid": pid}, "signal": 15})[0] == 200
    r = Result(s)
    assert r.text() == "bye\n" and r.end["exitCode"] == 3


def test_other_signals_are_refused(agent):
    s = agent.start("sleep", "100")
    pid = started_pid(s)
    assert agent.call("SendSignal", {"process": {"pid": pid}, "signal": "SIGNAL_SIGHUP"})[0] == 501
    assert agent.call("SendSignal", {"process": {"pid": pid}})[0] == 501
    agent.call("SendSignal", {"process": {"pid": pid}, "signal": 9})
    assert Result(s).end


def test_end_waits_for_who_holds_the_output(agent):
    begin = time.monotonic()
    r = agent.sh("(sleep 0.5; echo late) & echo early")
    assert r.text() == "early\nlate\n" and time.monotonic() - begin >= 0.5


def test_kill_does_not_wait_for_who_holds_the_output(agent):
    s = agent.start("/bin/sh", "-c", "setsid sleep 5 & echo ready; sleep 1000")
    pid = started_pid(s)
    s.next()
    begin = time.monotonic()
    agent.call("SendSignal", {"process": {"pid": pid}, "signal": 9})
    assert Result(s).end["status"] == "signal: killed" and time.monotonic() - begin < 2


def test_orphans_are_reaped(agent):
    agent.sh("for i in 1 2 3 4 5 6 7 8; do (sleep 0.1 &); done")
    states = agent.sh("sleep 0.3; ps -eo stat=").text().split()
    assert not [s for s in states if s.startswith("Z")]


# -- time ---------------------------------------------------------------------------------------------


def test_deadline_kills(agent):
    begin = time.monotonic()
    s = agent.start("/bin/sh", "-c", "sleep 1000 & echo $!; wait", headers={"Connect-Timeout-Ms": "400"})
    pid = started_pid(s)
    r = Result(s)
    assert r.error["code"] == "deadline_exceeded" and r.end is None
    assert 0.35 < time.monotonic() - begin < 2
    until(lambda: status_of(agent, pid) is None and status_of(agent, r.text().strip()) is None)
    assert Result(agent.stream("Connect", {"process": {"pid": pid}})).end["status"] == "signal: killed"


def test_deadline_of_connect_bounds_only_the_stream(agent):
    s = agent.start("sleep", "1000")
    pid = started_pid(s)
    c = agent.stream("Connect", {"process": {"pid": pid}}, headers={"Connect-Timeout-Ms": "200"})
    assert Result(c).error["code"] == "deadline_exceeded"
    assert status_of(agent, pid) == "S"
    agent.call("SendSignal", {"process": {"pid": pid}, "signal": 9})
    assert Result(s).end


def test_bad_deadline(agent):
    assert agent.run("ls", headers={"Connect-Timeout-Ms": "soon"}).error["code"] == "invalid_argument"


def test_keepalive(agent):
    r = agent.run("sleep", "2.5", headers={"Keepalive-Ping-Interval": "1"})
    assert r.events == ["start", "keepalive", "keepalive", "end"]


# -- input --------------------------------------------------------------------------------------------


def test_input_and_close(agent):
    s = agent.start("/bin/sh", "-c", "cat; sleep 0.5")
    pid = started_pid(s)
    for piece in ["one ", "", "tw\u00f6\n", b"\0\xff"]:
        assert agent.call("SendInput", {"process": {"pid": pid}, "input": {"stdin": b64(piece)}}) == (200, {})
    for _ in range(2):
        assert agent.call("CloseStdin", {"process": {"pid": pid}}) == (200, {})
    status, reply = agent.call("SendInput", {"process": {"pid": pid}, "input": {"stdin": b64("x")}})
    assert (status, reply["code"]) == (500, "internal")
    assert Result(s).out["stdout"] == "one tw\u00f6\n".encode() + b"\0\xff"


def test_input_without_stdin(agent):
    s = agent.start("sleep", "100", stdin=False)
    pid = started_pid(s)
    status, reply = agent.call("SendInput", {"process": {"pid": pid}, "input": {"stdin": b64("x")}})
    assert (status, reply["code"]) == (500, "internal")
    assert agent.call("SendInput", {"process": {"pid": pid}, "input": {"pty": b64("x")}})[0] == 500
    assert agent.call("SendInput", {"process": {"pid": pid}, "input": {}})[0] == 400
    agent.call("SendSignal", {"process": {"pid": pid}, "signal": 9})
    assert Result(s).end


def test_input_is_not_base64(agent):
    s = agent.start("cat")
    pid = started_pid(s)
    assert agent.call("SendInput", {"process": {"pid": pid}, "input": {"stdin": "!!"}})[0] == 400
    agent.call("CloseStdin", {"process": {"pid": pid}})
    assert Result(s).end["exited"]


def test_absent_stdin_is_a_pipe_and_false_is_null(agent):
    assert agent.sh("readlink /proc/self/fd/0", stdin=False).text() == "/dev/null\n"
    assert agent.sh("readlink /proc/self/fd/0").text().startswith("pipe:")


def test_input_is_answered_when_it_was_read(agent):
    """A writer is slowed down to its reader; waiting bytes are bounded; nothing is lost."""
    s = agent.start("/bin/sh", "-c", "sleep 0.7; sha256sum")
    pid = started_pid(s)
    piece = os.urandom(1 << 20)
    begin = time.monotonic()
    send = lambda _: agent.call("SendInput", {"process": {"pid": pid}, "input": {"stdin": b64(piece)}})[0]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        statuses = list(pool.map(send, range(8)))
    assert time.monotonic() - begin > 0.5
    taken = statuses.count(200)
    assert 3 <= taken < 8 and statuses.count(429) == 8 - taken
    agent.call("CloseStdin", {"process": {"pid": pid}})
    assert Result(s).text().split()[0] == hashlib.sha256(piece * taken).hexdigest()


def test_input_to_one_that_ends(agent):
    s = agent.start("sleep", "0.5")
    pid = started_pid(s)
    status, reply = agent.call("SendInput", {"process": {"pid": pid}, "input": {"stdin": b64(b"x" * 300000)}})
    assert (status, reply["code"]) == (500, "internal")
    assert Result(s).end["exited"]


def envelope(message):
    text = json.dumps(message).encode()
    return struct.pack(">BI", 0, len(text)) + text


def stream_input(agent, chunks):
    status, data, _ = agent.raw("POST", "/process.Process/StreamInput", iter(chunks),
                                {"Content-Type": "application/connect+json"})
    assert status == 200
    out = []
    while data:
        flags, length = struct.unpack(">BI", data[:5])
        out.append((flags, json.loads(data[5:5 + length])))
        data = data[5 + length:]
    return out


def test_stream_input(agent):
    s = agent.start("sha256sum", tag="hash")
    started_pid(s)
    pieces = [os.urandom(70000) for _ in range(20)]
    whole = envelope({"start": {"process": {"tag": "hash"}}})
    for p in pieces:
        whole += envelope({"data": {"input": {"stdin": b64(p)}}}) + envelope({"keepalive": {}})
    chunks = [whole[i:i + 9973] for i in range(0, len(whole), 9973)]
    assert stream_input(agent, chunks) == [(0, {}), (2, {})]
    agent.call("CloseStdin", {"process": {"tag": "hash"}})
    assert Result(s).text().split()[0] == hashlib.sha256(b"".join(pieces)).hexdigest()


@pytest.mark.parametrize("body, code", [
    ([envelope({"data": {"input": {"stdin": ""}}})], "invalid_argument"),
    ([envelope({"start": {"process": {"pid": 4000000}}})], "not_found"),
    ([envelope({"other": {}})], "invalid_argument"),
    ([b"\0\0\0\0\5nope!"], "invalid_argument"),
    ([b"\0\0\0\0\x50{}"], "invalid_argument"),
    ([b"\1\0\0\0\2{}"], "unimplemented"),
    ([b"\0\xff\xff\xff\xff"], "resource_exhausted"),
])
def test_stream_input_refused(agent, body, code):
    assert stream_input(agent, body)[-1][1]["error"]["code"] == code


# -- much output, slow readers, no readers ------------------------------------------------------------


def test_all_bytes_arrive(agent):
    r = agent.sh("head -c 40000000 /dev/urandom | tee /dev/stderr | sha256sum >/tmp/sum; cat /tmp/sum >&1",
                 timeout=60)
    assert r.text().split()[0] == hashlib.sha256(r.out["stderr"]).hexdigest()
    assert len(r.out["stderr"]) == 40000000


def test_output_beyond_the_rate_waits_and_is_whole(tmp_path):
    """Two commands, two outputs of one of them, and two readers of that one, share one bound; nothing is lost."""
    agent, rate, size = agentlib.start_plain(BINARY), 4 << 20, 2_000_000
    try:
        limits = {"limits": {"outputBytesPerSecond": rate}}
        assert agent.raw("POST", "/init", json.dumps(limits).encode())[0] == 204
        command = f"until [ -e /tmp/go ]; do sleep 0.01; done; head -c {size} /dev/urandom | tee /tmp/$0.out; " \
                  f"head -c {size} /dev/urandom | tee /tmp/$0.err >&2; cd /tmp; sha256sum $0.out $0.err >$0.sums"
        first, second = [agent.start("/bin/sh", "-c", command, name, timeout=60) for name in ("a", "b")]
        again = agent.stream("Connect", {"process": {"pid": started_pid(first)}}, timeout=60)
        begun = time.monotonic()
        agent.sh("touch /tmp/go")
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            results = list(pool.map(Result, (first, second, again)))
        took = time.monotonic() - begun
        sums = agent.sh("cat /tmp/[ab].sums").text().split()[::2]
        got = [hashlib.sha256(r.out[name]).hexdigest() for r in results for name in ("stdout", "stderr")]
        assert got == sums + sums[:2]
        # A second's worth goes at once; what a pipe held when its process ended is not waited for.
        assert took > (6 * size - rate - 6 * 65536) / rate
    finally:
        agent.stop()


def test_slow_reader_slows_the_process_down(agent):
    agentlib.need_plain_build()
    def rss_kib():
        return int(pathlib.Path(f"/proc/{agent.pid}/status").read_text().split("VmRSS:")[1].split()[0])

    before = rss_kib()  # with what the tests before left to be used again
    s = agent.start("/bin/sh", "-c", "seq 1 3000000; echo done > /tmp/finished; sleep 0.1", timeout=60)
    started_pid(s)
    time.sleep(1)
    finished = pathlib.Path(f"/proc/{agent.pid}/root/tmp/finished")
    assert not finished.exists(), "nothing held the process back"
    held = rss_kib() - before
    assert held < 8192, f"{held} KiB more than before"
    text = Result(s).text()
    assert text.count("\n") == 3000000 and text.endswith("\n3000000\n") and finished.exists()
    # Output that was left in the pipe when the process ended was taken at once (OUTPUT_DRAIN_MAX), and is given back.
    until(lambda: rss_kib() - before < 8192, what=lambda: f"that it is given back; there are {rss_kib()} KiB, {before} before")


def test_nobody_listens(agent):
    s = agent.start("/bin/sh", "-c", "sleep 0.3; seq 1 1000000; echo x > /tmp/alone; sleep 1000")
    pid = started_pid(s)
    s.close()
    until(lambda: pathlib.Path(f"/proc/{agent.pid}/root/tmp/alone").exists(), what="it waits for no client")
    until(lambda: status_of(agent, pid) == "S", what="a lost client does not end its process")
    again = agent.stream("Connect", {"process": {"pid": pid}})
    assert started_pid(again) == pid
    agent.call("SendSignal", {"process": {"pid": pid}, "signal": 9})
    r = Result(again)
    assert r.out == {} and r.end["status"] == "signal: killed"


def test_many_at_once(agent):
    agentlib.need_processes(400)
    with concurrent.futures.ThreadPoolExecutor(50) as pool:
        results = list(pool.map(lambda i: agent.sh(f"echo {i}; sleep 0.2; echo {i}"), range(150)))
    assert [r.text() for r in results] == [f"{i}\n{i}\n" for i in range(150)]
    assert agent.call("List", {})[1] == {}


# -- terminals ----------------------------------------------------------------------------------------


def read_until(s, wanted):
    seen = b""
    while wanted not in seen:
        event = s.next()[1]["event"]
        if "data" in event:
            seen += base64.b64decode(event["data"]["pty"])
    return seen


def test_terminal(agent):
    s = agent.start("/bin/bash", "--norc", "-i", envs={"TERM": "xterm", "PS1": "> "},
                    pty={"size": {"cols": 91, "rows": 33}})
    pid = started_pid(s)
    say = lambda text: agent.call("SendInput", {"process": {"pid": pid}, "input": {"pty": b64(text)}})
    assert say("stty size; tty; echo $TERM$((1+1))\n") == (200, {})
    seen = read_until(s, b"xterm2")
    assert b"33 91" in seen and b"/dev/pts/" in seen
    assert agent.call("Update", {"process": {"pid": pid}, "pty": {"size": {"cols": 120, "rows": 40}}}) == (200, {})
    say("stty size; echo resi''zed\n")
    assert b"40 120" in read_until(s, b"resized")
    assert agent.call("SendInput", {"process": {"pid": pid}, "input": {"stdin": b64("x")}})[0] == 500
    assert agent.call("CloseStdin", {"process": {"pid": pid}})[0] == 500
    say("sleep 1000 &\n")
    say("exit 4\n")
    assert Result(s).end["exitCode"] == 4, "a job in the background must not keep a terminal open"


def test_terminal_of_the_user(agent):
    r = agent.sh("stat -c '%U %a' $(tty); echo t > /dev/tty; ps -o tpgid=,pgid= -p $$",
                 pty={"size": {"cols": 80, "rows": 24}})
    lines = r.text("pty").split("\r\n")
    assert lines[0] == "user 620" and lines[1] == "t" and len(set(lines[2].split())) == 1


def test_interrupt_at_the_terminal(agent):
    s = agent.start("/bin/sh", "-c", "trap 'echo got; exit 5' INT; echo ready; while :; do sleep 0.05; done",
                    pty={"size": {"cols": 80, "rows": 24}})
    pid = started_pid(s)
    read_until(s, b"ready")
    agent.call("SendInput", {"process": {"pid": pid}, "input": {"pty": b64("\x03")}})
    r = Result(s)
    assert "got" in r.text("pty") and r.end["exitCode"] == 5


def test_resize_without_a_terminal(agent):
    s = agent.start("sleep", "100")
    pid = started_pid(s)
    assert agent.call("Update", {"process": {"pid": pid}, "pty": {"size": {"cols": 1, "rows": 1}}})[0] == 500
    assert agent.call("Update", {"process": {"pid": pid}}) == (200, {})
    agent.call("SendSignal", {"process": {"pid": pid}, "signal": 9})
    assert Result(s).end


# -- small questions ----------------------------------------------------------------------------------


def test_health_metrics_logs(agent):
    status, body, headers = agent.raw("GET", "/health")
    assert (status, body, headers["X-Cay-Agent-Protocol"]) == (204, b"", "1")
    metrics = json.loads(agent.raw("GET", "/metrics")[1])
    assert set(metrics) == {"ts", "cpu_count", "cpu_used_pct", "mem_total", "mem_used", "mem_cache", "mem_total_mib",
                            "mem_used_mib", "disk_used", "disk_total"}
    assert metrics["mem_total"] > metrics["mem_used"] > 0 and abs(metrics["ts"] - time.time()) < 5
    pid = agent.run("true").pid
    logs = json.loads(agent.raw("GET", "/cay/logs")[1])["logs"]
    assert 2 <= len(logs) <= 256 and [e["seq"] for e in logs] == sorted(e["seq"] for e in logs)
    mine = [e for e in logs if e["fields"].get("pid") == str(pid)][-2:]
    assert [e["fields"]["event_type"] for e in mine] == ["process_start", "process_end"]
    after = json.loads(agent.raw("GET", f"/cay/logs?after={mine[0]['seq']}")[1])["logs"]
    assert [e["seq"] for e in after] == list(range(mine[0]["seq"] + 1, logs[-1]["seq"] + 1))


def test_log_lines_are_cut_between_characters(agent):
    for n in range(1, 8):
        agent.run("/tmp/" + "x" * (60 + n) + "\u00e9\u20ac" * 20)  # does not exist, and leaves no line
        agent.sh(f"cp /bin/true '/tmp/{'x' * n + 'é€' * 40}'")
        assert agent.run("/tmp/" + "x" * n + "é€" * 40).end["exited"]
    lines = json.loads(agent.raw("GET", "/cay/logs")[1])["logs"]
    cut = [line["message"] for line in lines if "é€é€" in line["message"]]
    assert len(cut) == 7 and all(120 <= len(m.encode()) <= 127 for m in cut)
    assert not [line for line in lines if "xxxxxxxxxx" in line["message"]]


def test_limits_of_init_are_the_totals(agent):
    limits = {"memoryBytes": 512 << 20, "diskBytes": 10 << 30, "cpuMilli": 1500}
    assert agent.raw("POST", "/init", json.dumps({"limits": limits}).encode())[0] == 204
    metrics = json.loads(agent.raw("GET", "/metrics")[1])
    assert (metrics["mem_total"], metrics["disk_total"], metrics["cpu_count"]) == (512 << 20, 10 << 30, 2)
    assert 0 < metrics["mem_used"] < 512 << 20


def test_processor_time_is_the_sandboxes(agent):
    agent.raw("GET", "/metrics")
    agent.sh("timeout 0.5 sh -c 'while :; do :; done'")
    assert json.loads(agent.raw("GET", "/metrics")[1])["cpu_used_pct"] > 5


def test_init(agent):
    post = lambda **fields: agent.raw("POST", "/init", json.dumps(fields).encode())[0]
    assert post(envVars={"OLD": "1"}, timestamp="2030-01-01T00:00:00Z") == 204
    assert post(envVars={"NEW": "1"}, timestamp="2029-01-01T00:00:00Z") == 204, "older: accepted, not used"
    assert json.loads(agent.raw("GET", "/envs")[1]) == {"OLD": "1"}
    assert post(defaultUser="root", defaultWorkdir="/usr", timestamp="2030-01-01T00:00:01.5Z") == 204
    assert agent.sh("id -un; pwd").text() == "root\n/usr\n"
    assert post(defaultUser="user", defaultWorkdir="/home/user", timestamp="2030-01-01T00:00:02Z") == 204
    assert post(envVars={"A": 1}) == 400 and post(envVars=[]) == 400 and post(timestamp="now") == 400
    assert agent.raw("POST", "/init", b"{nope")[0] == 400
    assert agent.raw("POST", "/init", b"")[0] == 204


def test_routes(agent):
    assert agent.raw("GET", "/nothing")[0] == 404
    assert agent.raw("GET", "/process.Process/List")[0] == 405
    assert agent.raw("DELETE", "/health")[0] == 405
    status, body, _ = agent.raw("POST", "/process.Process/List", b"{", {"Content-Type": "application/json"})
    assert status == 400 and json.loads(body)["code"] == "invalid_argument"


def test_development_mode_must_be_asked_for():
    import subprocess
    for args in ([], ["--no-boot"], ["--listen=127.0.0.1:1"], ["--no-boot", "--listen=nowhere"], ["--what"]):
        done = subprocess.run([BINARY, *args], capture_output=True, timeout=10, close_fds=True)
        assert done.returncode != 0, args


# -- as the runtime starts it -------------------------------------------------------------------------

# chown, dac_override, fowner, kill, setgid, setuid, net_bind_service, sys_chroot
CAPS = sum(1 << c for c in (0, 1, 3, 5, 6, 7, 10, 18))


@pytest.fixture(scope="module")
def booted(tmp_path_factory):
    cgroup = tmp_path_factory.mktemp("cgroup") / "tasks"
    cgroup.touch()
    oom = cgroup.with_name("oom_control")
    oom.write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 7\n")
    a, said = agentlib.start_booted(BINARY, CAPS, cgroup, oom_file=oom)
    assert said == b"R", said
    a.cgroup, a.oom = cgroup, oom
    yield a
    a.stop()


def test_key_is_needed(booted):
    for key in ["", "0" * 64, booted.key[:-1], booted.key + "0", "x" * 64]:
        for method, path in [("GET", "/health"), ("POST", "/process.Process/List"), ("GET", "/nothing")]:
            assert booted.raw(method, path, headers={"X-Cay-Agent-Key": key})[0] == 401, key
    assert booted.raw("GET", "/health")[0] == 204
    assert booted.raw("GET", "/health", headers={"X-Cay-Agent-Key": booted.key.upper()})[0] == 204


def test_capabilities_of_root_and_user(booted):
    caps = lambda user: dict(line.split(":\t") for line in booted.sh("grep ^Cap /proc/self/status",
                                                                    user=user).text().splitlines())
    hex_caps = f"{CAPS:016x}"
    assert caps("root") == {"CapInh": "0" * 16, "CapPrm": hex_caps, "CapEff": hex_caps, "CapBnd": hex_caps,
                            "CapAmb": "0" * 16}
    assert caps("user") == {"CapInh": "0" * 16, "CapPrm": "0" * 16, "CapEff": "0" * 16, "CapBnd": hex_caps,
                            "CapAmb": "0" * 16}


@pytest.mark.parametrize("command,status,killed", [
    ("kill -9 $$", "signal: killed", True), ("sh -c 'kill -9 $$'; exit $?", "exit status 137", True),
    ("kill -15 $$", "signal: terminated", False), ("exit 1", "exit status 1", False)])
def test_who_was_killed_at_the_memory_limit_is_told(booted, command, status, killed):
    """The number that the kernel counts in grows while it runs; else, and for other ends, nothing is said of memory."""
    assert booted.sh(command).end["error"] == status
    stream = booted.start("bash", "-c", f"read; {command}", stdin=True)
    pid = started_pid(stream)
    before = int(booted.oom.read_text().split()[-1])
    booted.oom.write_text(f"oom_kill_disable 0\nunder_oom 0\noom_kill {before + 1}\n")
    booted.call("SendInput", {"process": {"pid": pid}, "input": {"stdin": "Cg=="}})
    end = Result(stream).end
    assert end["status"] == status
    assert end["error"].startswith(f"{status}: out of memory: ") == killed, end
    assert (f": bash (pid {pid}) was killed: " in end["error"]) == (status == "signal: killed")
    late = Result(booted.stream("Connect", {"process": {"pid": pid}}))
    assert late.end == end


def test_a_program_has_none_of_the_agents_files(booted):
    assert booted.sh("exec ls /proc/self/fd").text().split() == ["0", "1", "2", "3"]  # ls' own is the last


def test_set_uid_programs_work(booted):
    booted.sh("cp /bin/sh /home/rootsh && chmod 4755 /home/rootsh", user="root")
    r = booted.sh("/home/rootsh -p -c 'id -u -r; cat /proc/self/status' | grep -E '^[0-9]|^CapEff|^Uid|^NoNew'")
    assert f"CapEff:\t{CAPS:016x}" in r.text() and "Uid:\t1000\t0\t0\t0" in r.text()
    assert "NoNewPrivs:\t0" in r.text()


def test_agent_is_out_of_reach_for_root_inside(booted):
    r = booted.sh("grep -E '^(Uid|Gid|Name|CapAmb|SigBlk)' /proc/1/status; for f in environ mem maps fd/0 root; do "
                  "head -c 1 /proc/1/$f > /dev/null 2>&1 && echo readable $f; done; "
                  "ls /proc/1/fd 2>/dev/null; kill -9 1; kill -STOP 1; kill -TERM 1; echo still here", user="root")
    assert "Uid:\t65533\t65533\t65533\t65533" in r.text() and "Name:\tcay-init" in r.text()
    assert "readable" not in r.text() and r.text().endswith("still here\n"), r.text()
    assert booted.raw("GET", "/health")[0] == 204


def test_cgroup_is_entered_and_files_are_limited(booted):
    before = booted.cgroup.stat().st_size
    assert booted.sh("ulimit -n; ulimit -Hn").text() == "512\n512\n"
    assert booted.cgroup.read_bytes()[before:] == b"0"


def test_facts_are_published(booted):
    env = {"E2B_SANDBOX": "true", "E2B_SANDBOX_ID": "iabc", "E2B_TEMPLATE_ID": "base"}
    script = "mount -t tmpfs run /run"
    import subprocess
    subprocess.run(["nsenter", "-t", str(booted.pid), "-m", "sh", "-c", script], check=True)
    assert booted.raw("POST", "/init", json.dumps({"envVars": env}).encode())[0] == 204
    r = booted.sh("cd /run/e2b && cat .E2B_SANDBOX && echo && cat .E2B_SANDBOX_ID && echo && cat .E2B_TEMPLATE_ID")
    assert r.text() == "true\niabc\nbase"


def own_memory_kib(agent):
    return int(pathlib.Path(f"/proc/{agent.pid}/smaps_rollup").read_text().split("Anonymous:")[1].split()[0])


def test_idle_agent_is_small_and_still(tmp_path):
    agentlib.need_plain_build()
    (tmp_path / "tasks").touch()
    a, said = agentlib.start_booted(BINARY, CAPS, tmp_path / "tasks")
    try:
        a.run("true")
        time.sleep(0.2)
        proc = pathlib.Path(f"/proc/{a.pid}")
        switches = lambda: [l for l in (proc / "status").read_text().splitlines() if "ctxt_switches" in l]
        before = switches()
        time.sleep(1.5)
        assert switches() == before, "it woke up"
        assert len(list((proc / "task").iterdir())) == 1
        assert own_memory_kib(a) <= 256
        with concurrent.futures.ThreadPoolExecutor(20) as pool:
            list(pool.map(lambda i: a.sh("seq 1 20000"), range(100)))
        time.sleep(31)  # ended processes are kept for 30 s
        assert own_memory_kib(a) <= 512, "what a busy time needed was not given back"
    finally:
        a.stop()


def test_a_child_that_cannot_get_on_holds_up_nobody(tmp_path):
    """The cgroup's file is a full pipe here: the child hangs before exec, as in a frozen cgroup."""
    fifo = tmp_path / "tasks"
    os.mkfifo(fifo)
    pipe = os.open(fifo, os.O_RDWR | os.O_NONBLOCK)
    try:
        while True:
            os.write(pipe, b"x" * 4096)
    except BlockingIOError:
        pass
    a, said = agentlib.start_booted(BINARY, CAPS, fifo)
    assert said == b"R"
    try:
        with concurrent.futures.ThreadPoolExecutor() as pool:
            stuck = pool.submit(a.sh, "echo through")
            late = pool.submit(a.sh, "echo late", headers={"Connect-Timeout-Ms": "500"})
            assert late.result(10).error["code"] == "deadline_exceeded"
            assert a.raw("GET", "/health")[0] == 204
            assert a.call("List", {}) == (200, {}), "not started yet"
            assert not stuck.done()
            with pytest.raises(TimeoutError):
                a.sh("echo alone > /tmp/alone", timeout=0.3)
            os.read(pipe, 65536)
            assert stuck.result(10).text() == "through\n"
        until(lambda: pathlib.Path(f"/proc/{a.pid}/root/tmp/alone").exists(), what="it waits for no client")
    finally:
        os.close(pipe)
        a.stop()


@pytest.mark.parametrize("version, fds, text", [(2, 1, b"version 2"), (agentlib.BOOT_VERSION, 9, b"9 cgroup")])
def test_bad_boot_block_is_refused(tmp_path, monkeypatch, version, fds, text):
    real = agentlib.BOOT

    class Other:
        @staticmethod
        def pack(_version, _fds, *rest):
            return real.pack(version, fds, *rest)

    monkeypatch.setattr(agentlib, "BOOT", Other)
    (tmp_path / "tasks").touch()
    a, said = agentlib.start_booted(BINARY, CAPS, tmp_path / "tasks")
    a.process.wait(10)
    assert said[:1] == b"F" and text in said and said.endswith(b"\0")
