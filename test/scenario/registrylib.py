"""A registry on loopback: Debian's docker-registry, and one of the test's own that answers what it is told to."""

import http.server
import json
import shutil
import socket
import subprocess
import threading

import pytest
from waitlib import until

# "secret" by bcrypt, which is all that docker-registry takes
PASSWORD = "$2b$05$dLH4hLAyI1Msyv1kwrsMSeqSxf7CCKqVTwmOt4BZM8nrHHX8JqnJO"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def listens(port):
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", port)) == 0


class Registry:
    """docker-registry with a folder of its own; accounts: only alice, whose password is "secret"."""

    def __init__(self, base, accounts=False):
        for program in ("docker-registry", "skopeo"):
            if not shutil.which(program):
                pytest.fail(f"{program} is not there: scripts/deps test installs it")
        base.mkdir()
        self.port, self.files = free_port(), base / "files"
        self.host = f"127.0.0.1:{self.port}"
        settings = {"version": "0.1", "log": {"level": "error", "accesslog": {"disabled": True}},
                    "storage": {"filesystem": {"rootdirectory": str(self.files)}}, "http": {"addr": self.host}}
        if accounts:
            (base / "accounts").write_text(f"alice:{PASSWORD}\n")
            settings["auth"] = {"htpasswd": {"realm": "here", "path": str(base / "accounts")}}
        self.credentials = ["--dest-creds=alice:secret"] if accounts else []
        (base / "config.yml").write_text(json.dumps(settings))  # which is YAML, too
        self.process = subprocess.Popen(["docker-registry", "serve", base / "config.yml"], stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
        until(lambda: listens(self.port), what="the registry listens")

    def push(self, layout, name, *more):
        subprocess.run(["skopeo", "copy", "--quiet", "--dest-tls-verify=false", *self.credentials, *more, f"oci:{layout}",
                        f"docker://{self.host}/{name}"], check=True)
        return f"docker://{self.host}/{name}"

    def close(self):
        self.process.kill()
        self.process.wait()


class Liar:
    """A registry whose answers the test makes: answer(path) gives (status, headers, bytes), or None: none comes, ever."""

    def __init__(self, answer):
        self.asked, self.end = [], threading.Event()
        registry = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                registry.asked.append(self.path)
                reply = answer(self.path)
                if reply is None:
                    registry.end.wait(60)
                    self.close_connection = True
                    return
                status, headers, body = reply
                self.send_response(status)
                for name, value in {"Content-Length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)
                self.close_connection = True

            do_HEAD = do_GET

            def log_message(self, *_):
                pass

        class Server(http.server.ThreadingHTTPServer):
            def handle_error(self, *_):
                """Clients that go away are meant."""

        self.server = Server(("127.0.0.1", 0), Handler)
        self.host = f"127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def close(self):
        self.end.set()
        self.server.shutdown()
        self.server.server_close()
