"""A token server (RFC 6749 section 6) and a server that its tokens are for, in the stand-in internet.

    python3 tokens.py CERT KEY DIRECTORY    says `ready`

Both speak TLS on all addresses: tokens on TOKEN_PORT, what they open on API_PORT, which answers any path with the digest
of what it was asked with (200) or that the token is not valid (401). DIRECTORY/state.json says how it goes on:

    {"refresh": TOKEN, "rotate": bool, "life": seconds, "mode": "good" | "invalid_grant" | "garbage" | "huge" |
     "redirect" | "500" | "header" | "break" | "hold", "valid": [access tokens], "issued": number, "access": TOKEN}

and is written again; DIRECTORY/log.jsonl has a line for each request for a token."""

import hashlib
import http.server
import json
import os
import pathlib
import ssl
import sys
import threading
import time
import urllib.parse

TOKEN_PORT, API_PORT = 9443, 9444
lock = threading.Lock()


class State:
    def __init__(self, directory):
        self.directory = pathlib.Path(directory)

    def read(self):
        return json.loads((self.directory / "state.json").read_text())

    def write(self, state):
        new = self.directory / "state.new"
        new.write_text(json.dumps(state))
        os.replace(new, self.directory / "state.json")

    def log(self, **line):
        with open(self.directory / "log.jsonl", "a", encoding="utf-8") as f:
            f.write(json.dumps(line) + "\n")


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state = None

    def reply(self, status, data, **headers):
        if not isinstance(data, bytes):
            data = json.dumps(data).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


class Tokens(Handler):
    def do_POST(self):
        form = urllib.parse.parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        with lock:
            state = self.state.read()
            form["authorization"] = self.headers.get("Authorization")
            self.state.log(path=self.path, form=form, at=time.time())
            mode = state["mode"]
        if mode == "hold":  # until the test says go on
            while self.state.read()["mode"] == "hold":
                time.sleep(0.02)
        elif mode == "garbage":
            return self.reply(200, b"\xff<html>no JSON</html>")
        elif mode == "huge":
            return self.reply(200, {"access_token": "x" * 200_000, "token_type": "Bearer"})
        elif mode == "redirect":
            return self.reply(307, b"", Location=f"https://{self.headers['Host']}/elsewhere")
        elif mode == "500":
            return self.reply(500, {"error": "server_error"})
        elif mode == "header":
            return self.reply(200, {"access_token": "good\r\nX-Evil: 1", "token_type": "Bearer"})
        elif mode == "break":
            self.close_connection = True
            return None
        with lock:
            state = self.state.read()
            if mode == "invalid_grant" or form.get("refresh_token") != [state["refresh"]]:
                return self.reply(400, {"error": "invalid_grant", "error_description": "gone"})
            state["issued"] += 1
            access = state.get("access") or f"access-token-{state['issued']:04d}-{state['refresh'][:4]}"
            state["valid"].append(access)
            answer = {"access_token": access, "token_type": "bearer", "expires_in": state["life"]}
            if state["rotate"]:
                state["refresh"] = f"rT-rotated-{state['issued']:04d}"
                answer["refresh_token"] = state["refresh"]
            self.state.write(state)
        return self.reply(200, answer)

    def do_GET(self):
        self.state.log(path=self.path, form={}, at=time.time())
        self.reply(404, {})


class Api(Handler):
    def answer(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        said = self.headers.get("Authorization") or ""
        good = said.removeprefix("Bearer ") in self.state.read()["valid"]
        self.reply(200 if good else 401, {"digest": hashlib.sha256(said.encode()).hexdigest(), "said": said, "good": good})

    do_GET = do_POST = answer


def serve(port, handler, context):
    server = http.server.ThreadingHTTPServer(("0.0.0.0", port), handler)
    server.daemon_threads = True
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, daemon=True).start()


if __name__ == "__main__":
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(sys.argv[1], sys.argv[2])
    Handler.state = State(sys.argv[3])
    serve(TOKEN_PORT, Tokens, tls)
    serve(API_PORT, Api, tls)
    print("ready", flush=True)
    sys.stdin.read()
