"""`agnhost`, the image that tests of Kubernetes run: those of its programs that look at what is around them. The others
are servers."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from stat import S_IFREG, filemode

from setpoint.meta.goformat import quote
from setpoint.meta.times import parse_duration
from setpoint.node.runtime.files import SET_GROUP, STICKY, Status
from setpoint.node.runtime.network import TCP, Failure
from setpoint.node.runtime.shell.connecting import network_ready, takes
from setpoint.node.runtime.shell.session import FOREVER, Program, Running, Session, Streams

SPEAKING = frozenset((
    "connect", "dns-server-list", "dns-suffix", "entrypoint-tester", "etc-hosts", "logs-generator", "mounttest",
    "nonewprivs",
))  # fmt: skip

_NEW = "mount-tester new file\n"
_LOOK_AGAIN = 2.0
_NOT_THERE = "no such file or directory"
_FILE_SYSTEMS = {"ext4": "61267", "overlay": "2035054128"}
"""Shown by the number by which Linux knows them."""


def agnhost(called: str, *, rises: bool = False) -> Program:
    """`rises`: the program is marked to run as its owner."""

    def run(session: Session, arguments: list[str], streams: Streams) -> Running:
        command, flags = arguments[0] if arguments else "", flags_of(arguments[1:])
        match command:
            case "connect":
                return (yield from _connect(session, arguments[1:], streams))
            case "dns-server-list":
                streams.out(",".join(_resolver(session, "nameserver")) + "\n")
            case "dns-suffix":
                streams.out(",".join(_resolver(session, "search")) + "\n")
            case "etc-hosts":
                streams.out((session.files.read("/etc/hosts") or "") + "\n")
            case "entrypoint-tester":
                streams.out(f"[{' '.join([called, *arguments])}]\n")
            case "logs-generator":
                return (yield from _generate_logs(session, flags, streams))
            case "mounttest":
                return (yield from _mounttest(session, flags, streams))
            case "nonewprivs":
                user = session.files.user
                streams.out(f"Effective uid: {0 if rises and user.may_rise else user.uid}\n")
            case _:
                yield FOREVER
        return 0

    return run


def flags_of(arguments: list[str]) -> dict[str, str]:
    """`--name=value`, `--name value` and `--name`."""
    found: dict[str, str] = {}
    rest = list(arguments)
    while rest:
        name, equals, value = rest.pop(0).lstrip("-").partition("=")
        if not equals and rest and not rest[0].startswith("-"):
            value = rest.pop(0)
        found[name] = value
    return found


def _resolver(session: Session, key: str) -> list[str]:
    lines = (session.files.read("/etc/resolv.conf") or "").splitlines()
    return [word for line in lines if line.split()[:1] == [key] for word in line.split()[1:]]


def _connect(session: Session, arguments: list[str], streams: Streams) -> Running:
    """`agnhost connect [--timeout=1s] [--protocol=tcp] HOST:PORT`."""
    flags = flags_of([each for each in arguments if each.startswith("-")])
    words = [each for each in arguments if not each.startswith("-")]
    host, _, port = (words[-1] if words else "").rpartition(":")
    if not port.isdigit():
        streams.err("OTHER: missing port in address\n")
        return 1
    yield from network_ready(session)
    address = session.network.resolve(host.strip("[]"))
    if not address:
        streams.err(f"DNS: lookup {host}: no such host\n")
        return 1
    failure = session.network.connect(address, int(port), (flags.get("protocol") or TCP).upper())
    if failure is None:
        return 0
    lasted, cut = takes(failure, parse_duration(flags["timeout"]) / 1e9 if flags.get("timeout") else None)
    yield lasted
    streams.err("TIMEOUT\n" if cut or failure is Failure.LOST else "REFUSED\n")
    return 1


def _generate_logs(session: Session, flags: dict[str, str], streams: Streams) -> Running:
    """As many lines as asked for, spread evenly over a time, that look like those of an API server."""
    total = flags.get("log-lines-total") or flags.get("t") or ""
    seconds = parse_duration(flags.get("run-duration") or flags.get("d") or "0s") / 1e9
    if not re.fullmatch("[1-9][0-9]{0,6}", total) or seconds <= 0:
        streams.err("Invalid total number of lines or duration\n")
        return 255
    for number in range(int(total)):
        now = datetime.fromtimestamp(session.now(), UTC)
        method, namespace = ("GET", "POST", "PUT")[number % 3], ("kube-system", "default", "ns")[number % 5 % 3]
        streams.err(
            f"I{now:%m%d %H:%M:%S.%f}       1 logs_generator.go:76] "
            f"{number} {method} /api/v1/namespaces/{namespace}/pods/{number * 7919 % 4096:03x} "
            f"{200 + number * 97 % 400}\n"
        )
        yield seconds / int(total)
    return 0


def _mounttest(session: Session, flags: dict[str, str], streams: Streams) -> Running:
    """What was asked for in the order of the questions: what lies below a path, new files, modes, owners, contents."""
    files, say = session.files, streams.out
    failures = 0

    def status(flag: str, call: str) -> tuple[str, Status | None]:
        nonlocal failures
        path = flags.get(flag) or ""
        found = files.status(path) if path else None
        if path and found is None:
            failures += 1
            where = f": stat {path}" if call == "Stat" else ""
            say(f"error from {call}({quote(path)}){where}: {_NOT_THERE}\n")
        return quote(path), found

    def content(path: str) -> None:
        nonlocal failures
        text = files.read(path)
        if text is None:
            failures += 1
            say(f"error reading file content for {quote(path)}: open {path}: {_NOT_THERE}\n")
        else:
            say(f"content of file {quote(path)}: {text}\n")

    path, found = status("fs_type", "statfs")
    if found is not None:
        say(f"mount type of {path}: {_FILE_SYSTEMS.get(found.file_system, found.file_system)}\n")
    for mode in (0o644, 0o666, 0o660, 0o777):
        path = flags.get(f"new_file_0{mode:o}") or ""
        if path and not files.write(path, _NEW, mode=mode):
            failures += 1
            say(f"error writing new file {quote(path)}: open {path}: {files.refusal(path).lower()}\n")
        elif path:
            content(path)
    path, found = status("file_mode", "Stat")
    if found is not None:
        say(f"mode of file {path}: {_mode(found)}\n")
    path, found = status("file_perm", "Stat")
    if found is not None:
        say(f"perms of file {path}: {filemode(S_IFREG | found.mode & 0o777)}\n")
    path, found = status("file_owner", "stat")
    if found is not None:
        say(f"owner UID of {path}: {found.uid}\nowner GID of {path}: {found.gid}\n")
    if flags.get("file_content"):
        content(flags["file_content"])
    if flags.get("file_content_in_loop") and not (yield from _look_in_loop(session, flags, streams)):
        failures += 1
    return 1 if failures else 0


def _look_in_loop(session: Session, flags: dict[str, str], streams: Streams) -> Running:
    path, until = flags["file_content_in_loop"], session.now() + float(flags.get("retry_time") or 180)
    ends_early = flags.get("break_on_expected_content", "true") != "false"
    text: str | None = None
    while session.now() < until:
        text = session.files.read(path)
        if text is None:
            streams.out(f"Error reading file {path}: open {path}: {_NOT_THERE}, retrying\n")
        else:
            streams.out(f"content of file {quote(path)}: {text}\n")
            if ends_early and text == _NEW:
                break
            if ends_early:
                streams.out(f"Unexpected content. Expected: {_NEW}. Retrying\n")
        yield _LOOK_AGAIN
    return int(text is not None)


def _mode(status: Status) -> str:
    """As Go shows it."""
    kinds = (("d", status.directory), ("g", status.mode & SET_GROUP), ("t", status.mode & STICKY))
    return ("".join(letter for letter, has in kinds if has) or "-") + filemode(S_IFREG | status.mode & 0o777)[1:]


AGNHOST_PROGRAMS: dict[str, Program] = {
    "agnhost": agnhost("/agnhost"),
    "agnhost-2": agnhost("/agnhost-2"),
    "nnp": lambda session, arguments, streams: agnhost("nnp", rises=True)(session, ["nonewprivs"], streams),
}
