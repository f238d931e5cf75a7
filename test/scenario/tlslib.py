"""Certificates for tests, made by openssl: an authority of their own, and what it signed."""

import subprocess

DOMAIN = "cay.localhost"


def openssl(*arguments, cwd):
    done = subprocess.run(["openssl", *arguments], cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def make_authority(folder):
    """ca.pem, ca.key."""
    openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", "ca.key", cwd=folder)
    openssl("req", "-x509", "-new", "-key", "ca.key", "-days", "3", "-subj", "/CN=cay tests", "-out", "ca.pem",
            "-addext", "keyUsage=critical,keyCertSign", cwd=folder)
    (folder / "db").write_text("")
    (folder / "serial").write_text("1000\n")
    (folder / "ca.conf").write_text(
        "[ca]\ndefault_ca=d\n[d]\ndatabase=db\nserial=serial\nnew_certs_dir=.\ndefault_md=sha256\npolicy=p\n"
        "unique_subject=no\n[p]\ncommonName=supplied\n"
        f"[names]\nsubjectAltName=DNS:{DOMAIN},DNS:*.{DOMAIN},IP:127.0.0.1\nextendedKeyUsage=serverAuth\n")


def make_certificate(folder, name, first="", last=""):
    """NAME.pem, NAME.key; first and last as 20200101000000Z, or valid now."""
    now = not first
    openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", f"{name}.key", cwd=folder)
    openssl("req", "-new", "-key", f"{name}.key", "-subj", f"/CN={DOMAIN}", "-out", f"{name}.csr", cwd=folder)
    openssl("ca", "-batch", "-notext", "-config", "ca.conf", "-extensions", "names", "-cert", "ca.pem", "-keyfile",
            "ca.key", "-in", f"{name}.csr", "-out", f"{name}.pem",
            *(("-days", "2") if now else ("-startdate", first, "-enddate", last)), cwd=folder)
    (folder / f"{name}.key").chmod(0o600)
