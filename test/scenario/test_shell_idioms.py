"""Shells' idioms give the same in a sandbox as on the host: exit status, both outputs. A single table; each row runs
in both places by the same bash. A second table: what a command started is gone when the command was killed."""

import os
import re
import signal
import subprocess
import tempfile

import pytest

from waitlib import until

HOST_SECONDS = 20

# The control of the whole table: with a command that leads its session, as it was once, `setsid` answers 0.
SAME = {
    "true": "true",
    "false": "false",
    "exit": "exit 42",
    "exit above 255": "exit 300",
    "not found": "no-such-program-here",
    "not executable": "/etc/passwd",
    "a directory": "/tmp",
    "setsid keeps the status": "setsid sh -c 'exit 7'",
    "setsid with an absolute path": "/usr/bin/setsid /bin/sh -c 'echo out; exit 7'",
    "exec setsid": "exec setsid sh -c 'exit 9'",
    "setsid --wait": "setsid --wait sh -c 'exit 8'",
    "setsid in the background": "setsid sh -c 'exit 7' & wait $!; echo $?",
    "setsid in a pipeline": "setsid sh -c 'echo a; exit 3' | cat; echo ${PIPESTATUS[0]}",
    "setsid in a subshell": "(setsid sh -c 'exit 5'); echo $?",
    "setsid timeout": "setsid timeout 5 sh -c 'exit 6'",
    "nohup": "nohup sh -c 'echo out; exit 4' </dev/null",
    "nohup in the background": "nohup sh -c 'echo out' >/dev/null 2>&1 & wait; echo done",
    "disown": "sleep 0.1 & disown; jobs; echo $?",
    "disown -a": "sleep 0.1 & sleep 0.1 & disown -a; wait; echo waited",
    "trap EXIT": "trap 'echo bye' EXIT; echo hi",
    "trap EXIT keeps the status": "trap 'echo bye' EXIT; exit 3",
    "trap TERM": "trap 'echo term; exit 5' TERM; kill $$; sleep 5",
    "trap ERR": "trap 'echo err' ERR; false; true",
    # bash itself forgets a SIGTERM that meets its child between fork and exec (1 of 1,600 on a loaded host): the child is sleep first.
    "trap kill 0": "trap 'trap - TERM; kill 0' EXIT; sleep 100 & sleep 0.2; exit 3",
    "kill 0": "sleep 100 & sleep 0.2; kill 0",
    "kill 0 of a subshell": "(trap 'exit 4' TERM; kill 0; sleep 1); echo $?",
    "ignored hangup": "trap '' HUP; kill -HUP $$; echo alive",
    "killed by a signal": "kill -KILL $$",
    "a child killed by a signal": "sh -c 'kill -KILL $$' 2>/dev/null; echo $?",
    "segmentation fault": "sh -c 'kill -SEGV $$' 2>/dev/null; echo $?",
    "broken pipe": "yes | head -n 1; echo ${PIPESTATUS[@]}",
    "SIGPIPE is not ignored": "(trap '' PIPE; true); yes | head -n 1 >/dev/null; echo ${PIPESTATUS[0]}",
    "( ... ) &": "( sleep 0.1; echo late ) & wait; echo end",
    "a background job's status": "(exit 6) & wait $!; echo $?",
    "wait -n": "(exit 3) & wait -n; echo $?",
    "pipeline": "printf 'b\\na\\n' | sort | tr a-z A-Z",
    "pipefail": "set -o pipefail; false | true; echo $?",
    "errexit": "set -e; false; echo never",
    "nounset": "set -u; echo $UNSET_HERE; echo never",
    "coproc": "coproc cat; echo word >&${COPROC[1]}; read -r x <&${COPROC[0]}; echo $x",
    "exec": "exec sh -c 'exit 11'",
    "exec of descriptors": "exec 3>&1; echo three >&3",
    "exec -a": "exec -a name sh -c 'echo $0'",
    "heredoc": "cat <<END\n$((6 * 7))\nEND",
    "quoted heredoc": "cat <<'END'\n$HOME\nEND",
    "herestring": "cat <<<'word'",
    "process substitution": "diff <(echo a) <(echo b); echo $?",
    "output substitution": "echo x > >(cat; echo y); sleep 0.2",
    "/dev/stdout": "echo x >/dev/stdout; echo y >/dev/stderr",
    "/dev/fd": "echo x | cat /dev/fd/0",
    "stdin is at its end": "cat; read -r x; echo $?",
    "no terminal": "test -t 0; echo $?; test -t 1; echo $?; tty",
    "/dev/tty": "(: </dev/tty) 2>/dev/null; echo $?",
    "timeout": "timeout 0.1 sleep 10; echo $?",
    "timeout -k": "timeout -k 0.1 0.1 sh -c 'trap \"\" TERM; sleep 10'; echo $?",
    "timeout --foreground": "timeout --foreground 0.1 sleep 10; echo $?",
    "timeout that does not end": "timeout 5 sh -c 'exit 3'",
    "xargs -P": "seq 8 | xargs -P 4 -n 1 sh -c 'exit 0'; echo $?",
    "xargs' failing child": "seq 3 | xargs -n 1 sh -c 'exit 2'; echo $?",
    "xargs' 255": "echo 1 | xargs sh -c 'exit 255' 2>/dev/null; echo $?",
    "bash -i": "bash --norc -i -c 'echo in; exit 6' 2>/dev/null",
    "set -m": "set -m; sleep 0.1 & wait; (exit 4) & wait $!; echo $?",
    "set -m and setsid": "set -m; setsid sh -c 'exit 3'; echo $?",
    "fg of a job": "set -m; (sleep 0.2; exit 7) & fg >/dev/null; echo $?",
    "a stopped job": "set -m; sleep 5 & sleep 0.1; kill -STOP $!; sleep 0.2; jobs -s | wc -l; kill -KILL $!",
    "SIGTSTP has its default": "sh -c 'kill -TSTP $$' & sleep 0.1; kill -CONT $! 2>/dev/null; wait $!; echo $?",
    "command substitution": "x=$(echo a; exit 3); echo $? $x",
    "substitution waits for who holds it": "x=$( (sleep 0.1; echo late) & echo early); echo $x",
    "flock": "flock /tmp sh -c 'exit 5'",
    "env -i": "env -i sh -c 'echo ${HOME-none}; exit 2'",
    "nice": "nice -n 5 sh -c 'nice; exit 3'",
    "umask": "umask",
    "getopts": "set -- -a b; getopts a: o; echo $o $OPTARG",
    "arithmetic's status": "((0)); echo $?; let 1; echo $?",
    "a function's return": "f() { return 9; }; f",
    "source": "echo 'return 4' >/tmp/cay-idiom; . /tmp/cay-idiom; x=$?; rm /tmp/cay-idiom; exit $x",
    "ulimit": "ulimit -c 0; ulimit -c",
    "set -euo pipefail": "set -euo pipefail; echo a | grep b | cat; echo never",
    "pipefail with tee": "set -o pipefail; (echo a; exit 3) | tee /dev/null; echo $?",
    "trap EXIT kills its children": "trap 'kill $(jobs -p); wait 2>/dev/null; echo ended' EXIT; sleep 100 & sleep 100 & sleep 0.2; exit 4",
    "trap INT and TERM EXIT": "trap 'echo one' EXIT; trap 'exit 143' TERM; kill -TERM $$; sleep 5",
    "trap in a subshell": "(trap 'echo sub' EXIT; exit 2); echo $?",
    "wait -n of several": "sleep 5 & p=$!; (sleep 0.1; exit 3) & wait -n; echo $?; kill $p; wait $p; echo $?",
    "wait for all": "(exit 1) & a=$!; (exit 2) & b=$!; wait $a; x=$?; wait $b; echo $x $?",
    "wait of what is not a child": "wait 1; echo $?",
    "script": "script -qec 'tty >/dev/null && echo terminal; exit 3' /dev/null </dev/null; echo $?",
    "script without -e": "script -qc 'exit 3' /dev/null </dev/null >/dev/null; echo $?",
    "stdbuf": "stdbuf -oL sh -c 'echo line; exit 3'; echo $?",
    "stdbuf in a pipeline": "(echo a; echo b) | stdbuf -o0 tr a-z A-Z | cat",
    "tee >( ... )": "echo x | tee >(tr x y >/tmp/cay-idiom-tee) >/dev/null; sleep 0.2; cat /tmp/cay-idiom-tee; rm /tmp/cay-idiom-tee",
    "two of tee's": "seq 3 | tee >(wc -l >&2) >(sort -r >&2) >/dev/null | cat; sleep 0.2",
    "exec >file 2>&1": "exec >/tmp/cay-idiom-log 2>&1; echo out; echo err >&2; cat /tmp/cay-idiom-log >/proc/self/fd/1; "
                       "no-such-program-here; rm /tmp/cay-idiom-log; exit 5",
    "exec > >(tee)": "exec > >(cat) 2>&1; echo out; echo err >&2; exec >&-; sleep 0.2; exit 6",
    "descriptors saved and restored": "exec 3>&1 >/dev/null; echo hidden; exec >&3 3>&-; echo shown",
    "bash -lc": "bash -lc 'shopt -q login_shell && echo login; exit 3'",
    "bash -c with arguments": "bash -c 'echo $0 $@; exit $#' name a b",
    "sh -s": "echo 'echo $1; exit 7' | sh -s word",
    "bash <( ... )": "bash <(echo 'echo from; exit 8')",
    "eval": "eval 'echo a; (exit 3)'; echo $?",
    "env -i bash -c": "env -i A=b bash --norc -c 'echo $A ${HOME-none}; exit 4'",
    "env -S": "env -S 'A=b sh -c' 'echo $A; exit 2'",
    "timeout of a group": "timeout 0.2 sh -c 'sleep 100 & wait'; echo $?",
    "timeout -s INT": "timeout -s INT 0.1 sleep 10; echo $?",
    "find -exec": "find /etc/hostname -exec sh -c 'exit 3' \\;; echo $?",
    "mapfile": "mapfile -t a < <(printf 'x\\ny\\n'); echo ${#a[@]} ${a[1]}",
    "read with a timeout": "sleep 5 | (read -t 0.1 x; echo $(( $? > 128 ))); true",
    "a fifo": "d=$(mktemp -d); mkfifo $d/p; echo word >$d/p & cat $d/p; rm -r $d; wait; echo $?",
    "lock of a descriptor": "exec 9>/tmp/cay-idiom-lock; flock -n 9; echo $?; (flock -n 9; echo $?); rm /tmp/cay-idiom-lock",
    "printf to a closed pipe": "set -o pipefail; seq 100000 | head -n 1; echo $?",
    "script of many lines": "for i in 1 2 3; do\n  echo $i\ndone\nexit 13",
}


def shown(text):
    """Numbers of processes differ."""
    return re.sub(r"(line \d+:|pid|\() *\d+", r"\1 N", text)


def on_host(script):
    with tempfile.TemporaryDirectory() as home:
        os.chmod(home, 0o755)
        done = subprocess.run(["/bin/bash", "--norc", "-c", script], stdin=subprocess.DEVNULL, capture_output=True,
                              timeout=HOST_SECONDS, cwd=home, umask=0o022, env={"PATH": os.defpath + ":/usr/sbin:/sbin", "HOME": home},
                              preexec_fn=group_without_leader)
    code = done.returncode
    return (code if code >= 0 else f"signal {-code}", shown(done.stdout.decode()), shown(done.stderr.decode()))


def group_without_leader():
    """`kill 0` is to reach the script and not the tests; a leader would change what setsid does. As cay-init does it."""
    leader = os.fork()
    if leader == 0:
        while True:
            signal.pause()
    os.setpgid(leader, leader)
    os.setpgid(0, leader)
    os.kill(leader, signal.SIGKILL)
    os.waitpid(leader, 0)


def inside(sandbox, script):
    done = sandbox.run("/bin/bash", args=["--norc", "-c", script],
                       env={"PATH": os.defpath + ":/usr/sbin:/sbin"})
    assert done.error is None, done.error
    ended = re.match(r"signal: (.*)", done.status or "")
    names = {"killed": 9, "terminated": 15}
    code = f"signal {names[ended[1]]}" if ended else done.exit_code
    return (code, shown(done.out), shown(done.stderr.decode()))


@pytest.fixture(scope="module")
def sandbox(cay):
    with cay.create() as made:
        yield made


@pytest.mark.parametrize("name", SAME)
def test_the_same_as_on_the_host(sandbox, name):
    assert inside(sandbox, SAME[name]) == on_host(SAME[name])


# The host's own users are none of a test's: the expected output is written down, as Debian's sudo and su do it.
AS_OTHERS = {
    "sudo -u": ("user", "sudo -u root sh -c 'id -un; exit 3'", 3, "root\n"),
    "sudo -n": ("user", "sudo -n true; echo $?", 0, "0\n"),
    "sudo in a pipeline": ("user", "echo word | sudo tee /root/idiom >/dev/null; sudo cat /root/idiom", 0, "word\n"),
    "sudo -u of root": ("root", "sudo -u user sh -c 'id -un; exit 4'", 4, "user\n"),
    "sudo -E": ("user", "A=b sudo -E sh -c 'echo $A'", 0, "b\n"),
    "sudo -i": ("user", "sudo -i sh -c 'pwd; exit 5'", 5, "/root\n"),
    "sudo keeps a signal's status": ("user", "sudo sh -c 'kill -TERM $$'; echo $?", 0, "143\n"),
    "su -c": ("root", "su user -c 'id -un; exit 6'", 6, "user\n"),
    "su - -c": ("root", "su - user -c 'id -un; pwd; exit 7'", 7, "user\n/home/user\n"),
    "su - -c with a background child": ("root", "su - user -c 'sleep 0.1 & wait; echo over'", 0, "over\n"),
    "runuser": ("root", "runuser -u user -- sh -c 'id -un; exit 8'", 8, "user\n"),
    "setpriv": ("root", "setpriv --reuid=1000 --regid=1000 --clear-groups sh -c 'id -u; exit 9'", 9, "1000\n"),
}


@pytest.mark.parametrize("name", AS_OTHERS)
def test_as_another_user(sandbox, name):
    user, script, code, out = AS_OTHERS[name]
    done = sandbox.run("/bin/bash", args=["-c", script], user=user)
    assert (done.exit_code, done.out) == (code, out), done.stderr.decode()


# -- what a killed command leaves ---------------------------------------------------------------------

DAEMON = """python3 -c '
import os, time
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
os.execvp("sleep", ["sleep", "7777"])'"""

KILLED = {
    "child": "sleep 7777 & wait",
    "setsid": "setsid sleep 7777 & sleep 1000",
    "exec setsid": "exec setsid sleep 7777",
    "nohup": "nohup sleep 7777 >/dev/null 2>&1 & sleep 1000",
    "disowned": "sleep 7777 & disown; sleep 1000",
    "job control": "set -m; sleep 7777 & sleep 1000",
    "double fork": f"{DAEMON}; sleep 1000",
    "daemon without environment": f"env -i PATH=$PATH {DAEMON}; sleep 1000",
    "orphan of a subshell": "(setsid sleep 7777 &) ; sleep 1000",
    "sudo": "sudo sleep 7777 & sleep 1000",
    "pipefail": "set -o pipefail; sleep 7777 | cat | cat",
    "trap EXIT with a child": "trap 'sleep 1000' EXIT TERM; sleep 7777 & wait",
    "wait -n": "sleep 7777 & wait -n",
    "script": "script -qc 'sleep 7777' /dev/null </dev/null",
    "stdbuf": "stdbuf -oL sleep 7777",
    "output substitution": "exec > >(exec sleep 7777); sleep 1000",
    "tee": "sleep 1000 | tee >(exec sleep 7777) >/dev/null",
    "bash -lc": "bash -lc 'sleep 7777 & wait'",
    "env -i": "env -i setsid sleep 7777 & sleep 1000",
    "exec >file": "exec >/tmp/cay-idiom-out 2>&1; sleep 7777 & sleep 1000",
    "coproc": "coproc sleep 7777; sleep 1000",
    "timeout": "timeout 1000 sleep 7777",
    "xargs -P": "echo 7777 | xargs -P 4 -n 1 sleep",
    "deaf to TERM": "trap '' TERM HUP; sleep 7777 & wait",
    "stopped": "sleep 7777 & sleep 0.3; kill -STOP $!; sleep 1000",
    "many": "for i in $(seq 40); do setsid sleep 7777 & done; sleep 1000",
}


def sleepers(sandbox):
    return sandbox.run("pgrep -cx -f 'sleep 7777'").out.strip()


@pytest.mark.parametrize("name", KILLED)
def test_what_a_killed_command_started_is_gone(sandbox, name):
    events = sandbox.stream("process.Process/Start", {"process": {
        "cmd": "/bin/bash", "args": ["-c", KILLED[name]]}, "stdin": False})
    pid = next(events)["event"]["start"]["pid"]
    wanted = "40" if name == "many" else "1"
    if name == "sudo":
        wanted = sleepers_with_sudo = "2"  # sudo's own arguments end the same
        until(lambda: sleepers(sandbox) in ("1", sleepers_with_sudo), 20, "the process inside")
    else:
        until(lambda: sleepers(sandbox) == wanted, 20, f"the process inside: {sleepers(sandbox)}")
    neighbour = sandbox.stream("process.Process/Start", {"process": {"cmd": "sleep", "args": ["8888"]}, "stdin": False})
    next(neighbour)
    answer = sandbox.rpc("process.Process/SendSignal", {"process": {"pid": pid}, "signal": "SIGNAL_SIGKILL"})
    assert answer.status == 200, answer.body
    until(lambda: sleepers(sandbox) == "0", 10, "an end of all that it started")
    assert sandbox.run("pgrep -cx -f 'sleep 8888'").out.strip() == "1"
    sandbox.run("pkill -x -f 'sleep 8888'")
    for _ in events:
        pass


def test_kill_0_of_one_command_leaves_the_others(sandbox):
    other = sandbox.stream("process.Process/Start", {"process": {"cmd": "sleep", "args": ["9999"]}, "stdin": False})
    next(other)
    sandbox.run("/bin/bash", args=["-c", "kill 0"])
    assert sandbox.run("pgrep -cx -f 'sleep 9999'").out.strip() == "1"
    sandbox.run("pkill -x -f 'sleep 9999'")
