"""The operations of a client of the soak: one thread, its own seeded choices, its own sandboxes. Every answer is
checked against what the client knows it must be."""

import base64
import hashlib
import http.client
import json
import random
import struct
import time

from client import Client, Result, take_event

DEADLINE_SECONDS = 120      # of one call; nothing may hang past it
TTL_SECONDS = 900
BOXES_EACH = 6
MIB = 1 << 20
CUTS = (ConnectionError, http.client.HTTPException)  # what a restart does to a connection that is open
FULL = "no more are allowed"  # the operator's number is reached: 503; a tenant's share: 429
AWAY = (502, 503, 504)      # what a server that is just coming back may answer


class Wrong(Exception):
    """An answer that is not what it must be."""


class Cut(Exception):
    """The connection broke, or the server said that it is not there: allowed around a kill only."""


class Full(Exception):
    """As many sandboxes as the server allows are there."""


def check(true, text, *values):
    if not true:
        raise Wrong(text + ": " + ", ".join(repr(v)[:300] for v in values))


def digest(data):
    return hashlib.sha256(data).hexdigest()


class Box:
    """A sandbox and what its client knows of it."""

    def __init__(self, sandbox):
        self.sandbox, self.files, self.sleeper = sandbox, {}, None
        self.id = sandbox.id


class Stream:
    """A server stream that is read message by message and may be dropped."""

    def __init__(self, box, method, message, headers=None):
        body = json.dumps(message).encode()
        sent = box.sandbox.headers()
        sent.update({"Content-Type": "application/connect+json", "Connect-Protocol-Version": "1", **(headers or {})})
        self.connection = box.sandbox.client.connect(DEADLINE_SECONDS)
        self.connection.request("POST", "/" + method, struct.pack(">BI", 0, len(body)) + body, sent)
        self.answer = self.connection.getresponse()
        if self.answer.status in AWAY:
            raise Cut(f"{self.answer.status} {self.answer.read()[:200]}")
        if self.answer.status != 200:
            raise Wrong(f"a stream's status: {self.answer.status} {self.answer.read()[:200]}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.connection.close()

    def _exactly(self, n):
        data = b""
        while len(data) < n:
            piece = self.answer.read(n - len(data))
            if not piece:
                raise Cut("the stream broke off")
            data += piece
        return data

    def next(self):
        """The next message that is not a keepalive; the last one is {"end-stream": ...}."""
        while True:
            flags, length = struct.unpack(">BI", self._exactly(5))
            value = json.loads(self._exactly(length))
            if flags & 2:
                return {"end-stream": value}
            if "keepalive" not in value.get("event", value):
                return value

    def rest(self, result=None):
        result = result or Result()
        while True:
            message = self.next()
            take_event(result, message)
            if "end-stream" in message:
                return result


def process(command, user_args=None):
    return {"cmd": "/bin/bash", "args": user_args or ["-l", "-c", command]}


class Worker:
    def __init__(self, number, seed, url, key, mark):
        self.random = random.Random(f"{seed}/{number}")
        self.client, self.mark, self.number = Client(url, key), mark, number
        self.boxes, self.url = [], url

    # -- calls -------------------------------------------------------------------------------------

    def call(self, method, path, body=None, expect=(200,), **more):
        reply = self.client.call(method, path, body, timeout=DEADLINE_SECONDS, **more)
        if reply.status in AWAY and reply.status not in expect:
            raise Cut(f"{reply.status} {reply.body[:200]}")
        check(reply.status in expect, f"{method} {path}", reply.status, reply.body)
        return reply

    def inside(self, box, method, path, body=None, headers=None, expect=(200,)):
        reply = box.sandbox.request(method, path, body, headers, timeout=DEADLINE_SECONDS)
        if reply.status in AWAY and reply.status not in expect:
            raise Cut(f"{reply.status} {reply.body[:200]}")
        check(reply.status in expect, f"{method} {path.split('?')[0]}", reply.status, reply.body)
        return reply

    def rpc(self, box, method, message, expect=(200,)):
        return self.inside(box, "POST", "/" + method, message, expect=expect).json

    def start(self, box, command, stdin=False, headers=None):
        return Stream(box, "process.Process/Start", {"process": process(command), "stdin": stdin}, headers)

    def run(self, box, command):
        with self.start(box, command) as stream:
            result = stream.rest()
        check(result.error is None, "a stream's error", result.error)
        return result

    def tidy(self, box):
        """A process outlives the connection that started it: after a cut they would add up."""
        for item in self.rpc(box, "process.Process/List", {}).get("processes", []):
            self.rpc(box, "process.Process/SendSignal",
                     {"process": {"pid": item["pid"]}, "signal": "SIGNAL_SIGKILL"}, expect=(200, 404))

    # -- operations --------------------------------------------------------------------------------

    def create(self, ttl=TTL_SECONDS):
        from client import Sandbox
        body = {"templateID": "host", "timeout": ttl, "metadata": {"soak": self.mark}, "envVars": {"MARK": "m"}}
        reply = self.call("POST", "/v2/sandboxes", body, expect=(201, 429, 503))
        if reply.status == 429 or FULL in reply.body.decode():
            check("sandboxes" in reply.json["message"], "a refusal without its reason", reply.body)
            raise Full()
        if reply.status == 503:
            raise Cut(f"503 {reply.body[:200]}")
        return Box(Sandbox(self.client, reply.json))

    def op_create(self, _):
        if len(self.boxes) >= BOXES_EACH:
            return
        box = self.create()
        self.boxes.append(box)
        info = self.call("GET", f"/sandboxes/{box.id}").json
        check(info["state"] == "running" and info["metadata"] == {"soak": self.mark}, "a new sandbox", info)

    def op_kill(self, box):
        """Twice asked, it is gone once: the first answer may have been cut."""
        self.boxes.remove(box)
        self.end(box)

    def end(self, box):
        for _ in range(20):
            try:
                self.call("DELETE", f"/sandboxes/{box.id}", expect=(204, 404))
                break
            except (*CUTS, Cut):
                time.sleep(1)
        reply = self.call("GET", f"/sandboxes/{box.id}", expect=(404,))
        check(reply.json["code"] == 404, "a sandbox that was killed", reply.body)

    def op_run(self, box):
        code, word = self.random.randrange(256), self.random.randrange(1 << 40)
        result = self.run(box, f"echo {word}; echo {word + 1} >&2; exit {code}")
        check((result.exit_code, result.stdout, result.stderr) == (code, b"%d\n" % word, b"%d\n" % (word + 1)),
              "a command", result.exit_code, result.stdout, result.stderr, code, word)

    def op_stream(self, box):
        count = self.random.randrange(5, 60)
        result = self.run(box, f"for i in $(seq {count}); do echo $i; sleep 0.02; done")
        check(result.out.split() == [str(i + 1) for i in range(count)], "a stream's lines", result.out, count)

    def op_big_output(self, box):
        size, word = self.random.randrange(1, 6 * MIB), self.random.randrange(1 << 30)
        line = b"%d\n" % word
        result = self.run(box, f"yes {word} | head -c {size}")
        wanted = (line * (size // len(line) + 1))[:size]
        check(result.stdout == wanted, "a big output", len(result.stdout), size)

    def op_stdin(self, box):
        data = [self.random.randbytes(self.random.randrange(1, 60000)) for _ in range(self.random.randrange(1, 6))]
        with self.start(box, "sha256sum", stdin=True) as stream:
            pid = stream.next()["event"]["start"]["pid"]
            for piece in data:
                self.rpc(box, "process.Process/SendInput",
                         {"process": {"pid": pid}, "input": {"stdin": base64.b64encode(piece).decode()}})
            self.rpc(box, "process.Process/CloseStdin", {"process": {"pid": pid}})
            result = stream.rest()
        check(result.out.split()[:1] == [digest(b"".join(data))], "what came by stdin", result.out, result.error)

    def op_upload(self, box):
        data = self.random.randbytes(int(2 ** self.random.uniform(0, 22)))
        path = f"/home/user/file-{self.random.randrange(8)}"
        box.files.pop(path, None)  # unknown until it is answered
        self.inside(box, "POST", f"/files?path={path}", data, {"Content-Type": "application/octet-stream"})
        box.files[path] = digest(data)

    def op_download(self, box):
        for path, wanted in list(box.files.items())[:3]:
            check(digest(self.inside(box, "GET", f"/files?path={path}").body) == wanted, "a file that was uploaded", path)

    def op_verify(self, box):
        """Files and processes of before are there: across kills of the daemons, too."""
        for path, wanted in list(box.files.items())[:2]:
            check(self.run(box, f"sha256sum {path}").out.split()[:1] == [wanted], "a file inside", path)
        if box.sleeper is None:
            box.sleeper = int(self.run(box, "sleep 100000 >/dev/null 2>&1 & echo $!").out)
        check(self.run(box, f"kill -0 {box.sleeper} && echo there").out == "there\n", "a process that was left to run")

    def op_terminal(self, box):
        a, b = self.random.randrange(1 << 20), self.random.randrange(1 << 10)
        message = {"process": {**process("", ["-i", "-l"]), "envs": {"TERM": "xterm"}},
                   "pty": {"size": {"cols": 80, "rows": 24}}}
        with Stream(box, "process.Process/Start", message) as stream:
            pid = {"pid": stream.next()["event"]["start"]["pid"]}
            seen, code = b"", None
            # Readline reads the size and sets it again before each prompt: a change in between is lost.
            while b"$ " not in seen:
                seen += base64.b64decode(stream.next()["event"]["data"]["pty"])
            self.rpc(box, "process.Process/Update", {"process": pid, "pty": {"size": {"cols": 100, "rows": 30}}})
            typed = f"echo $(({a}*{b})); stty size; exit 7\n".encode()
            self.rpc(box, "process.Process/SendInput",
                     {"process": pid, "input": {"pty": base64.b64encode(typed).decode()}})
            while True:
                message = stream.next()
                if "end-stream" in message:
                    break
                event = message["event"]
                seen += base64.b64decode(event.get("data", {}).get("pty", ""))
                code = event["end"].get("exitCode", 0) if "end" in event else code
        check(str(a * b).encode() in seen and b"30 100" in seen and code == 7, "a terminal", seen, code)

    def op_watch(self, box):
        name = f"w{self.random.randrange(1 << 30)}"
        with Stream(box, "filesystem.Filesystem/WatchDir", {"path": "/home/user"}) as stream:
            check("start" in stream.next(), "a watch's first message")
            self.inside(box, "POST", f"/files?path=/home/user/{name}", b"x", {"Content-Type": "application/octet-stream"})
            while True:
                message = stream.next()
                check("filesystem" in message, "a watch", message)
                if message["filesystem"]["name"] == name:
                    break
        self.rpc(box, "filesystem.Filesystem/Remove", {"path": f"/home/user/{name}"})

    def op_signal(self, box):
        with self.start(box, "exec sleep 100000") as stream:
            pid = stream.next()["event"]["start"]["pid"]
            self.rpc(box, "process.Process/SendSignal", {"process": {"pid": pid}, "signal": "SIGNAL_SIGKILL"})
            result = stream.rest()
        check(result.exit_code == -1 and result.status == "signal: killed", "a killed process", result.status)

    def op_deadline(self, box):
        with self.start(box, "exec sleep 100000", headers={"Connect-Timeout-Ms": "700"}) as stream:
            error = stream.rest().error
        check(error and error["code"] == "deadline_exceeded", "a command whose time is over", error)

    def op_reconnect(self, box):
        """A stream is dropped and taken up again by another connection."""
        with self.start(box, "i=0; while :; do echo $((i++)); sleep 0.05; done") as stream:
            pid = {"pid": stream.next()["event"]["start"]["pid"]}
            first = self.number_of(stream)
        with Stream(box, "process.Process/Connect", {"process": pid}) as stream:
            check(stream.next()["event"]["start"]["pid"] == pid["pid"], "a stream that was taken up")
            second, third = self.number_of(stream), self.number_of(stream)
            check(first <= second <= third, "lines of a stream that was taken up", first, second, third)
            self.rpc(box, "process.Process/SendSignal", {"process": pid, "signal": "SIGNAL_SIGKILL"})
            stream.rest()

    @staticmethod
    def number_of(stream):
        data = base64.b64decode(stream.next()["event"]["data"]["stdout"])
        return int(data.split()[-1])

    def op_list(self, _):
        """All that are this client's are there."""
        seen, token = set(), ""
        while True:
            reply = self.call("GET", f"/v2/sandboxes?limit=100&metadata=soak%3D{self.mark}{token}")
            seen |= {item["sandboxID"] for item in reply.json}
            if not reply.headers.get("X-Next-Token"):
                break
            token = "&nextToken=" + reply.headers["X-Next-Token"]
        check({box.id for box in self.boxes} <= seen, "a list", [b.id for b in self.boxes if b.id not in seen])

    def op_expire(self, _):
        """It lives until its time is over, and is gone then."""
        box = self.create(ttl=4)
        begun = time.monotonic()
        while (reply := self.call("GET", f"/sandboxes/{box.id}", expect=(200, 404))).status == 200:
            check(time.monotonic() - begun < DEADLINE_SECONDS, "a sandbox outlived its time", reply.body)
            time.sleep(0.5)
        check(time.monotonic() - begun > 2.5, "a sandbox ended before its time", time.monotonic() - begun)

    def op_prolong(self, box):
        self.call("POST", f"/sandboxes/{box.id}/timeout", {"timeout": TTL_SECONDS}, expect=(204,))
        self.call("GET", f"/sandboxes/{box.id}/metrics")

    def op_sdk(self, _):
        """The unmodified SDK, from create to kill."""
        from e2b import Sandbox
        word = str(self.random.randrange(1 << 40))
        try:
            with Sandbox.create(template="host", timeout=60, metadata={"soak": self.mark}, api_key=self.client.key,
                                api_url=self.url, sandbox_url=self.url) as box:
                box.files.write("/home/user/word", word)
                check(box.commands.run("cat word").stdout == word, "the SDK's command")
                check(box.files.read("/home/user/word") == word, "the SDK's file")
        except Exception as error:
            if isinstance(error, Wrong):
                raise
            if "429" in str(error) or FULL in str(error):
                raise Full() from error
            raise Cut(f"SDK: {type(error).__name__}: {error}") from error

    WEIGHTS = {"create": 10, "kill": 6, "run": 16, "stream": 5, "big_output": 4, "stdin": 6, "upload": 10, "download": 6,
               "verify": 8, "terminal": 5, "watch": 5, "signal": 4, "deadline": 3, "reconnect": 4, "list": 3,
               "expire": 2, "prolong": 3, "sdk": 3}
    WITHOUT_BOX = {"create", "list", "expire", "sdk"}

    def choose(self):
        name = self.random.choices(list(self.WEIGHTS), list(self.WEIGHTS.values()))[0]
        if name not in self.WITHOUT_BOX and not self.boxes:
            name = "create"
        box = None if name in self.WITHOUT_BOX else self.random.choice(self.boxes)
        return name, box
