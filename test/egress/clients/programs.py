"""The programs that are run inside a sandbox, against stand-ins of their servers outside: one row each
(test/scenario/test_programs.py runs them and writes docs/reports/egress-clients.md). Agents and SDKs of model APIs
have a table of their own.

    name     what is run
    needs    programs, "python:MODULE", "perl:MODULE", "npm:PACKAGE@VERSION" (installed into BUILD/programs); where one
             is not to be had the row is skipped, with that reason
    run      by bash inside. $HOST is the server's name; $WORK a directory of the row's own
    expect   in what it prints
    http     it is also run with a $HOST that is refused: does it end, and say why?
    files    {name in $WORK: text}
    short    part of `make test`; all of them: `make egress-clients`"""

import dataclasses

GIT_PORT, GRPC_PORT, SSH_PORT, RSYNC_PORT, ECHO_PORT = 9418, 9443, 2222, 873, 7000
BUNDLE = "/etc/ssl/certs/ca-certificates.crt"


@dataclasses.dataclass
class Program:
    name: str
    needs: tuple
    run: str
    expect: str = '"path": "/x"'
    http: bool = True
    files: dict = dataclasses.field(default_factory=dict)
    short: bool = False


def py(name, needs, code, short=False, **more):
    return Program(name, ("python3", *needs), "python3 x.py", files={"x.py": code}, short=short, **more)


URL = "https://$HOST/x"
HOST = 'import os; host = os.environ["HOST"]; url = f"https://{host}/x"\n'
JS = 'const url = `https://${process.env.HOST}/x`;\n'
JAVA = """
import java.net.URI; import java.net.http.*;
public class X { public static void main(String[] a) throws Exception {
  var c = HttpClient.newHttpClient();
  var r = HttpRequest.newBuilder(URI.create("https://" + System.getenv("HOST") + "/x")).build();
  System.out.println(c.send(r, HttpResponse.BodyHandlers.ofString()).body()); } }
"""
GO = """
package main
import ("fmt"; "io"; "net/http"; "os")
func main() { r, err := http.Get("https://" + os.Getenv("HOST") + "/x"); if err != nil { fmt.Println(err); os.Exit(1) }
  b, _ := io.ReadAll(r.Body); fmt.Println(string(b)) }
"""
GRPC = HOST + """
import grpc
c = grpc.secure_channel(f"{host}:9443", grpc.ssl_channel_credentials(open("/etc/ssl/certs/ca-certificates.crt", "rb").read()))
try:
    print(c.unary_unary("/cay.Test/Call", bytes, bytes)(b"\\x0a\\3cay", timeout=20))
except grpc.RpcError as e:
    print(e.code(), e.details())
"""

PROGRAMS = (
    Program("curl", ("curl",), f"curl -sS {URL}", short=True),
    Program("curl, HTTP/2", ("curl",), f"curl -sS --http2 {URL}"),
    Program("wget", ("wget",), f"wget -q --content-on-error -O - {URL}", short=True),
    Program("aria2", ("aria2c",), f"aria2c -q --ca-certificate={BUNDLE} -d $WORK -o got {URL} && cat $WORK/got"),
    Program("httpie", ("http",), f"http --ignore-stdin --verify={BUNDLE} {URL}"),
    Program("lynx", ("lynx",), f"SSL_CERT_FILE={BUNDLE} lynx -cfg=/dev/null -dump {URL}"),
    Program("w3m", ("w3m",), f"w3m -o ssl_ca_file={BUNDLE} -dump_source {URL} | zcat -f"),
    Program("lftp", ("lftp",), f"lftp -c 'set ssl:ca-file {BUNDLE}; set net:max-retries 1; set net:timeout 10; cat '{URL}"),
    Program("openssl s_client", ("openssl",), "printf 'GET /x HTTP/1.1\\r\\nHost: %s\\r\\nConnection: close\\r\\n\\r\\n' $HOST | "
            f"openssl s_client -quiet -verify_return_error -CAfile {BUNDLE} -servername $HOST -connect $HOST:443 2>/dev/null", short=True),
    Program("git, https", ("git",), "git clone -q https://$HOST/git/tiny.git $WORK/r && cat $WORK/r/answer", "42", short=True),
    Program("git, its own protocol", ("git",), f"git clone -q git://$HOST:{GIT_PORT}/tiny.git $WORK/r && cat $WORK/r/answer", "42",
            http=False),
    Program("pip", ("python:pip",), f"python3 -m pip --disable-pip-version-check --cert {BUNDLE} --retries 0 install -q --target $WORK/py "
            "--index-url https://$HOST/simple cay-tiny && PYTHONPATH=$WORK/py python3 -c 'import cay_tiny; print(cay_tiny.ANSWER)'",
            "42"),
    Program("npm", ("npm",), "cd $WORK && npm install --fetch-retries=0 --registry=https://$HOST/npm/ --no-audit --no-fund cay-tiny "
            "&& node -p 'require(\"cay-tiny\")'", "42"),
    Program("apt", ("apt-get", "dpkg-deb"), "sudo apt-get -q -o Acquire::Retries=0 -o Dir::Etc::sourcelist=$WORK/s "
            "-o Dir::Etc::sourceparts=/dev/null -o Dir::State::Lists=$WORK/l update && apt-cache -o Dir::State::Lists=$WORK/l "
            "-o Dir::Etc::sourcelist=$WORK/s -o Dir::Etc::sourceparts=/dev/null show cay-tiny", "Version: 1.0"),
    Program("go get", ("go",), "cd $WORK && export HOME=$WORK GOFLAGS=-mod=mod GOPROXY=https://$HOST/go GONOSUMDB=* GONOSUMCHECK=1 "
            "GOSUMDB=off GOTOOLCHAIN=local && go mod init x && go get example.com/tiny@v1.0.0 && cat go.mod", "example.com/tiny v1.0.0"),
    Program("go net/http", ("go",), "cd $WORK && HOME=$WORK GOTOOLCHAIN=local GOMAXPROCS=2 go run x.go", files={"x.go": GO}),
    Program("cargo", ("cargo",), "cd $WORK && export CARGO_HOME=$WORK/h CARGO_NET_RETRY=0 && mkdir -p h src && touch src/lib.rs && "
            f"printf '[source.crates-io]\\nreplace-with=\"s\"\\n[source.s]\\nregistry=\"sparse+https://%s/index/\"\\n[http]\\ncainfo="
            f"\"{BUNDLE}\"\\n' $HOST > h/config.toml && printf '[package]\\nname=\"x\"\\nversion=\"0.1.0\"\\n[dependencies]\\n"
            "cay-tiny=\"1\"\\n' > Cargo.toml && RUSTC_BOOTSTRAP=1 cargo fetch -q -Z sparse-registry && cat Cargo.lock", 'name = "cay-tiny"'),
    py("python urllib", (), HOST + """
import urllib.request, urllib.error
try: print(urllib.request.urlopen(url, timeout=20).read().decode())
except urllib.error.HTTPError as e: print(e.read().decode())
""", short=True),
    py("python requests", ("python:requests",), HOST + "import requests; print(requests.get(url, timeout=20).text)"),
    py("python httpx", ("python:httpx",), HOST + "import httpx; print(httpx.get(url, timeout=20).text)"),
    py("python httpx, HTTP/2", ("python:httpx", "python:h2"), HOST + "import httpx; print(httpx.Client(http2=True, timeout=20).get(url).text)"),
    py("python aiohttp", ("python:aiohttp",), HOST + """
import aiohttp, asyncio
async def main():
    async with aiohttp.ClientSession() as s, s.get(url) as r: print(await r.text())
asyncio.run(main())
"""),
    py("python urllib3", ("python:urllib3",), HOST +
       f"import urllib3; print(urllib3.PoolManager(ca_certs='{BUNDLE}').request('GET', url, timeout=20).data.decode())"),
    py("python pycurl", ("python:pycurl",), HOST + f"""
import io, pycurl
b = io.BytesIO(); c = pycurl.Curl(); c.setopt(c.URL, url); c.setopt(c.CAINFO, '{BUNDLE}'); c.setopt(c.WRITEDATA, b); c.perform()
print(b.getvalue().decode())
"""),
    py("python boto3", ("python:boto3",), HOST + """
import boto3, botocore.config
c = boto3.client("sts", endpoint_url=f"https://{host}/sts/", region_name="x", aws_access_key_id="a", aws_secret_access_key="b",
                 config=botocore.config.Config(retries={"total_max_attempts": 1}))
print(c.get_caller_identity()["Account"])
""", expect="424242"),
    py("python grpc", ("python:grpc",), GRPC, expect="cay"),
    py("python websockets", ("python:websockets",), HOST + """
import asyncio, websockets
async def main():
    async with websockets.connect(f"wss://{host}/websocket") as w:
        await w.send("forty-two"); print(await w.recv())
asyncio.run(main())
""", expect="forty-two"),
    py("python redis", ("python:redis",), HOST + "import redis; print(redis.Redis(host).get('answer'))",
       expect="42", http=False),
    py("python paramiko", ("python:paramiko", "sshd"), HOST + f"""
import paramiko
c = paramiko.SSHClient(); c.set_missing_host_key_policy(paramiko.AutoAddPolicy())
c.connect(host, {SSH_PORT}, "root", key_filename="/tmp/ssh.key"); print(c.exec_command("echo forty-two")[1].read())
""", expect="forty-two", http=False),
    Program("node fetch", ("node",), "node x.mjs", files={"x.mjs": JS + "console.log(await (await fetch(url)).text());"}, short=True),
    Program("node https", ("node",), "node x.mjs", files={"x.mjs": JS +
            "import https from 'node:https'; https.get(url, (r) => r.pipe(process.stdout));"}),
    Program("node http2", ("node",), "node x.mjs", '"path": "/x"', http=False, files={"x.mjs": """
import http2 from 'node:http2';
const s = http2.connect(`https://${process.env.HOST}:9443`);
const r = s.request({':path': '/cay.Test/Call', ':method': 'POST', 'content-type': 'application/grpc', te: 'trailers'});
r.on('response', (h) => { console.log('"path": "/x"', h[':status']); r.resume(); }); r.on('end', () => s.close());
r.end(Buffer.from('0000000000', 'hex'));
"""}),
    Program("node axios", ("node", "npm:axios@1.7.9"), "node x.cjs", files={"x.cjs": JS +
            "require('axios').get(url, {validateStatus: null}).then((r) => console.log(JSON.stringify(r.data).replaceAll('\":', '\": ')));"}),
    Program("node undici", ("node", "npm:undici@6.21.0"), "node x.cjs", files={"x.cjs": JS +
            "require('undici').request(url).then(async (r) => console.log(await r.body.text()));"}),
    Program("node got", ("node", "npm:got@11.8.6"), "node x.cjs", files={"x.cjs": JS +
            "require('got')(url, {throwHttpErrors: false, retry: 0}).then((r) => console.log(r.body));"}),
    Program("node ws", ("node", "npm:ws@8.18.0"), "node x.cjs", "forty-two", files={"x.cjs": """
const W = require('ws'), w = new W(`wss://${process.env.HOST}/websocket`);
w.on('open', () => w.send('forty-two')); w.on('message', (m) => { console.log(String(m)); w.close(); });
w.on('unexpected-response', (_, r) => { r.pipe(process.stdout); r.on('end', () => process.exit(1)); });
"""}),
    Program("java HttpClient", ("java", "javac"), "unset JAVA_TOOL_OPTIONS; java -XX:+UseSerialGC -XX:CICompilerCount=2 X.java", files={"X.java": JAVA}),
    Program("ruby net/http", ("ruby",), "ruby x.rb", files={"x.rb":
            "require 'net/http'; puts Net::HTTP.get(URI(\"https://#{ENV['HOST']}/x\"))"}),
    Program("php streams", ("php",), "php x.php", files={"x.php":
            "<?php echo file_get_contents('https://' . getenv('HOST') . '/x', false, stream_context_create(['http' => ['ignore_errors' => true]]));"}),
    Program("perl LWP", ("perl:LWP::Protocol::https",), f"PERL_LWP_SSL_CA_FILE={BUNDLE} perl -MLWP::UserAgent -e "
            "'print LWP::UserAgent->new->get(\"https://$ENV{HOST}/x\")->decoded_content'"),
    Program("perl HTTP::Tiny", ("perl:IO::Socket::SSL",), f"SSL_CERT_FILE={BUNDLE} perl -MHTTP::Tiny -e "
            "'print HTTP::Tiny->new(verify_SSL => 1)->get(\"https://$ENV{HOST}/x\")->{content}'"),
    Program("gh", ("gh",), "GH_CONFIG_DIR=$WORK GH_HOST=$HOST GH_ENTERPRISE_TOKEN=x gh api x", '"path"'),
    Program("aws", ("aws",), f"AWS_CA_BUNDLE={BUNDLE} AWS_MAX_ATTEMPTS=1 AWS_ACCESS_KEY_ID=a AWS_SECRET_ACCESS_KEY=b aws --region x --endpoint-url "
            "https://$HOST/sts/ sts get-caller-identity", "424242"),
    Program("rclone", ("rclone",), f"rclone --config=$WORK/c --ca-cert={BUNDLE} --retries=1 --low-level-retries=1 copyurl "
            "https://$HOST/files/answer $WORK/got && cat $WORK/got", "42"),
    Program("psql", ("psql",), "psql -h $HOST -U x -d x -Atc 'select 42'", "42", http=False),
    Program("redis-cli", ("redis-cli",), "redis-cli -h $HOST get answer", "42", http=False),
    Program("ldapsearch", ("ldapsearch",), "ldapsearch -x -H ldap://$HOST -b cn=cay", "answer: 42", http=False),
    Program("ssh", ("ssh", "sshd"), f"ssh -F none -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -i /tmp/ssh.key -p {SSH_PORT} "
            "root@$HOST echo forty-two", "forty-two", http=False, short=False),
    Program("rsync", ("rsync",), "rsync rsync://$HOST/files/answer $WORK/got && cat $WORK/got", "42", http=False),
    Program("ftp by curl", ("curl",), "curl -sS ftp://$HOST/answer", "42", http=False),
    Program("smtp by curl", ("curl",), "echo hello | curl -sS --mail-from a@example.com --mail-rcpt b@example.com -T - smtp://$HOST && echo sent",
            "sent", http=False),
    Program("dig", ("dig",), "dig +short $HOST", "198.1", http=False),
    Program("host", ("host",), "host $HOST", "has address 198.1", http=False),
    Program("getent", ("getent",), "getent ahostsv4 $HOST", "198.1", http=False),
    Program("nc", ("nc",), f"echo forty-two | nc -q 2 $HOST {ECHO_PORT}", "forty-two", http=False),
    Program("socat", ("socat",), f"echo forty-two | socat -t 2 - TCP:$HOST:{ECHO_PORT}", "forty-two", http=False),
    Program("ffmpeg", ("ffmpeg",), "ffmpeg -v error -ca_file " + BUNDLE + " -i https://$HOST/files/tone.wav -f null - && echo played", "played"),
)
