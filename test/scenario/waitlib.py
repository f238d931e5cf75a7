"""The one way to wait for what comes to pass by itself."""

import inspect
import os
import signal
import time

NOT_YET = (OSError, ValueError, AssertionError)  # of something that is being started again


def until(true, seconds=30, what=None, patient=False, every=0.05):
    """The value of true(), once it is true. After so many seconds it fails, and says what was waited for (a text, or
    what a function says then; else the source of true) and what was said last. patient: an error on the way counts as not there yet."""
    end = time.monotonic() + seconds
    while True:
        try:
            if value := true():
                return value
        except NOT_YET as e:
            if not patient:
                raise
            value = e
        assert time.monotonic() < end, f"not within {seconds} s: {name_of(true, what)}; last: {value!r}"
        time.sleep(every)


def signalled(pids, how):
    """Those of pids that were there for the signal: one may end between the look and it."""
    found = []
    for pid in pids:
        try:
            os.kill(pid, how)
            found.append(pid)
        except ProcessLookupError:
            continue
    return found


def kill_all(pids, how=signal.SIGKILL):
    """Ends the processes that pids() tells, and says which. There has to be one: it may be on its way back from
    the end before, and a test that kills nothing shows nothing."""
    return until(lambda: signalled(pids(), how), 60)


def has_stopped(pid):
    """False: it has ended instead."""
    def state():
        try:
            with open(f"/proc/{pid}/stat") as f:
                return f.read().rpartition(")")[2].split()[0]
        except OSError:
            return "X"
    return until(lambda: (now := state()) in "TtZX" and now, every=0.001) in "Tt"


def stop_one(pids, seconds=60, what=None):
    """Stops the first process that pids() tells and that is still there, and gives its number. A process that ends
    first is passed over for the next."""
    return until(lambda: next((pid for pid in pids() if signalled([pid], signal.SIGSTOP) and has_stopped(pid)), None),
                 seconds, what, every=0.001)


def wait_replaced(pids, old):
    """Until there are others in the place of old, which kill_all said. A question before that may be answered by
    those that do not know yet that one has ended."""
    until(lambda: len(now := pids()) >= len(old) and not set(now) & set(old), 60, lambda: f"others than {old}: {pids()}")


def name_of(true, what):
    if callable(what):
        return what()
    try:
        return what or inspect.getsource(true).strip()
    except (OSError, TypeError):
        return repr(true)
