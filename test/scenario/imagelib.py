"""Container images that a test makes itself: layers of tar, an OCI layout around them, a docker archive of them."""

import gzip
import hashlib
import io
import json
import pathlib
import tarfile


def tar(*members, form=tarfile.GNU_FORMAT):
    """A tar archive: each member is a name, a type ("file", "dir", "link", "hard", "char", "fifo"), and what else it has."""
    types = {"file": tarfile.REGTYPE, "dir": tarfile.DIRTYPE, "link": tarfile.SYMTYPE, "hard": tarfile.LNKTYPE,
             "char": tarfile.CHRTYPE, "fifo": tarfile.FIFOTYPE}
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form, errors="surrogateescape") as archive:
        for name, kind, *rest in members:
            more = rest[0] if rest else {}
            data = more.get("data", b"")
            info = tarfile.TarInfo(name)
            info.type, info.size = types[kind], len(data)
            info.mode = more.get("mode", 0o755 if kind == "dir" else 0o644)
            info.uid, info.gid, info.linkname = more.get("uid", 0), more.get("gid", 0), more.get("to", "")
            info.devmajor, info.devminor = more.get("device", (0, 0))
            info.mtime = 1_000_000_000
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def digest(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def configuration(layers, config=None, architecture="amd64"):
    return json.dumps({"architecture": architecture, "os": "linux", "config": config or {}, "history": [{"created_by": "a test"} for _ in layers],
                       "rootfs": {"type": "layers", "diff_ids": [digest(one) for one in layers]}}).encode()


def layout(where, layers, config=None, architecture="amd64", tag="latest"):
    """An OCI layout of these layers (bytes of tar, stored with gzip: the same bytes give the same digest); gives the manifest's digest."""
    blobs = pathlib.Path(where) / "blobs/sha256"
    blobs.mkdir(parents=True, exist_ok=True)

    def put(data, kind):
        (blobs / digest(data)[7:]).write_bytes(data)
        return {"mediaType": kind, "digest": digest(data), "size": len(data)}

    manifest = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "config": put(configuration(layers, config, architecture), "application/vnd.oci.image.config.v1+json"),
                "layers": [put(gzip.compress(one, 1, mtime=0), "application/vnd.oci.image.layer.v1.tar+gzip") for one in layers]}
    entry = put(json.dumps(manifest).encode(), manifest["mediaType"])
    entry["annotations"] = {"org.opencontainers.image.ref.name": tag}
    (blobs.parents[1] / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [entry]}))
    (blobs.parents[1] / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')
    return entry["digest"]


def docker_archive(path, layers, config=None, tag="made:1"):
    text = configuration(layers, config)
    names = [f"{digest(one)[7:]}.tar" for one in layers]
    manifest = [{"Config": f"{digest(text)[7:]}.json", "RepoTags": [tag], "Layers": names}]
    files = [*zip(names, layers), (manifest[0]["Config"], text), ("manifest.json", json.dumps(manifest).encode())]
    pathlib.Path(path).write_bytes(tar(*((name, "file", {"data": data}) for name, data in files)))
    return digest(text)
