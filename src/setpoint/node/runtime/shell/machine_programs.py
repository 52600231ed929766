"""Programs that tell of the machine, its time, its users and its environment."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from setpoint.node.runtime.shell.session import FOREVER, Program, Running, Session, Streams

_SLEEP = re.compile(r"([0-9]++(?:\.[0-9]++)?|\.[0-9]++)([smhd]?)")
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


def _sleep(session: Session, arguments: list[str], streams: Streams) -> Running:
    total = 0.0
    if not arguments:
        streams.err("sleep: missing operand\n")
        return 1
    for argument in arguments:
        if argument in ("infinity", "inf"):
            total = FOREVER
            continue
        match = _SLEEP.fullmatch(argument)
        if match is None:
            streams.err(f"sleep: invalid time interval '{argument}'\n")
            return 1
        total += float(match[1]) * _UNITS[match[2]]
    yield total
    return 0


def _date(session: Session, arguments: list[str], streams: Streams) -> int:
    now = datetime.fromtimestamp(session.now(), UTC)
    pattern = next((each[1:] for each in arguments if each.startswith("+")), "%a %b %e %H:%M:%S UTC %Y")
    pattern = pattern.replace("%s", str(int(now.timestamp()))).replace("%N", f"{now.microsecond * 1000:09d}")
    streams.out(now.strftime(pattern) + "\n")
    return 0


def _env(session: Session, arguments: list[str], streams: Streams) -> int:
    streams.out("".join(f"{name}={value}\n" for name, value in session.variables.items()))
    return 0


def _printenv(session: Session, arguments: list[str], streams: Streams) -> int:
    if not arguments:
        return _env(session, arguments, streams)
    status = 0
    for name in arguments:
        if name in session.variables:
            streams.out(session.variables[name] + "\n")
        else:
            status = 1
    return status


def _whoami(session: Session, arguments: list[str], streams: Streams) -> int:
    uid = session.files.user.uid
    if uid:
        streams.err(f"whoami: unknown uid {uid}\n")
        return 1
    streams.out("root\n")
    return 0


def _id(session: Session, arguments: list[str], streams: Streams) -> int:
    uid, gid, groups = session.files.user[:3]
    everyone = [gid, *(each for each in groups if each != gid)]
    flags = "".join(each[1:] for each in arguments if each.startswith("-"))
    if "u" in flags:
        streams.out(f"{uid}\n")
    elif "g" in flags:
        streams.out(f"{gid}\n")
    elif "G" in flags:
        streams.out(" ".join(str(each) for each in everyone) + "\n")
    else:
        named = [f"{each}(root)" if not each else str(each) for each in (uid, gid, *everyone)]
        streams.out(f"uid={named[0]} gid={named[1]} groups={','.join(named[2:])}\n")
    return 0


def _mount(session: Session, arguments: list[str], streams: Streams) -> int:
    """Shows the mounts that every container has. Mounting needs rights that only privileged containers have."""
    everything = {"overlay": "/", "proc": "/proc", "sysfs": "/sys", "cgroup2": "/sys/fs/cgroup"}
    if not arguments or (arguments[0] == "-t" and len(arguments) == 2):
        for kind, place in everything.items():
            if not arguments or arguments[1] == kind:
                streams.out(f"{kind} on {place} type {kind} (ro,relatime)\n")
    elif not session.files.user.privileged:
        streams.err("mount: permission denied (are you root?)\n")
        return 1
    return 0


def _sysctl(session: Session, arguments: list[str], streams: Streams) -> int:
    status = 0
    for name in (each for each in arguments if not each.startswith("-")):
        name, equals, _ = name.partition("=")
        path = "/proc/sys/" + name.replace(".", "/")
        text = session.files.read(path)
        if text is None:
            streams.err(f"sysctl: error: '{path}' No such file or directory\n")
            status = 1
        elif equals:
            streams.err(f"sysctl: error setting key '{name}': Read-only file system\n")
            status = 1
        else:
            streams.out(text if "-n" in arguments else f"{name} = {text}")
    return status


def _uname(session: Session, arguments: list[str], streams: Streams) -> int:
    streams.out(f"Linux {session.hostname} simulated x86_64 GNU/Linux\n" if arguments else "Linux\n")
    return 0


def _ps(session: Session, arguments: list[str], streams: Streams) -> int:
    user = str(session.files.user.uid or "root")
    streams.out("PID   USER     TIME  COMMAND\n")
    for process, command in enumerate((*session.processes(), " ".join(["ps", *arguments])), start=1):
        streams.out(f"{process:5d} {user:<8}  0:00 {command}\n")
    return 0


MACHINE_PROGRAMS: dict[str, Program] = {
    "sleep": _sleep, "date": _date, "env": _env, "printenv": _printenv, "whoami": _whoami,
    "id": _id, "mount": _mount, "sysctl": _sysctl, "ps": _ps, "uname": _uname,
    "pause": lambda session, arguments, streams: _sleep(session, ["infinity"], streams),
}  # fmt: skip
