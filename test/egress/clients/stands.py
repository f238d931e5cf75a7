"""Small stand-ins of servers for the programs of programs.py: as much of each protocol as one exchange needs.

    python3 stands.py          prints "ready"
"""

import socketserver
import struct
import threading

REDIS, POSTGRES, LDAP, SMTP, FTP, FTP_DATA, MQTT = 6379, 5432, 389, 25, 21, 2121, 1883


def exactly(f, n):
    data = f.read(n)
    if len(data) < n:
        raise ConnectionError("ended")
    return data


class Redis(socketserver.StreamRequestHandler):
    def handle(self):
        while line := self.rfile.readline():
            words = []
            for _ in range(int(line[1:])):
                words.append(exactly(self.rfile, int(self.rfile.readline()[1:]) + 2)[:-2])
            self.wfile.write(b"$2\r\n42\r\n" if words[0].upper() == b"GET" else b"+PONG\r\n" if words[0].upper() == b"PING"
                             else b"-ERR unknown command\r\n")


class Postgres(socketserver.StreamRequestHandler):
    def say(self, kind, body):
        self.wfile.write(kind + struct.pack(">I", len(body) + 4) + body)

    def handle(self):
        while True:
            n, code = struct.unpack(">II", exactly(self.rfile, 8))
            exactly(self.rfile, n - 8)
            if code == 196608:
                break
            self.wfile.write(b"N")  # neither TLS nor GSS here
        self.say(b"R", struct.pack(">I", 0))
        self.say(b"S", b"server_version\00015.0\0")
        self.say(b"Z", b"I")
        while (kind := self.rfile.read(1)) == b"Q":
            exactly(self.rfile, struct.unpack(">I", exactly(self.rfile, 4))[0] - 4)
            self.say(b"T", struct.pack(">H", 1) + b"answer\0" + struct.pack(">IHIhih", 0, 0, 25, -1, -1, 0))
            self.say(b"D", struct.pack(">HI", 1, 2) + b"42")
            self.say(b"C", b"SELECT 1\0")
            self.say(b"Z", b"I")


class Ldap(socketserver.BaseRequestHandler):
    def handle(self):
        def ber(tag, *parts):
            body = b"".join(parts)
            return bytes([tag, len(body)]) + body
        done = ber(0x0a, b"\0") + ber(4) + ber(4)
        while data := self.request.recv(4096):
            number, operation = ber(2, data[4:5]), data[5]  # short forms: that is what ldapsearch sends
            if operation == 0x60:
                self.request.sendall(ber(0x30, number, ber(0x61, done)))
            elif operation == 0x63:
                entry = ber(0x64, ber(4, b"cn=cay"), ber(0x30, ber(0x30, ber(4, b"answer"), ber(0x31, ber(4, b"42")))))
                self.request.sendall(ber(0x30, number, entry) + ber(0x30, number, ber(0x65, done)))
            else:
                return


class Smtp(socketserver.StreamRequestHandler):
    def handle(self):
        self.wfile.write(b"220 stand-in\r\n")
        while line := self.rfile.readline():
            if line.upper().startswith(b"DATA"):
                self.wfile.write(b"354 go on\r\n")
                while self.rfile.readline().rstrip(b"\r\n") != b".":
                    pass
            self.wfile.write(b"250 fine\r\n")


class Ftp(socketserver.StreamRequestHandler):
    def handle(self):
        self.wfile.write(b"220 stand-in\r\n")
        while line := self.rfile.readline():
            word = line.split()[0].upper()
            if word == b"RETR":
                self.wfile.write(b"150 here it comes\r\n226 done\r\n")
                continue
            self.wfile.write({b"USER": b"230 in", b"PWD": b'257 "/"', b"TYPE": b"200 fine", b"SIZE": b"213 3",
                              b"EPSV": f"229 Extended (|||{FTP_DATA}|)".encode(), b"QUIT": b"221 bye"}
                             .get(word, b"500 not here") + b"\r\n")


class FtpData(socketserver.StreamRequestHandler):
    def handle(self):
        self.wfile.write(b"42\n")


class Mqtt(socketserver.StreamRequestHandler):
    def handle(self):
        while head := self.rfile.read(2):
            exactly(self.rfile, head[1])
            if head[0] >> 4 == 1:
                self.wfile.write(b"\x20\x02\0\0")


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True


def main():
    servers = [Server(("0.0.0.0", port), handler) for port, handler in
               ((REDIS, Redis), (POSTGRES, Postgres), (LDAP, Ldap), (SMTP, Smtp), (FTP, Ftp), (FTP_DATA, FtpData),
                (MQTT, Mqtt))]
    for s in servers:
        threading.Thread(target=s.serve_forever, daemon=True).start()
    print("ready", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
