"""Requests to Daytona's calls that succeed, and what has to be there for them: for run-contract beside this file.

GOOD has for an operation a list of requests: `body`, `query`, `path` (beyond World.path), `type` of the body, `files` (multipart), and
`before`, a method of World that is called first. A function is given the World. An operation without a row is called once, without a
body."""

import datetime
import time

from client import Client

NAME = "contract"  # of the snapshot and the volume
SECRET = "CONTRACT"
SYNC = "sync"  # a session for commands that are waited for: in the other `cat` reads
SETUP = ("mkdir -p d/e; echo hello > d/f.txt; echo hello > d/e/g.txt; [ -d repo ] || { git config --global user.email a@b.c; "
         "git config --global user.name a; git init -q -b main --bare /tmp/o; git clone -q /tmp/o repo; cd repo; git checkout -qb main; "
         "echo x > x; git add x; git commit -qm one; git push -q origin main; git branch side; git branch -f gone; }; "
         "cd ~/repo && git checkout -q main")


class World:
    """A tenant's things, made anew where a call has removed them."""

    def __init__(self, own, toolbox):
        self.client, self.key, self.url, self.toolbox = Client(own.url, own.key()), own.key(), own.url, toolbox
        self.headers = {"Authorization": f"Bearer {self.key}"}
        self.box = self.snapshot = self.volume = self.command = self.context = None
        self.made = 0

    def ask(self, method, path, body=None):
        sent = b"" if method == "POST" and body is None else body
        return self.client.call(method, f"/api/{path}", sent, {**self.headers, "X-Daytona-SDK-Version": "0.226.1"}, key=False)

    def inside(self, method, path, body=None):
        return self.ask(method, f"toolbox/{self.box}{path}", body)

    def base(self, path):
        return f"{self.url}/api/toolbox/{self.box}" if self.toolbox else f"{self.url}/api"

    def path(self, operation):
        """Values of the path's parameters: of things that are there."""
        if self.toolbox:
            own = {"sessionId": SYNC if operation.path.endswith("/exec") else NAME, "commandId": self.command, "id": self.context, "port": 8000}
        else:
            own = {"sandboxId": self.box, "sandboxIdOrName": self.box, "id": self.snapshot, "volumeId": self.volume, "name": NAME,
                   "secretId": SECRET, "interval": 30, "ttlMinutes": 600, "isPublic": "true", "token": "none", "port": 8000}
        return {name: own[name] for name in (one.name for one in operation.path_parameters)}

    def name(self, kind):
        self.made += 1
        return f"{kind}{self.made}"

    def ready(self, operation):
        """The things that the operation is about are there, and as the call wants them."""
        self.sandbox()
        if self.toolbox:
            self.things_inside(operation.path)
        elif operation.path.startswith("/snapshots"):
            self.a_snapshot()
        elif operation.path.startswith("/volumes"):
            self.volume = self.one("volumes", NAME, {"name": NAME})
        elif "secret" in operation.path:
            self.secret()

    def sandbox(self):
        shown = self.ask("GET", f"sandbox/{self.box}") if self.box else None
        if shown is None or shown.status != 200:
            made = self.ask("POST", "sandbox", {"snapshot": "host", "autoStopInterval": 0})
            assert made.status == 200, made.body
            self.box = made.json["id"]
        elif shown.json["state"] != "started":
            self.ask("POST", f"sandbox/{self.box}/start")

    def one(self, kind, name, body):
        shown = self.ask("GET", f"{kind}/by-name/{name}" if kind == "volumes" else f"{kind}/{name}")
        if shown.status != 200:
            shown = self.ask("POST", kind, body)
            assert shown.status in (200, 201), shown.body
        return shown.json["id"]

    def secret(self):
        return self.one("secret", SECRET, {"name": SECRET, "value": "a value of ten", "hosts": ["example.org"]})

    def a_snapshot(self):
        self.snapshot = self.one("snapshots", NAME, {"name": NAME, "imageName": "host"})
        self.built(NAME)

    def built(self, name):
        for _ in range(300):
            shown = self.ask("GET", f"snapshots/{name}")
            if shown.status != 200 or shown.json["state"] not in ("pending", "building"):
                return
            time.sleep(0.1)

    def things_inside(self, path):
        if path.startswith(("/files", "/git")):
            self.inside("POST", "/process/execute", {"command": SETUP})
        elif path.endswith("/exec"):
            self.inside("DELETE", f"/process/session/{SYNC}")
            self.inside("POST", "/process/session", {"sessionId": SYNC})
        elif path.startswith("/process/session"):
            if self.inside("GET", f"/process/session/{NAME}").status != 200:
                self.inside("POST", "/process/session", {"sessionId": NAME})
                self.command = self.inside("POST", f"/process/session/{NAME}/exec", {"command": "cat", "runAsync": True}).json["cmdId"]
        elif path.startswith("/process/pty"):
            if self.inside("GET", f"/process/pty/{NAME}").status != 200:
                self.inside("POST", "/process/pty", {"id": NAME})
        elif path.startswith("/process/interpreter"):
            if self.context not in [one["id"] for one in self.inside("GET", "/process/interpreter/context").json["contexts"]]:
                self.context = self.inside("POST", "/process/interpreter/context", {}).json["id"]

    def stop(self):
        self.ask("POST", f"sandbox/{self.box}/stop")

    def a_signed_address(self):
        return self.ask("GET", f"sandbox/{self.box}/ports/8000/signed-preview-url").json["token"]

    def a_fork(self):
        """The name of one of the sandbox's."""
        self.ask("POST", f"sandbox/{self.box}/fork", {"name": "of-the-contract"})
        return "of-the-contract"

    def a_deletion(self):
        self.inside("POST", "/process/execute", {"command": "cd repo && git branch -f gone"})

    def a_change(self):
        self.inside("POST", "/process/execute", {"command": "cd repo && date +%N > x && git add x"})

    def tidy(self, operation):
        """Removes the things that calls have made beside what is kept."""
        if self.toolbox:
            for one in self.inside("GET", "/process/pty").json["sessions"]:
                if one["id"] != NAME:
                    self.inside("DELETE", f"/process/pty/{one['id']}")
            return
        for one in self.ask("GET", "sandbox?limit=100").json["items"]:
            if one["id"] != self.box:
                self.ask("DELETE", f"sandbox/{one['id']}")
        for one in self.ask("GET", "snapshots?limit=100").json["items"]:
            if one["id"] != self.snapshot and not one["general"]:
                self.built(one["id"])
                self.ask("DELETE", f"snapshots/{one['id']}")
        for kind, kept in (("volumes", NAME), ("secret", SECRET)):
            for one in self.ask("GET", kind).json:
                if one["name"] != kept:
                    self.ask("DELETE", f"{kind}/{one['id']}")


def window(world):
    now = datetime.datetime.now(datetime.timezone.utc)
    return {"query": {"from": (now - datetime.timedelta(hours=1)).isoformat(), "to": now.isoformat()}}


def git(**body):
    return [{"body": {"path": "repo", **body}}]


GOOD = {
    "POST /sandbox": [
        {"body": {"snapshot": "host"}},
        {"body": {"snapshot": "host", "name": "full", "env": {"A": "b"}, "labels": {"c": "d"}, "public": True, "networkBlockAll": True,
                  "autoStopInterval": 5, "autoArchiveInterval": 7, "autoDeleteInterval": 9, "cpu": 1, "memory": 1, "disk": 1}},
        {"body": {"snapshot": "host", "domainAllowList": "example.org", "ttlMinutes": 10}},
        lambda w: {"body": {"snapshot": "host", "volumes": [{"volumeId": w.one("volumes", NAME, {"name": NAME}), "mountPath": "/mnt/v"}]}},
        lambda w: {"body": {"snapshot": "host", "secrets": [{"KEY": w.secret()}]}}],
    "GET /sandbox": [{}, {"query": {"limit": 1}}, {"query": {"labels": '{"c":"d"}'}}],
    "GET /sandbox/paginated": [{}, {"query": {"page": 1, "limit": 1}}],
    "POST /sandbox/{sandboxIdOrName}/archive": [{"before": "stop"}],
    "POST /sandbox/{sandboxIdOrName}/start": [{}, {"before": "stop"}],
    "POST /sandbox/{sandboxIdOrName}/resize": [{"body": {"cpu": 2}}, {"body": {"cpu": 1}, "before": "stop"}],
    "PUT /sandbox/{sandboxIdOrName}/labels": [{"body": {"labels": {"a": "b"}}}],
    "POST /sandbox/{sandboxIdOrName}/network-settings": [{"body": {"networkBlockAll": True}}, {"body": {"domainAllowList": "example.org"}}],
    "PUT /sandbox/{sandboxIdOrName}/secrets": [{"body": {"secrets": [{"KEY": SECRET}]}}, {"body": {"secrets": []}}],
    "POST /sandbox/{sandboxId}/last-activity": [{"body": {}}],
    "POST /sandbox/{sandboxIdOrName}/fork": [{"body": {}}, {"body": {"name": "a-fork"}}],
    "POST /sandbox/{sandboxIdOrName}/ports/{port}/signed-preview-url/{token}/expire": [lambda w: {"path": {"token": w.a_signed_address()}}],
    "GET /sandbox/{sandboxIdOrName}/forks": [{"before": "a_fork"}, {"query": {"includeDestroyed": True}}],
    "GET /sandbox/{sandboxIdOrName}/parent": [lambda w: {"path": {"sandboxIdOrName": w.a_fork()}}],
    "GET /sandbox/{sandboxIdOrName}/ancestors": [{}, lambda w: {"path": {"sandboxIdOrName": w.a_fork()}}],
    "POST /sandbox/{sandboxIdOrName}/snapshot": [lambda w: {"body": {"name": w.name("of-a-sandbox")}}],
    "GET /sandbox/{sandboxId}/telemetry/metrics": [window],
    "POST /snapshots": [lambda w: {"body": {"name": w.name("image"), "imageName": "host"}},
                        lambda w: {"body": {"name": w.name("image"), "imageName": "host", "entrypoint": ["sleep", "7311"], "cpu": 1, "memory": 1}},
                        lambda w: {"body": {"name": w.name("built"), "buildInfo": {"dockerfileContent": "FROM host\nRUN echo built\n"}}},
                        lambda w: {"body": {"name": w.name("failed"), "buildInfo": {"dockerfileContent": "FROM host\nRUN exit 7\n"}}}],
    "GET /snapshots": [{}, {"query": {"page": 1, "limit": 1}}, {"query": {"name": "contr"}}],
    "GET /snapshots/{id}": [{}, {"path": {"id": "host"}}],
    "GET /snapshots/{id}/build-logs": [{}, {"query": {"follow": True}}],
    "POST /volumes": [lambda w: {"body": {"name": w.name("volume")}}],
    "POST /secret": [lambda w: {"body": {"name": w.name("SECRET"), "value": "a value of ten", "hosts": ["example.org"], "description": "what for"}}],
    "PATCH /secret/{secretId}": [{"body": {"description": "another"}}, {"body": {"value": "another of ten", "hosts": ["example.net"]}}],
    "DELETE /secret/{secretId}": [{}],
    "POST /env": [{"body": {"set": {"A": "b"}, "unset": ["C"]}}, {"body": {}}],
    "GET /files": [{}, {"query": {"path": "d"}}, {"query": {"path": "d", "depth": 2}}],
    "DELETE /files": [{"query": {"path": "d/f.txt"}}, {"query": {"path": "d", "recursive": True}}],
    "GET /files/info": [{"query": {"path": "d/f.txt"}}, {"query": {"path": "d"}}],
    "POST /files/folder": [{"query": {"path": "d/new", "mode": "755"}}],
    "POST /files/move": [{"query": {"source": "d/e/g.txt", "destination": "d/h.txt"}}],
    "POST /files/permissions": [{"query": {"path": "d/f.txt", "mode": "600"}}],
    "GET /files/download": [{"query": {"path": "d/f.txt"}}],
    "POST /files/bulk-download": [{"body": {"paths": ["d/f.txt", "d/nowhere"]}}],
    "GET /files/find": [{"query": {"path": "d", "pattern": "hello"}}],
    "GET /files/search": [{"query": {"path": "d", "pattern": "*.txt"}}],
    "POST /files/replace": [{"body": {"files": ["d/f.txt", "d/nowhere"], "pattern": "hello", "newValue": "hello"}}],
    "POST /files/upload-v2": [{"query": {"path": "d/up"}, "body": {"file": b"content"}, "type": "multipart/form-data"}],
    "POST /files/bulk-upload": [{"files": [("files[0].path", (None, "d/up")), ("files[0].file", ("f", b"content"))]}],
    "POST /process/execute": [{"body": {"command": "echo a; exit 3"}}, {"body": {"command": "pwd", "cwd": "/tmp", "envs": {"A": "b"}, "timeout": 5}}],
    "POST /process/code-run": [{"body": {"code": "print(1)", "language": "python"}}, {"body": {"code": "1/0", "language": "python"}}],
    "POST /process/session": [lambda w: {"body": {"sessionId": w.name("session")}}],
    "POST /process/session/{sessionId}/exec": [{"body": {"command": "true", "runAsync": True}},
                                              {"body": {"command": "echo a"}}],
    "POST /process/session/{sessionId}/command/{commandId}/input": [{"body": {"data": "x\n"}}],
    "POST /process/pty": [lambda w: {"body": {"id": w.name("pty"), "cols": 90, "rows": 30}}, {"body": {}}],
    "POST /process/pty/{sessionId}/resize": [{"body": {"cols": 100, "rows": 40}}],
    "POST /process/interpreter/context": [{"body": {}}, {"body": {"cwd": "/tmp", "language": "python"}}],
    "GET /git/status": [{"query": {"path": "repo"}}],
    "GET /git/branches": [{"query": {"path": "repo"}}],
    "GET /git/history": [{"query": {"path": "repo"}}],
    "POST /git/add": git(files=["x"]),
    "POST /git/commit": [{"before": "a_change", "body": {"path": "repo", "author": "a", "email": "a@b.c", "message": "m"}}],
    "POST /git/branches": [lambda w: {"body": {"path": "repo", "name": w.name("branch")}}],
    "DELETE /git/branches": [{"before": "a_deletion", "body": {"path": "repo", "name": "gone"}}],
    "POST /git/checkout": git(branch="main"),
    "GET /git/config": [{"query": {"key": "user.name"}}],
    "POST /git/config": [{"body": {"key": "contract.key", "value": "v", "scope": "global"}}],
    "GET /git/remotes": [{"query": {"path": "repo"}}],
    "POST /git/remotes": [lambda w: {"body": {"path": "repo", "name": w.name("remote"), "url": "/tmp/o"}}],
    "POST /git/reset": git(mode="mixed"),
    "POST /git/restore": git(files=["x"]),
    "POST /git/pull": git(),
    "POST /git/push": git(),
    "POST /git/clone": [lambda w: {"body": {"path": w.name("clone"), "url": "file:///tmp/o"}},
                        lambda w: {"body": {"path": w.name("clone"), "url": "/tmp/o"}}],
}
