"""The Model Context Protocol over raw HTTP, as a client of either generation of revisions speaks it."""

import itertools
import json

STATELESS = "2026-07-28"
SESSION = "2025-11-25"
PREFIX = "io.modelcontextprotocol/"
ACCEPT = "application/json, text/event-stream"


class Answer:
    """The outcome of one message: the status, the headers, and the messages of the body."""

    def __init__(self, status, headers, messages):
        self.status, self.headers, self.messages = status, headers, messages

    @property
    def last(self):
        return self.messages[-1]

    @property
    def result(self):
        assert "result" in self.last, self.last
        return self.last["result"]

    @property
    def error(self):
        assert "error" in self.last, self.last
        return self.last["error"]


def events(body):
    """The messages of a stream of server-sent events."""
    blocks = body.decode().split("\n\n")
    return [json.loads(line.removeprefix("data: ")) for block in blocks for line in block.split("\n")
            if line.startswith("data: ")]


def messages_of(headers, body):
    if headers.get("Content-Type", "").startswith("text/event-stream"):
        return events(body)
    return [json.loads(body)] if body else []


class Mcp:
    """A client. revision: of its session, or STATELESS. headers: with each request."""

    def __init__(self, client, revision=SESSION, headers=None, open_now=True):
        self.client, self.revision, self.more = client, revision, headers or {}
        self.session, self.ids = None, itertools.count(1)
        if revision != STATELESS and open_now:
            self.open()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def open(self):
        opened = self.request("initialize", {"protocolVersion": self.revision, "capabilities": {},
                                             "clientInfo": {"name": "test", "version": "1"}})
        self.opened = opened.result
        self.session = opened.headers["Mcp-Session-Id"]
        assert self.notify("notifications/initialized").status == 202

    def close(self):
        if self.session:
            self.client.call("DELETE", "/mcp", headers=self.headers())

    def headers(self, method=None, params=None):
        sent = {"Accept": ACCEPT, "Content-Type": "application/json", **self.more}
        if self.session:
            sent |= {"Mcp-Session-Id": self.session, "MCP-Protocol-Version": self.revision}
        if self.revision == STATELESS:
            sent |= {"MCP-Protocol-Version": STATELESS} | ({"Mcp-Method": method} if method else {})
            name = (params or {}).get("name") or (params or {}).get("uri")
            sent |= {"Mcp-Name": name} if name else {}
        return sent

    def body(self, method, params=None, id=None, meta=None):
        params = dict(params or {})
        if self.revision == STATELESS:
            meta = {PREFIX + "protocolVersion": STATELESS, PREFIX + "clientCapabilities": {}} | (meta or {})
        if meta:
            params["_meta"] = meta
        message = {"jsonrpc": "2.0", "method": method}
        return message | ({"id": id} if id is not None else {}) | ({"params": params} if params else {})

    def send(self, message, headers=None, **more):
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        reply = self.client.call("POST", "/mcp", body, headers if headers is not None else self.headers(), **more)
        return Answer(reply.status, reply.headers, messages_of(reply.headers, reply.body))

    def request(self, method, params=None, meta=None):
        return self.send(self.body(method, params, next(self.ids), meta), self.headers(method, params))

    def notify(self, method, params=None):
        return self.send(self.body(method, params), self.headers(method, params))

    def call(self, name, meta=None, **arguments):
        """A tool's whole answer."""
        return self.request("tools/call", {"name": name, "arguments": arguments}, meta)

    def tool(self, name, **arguments):
        """The result of a tool that works."""
        result = self.call(name, **arguments).result
        assert not result["isError"], result
        return result["structuredContent"]

    def refused(self, name, **arguments):
        """The text of a tool that does not work."""
        result = self.call(name, **arguments).result
        assert result["isError"] and "structuredContent" not in result, result
        return result["content"][-1]["text"]

    def begin(self, method, params, id):
        """A request whose answer is read piece by piece: connection and answer."""
        connection = self.client.connect()
        connection.request("POST", "/mcp", json.dumps(self.body(method, params, id)).encode(),
                           {"X-API-Key": self.client.key, **self.headers(method, params)})
        return connection, connection.getresponse()
