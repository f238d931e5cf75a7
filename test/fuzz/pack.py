#!/usr/bin/env python3
"""Inputs that a fuzzer found, one archive for each target: test/fuzz/found/TARGET.tar.gz. Inputs that people wrote stay
as files in test/fuzz/corpus/TARGET.

    pack.py unpack TARGET DIRECTORY [STAMP]   DIRECTORY has both afterwards, and nothing else
    pack.py pack TARGET DIRECTORY             the archive has what is named by its SHA-1 in DIRECTORY"""

import gzip
import io
import pathlib
import re
import shutil
import sys
import tarfile

HERE = pathlib.Path(__file__).resolve().parent


def is_found(path):
    """libFuzzer names what it finds by its SHA-1; what people wrote has a name that says what it is."""
    return re.fullmatch(r"[0-9a-f]{40}", path.name) is not None


def unpack(target, folder, stamp=None):
    folder = pathlib.Path(folder)
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(HERE / "corpus" / target, folder)
    archive = HERE / "found" / f"{target}.tar.gz"
    if archive.is_file():
        with tarfile.open(archive) as tar:
            for member in tar:
                if member.isreg() and is_found(pathlib.Path(member.name)):
                    (folder / member.name).write_bytes(tar.extractfile(member).read())
    if stamp:
        pathlib.Path(stamp).touch()


def pack(target, folder):
    """The same inputs give the same bytes: names in order, no times, no owners."""
    (HERE / "found").mkdir(exist_ok=True)
    with open(HERE / "found" / f"{target}.tar.gz", "wb") as out, \
            gzip.GzipFile(filename="", mode="wb", fileobj=out, mtime=0) as packed, \
            tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for path in sorted(filter(is_found, pathlib.Path(folder).iterdir())):
            member = tarfile.TarInfo(path.name)
            member.size = path.stat().st_size
            tar.addfile(member, io.BytesIO(path.read_bytes()))


if __name__ == "__main__":
    if len(sys.argv) < 4 or sys.argv[1] not in ("pack", "unpack"):
        sys.exit(__doc__)
    {"pack": pack, "unpack": unpack}[sys.argv[1]](*sys.argv[2:])
