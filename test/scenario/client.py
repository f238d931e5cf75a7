"""A small client of cay's HTTP port for the scenarios: raw enough to see every status, header and
error body, which the SDKs hide. Standard library only."""

import base64
import http.client
import json
import struct
import urllib.parse

AGENT_PORT = 49983
CALL_SECONDS = 60


class Reply:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self):
        return json.loads(self.body) if self.body else None


class Result:
    """The outcome of a command: exit code, both streams, and the error of the stream itself if any."""

    def __init__(self):
        self.pid, self.exit_code, self.status, self.error = None, None, None, None
        self.stdout, self.stderr = b"", b""

    @property
    def out(self):
        return self.stdout.decode()


class Client:
    def __init__(self, url, key):
        parts = urllib.parse.urlsplit(url)
        self.host, self.port, self.url, self.key = parts.hostname, parts.port, url, key

    def connect(self, timeout=CALL_SECONDS):
        return http.client.HTTPConnection(self.host, self.port, timeout=timeout)

    def call(self, method, path, body=None, headers=None, key=True, timeout=CALL_SECONDS):
        """A control-plane call. body: a JSON value, or bytes sent as they are."""
        sent = {} if key is False else {"X-API-Key": self.key if key is True else key}
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            sent["Content-Type"] = "application/json"
        sent.update(headers or {})
        connection = self.connect(timeout)
        try:
            connection.request(method, path, body=body, headers=sent)
            answer = connection.getresponse()
            self.last = Reply(answer.status, answer.headers, answer.read())
            return self.last
        finally:
            connection.close()

    def create(self, template="host", timeout_s=300, **fields):
        reply = self.call("POST", "/v2/sandboxes",
                          {"templateID": template, "timeout": timeout_s, **fields})
        assert reply.status == 201, (reply.status, reply.body)
        return Sandbox(self, reply.json)


class Sandbox:
    def __init__(self, client, made):
        self.client, self.made = client, made
        self.id, self.token = made["sandboxID"], made.get("envdAccessToken")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()

    def kill(self):
        return self.client.call("DELETE", f"/sandboxes/{self.id}")

    def headers(self, user=None, port=AGENT_PORT, token=True):
        sent = {"E2b-Sandbox-Id": self.id, "E2b-Sandbox-Port": str(port)}
        if token and self.token:
            sent["X-Access-Token"] = self.token if token is True else token
        if user:
            sent["Authorization"] = "Basic " + base64.b64encode(f"{user}:".encode()).decode()
        return sent

    def request(self, method, path, body=None, headers=None, user=None, port=AGENT_PORT,
                token=True, timeout=CALL_SECONDS):
        sent = self.headers(user, port, token)
        sent.update(headers or {})
        return self.client.call(method, path, body, sent, key=False, timeout=timeout)

    def rpc(self, method, message, user=None):
        return self.request("POST", "/" + method, message, user=user)

    def run(self, command, user=None, env=None, cwd=None, timeout=CALL_SECONDS, args=None):
        """Runs `bash -l -c command` (or command with args) to its end."""
        process = {"cmd": "/bin/bash", "args": ["-l", "-c", command]}
        if args is not None:
            process = {"cmd": command, "args": args}
        if env:
            process["envs"] = env
        if cwd:
            process["cwd"] = cwd
        result = Result()
        for event in self.stream("process.Process/Start", {"process": process, "stdin": False},
                                 user, timeout):
            take_event(result, event)
        return result

    def stream(self, method, message, user=None, timeout=CALL_SECONDS):
        """Messages of a server stream; the end envelope last, as {"end-stream": ...}."""
        body = json.dumps(message).encode()
        sent = self.headers(user)
        sent.update({"Content-Type": "application/connect+json", "Connect-Protocol-Version": "1"})
        connection = self.client.connect(timeout)
        try:
            connection.request("POST", "/" + method, struct.pack(">BI", 0, len(body)) + body, sent)
            answer = connection.getresponse()
            assert answer.status == 200, (answer.status, answer.read())
            while True:
                flags, length = struct.unpack(">BI", read_exactly(answer, 5))
                value = json.loads(read_exactly(answer, length))
                if flags & 2:
                    yield {"end-stream": value}
                    return
                yield value
        finally:
            connection.close()

    def write(self, path, data, user=None):
        query = urllib.parse.urlencode({"path": path, **({"username": user} if user else {})})
        return self.request("POST", f"/files?{query}", data,
                            {"Content-Type": "application/octet-stream"})

    def read(self, path, user=None):
        query = urllib.parse.urlencode({"path": path, **({"username": user} if user else {})})
        return self.request("GET", f"/files?{query}")


def take_event(result, message):
    if "end-stream" in message:
        result.error = message["end-stream"].get("error")
        return
    event = message["event"]
    if "start" in event:
        result.pid = event["start"]["pid"]
    elif "data" in event:
        result.stdout += base64.b64decode(event["data"].get("stdout", ""))
        result.stderr += base64.b64decode(event["data"].get("stderr", ""))
    elif "end" in event:
        result.exit_code = event["end"].get("exitCode", 0)
        result.status = event["end"].get("status")


def read_exactly(answer, n):
    data = b""
    while len(data) < n:
        piece = answer.read(n - len(data))
        if not piece:
            raise ConnectionError("the stream broke off")
        data += piece
    return data
