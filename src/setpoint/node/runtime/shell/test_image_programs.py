"""Programs of images for tests: the subcommands of `agnhost` that are not servers, and `stress`."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from stat import S_IFREG, filemode

from setpoint.meta.goformat import quote
from setpoint.meta.times import parse_duration
from setpoint.node.runtime.files import SET_GROUP, STICKY, FileStatus
from setpoint.node.runtime.network import TCP, ConnectionFailure
from setpoint.node.runtime.shell.http_programs import failure_delay, wait_for_network
from setpoint.node.runtime.shell.session import (
    FOREVER,
    Program,
    ProgramRun,
    Session,
    Streams,
    flags_of,
    parse_options,
)
from setpoint.node.runtime.shell.stress_options import STRESS_NAMES, STRESS_OPTIONS, count_of

_NEW = "mount-tester new file\n"
_RETRY_INTERVAL = 2.0
_NOT_FOUND = "no such file or directory"
_FILE_SYSTEMS = {"ext4": "61267", "overlay": "2035054128"}
"""File systems that are shown by their magic number."""
_STRESS_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def agnhost(name: str, *, setuid: bool = False) -> Program:
    """Return agnhost under a name; `setuid` means that the program runs as its owner."""

    def run(session: Session, arguments: list[str], streams: Streams) -> ProgramRun:
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
                streams.out(f"[{' '.join([name, *arguments])}]\n")
            case "logs-generator":
                return (yield from _generate_logs(session, flags, streams))
            case "mounttest":
                return (yield from _mounttest(session, flags, streams))
            case "nonewprivs":
                user = session.files.user
                streams.out(f"Effective uid: {0 if setuid and user.allow_privilege_escalation else user.uid}\n")
            case _:
                yield FOREVER
        return 0

    return run


def _resolver(session: Session, key: str) -> list[str]:
    lines = (session.files.read("/etc/resolv.conf") or "").splitlines()
    return [word for line in lines if line.split()[:1] == [key] for word in line.split()[1:]]


def _connect(session: Session, arguments: list[str], streams: Streams) -> ProgramRun:
    """Run `agnhost connect [--timeout=1s] [--protocol=tcp] HOST:PORT`."""
    flags = flags_of([each for each in arguments if each.startswith("-")])
    words = [each for each in arguments if not each.startswith("-")]
    host, _, port = (words[-1] if words else "").rpartition(":")
    if not port.isdigit():
        streams.err("OTHER: missing port in address\n")
        return 1
    yield from wait_for_network(session)
    address = session.network.resolve(host.strip("[]"))
    if not address:
        streams.err(f"DNS: lookup {host}: no such host\n")
        return 1
    failure = session.network.connect(address, int(port), (flags.get("protocol") or TCP).upper())
    if failure is None:
        return 0
    elapsed, timed_out = failure_delay(
        failure, parse_duration(flags["timeout"]) / 1e9 if flags.get("timeout") else None
    )
    yield elapsed
    streams.err("TIMEOUT\n" if timed_out or failure is ConnectionFailure.TIMED_OUT else "REFUSED\n")
    return 1


def _generate_logs(session: Session, flags: dict[str, str], streams: Streams) -> ProgramRun:
    """Write the requested number of lines that resemble those of an API server, spread evenly over the duration."""
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


def _mounttest(session: Session, flags: dict[str, str], streams: Streams) -> ProgramRun:
    """Print what the flags ask for, in a fixed order: file system, new files, modes, owners, contents."""
    files, write = session.files, streams.out
    failures = 0

    def status(flag: str, call: str) -> tuple[str, FileStatus | None]:
        nonlocal failures
        path = flags.get(flag) or ""
        found = files.status(path) if path else None
        if path and found is None:
            failures += 1
            where = f": stat {path}" if call == "Stat" else ""
            write(f"error from {call}({quote(path)}){where}: {_NOT_FOUND}\n")
        return quote(path), found

    def content(path: str) -> None:
        nonlocal failures
        text = files.read(path)
        if text is None:
            failures += 1
            write(f"error reading file content for {quote(path)}: open {path}: {_NOT_FOUND}\n")
        else:
            write(f"content of file {quote(path)}: {text}\n")

    path, found = status("fs_type", "statfs")
    if found is not None:
        write(f"mount type of {path}: {_FILE_SYSTEMS.get(found.file_system, found.file_system)}\n")
    for mode in (0o644, 0o666, 0o660, 0o777):
        path = flags.get(f"new_file_0{mode:o}") or ""
        if path and not files.write(path, _NEW, mode=mode):
            failures += 1
            write(f"error writing new file {quote(path)}: open {path}: {files.write_error(path).lower()}\n")
        elif path:
            content(path)
    path, found = status("file_mode", "Stat")
    if found is not None:
        write(f"mode of file {path}: {_mode(found)}\n")
    path, found = status("file_perm", "Stat")
    if found is not None:
        write(f"perms of file {path}: {filemode(S_IFREG | found.mode & 0o777)}\n")
    path, found = status("file_owner", "stat")
    if found is not None:
        write(f"owner UID of {path}: {found.uid}\nowner GID of {path}: {found.gid}\n")
    if flags.get("file_content"):
        content(flags["file_content"])
    if flags.get("file_content_in_loop") and not (yield from _read_in_loop(session, flags, streams)):
        failures += 1
    return 1 if failures else 0


def _read_in_loop(session: Session, flags: dict[str, str], streams: Streams) -> ProgramRun:
    path, until = flags["file_content_in_loop"], session.now() + float(flags.get("retry_time") or 180)
    ends_early = flags.get("break_on_expected_content", "true") != "false"
    text: str | None = None
    while session.now() < until:
        text = session.files.read(path)
        if text is None:
            streams.out(f"Error reading file {path}: open {path}: {_NOT_FOUND}, retrying\n")
        else:
            streams.out(f"content of file {quote(path)}: {text}\n")
            if ends_early and text == _NEW:
                break
            if ends_early:
                streams.out(f"Unexpected content. Expected: {_NEW}. Retrying\n")
        yield _RETRY_INTERVAL
    return int(text is not None)


def _mode(status: FileStatus) -> str:
    """Format a mode as Go does."""
    kinds = (("d", status.directory), ("g", status.mode & SET_GROUP), ("t", status.mode & STICKY))
    return ("".join(letter for letter, has in kinds if has) or "-") + filemode(S_IFREG | status.mode & 0o777)[1:]


def _stress(session: Session, arguments: list[str], streams: Streams) -> ProgramRun:
    options, _ = parse_options(arguments, STRESS_OPTIONS)
    workers = [
        (count_of(options, letter, name), name) for letter, name in zip("cimd", ("cpu", "io", "vm", "hdd"), strict=True)
    ]
    streams.out("stress: info: [1] dispatching hogs: " + ", ".join(f"{count} {name}" for count, name in workers) + "\n")
    text = options.get("t") or options.get("timeout") or ""
    unit = _STRESS_UNITS.get(text[-1:], 0)
    amount = text[:-1] if unit else text
    if not amount.isdigit():
        yield FOREVER
    yield float(amount) * (unit or 1)
    streams.out(f"stress: info: [1] successful run completed in {int(amount) * (unit or 1)}s\n")
    return 0


TEST_IMAGE_PROGRAMS: dict[str, Program] = {
    "agnhost": agnhost("/agnhost"),
    "agnhost-2": agnhost("/agnhost-2"),
    "nnp": lambda session, arguments, streams: agnhost("nnp", setuid=True)(session, ["nonewprivs"], streams),
    **dict.fromkeys(STRESS_NAMES, _stress),
}
