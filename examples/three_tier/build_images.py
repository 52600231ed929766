"""Make container images from Debian packages and serve them to nodes, with the standard library only.

    python examples/three_tier/build_images.py --serve 127.0.0.1:5000

Packages that are installed on this machine are read from it; if one is missing, all are downloaded with `apt-get
download` into a directory, and nothing is installed. An image has the selected files of its packages and the libraries
that their programs need, so it is much smaller than the packages with their dependencies.

The images are files below `--directory`, and are made again only if the script or the program of an image has changed.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import os
import platform
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
MERGED = ("bin", "lib", "lib64", "sbin")
"""Directories that Debian has moved below /usr, with links in their place."""

PASSWD = (
    "root:x:0:0:root:/root:/bin/sh\npostgres:x:999:999:postgres:/tmp:/bin/sh\nnobody:x:65534:65534::/tmp:/bin/false\n"
)
GROUP = "root:x:0:\npostgres:x:999:\nnogroup:x:65534:\n"
NOT_NEEDED_OF_PYTHON = (
    "*/test/*",
    "*/idlelib/*",
    "*/lib2to3/*",
    "*/ensurepip/*",
    "*/pydoc_data/*",
    "*/config-3*",
    "*.pyc",
)


@dataclass(frozen=True)
class Part:
    """Files of packages: those whose path matches a pattern of `include` and none of `exclude`."""

    packages: tuple[str, ...]
    include: tuple[str, ...]
    exclude: tuple[str, ...] = ()


class Packages:
    """The files of Debian packages, from this machine or downloaded."""

    def __init__(self, names: Iterable[str], cache: Path) -> None:
        self._names = tuple(names)
        self._cache = cache

    @cached_property
    def root(self) -> Path:
        """The directory with the files of all packages: `/` if they are installed."""
        if all(installed(name) for name in self._names):
            return Path("/")
        root = self._cache / "root"
        if not (root / ".complete").exists():
            self._download(root)
        return root

    def _download(self, root: Path) -> None:
        only = ("recommends", "suggests", "conflicts", "breaks", "replaces", "enhances")
        listed = run("apt-cache", "depends", "--recurse", *(f"--no-{each}" for each in only), *self._names)
        closure = sorted({line for line in listed.splitlines() if re.match(r"[a-z0-9]", line)})
        closure = [name for name in closure if not name.startswith(("libllvm", "perl", "libperl", "debconf"))]
        for directory in MERGED:
            (root / "usr" / directory).mkdir(parents=True, exist_ok=True)
            if not (root / directory).is_symlink():
                (root / directory).symlink_to(f"usr/{directory}")
        with tempfile.TemporaryDirectory(dir=self._cache) as packed:
            shown = run("apt-cache", "show", "--no-all-versions", *closure, check=False)
            available = sorted(set(re.findall(r"^Package: (.*)$", shown, re.MULTILINE)) & set(closure))
            run("apt-get", "download", *available, directory=packed)
            for file in sorted(Path(packed).glob("*.deb")):
                target = f"tar --extract --keep-directory-symlink --no-same-owner --directory '{root}'"
                run("sh", "-c", f"dpkg-deb --fsys-tarfile '{file}' | {target}")
        (root / ".complete").touch()

    def files(self, part: Part) -> Iterator[str]:
        """Yield the selected paths, which begin with `/`."""
        if self.root == Path("/"):
            listed = run("dpkg", "-L", *part.packages).splitlines()
        else:
            walked = (Path(top) / name for top, _, names in os.walk(self.root / "usr") for name in names)
            walked_etc = (path for path in (self.root / "etc").rglob("*"))
            listed = [f"/{path.relative_to(self.root)}" for path in (*walked, *walked_etc)]
        for path in sorted({merged(path) for path in listed if path.startswith("/")}):
            wanted = any(fnmatch(path, pattern) for pattern in part.include)
            if wanted and not any(fnmatch(path, pattern) for pattern in part.exclude) and self.at(path).is_file():
                yield path

    def at(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def libraries(self, paths: Iterable[str]) -> set[str]:
        """Return the paths of the shared libraries, and of the loader, that programs and libraries need."""
        binaries = [str(self.at(path)) for path in paths if self.at(path).open("rb").read(4) == b"\x7fELF"]
        found: set[str] = set()
        for line in self._linked(binaries):
            match = re.match(r"\s+(?:\S+ => )?(/\S+) \(0x", line)
            if match:
                path = Path(match[1])
                inside = path.relative_to(self.root) if path.is_relative_to(self.root) else path
                found.add(merged(f"/{str(inside).lstrip('/')}"))
        return found

    def _linked(self, binaries: list[str]) -> Iterator[str]:
        """Yield what the loader says about each of the programs and libraries. It fails for static ones."""
        if self.root == Path("/"):
            yield from run("ldd", *binaries, check=False).splitlines() if binaries else ()
            return
        # Their own loader, because the libraries of this machine may be of another release.
        (loader,) = self.root.glob("usr/lib*/ld-linux*.so.?")
        libraries = self.root / "usr" / "lib" / f"{platform.machine()}-linux-gnu"
        for binary in binaries:
            yield from run(str(loader), "--library-path", str(libraries), "--list", binary, check=False).splitlines()


def merged(path: str) -> str:
    """Return a path as it is with merged directories: `/lib/x` is `/usr/lib/x`."""
    return f"/usr{path}" if path.split("/")[1] in MERGED else path


def installed(package: str) -> bool:
    found = run("dpkg-query", "--show", "--showformat=${db:Status-Status}", package, check=False)
    return found == "installed"


def version(package: str) -> str:
    """Return the version of a package that is installed or can be."""
    if installed(package):
        return run("dpkg-query", "--show", "--showformat=${Version}", package)
    shown = re.search(r"^Version: (.*)$", run("apt-cache", "show", "--no-all-versions", package), re.MULTILINE)
    assert shown, package
    return shown[1]


def run(*command: str, check: bool = True, directory: str | None = None, **environment: str) -> str:
    env = {**os.environ, "LC_ALL": "C", **environment}
    done = subprocess.run(command, capture_output=True, text=True, cwd=directory, env=env)
    if check and done.returncode:
        raise SystemExit(f"{' '.join(command)[:200]} failed: {done.stderr or done.stdout}")
    return done.stdout


# -- images -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Recipe:
    """An image: its layers, of which several images may have the same, and its configuration."""

    tag: str
    layers: tuple[str, ...]
    config: dict[str, Any]


class Builder:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "blobs").mkdir(parents=True, exist_ok=True)
        self.python = ".".join(version("python3").split(".")[:2])
        self.postgres = re.split(r"[+.]", version("postgresql"))[0]
        names = {name for part in self.parts.values() for name in part.packages}
        self.packages = Packages(sorted(names), directory)
        self._built: dict[str, tuple[str, dict[str, Any], set[str]]] = {}

    @property
    def parts(self) -> dict[str, Part]:
        """The content of each layer."""
        python, postgres = self.python, self.postgres
        library = f"/usr/lib/postgresql/{postgres}"
        runtime = (f"python{python}-minimal", f"libpython{python}-minimal", f"libpython{python}-stdlib")
        return {
            "base": Part(("busybox-static", "libc-bin"), ("/usr/bin/busybox", "/usr/lib/locale/C.utf8/*")),
            "python": Part(runtime, (f"/usr/bin/python{python}", f"/usr/lib/python{python}/*"), NOT_NEEDED_OF_PYTHON),
            "psycopg2": Part(("python3-psycopg2",), ("/usr/lib/python3/dist-packages/psycopg2/*",), ("*.pyc",)),
            "postgres": Part(
                (f"postgresql-{postgres}", f"postgresql-client-{postgres}", "tzdata"),
                (f"{library}/*", f"/usr/share/postgresql/{postgres}/*", "/usr/share/zoneinfo/*"),
                ("*/bitcode/*", "*/llvmjit*", "*/pgxs/*", "*/man/*", "*/right/*", "*/posix/*"),
            ),
            "nginx": Part(("nginx", "nginx-common"), ("/usr/sbin/nginx", "/etc/nginx/mime.types")),
        }

    @property
    def recipes(self) -> dict[str, Recipe]:
        path = "PATH=/usr/bin:/usr/sbin"
        programs = f"{path}:/usr/lib/postgresql/{self.postgres}/bin"
        nginx_version = version("nginx").partition("-")[0].rpartition(".")[0]
        return {
            "nginx": Recipe(nginx_version, ("base", "nginx"), {"Cmd": ["nginx", "-g", "daemon off;"], "Env": [path]}),
            "guestbook": Recipe(
                "1", ("base", "python", "psycopg2", "guestbook"), {"Cmd": ["guestbook"], "Env": [path]}
            ),
            "postgres": Recipe(self.postgres, ("base", "python", "postgres"), {"Cmd": ["postgres"], "Env": [programs]}),
        }

    def build(self) -> dict[str, str]:
        """Make the images; return the digests of their manifests by `repository:tag`."""
        index = self.directory / "index.json"
        made_from = hashlib.sha256(Path(__file__).read_bytes() + (HERE / "guestbook.py").read_bytes()).hexdigest()
        if index.exists() and (found := json.loads(index.read_text()))["madeFrom"] == made_from:
            return dict(found["images"])
        images = {f"{name}:{recipe.tag}": self._image(recipe) for name, recipe in self.recipes.items()}
        index.write_text(json.dumps({"madeFrom": made_from, "images": images}, indent=2))
        return images

    def _image(self, recipe: Recipe) -> str:
        below: set[str] = set()
        layers = []
        for name in recipe.layers:
            if name not in self._built:
                self._built[name] = self._layer(name, below)
            layers.append(self._built[name])
            below |= self._built[name][2]
        config = {
            "architecture": ARCHITECTURES.get(platform.machine(), platform.machine()),
            "os": "linux",
            "config": recipe.config,
            "rootfs": {"type": "layers", "diff_ids": [diff for diff, _, _ in layers]},
        }
        described = {"mediaType": CONFIG, **self._blob(json.dumps(config).encode())}
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": described,
            "layers": [layer for _, layer, _ in layers],
        }
        return str(self._blob(json.dumps(manifest).encode())["digest"])

    def _layer(self, name: str, below: set[str]) -> tuple[str, dict[str, Any], set[str]]:
        """Write a layer; return the digest of its content, its description and its paths."""
        contents: dict[str, bytes] = {}
        if name == "guestbook":
            contents["/usr/bin/guestbook"] = (HERE / "guestbook.py").read_bytes()
        else:
            paths = set(self.packages.files(self.parts[name]))
            paths |= self.packages.libraries(paths)
            contents = {path: self.packages.at(path).read_bytes() for path in sorted(paths - below)}
        raw = io.BytesIO()
        with tarfile.open(fileobj=raw, mode="w", format=tarfile.GNU_FORMAT) as archive:
            if name == "base":
                contents |= {"/etc/passwd": PASSWD.encode(), "/etc/group": GROUP.encode()}
                self._add_directories(archive)
            if name == "python":
                add(archive, "usr/bin/python3", link=f"python{self.python}")
            for path, content in contents.items():
                add(archive, path.lstrip("/"), content, executable=os.path.dirname(path) != "/etc")
        data = raw.getvalue()
        described = {"mediaType": LAYER, **self._blob(gzip.compress(data, 1, mtime=0))}
        return "sha256:" + hashlib.sha256(data).hexdigest(), described, set(contents)

    def _add_directories(self, archive: tarfile.TarFile) -> None:
        for path in ("usr", *(f"usr/{each}" for each in MERGED), "etc", "root", "var", "var/lib", "var/log", "run"):
            add(archive, path)
        for path in ("tmp", "var/tmp", "run/postgresql"):
            add(archive, path, mode=0o1777)
        add(archive, "var/run", link="../run")
        for path in MERGED:
            add(archive, path, link=f"usr/{path}")
        for applet in run(str(self.packages.at("/usr/bin/busybox")), "--list").split():
            if applet != "busybox":
                add(archive, f"usr/bin/{applet}", link="busybox")

    def _blob(self, data: bytes) -> dict[str, Any]:
        digest = "sha256:" + hashlib.sha256(data).hexdigest()
        path = self.directory / "blobs" / digest.replace(":", "-")
        if not path.exists():
            partial = path.with_suffix(".partial")
            partial.write_bytes(data)
            partial.rename(path)
        return {"digest": digest, "size": len(data)}


def add(
    archive: tarfile.TarFile,
    path: str,
    content: bytes | None = None,
    *,
    link: str = "",
    mode: int = 0o755,
    executable: bool = True,
) -> None:
    """Add a file, a symbolic link or, without content and link, a directory."""
    info = tarfile.TarInfo(path)
    info.mode = mode if executable else 0o644
    if link:
        info.type, info.linkname = tarfile.SYMTYPE, link
    elif content is None:
        info.type = tarfile.DIRTYPE
    else:
        info.size = len(content)
    archive.addfile(info, io.BytesIO(content or b""))


# -- serving ----------------------------------------------------------------------------------------------------------


def serve(directory: Path, images: dict[str, str], address: tuple[str, int]) -> ThreadingHTTPServer:
    """Return a registry from which nodes can pull the images, and to which nothing can be pushed."""

    class Registry(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # containerd 2.x tries TLS first, and HTTP if the answer to that is one of HTTP, with a status line.
        default_request_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.send(self.find())

        do_HEAD = do_GET

        def find(self) -> tuple[str, bytes] | None:
            path = self.path.partition("?")[0]
            if path == "/v2/":
                return "application/json", b"{}"
            match = re.fullmatch(r"/v2/([a-z]+)/(manifests|blobs)/([a-zA-Z0-9.:]+)", path)
            if not match:
                return None
            name, kind, reference = match.groups()
            digest = images.get(f"{name}:{reference}", reference)
            file = directory / "blobs" / digest.replace(":", "-")
            if not re.fullmatch(r"sha256:[0-9a-f]{64}", digest) or not file.exists():
                return None
            return MANIFEST if kind == "manifests" else "application/octet-stream", file.read_bytes()

        def send(self, found: tuple[str, bytes] | None) -> None:
            media_type, body = found or ("text/plain", b"not found\n")
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", media_type)
            self.send_header("Content-Length", str(len(body)))
            if media_type == MANIFEST:
                self.send_header("Docker-Content-Digest", "sha256:" + hashlib.sha256(body).hexdigest())
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            return

    return ThreadingHTTPServer(address, Registry)


def show(*lines: str) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description="Make container images from Debian packages and serve them.")
    default = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "setpoint-example-images"
    parser.add_argument("--directory", type=Path, default=default, help="directory of the images (%(default)s)")
    parser.add_argument("--serve", metavar="HOST:PORT", help="serve the images at this address until interrupted")
    given = parser.parse_args()
    images = Builder(given.directory).build()
    show(*images)
    if given.serve:
        host, _, port = given.serve.rpartition(":")
        with serve(given.directory, images, (host, int(port))) as server:
            show(f"serving at http://{given.serve}")
            try:
                server.serve_forever()
            except KeyboardInterrupt:
                return


if __name__ == "__main__":
    main()
