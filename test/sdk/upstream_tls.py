"""The parts that run-upstream-network and run-upstream-templates have in common: a domain for the server's sandboxes, and its
certificate."""

import internet

DOMAIN = "cay.localhost"


def make_port_certificate(directory):
    """For the server's port: upstream's tests ask for https://PORT-ID.DOMAIN. Key and certificate."""
    key, certificate = directory / "port.key", directory / "port.pem"
    internet.run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                 "-subj", "/CN=port", "-addext", f"subjectAltName=DNS:{DOMAIN},DNS:*.{DOMAIN}", "-addext", "basicConstraints=CA:FALSE",
                 "-keyout", key, "-out", certificate)
    return key, certificate
