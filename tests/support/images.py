"""OCI images made from programs of this machine, with the standard library only: nothing is downloaded.

`build` makes an image of files, `push` uploads it to a registry, `write_archive` packs it for `ctr images import`.
`images_for_tests` makes those of the tests. All but `pause` have the layer of `busybox`: a shell with Debian's static busybox.
Its `wget -T` crashes; use `timeout 3 wget` instead.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import platform
import subprocess
import tarfile
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

BUSYBOX = Path("/bin/busybox")
TAG = "1"
MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
_CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
_LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar+gzip"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_TIMEOUT = 30.0

_PASSWD = """\
root:x:0:0:root:/root:/bin/sh
tester:x:1000:1000:tester:/home/tester:/bin/sh
nobody:x:65534:65534:nobody:/home:/bin/false
"""
_GROUP = "root:x:0:\ntester:x:1000:\nextra:x:50000:tester\nnobody:x:65534:\n"

_WEB = """\
#!/bin/sh
# Serves the host name at /, /hostname and, until /www/healthz is removed, ok at /healthz.
hostname > /www/index.html
hostname > /www/hostname
echo ok > /www/healthz
trap 'echo stopped; exit 0' TERM INT
echo serving on port 8080
httpd -f -v -p 8080 -h /www &
wait
"""
_WEB_ECHO = """\
#!/bin/sh
printf 'Content-Type: text/plain\\r\\n\\r\\n'
echo "$REQUEST_METHOD $PATH_INFO $QUERY_STRING from $REMOTE_ADDR"
cat
"""
_CRASH = """\
#!/bin/sh
echo "crashing with ${EXIT_CODE:-3}"
echo "the reason is in the message" > /dev/termination-log
exit "${EXIT_CODE:-3}"
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """A directory, a file or a hard link of a layer."""

    path: str
    content: bytes | None = None
    """The bytes of a file; None for a directory or a link."""
    link: str = ""
    """The path of the file that this is a hard link to."""
    mode: int = 0o755
    owner: int = 0


@dataclass(frozen=True, slots=True)
class Image:
    manifest: bytes
    blobs: Mapping[str, bytes]
    """The configuration and the layers, by digest."""

    @property
    def digest(self) -> str:
        return _digest(self.manifest)


# -- building ---------------------------------------------------------------------------------------------------------


def build(layers: Iterable[bytes], config: Mapping[str, Any]) -> Image:
    """Make an image of layers, as `layer` returns them, and of a configuration such as `{"Cmd": ["sh"]}`."""
    blobs: dict[str, bytes] = {}

    def add(data: bytes, media_type: str) -> dict[str, Any]:
        digest = _digest(data)
        blobs[digest] = data
        return {"mediaType": media_type, "digest": digest, "size": len(data)}

    given = list(layers)
    machine = platform.machine()
    described = {
        "architecture": _ARCHITECTURES.get(machine, machine),
        "os": "linux",
        "config": dict(config),
        "rootfs": {"type": "layers", "diff_ids": [_digest(each) for each in given]},
        "history": [{"created_by": "setpoint test image"} for _ in given],
    }
    configuration = add(json.dumps(described).encode(), _CONFIG_TYPE)
    packed = [add(_compressed(each), _LAYER_TYPE) for each in given]
    manifest = {"schemaVersion": 2, "mediaType": MANIFEST_TYPE, "config": configuration, "layers": packed}
    return Image(json.dumps(manifest).encode(), blobs)


def layer(entries: Iterable[Entry]) -> bytes:
    """Return a layer as an uncompressed archive. Equal entries give equal bytes."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for entry in entries:
            info = tarfile.TarInfo(entry.path)
            info.mode, info.uid, info.gid = entry.mode, entry.owner, entry.owner
            if entry.link:
                info.type, info.linkname = tarfile.LNKTYPE, entry.link
            elif entry.content is None:
                info.type = tarfile.DIRTYPE
            else:
                info.size = len(entry.content)
            archive.addfile(info, io.BytesIO(entry.content or b""))
    return raw.getvalue()


def _digest(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


@cache
def _compressed(data: bytes) -> bytes:
    return gzip.compress(data, 1, mtime=0)


# -- the images of the tests ------------------------------------------------------------------------------------------


@cache
def busybox_layer() -> bytes:
    """Return the layer of a small system whose programs are hard links to busybox."""
    applets = subprocess.run([BUSYBOX, "--list"], capture_output=True, text=True, check=True).stdout.split()
    directories = ("bin", "etc", "home", "root", "usr", "usr/bin", "var", "var/log", "www", "www/cgi-bin")
    return layer(
        [
            *(Entry(path) for path in directories),
            Entry("tmp", mode=0o1777),
            Entry("home/tester", owner=1000),
            Entry("bin/busybox", BUSYBOX.read_bytes()),
            *(Entry(f"bin/{applet}", link="bin/busybox") for applet in applets if applet != "busybox"),
            Entry("etc/passwd", _PASSWD.encode(), mode=0o644),
            Entry("etc/group", _GROUP.encode(), mode=0o644),
            Entry("bin/serve", _WEB.encode()),
            Entry("bin/crash", _CRASH.encode()),
            Entry("www/cgi-bin/echo", _WEB_ECHO.encode()),
        ]
    )


def pause_image() -> Image:
    """Make the image of a sandbox. The program must be called busybox, which looks at the name that it was started by."""
    entrypoint = {"Entrypoint": ["/busybox", "sleep", "2147483647"], "User": "65535:65535"}
    return build([layer([Entry("busybox", BUSYBOX.read_bytes())])], entrypoint)


def shell_image(**config: Any) -> Image:
    """Make an image of the busybox layer; by default its command is a shell."""
    return build([busybox_layer()], {"Cmd": ["sh"], "Env": ["PATH=/bin:/usr/bin"], **config})


@cache
def images_for_tests() -> Mapping[str, Image]:
    """Make the images of the tests; the keys are their repositories.

    - `pause`: the image of a sandbox.
    - `busybox`: a shell. `tools` is the same image under a second name.
    - `web`: an HTTP server on port 8080; removing `/www/healthz` makes `/healthz` fail. Ends on SIGTERM.
    - `web-next`: the next version of `web`, which is a different image.
    - `nonroot`: runs as user 1234. `nameduser`: runs as the user `tester`, whose number only `/etc/passwd` holds.
    - `crash`: writes a line and a termination message, and exits with 3 or with $EXIT_CODE.
    - `memory`: allocates memory until it is killed.
    """
    shell = shell_image()
    web: dict[str, Any] = {"Entrypoint": ["/bin/serve"], "Cmd": [], "ExposedPorts": {"8080/tcp": {}}}
    show_identity = ["sh", "-c", "id; trap 'exit 0' TERM; while true; do sleep 1 & wait $!; done"]
    return {
        "pause": pause_image(),
        "busybox": shell,
        "tools": shell,
        "web": shell_image(**web),
        "web-next": shell_image(**web, Labels={"version": "next"}),
        "nonroot": shell_image(User="1234", Cmd=show_identity),
        "nameduser": shell_image(User="tester", Cmd=show_identity),
        "crash": shell_image(Cmd=["/bin/crash"]),
        "memory": shell_image(Cmd=["tail", "/dev/zero"]),
    }


# -- delivery ---------------------------------------------------------------------------------------------------------


def push(registry: str, repository: str, image: Image, tag: str = TAG, credentials: str = "") -> None:
    """Upload an image to the registry at a URL. `credentials` are `user:password`. Blobs that are there are not sent."""
    headers = {"Authorization": "Basic " + base64.b64encode(credentials.encode()).decode()} if credentials else {}

    def request(method: str, url: str, data: bytes | None = None, content_type: str = "") -> Mapping[str, str]:
        sent = {**headers, **({"Content-Type": content_type} if content_type else {})}
        with urllib.request.urlopen(
            urllib.request.Request(url, data, sent, method=method), timeout=_TIMEOUT
        ) as response:
            return dict(response.headers.items())

    base = f"{registry}/v2/{repository}"
    for digest, data in image.blobs.items():
        try:
            request("HEAD", f"{base}/blobs/{digest}")
            continue
        except urllib.error.HTTPError as error:
            if error.code != 404:
                raise
        location = request("POST", f"{base}/blobs/uploads/", b"")["Location"]
        joined = "&" if "?" in location else "?"
        request("PUT", f"{location}{joined}digest={digest}", data, "application/octet-stream")
    request("PUT", f"{base}/manifests/{tag}", image.manifest, MANIFEST_TYPE)


def write_archive(path: Path, reference: str, image: Image) -> None:
    """Write an OCI layout as an archive, for `ctr --namespace k8s.io images import`."""
    annotations = {"io.containerd.image.name": reference, "org.opencontainers.image.ref.name": reference}
    described = {"mediaType": MANIFEST_TYPE, "digest": image.digest, "size": len(image.manifest)}
    index = {"schemaVersion": 2, "manifests": [{**described, "annotations": annotations}]}
    files = {
        "oci-layout": b'{"imageLayoutVersion":"1.0.0"}',
        "index.json": json.dumps(index).encode(),
        **{
            f"blobs/sha256/{digest.removeprefix('sha256:')}": data
            for digest, data in {**image.blobs, image.digest: image.manifest}.items()
        },
    }
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
