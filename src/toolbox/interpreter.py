"""Python with a memory, in a sandbox: what the toolbox's interpreter runs there (interpreter.h). The text has three programs:

    serve ID   a context: owns a worker, and has one execution after the other run by it
    work FD    the worker: the only one of the three that executes a client's code
    ask ID     one execution: asks the context, and prints what comes, one JSON object a line

A context is found by a socket of the sandbox's own network namespace, so that no file is left behind. All three have the
rights of the same user, and the code may end or replace any of them: that is an error for its own client, and no more."""

import sys

if sys.path and sys.path[0] == "":
    del sys.path[0]  # before anything is imported: json.py of a working directory is none of ours

import codecs
import json
import os
import select
import signal
import socket
import struct
import subprocess
import time

PIECE = 32768            # bytes of output in one message
DRAIN_MAX = 1 << 20      # of output that is looked for when an execution has ended
TEXT_MAX = 16384         # characters of an error's text, and of its traceback
ANSWER_MAX = 32 * TEXT_MAX
REQUEST_MAX = 16 << 20
GRACE_S = 2              # from an interrupt to the kill
TAKE_S = 30              # for a client to take what was said before the end
ASKERS_MAX = 64          # executions that wait
START_S = 10
NO_CONTEXT, LOST = 3, 4  # how `ask` ends


def address(id):
    return f"\0cay-interpreter-{os.getuid()}-{id}"


def is_ours(s):
    """The other end belongs to the same user: an abstract name may be taken by any."""
    return struct.unpack("3i", s.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1] == os.getuid()


def program(*words):
    """This text again, with the options of its own start but none that hides the user's packages."""
    words_of_this = open("/proc/self/cmdline", "rb").read().split(b"\0")
    return [sys.executable, "-c", words_of_this[words_of_this.index(b"-c") + 1], *words]


# -- the worker ---------------------------------------------------------------------------------------------------------


def tell_error(e):
    """Frames of this file are left out: the client knows its own code alone."""
    import traceback

    tb = e.__traceback__
    while tb and tb.tb_frame.f_code.co_filename != "<stdin>":
        tb = tb.tb_next
    try:
        value, text = str(e), "".join(traceback.format_exception(type(e), e, tb))
    except BaseException:  # the code's own __str__
        value, text = "", type(e).__name__
    plain = lambda s: s[:TEXT_MAX].encode("utf-8", "replace").decode()  # noqa: E731
    return {"type": "error", "name": plain(type(e).__name__), "value": plain(value), "traceback": plain(text)}


def execute(names, code, envs):
    """None, "interrupted", or an error's message."""
    import linecache

    before = {name: os.environ.get(name) for name in envs}
    said = None
    try:
        try:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            os.environ.update(envs)
            linecache.cache["<stdin>"] = len(code), None, code.splitlines(True), "<stdin>"
            exec(compile(code, "<stdin>", "exec", dont_inherit=True), names)
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
    except SystemExit:
        pass
    except KeyboardInterrupt:
        said = "interrupted"
    except BaseException as e:
        said = tell_error(e)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        try:
            stream.flush()
        except BaseException:  # closed or replaced by the code
            pass
    return said


def work(fd):
    import types

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with socket.socket(fileno=fd) as supervisor:
        main = types.ModuleType("__main__")
        main.__builtins__ = __builtins__
        sys.modules["__main__"] = main
        sys.path.insert(0, "")
        sys.argv = [""]
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(encoding="utf-8", errors="replace", line_buffering=True, write_through=False)
        supervisor.set_inheritable(False)
        for line in supervisor.makefile("rb"):
            request = json.loads(line)
            said = execute(main.__dict__, request["code"], request.get("envs") or {})
            supervisor.sendall(json.dumps(said).encode() + b"\n")


class Worker:
    def __init__(self):
        self.control, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(program("work", str(theirs.fileno())), stdin=subprocess.DEVNULL,
                                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, pass_fds=[theirs.fileno()],
                                            start_new_session=True)
        self.outputs = {self.process.stdout.fileno(): "stdout", self.process.stderr.fileno(): "stderr"}
        for fd in self.outputs:
            os.set_blocking(fd, False)

    def end(self):
        """With all of its group. Returns how it ended; not twice, as its number may be another's then."""
        if self.control.fileno() == -1:
            return self.process.returncode
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        status = self.process.wait()
        self.control.close()
        self.process.stdout.close()
        self.process.stderr.close()
        return status


def read_some(fd):
    """b"" at the end, None when there is nothing."""
    try:
        return os.read(fd, PIECE)
    except BlockingIOError:
        return None
    except OSError:
        return b""


# -- an execution, as the context sees it -------------------------------------------------------------------------------


class Execution:
    def __init__(self, worker, client, request):
        self.worker, self.client = worker, client
        self.out = bytearray()  # for the client; while there is any, the worker's outputs wait
        self.decoders = {which: codecs.getincrementaldecoder("utf-8")("replace") for which in ("stdout", "stderr")}
        self.answer = b""
        timeout = request.get("timeout")
        self.deadline = time.monotonic() + timeout if timeout else None
        self.kill_at = None
        self.timed_out = self.gone = False

    def say(self, **message):
        if not self.gone:
            self.out += json.dumps(message).encode() + b"\n"

    def hear(self, which, data, final=False):
        text = self.decoders[which].decode(data, final)
        if text:
            self.say(type=which, text=text)

    def hear_rest(self):
        """The pipes hold output that was printed before the end."""
        heard = 0
        for fd, which in self.worker.outputs.items():
            while heard < DRAIN_MAX and (data := read_some(fd)):
                heard += len(data)
                self.hear(which, data)
            self.hear(which, b"", True)

    def interrupt(self):
        if self.kill_at is None:
            self.kill_at = time.monotonic() + GRACE_S
            self.worker.process.send_signal(signal.SIGINT)

    def look_at_client(self):
        """It has nothing more to say: the next read is its end."""
        try:
            data = self.client.recv(4096)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.gone = True
            self.out.clear()
            self.interrupt()

    def send(self):
        try:
            del self.out[:self.client.send(self.out)]
        except BlockingIOError:
            pass
        except OSError:
            self.look_at_client()

    def wait(self):
        """Waits for a turn. True: the worker has answered, or is no more."""
        now = time.monotonic()
        if self.deadline is not None and now >= self.deadline and not self.timed_out:
            self.timed_out = True
            self.interrupt()
        if self.kill_at is not None and now >= self.kill_at:
            return True
        ends = [t for t in (self.deadline if not self.timed_out else None, self.kill_at) if t is not None]
        reads = [] if self.gone else [self.client]
        if not self.out:
            reads += [self.worker.control, *self.worker.outputs]
        r, w, _ = select.select(reads, [self.client] if self.out else [], [], max(0, min([0.5, *(t - now for t in ends)])))
        if self.client in r:
            self.look_at_client()
        if w and not self.gone:
            self.send()
        for fd, which in [*self.worker.outputs.items()]:
            if fd in r and (data := read_some(fd)) is not None:
                if data:
                    self.hear(which, data)
                else:
                    del self.worker.outputs[fd]  # the code closed it
        if self.worker.control in r:
            data = self.worker.control.recv(PIECE)
            self.answer += data
            return not data or self.answer.endswith(b"\n") or len(self.answer) > ANSWER_MAX
        return not self.out and self.worker.process.poll() is not None

    def run(self):
        """False: the worker has to be replaced."""
        while not self.wait():
            pass
        self.hear_rest()
        whole = self.answer.endswith(b"\n")
        if self.timed_out:
            self.say(type="control", text="timeout")
        elif whole:
            said = json.loads(self.answer)
            if isinstance(said, dict):
                self.out += json.dumps(said).encode() + b"\n"
            self.say(type="control", text="interrupted" if said == "interrupted" else "completed")
        else:
            self.say(type="error", name="InterpreterEnded", value=why_ended(self.worker.end()), traceback="")
            self.say(type="control", text="completed")
        return whole

    def finish(self):
        """The client has some time to take what was said."""
        end = time.monotonic() + TAKE_S
        while self.out and not self.gone and time.monotonic() < end:
            _, w, _ = select.select([], [self.client], [], 1)
            if w:
                self.send()


def why_ended(status):
    how = f"exit status {status}" if status >= 0 else f"signal {-status}"
    memory = "; the memory limit of the sandbox is the usual reason" if status == -signal.SIGKILL else ""
    return f"Python ended ({how}){memory}: its variables are gone, and the next code begins anew"


# -- a context ----------------------------------------------------------------------------------------------------------


def read_request(client):
    """None: it is not whole, or its client has gone since."""
    client.settimeout(START_S)
    text = b""
    try:
        while not text.endswith(b"\n") and len(text) < REQUEST_MAX:
            data = client.recv(65536)
            if not data:
                return None
            text += data
        client.setblocking(False)
        if select.select([client], [], [], 0)[0] and not client.recv(1, socket.MSG_PEEK):
            return None
        return json.loads(text)
    except (OSError, ValueError):
        return None


class Context:
    def __init__(self):
        self.worker = Worker()

    def rest(self, listener):
        """Until an execution is requested; what threads of the worker print meanwhile has no reader."""
        while True:
            r, _, _ = select.select([listener, *self.worker.outputs], [], [])
            for fd in r:
                if fd in self.worker.outputs and read_some(fd) == b"":
                    del self.worker.outputs[fd]
            if listener in r:
                return listener.accept()[0]

    def hand_over(self, execution, request):
        """The worker reads at once, as it has nothing else to do."""
        status = self.worker.process.poll()
        if status is not None:
            self.worker.end()
            execution.worker = self.worker = Worker()
            execution.say(type="stderr", text=f"[before this: {why_ended(status)}]\n")
        for fd in self.worker.outputs:  # before the code can print: the rest of those before it
            read = 0
            while read < DRAIN_MAX and (data := read_some(fd)):
                read += len(data)
        self.worker.control.settimeout(START_S)
        self.worker.control.sendall(json.dumps({"code": request["code"], "envs": request.get("envs")}).encode() + b"\n")

    def serve_one(self, client):
        request = read_request(client) if is_ours(client) else None
        if not request:
            return
        execution = Execution(self.worker, client, request)
        try:
            self.hand_over(execution, request)
            keep = execution.run()
        except (OSError, ValueError, RecursionError):  # the worker ended just now, or the code spoke in its place
            execution.say(type="error", name="InterpreterEnded", value=why_ended(self.worker.end()), traceback="")
            execution.say(type="control", text="completed")
            keep = False
        if not keep:
            self.worker.end()
            self.worker = Worker()
        execution.finish()


def serve(id):
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(address(id))
    except OSError:  # another has just begun the same
        return
    listener.listen(ASKERS_MAX)
    context = Context()
    print(json.dumps({"cwd": os.getcwd()}), flush=True)
    null = os.open("/dev/null", os.O_RDWR)
    for fd in range(3):
        os.dup2(null, fd)
    while True:
        with context.rest(listener) as client:
            context.serve_one(client)


# -- one execution, from outside ----------------------------------------------------------------------------------------


def connect(id):
    s = socket.socket(socket.AF_UNIX)
    try:
        s.connect(address(id))
    except OSError:
        s.close()
        return None
    if not is_ours(s):
        s.close()
        return None
    return s


def begin_default():
    """Its context is no child of this, so that it outlives it, and knows nothing of this execution."""
    subprocess.Popen(program("serve", "default"), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                     stderr=subprocess.DEVNULL, start_new_session=True)
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        s = connect("default")
        if s:
            return s
        time.sleep(0.01)
    return None


def ask(id):
    request, path = os.environ.pop("CAY_CODE", None), os.environ.pop("CAY_CODE_FILE", None)
    if request is None:
        with open(path) as f:
            request = f.read()
        os.unlink(path)
    s = connect(id) or (begin_default() if id == "default" else None)
    if not s:
        return NO_CONTEXT
    s.sendall(request.encode() + b"\n")
    ended = False
    while data := s.recv(65536):
        ended = data.endswith(b"\n")
        view = memoryview(data)
        while view:
            view = view[os.write(1, view):]
    return 0 if ended else LOST


if sys.argv[1] == "serve":
    serve(sys.argv[2])
elif sys.argv[1] == "work":
    work(int(sys.argv[2]))
else:
    sys.exit(ask(sys.argv[2]))
