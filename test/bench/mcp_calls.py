"""A tool of MCP and the same call of /cay/v1, timed over one kept connection each. Milliseconds."""

import http.client
import json
import time

REVISION = "2026-07-28"  # without sessions: each call stands alone
PREFIX = "io.modelcontextprotocol/"
META = {f"{PREFIX}protocolVersion": REVISION, f"{PREFIX}clientInfo": {"name": "bench", "version": "1"}, f"{PREFIX}clientCapabilities": {}}
COMMAND = "true"


class Calls:
    def __init__(self, own):
        self.key = own.key
        self.by_mcp, self.by_api = (http.client.HTTPConnection("127.0.0.1", own.port, timeout=60) for _ in range(2))
        self.id = self.api("POST", "/v2/sandboxes", {"templateID": "host", "timeout": 600})["sandboxID"]

    def api(self, method, path, body=None):
        self.by_api.request(method, path, body and json.dumps(body), {"X-API-Key": self.key, "Content-Type": "application/json"})
        reply = self.by_api.getresponse()
        data = reply.read()
        if reply.status >= 300:
            raise SystemExit(f"bench: {path}: {reply.status} {data[:200]}")
        return json.loads(data) if data else None

    def request(self, method, name, params):
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json", "Mcp-Method": method,
                   "Accept": "application/json, text/event-stream", "MCP-Protocol-Version": REVISION}
        if name:
            headers["Mcp-Name"] = name
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": META}}
        begun = time.perf_counter()
        self.by_mcp.request("POST", "/mcp", json.dumps(message), headers)
        reply = self.by_mcp.getresponse()
        data = reply.read()
        ms = 1000 * (time.perf_counter() - begun)
        if reply.getheader("Content-Type", "").startswith("text/event-stream"):
            data = [line[6:] for line in data.split(b"\n") if line.startswith(b"data: ")][-1]
        result = json.loads(data).get("result") if reply.status == 200 else None
        if not result or result.get("isError"):
            raise SystemExit(f"bench: {method}: {reply.status} {data[:300]}")
        return ms

    def tool(self):
        return self.request("tools/call", "run", {"name": "run", "arguments": {"sandbox": self.id, "command": COMMAND}})

    def list(self):
        return self.request("tools/list", None, {})

    def plain(self):
        begun = time.perf_counter()
        self.api("POST", f"/cay/v1/sandboxes/{self.id}/exec", {"command": ["/bin/bash", "-l", "-c", COMMAND]})
        return 1000 * (time.perf_counter() - begun)

    def close(self):
        self.api("DELETE", f"/sandboxes/{self.id}")
        self.by_mcp.close()
        self.by_api.close()


def in_turns(calls, count):
    """Times of the tool, of the plain call, and of the list of tools, when all paths are warm."""
    for _ in range(10):
        calls.tool(), calls.plain(), calls.list()
    return zip(*((calls.tool(), calls.plain(), calls.list()) for _ in range(max(2, count))))
