"""An S3 server of the tests' own on loopback: moto, which checks signatures, behind a gate that can hold requests or answer with an error."""

import json
import pathlib
import shutil
import tempfile
import threading
import time

import boto3
import moto.core.responses as responses
import pytest
from botocore.config import Config
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

POLICY = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}


class Gate:
    """Between server and moto. hold(method): requests of it wait, before or after they are done, until release(). delay: seconds by which each
    GET is late; paths: of all."""

    def __init__(self, app):
        self.app, self.error, self.seen, self.paths, self.delay = app, None, [], [], 0
        self.method, self.after = None, False
        self.reached, self.open = threading.Event(), threading.Event()

    def hold(self, method, after=False):
        self.reached.clear()
        self.open.clear()
        self.method, self.after = method, after

    def release(self):
        self.method = None
        self.open.set()

    def wait(self):
        self.reached.set()
        self.open.wait(60)

    def __call__(self, environ, start_response):
        method, held = environ["REQUEST_METHOD"], environ["REQUEST_METHOD"] == self.method
        self.seen.append(method)
        self.paths.append(f"{method} {environ['PATH_INFO']}")
        time.sleep(self.delay if method == "GET" else 0)
        if self.error and "/cay/" in environ["PATH_INFO"]:
            start_response(self.error, [("Content-Length", "0")])
            return [b""]
        if held and not self.after:
            self.wait()
        answer = self.app(environ, start_response)
        if held and self.after:
            self.wait()
        return answer


class Bucket:
    def __init__(self, ssl_context=None):
        self.gate = Gate(DomainDispatcherApplication(create_backend_app))
        self.server = make_server("127.0.0.1", 0, self.gate, threaded=True, ssl_context=ssl_context)
        self.port = self.server.port
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()
        self.url = f"http{'s' if ssl_context else ''}://127.0.0.1:{self.port}"
        self.name = f"cay-{self.port}"
        options = {"endpoint_url": self.url, "region_name": "us-east-1", "verify": False,
                   "config": Config(s3={"addressing_style": "path"}, retries={"max_attempts": 0})}
        self.check_signatures(False)
        first = {"aws_access_key_id": "first", "aws_secret_access_key": "first"}
        iam = boto3.client("iam", **first, **options)
        user = f"cay-{self.port}"
        iam.create_user(UserName=user)
        iam.put_user_policy(UserName=user, PolicyName="all", PolicyDocument=json.dumps(POLICY))
        key = iam.create_access_key(UserName=user)["AccessKey"]
        self.key_id, self.secret = key["AccessKeyId"], key["SecretAccessKey"]
        self.client = boto3.client("s3", aws_access_key_id=self.key_id, aws_secret_access_key=self.secret, **options)
        self.client.create_bucket(Bucket=self.name)
        self.check_signatures(True)

    @staticmethod
    def check_signatures(yes):
        responses.settings.INITIAL_NO_AUTH_ACTION_COUNT = 0 if yes else float("inf")

    def write_credentials(self, path, secret=None, mode=0o600):
        new = path.with_suffix(".new")  # which takes its place in one step: it is read at any time
        new.write_text(f"# of the tests\n[default]\naws_access_key_id = {self.key_id}\naws_secret_access_key={secret or self.secret}\n")
        new.chmod(mode)
        new.rename(path)

    def options(self, credentials):
        return {"bucket": self.name, "bucket_endpoint": self.url, "bucket_region": "us-east-1", "bucket_credentials": credentials}

    def keys(self):
        return [o["Key"] for o in self.client.list_objects_v2(Bucket=self.name).get("Contents", [])]

    def read(self, key):
        return self.client.get_object(Bucket=self.name, Key=key)["Body"].read()

    def write(self, key, contents):
        self.client.put_object(Bucket=self.name, Key=key, Body=contents)

    def stop(self):
        self.gate.release()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join(10)


@pytest.fixture(scope="module")
def bucket():
    b = Bucket()
    yield b
    b.stop()


@pytest.fixture(scope="module")
def credentials(bucket):
    """Its keys, in a file as an operator's."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="cay-test-bucket-", dir="/var/tmp"))
    bucket.write_credentials(folder / "keys")
    yield folder / "keys"
    shutil.rmtree(folder, ignore_errors=True)
