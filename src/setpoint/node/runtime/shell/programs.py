"""The table of the programs that a simulated container has, as functions of their arguments.

Programs that need what is outside of the cluster, or a part of the machine that is not simulated, fail with their own
message and exit code, as they do in a cluster without access to the internet.
"""

from __future__ import annotations

import re

from setpoint.node.runtime.shell.archive_programs import ARCHIVE_PROGRAMS
from setpoint.node.runtime.shell.builtins import BUILTIN_PROGRAMS
from setpoint.node.runtime.shell.file_programs import FILE_PROGRAMS
from setpoint.node.runtime.shell.http_programs import HTTP_PROGRAMS, parse_url
from setpoint.node.runtime.shell.network_programs import NETWORK_PROGRAMS
from setpoint.node.runtime.shell.printing_programs import PRINTING_PROGRAMS
from setpoint.node.runtime.shell.session import Program, Session, Streams
from setpoint.node.runtime.shell.system_programs import SYSTEM_PROGRAMS
from setpoint.node.runtime.shell.test_image_programs import TEST_IMAGE_PROGRAMS
from setpoint.node.runtime.shell.text_programs import TEXT_PROGRAMS

_DEBIAN, _ALPINE = "deb.debian.org", "dl-cdn.alpinelinux.org"


def _words(arguments: list[str]) -> list[str]:
    return [each for each in arguments if not each.startswith("-")]


def _apt(session: Session, arguments: list[str], streams: Streams) -> int:
    command, *packages = _words(arguments) or [""]
    if command == "update":
        index = f"http://{_DEBIAN}/debian stable InRelease"
        why = f"Temporary failure resolving '{_DEBIAN}'"
        streams.out(f"Ign:1 {index}\nErr:1 {index}\n  {why}\nReading package lists...\n")
        streams.err(
            f"W: Failed to fetch http://{_DEBIAN}/debian/dists/stable/InRelease  {why}\n"
            "W: Some index files failed to download. They have been ignored, or old ones used instead.\n"
        )
        return 0
    if command in ("clean", "autoclean", "autoremove"):
        return 0
    streams.out("Reading package lists...\nBuilding dependency tree...\nReading state information...\n")
    for package in packages if command == "install" else ():
        streams.err(f"E: Unable to locate package {package}\n")
    return 100 if command == "install" and packages else 0


def _apk(session: Session, arguments: list[str], streams: Streams) -> int:
    command, *packages = _words(arguments) or [""]
    url = f"https://{_ALPINE}/alpine/latest-stable/main"
    if command in ("update", "add", "upgrade"):
        streams.out(f"fetch {url}/x86_64/APKINDEX.tar.gz\n")
        streams.err(f"WARNING: updating and opening {url}: DNS: name does not exist\n")
    if command == "update":
        streams.err("1 unavailable, 0 stale; 14 distinct packages available\n")
        return 1
    if command == "add" and packages:
        named = "".join(f"  {each} (no such package):\n    required by: world[{each}]\n" for each in packages)
        streams.err(f"ERROR: unable to select packages:\n{named}")
        return len(packages)
    return 0


def _dnf(session: Session, arguments: list[str], streams: Streams) -> int:
    streams.err(
        "Error: Failed to download metadata for repo 'baseos': Cannot prepare internal mirrorlist: Curl error (6): "
        "Could not resolve hostname for https://mirrors.example.org/mirrorlist [Could not resolve host: "
        "mirrors.example.org]\n"
    )
    return 1


def _pip(session: Session, arguments: list[str], streams: Streams) -> int:
    command, *packages = _words(arguments) or [""]
    if command not in ("install", "download") or not packages:
        return 0
    streams.err(
        f"ERROR: Could not find a version that satisfies the requirement {packages[0]} (from versions: none)\n"
        f"ERROR: No matching distribution found for {packages[0]}\n"
    )
    return 1


def _npm(session: Session, arguments: list[str], streams: Streams) -> int:
    command, *packages = _words(arguments) or [""]
    if command not in ("install", "i", "ci", "add", "update"):
        streams.err("npm error code ENOENT\nnpm error Could not read package.json\n")
        return 254
    package = packages[0] if packages else ""
    streams.err(
        "npm error code EAI_AGAIN\nnpm error syscall getaddrinfo\nnpm error errno EAI_AGAIN\nnpm error request to "
        f"https://registry.npmjs.org/{package} failed, reason: getaddrinfo EAI_AGAIN registry.npmjs.org\n"
    )
    return 1


def _git(session: Session, arguments: list[str], streams: Streams) -> int:
    words = _words(arguments)
    if "--version" in arguments or words == ["version"]:
        streams.out("git version 2.47.1\n")
        return 0
    url = next((each for each in words if "://" in each or re.match(r"[\w.-]+@[\w.-]+:", each)), "")
    if words[:1] in (["clone"], ["ls-remote"]) and url:
        if words[0] == "clone":
            target = words[-1] if words[-1] != url else url.rstrip("/").rpartition("/")[2].removesuffix(".git")
            streams.err(f"Cloning into '{target}'...\n")
        found = parse_url(url)
        host = found.host if found is not None and "://" in url else url.partition("@")[2].partition(":")[0]
        if url.startswith("http"):
            streams.err(f"fatal: unable to access '{url.rstrip('/')}/': Could not resolve host: {host}\n")
        else:
            streams.err(
                f"ssh: Could not resolve hostname {host}: Name or service not known\n"
                "fatal: Could not read from remote repository.\n"
            )
        return 128
    streams.err("fatal: not a git repository (or any of the parent directories: .git)\n")
    return 128


def _failing(text: str, code: int) -> Program:
    """Return a program that always fails in the same way; {0} is its first argument."""

    def program(session: Session, arguments: list[str], streams: Streams) -> int:
        words = _words(arguments)
        streams.err(text.format(words[0] if words else "") + "\n")
        return code

    return program


_UNAVAILABLE_PROGRAMS: dict[str, Program] = {
    "apt": _apt,
    "apt-get": _apt,
    "apk": _apk,
    "yum": _dnf,
    "dnf": _dnf,
    "microdnf": _dnf,
    "pip": _pip,
    "pip3": _pip,
    "npm": _npm,
    "git": _git,
    "kubectl": _failing("kubectl: this program is not simulated", 126),
    "umount": _failing("umount: can't unmount {0}: Operation not permitted", 1),
    "mknod": _failing("mknod: {0}: Operation not permitted", 1),
    "mkfifo": _failing("mkfifo: {0}: Operation not supported", 1),
    "iptables": _failing("iptables: Permission denied (you must be root)", 4),
    "top": _failing("top: no process info in /proc", 1),
    "free": _failing("free: can't open '/proc/meminfo': No such file or directory", 1),
    "stty": _failing("stty: standard input: Inappropriate ioctl for device", 1),
}


PROGRAMS: dict[str, Program] = {
    **BUILTIN_PROGRAMS,
    **FILE_PROGRAMS,
    **ARCHIVE_PROGRAMS,
    **TEXT_PROGRAMS,
    **PRINTING_PROGRAMS,
    **SYSTEM_PROGRAMS,
    **HTTP_PROGRAMS,
    **NETWORK_PROGRAMS,
    **_UNAVAILABLE_PROGRAMS,
    **TEST_IMAGE_PROGRAMS,
}
