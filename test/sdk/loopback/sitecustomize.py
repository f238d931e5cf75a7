"""Loaded by run-upstream into Python before the suite: names in CAY_LOOPBACK_DOMAIN are this machine, in this
program only, as *.localhost is in browsers. Everything else is looked up as ever."""

import os
import socket

_domain = os.environ.get("CAY_LOOPBACK_DOMAIN")
_getaddrinfo = socket.getaddrinfo


def _lookup(host, *rest, **more):
    name = host.decode() if isinstance(host, bytes) else host
    if _domain and name and (name == _domain or name.endswith("." + _domain)):
        host = "127.0.0.1"
    return _getaddrinfo(host, *rest, **more)


socket.getaddrinfo = _lookup
