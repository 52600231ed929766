"""The programs that a simulated container has, as functions of their arguments."""

from __future__ import annotations

import base64
import hashlib
import re
from datetime import UTC, datetime
from typing import Any

import re2

from setpoint.node.runtime.shell import text_programs, web_programs
from setpoint.node.runtime.shell.agnhost import agnhost
from setpoint.node.runtime.shell.session import (
    FOREVER,
    WAIT_FOR_INPUT,
    Break,
    Continue,
    Exit,
    Program,
    Return,
    Running,
    Session,
    Streams,
    texts,
)
from setpoint.node.runtime.shell.tar import tar

INSTANT = frozenset((
    "chown", "chgrp", "ln", "sync", "dd", "umount", "ping", "nslookup",
    "dig", "host", "telnet", "apt", "apt-get", "apk", "yum", "dnf", "pip", "pip3", "npm", "go", "make", "gcc",
    "git", "kubectl", "gzip", "gunzip", "unzip", "stress", "ulimit", "umask", "stty", "clear",
    "logger", "iptables", "ifconfig", "route", "useradd", "adduser", "groupadd", "addgroup", "passwd", "su",
    "update-ca-certificates", "openssl", "jq", "find", "xargs", "ps", "top",
    "free", "df", "du", "mknod", "mkfifo", "readlink", "realpath", "stat", "file",
))  # fmt: skip
"""Programs that do their work elsewhere and end well, at once and without a word."""

_SLEEP = re.compile(r"([0-9]*\.?[0-9]+)([smhd]?)")
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "0": "\0", "a": "\a", "b": "\b", '"': '"', "'": "'"}


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


def _exit(session: Session, arguments: list[str], streams: Streams) -> int:
    raise Exit(_number(arguments[0]) & 255 if arguments else session.status)


def _return(session: Session, arguments: list[str], streams: Streams) -> int:
    raise Return(_number(arguments[0]) & 255 if arguments else session.status)


def _break(session: Session, arguments: list[str], streams: Streams) -> int:
    raise Break


def _continue(session: Session, arguments: list[str], streams: Streams) -> int:
    raise Continue


def _true(session: Session, arguments: list[str], streams: Streams) -> int:
    return 0


def _false(session: Session, arguments: list[str], streams: Streams) -> int:
    return 1


def _number(text: str) -> int:
    return int(text) if re.fullmatch(r"-?\d{1,9}", text) else 2


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[0]), text)


def _echo(session: Session, arguments: list[str], streams: Streams) -> int:
    newline, escapes = True, False
    words = list(arguments)
    while words and re.fullmatch(r"-[neE]+", words[0]):
        flags = words.pop(0)
        newline = newline and "n" not in flags
        escapes = escapes or "e" in flags
    text = " ".join(words)
    streams.out((_unescaped(text) if escapes else text) + ("\n" if newline else ""))
    return 0


def _printf(session: Session, arguments: list[str], streams: Streams) -> int:
    if not arguments:
        return 2
    values = list(arguments[1:])
    pattern = _unescaped(arguments[0])
    used = False

    def next_value() -> str:
        nonlocal used
        used = True
        return values.pop(0) if values else ""

    def put(found: re.Match[str]) -> str:
        if found[0] == "%%":
            return "%"
        value, kind = next_value(), found[2]
        if kind in "di":
            return ("%" + found[1] + "d") % _number(value or "0")
        return ("%" + found[1] + "s") % (_unescaped(value) if kind == "b" else value)

    while True:
        used = False
        streams.out(re.sub(r"%(-?0?[0-9]*)([sdibc])|%%", lambda found: put(found), pattern))
        if not values or not used:
            return 0


def _cat(session: Session, arguments: list[str], streams: Streams) -> int:
    status = 0
    for text in texts(session, [each for each in arguments if not re.fullmatch("-[a-z]+", each)], streams, "cat"):
        if text is None:
            status = 1
        else:
            streams.out(text)
    return status


def _touch(session: Session, arguments: list[str], streams: Streams) -> int:
    status = 0
    for name in arguments:
        refusal = session.files.refusal(session.path(name)) if not name.startswith("-") else ""
        if refusal:
            streams.err(f"touch: {name}: {refusal}\n")
            status = 1
        elif not name.startswith("-"):
            session.files.write(session.path(name), "", append=True)
    return status


def _rm(session: Session, arguments: list[str], streams: Streams) -> int:
    flags = "".join(each[1:] for each in arguments if each.startswith("-"))
    status = 0
    for name in arguments:
        if name.startswith("-"):
            continue
        if not session.files.remove(session.path(name), "r" in flags.lower()) and "f" not in flags:
            streams.err(f"rm: can't remove '{name}': No such file or directory\n")
            status = 1
    return status


def _mkdir(session: Session, arguments: list[str], streams: Streams) -> int:
    status = 0
    for name in arguments:
        refusal = session.files.refusal(session.path(name)) if not name.startswith("-") else ""
        if refusal:
            streams.err(f"mkdir: can't create directory '{name}': {refusal}\n")
            status = 1
        elif not name.startswith("-"):
            session.files.make_directory(session.path(name))
    return status


def _ls(session: Session, arguments: list[str], streams: Streams) -> int:
    status = 0
    for name in [each for each in arguments if not each.startswith("-")] or [session.directory]:
        path = session.path(name)
        if session.files.is_file(path):
            streams.out(f"{name}\n")
        elif session.files.is_directory(path):
            streams.out("".join(f"{each}\n" for each in session.files.entries(path)))
        else:
            streams.err(f"ls: {name}: No such file or directory\n")
            status = 1
    return status


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


def _export(session: Session, arguments: list[str], streams: Streams) -> int:
    for each in arguments:
        name, equals, value = each.partition("=")
        if equals:
            session.variables[name] = value
    return 0


def _unset(session: Session, arguments: list[str], streams: Streams) -> int:
    for name in arguments:
        session.variables.pop(name, None)
    return 0


def _set(session: Session, arguments: list[str], streams: Streams) -> int:
    for each in arguments:
        if re.fullmatch("-[a-z]*e[a-z]*", each):
            session.exit_on_failure = True
        elif re.fullmatch(r"\+[a-z]*e[a-z]*", each):
            session.exit_on_failure = False
    return 0


def _cd(session: Session, arguments: list[str], streams: Streams) -> int:
    session.directory = session.path(arguments[0]) if arguments else "/root"
    return 0


def _pwd(session: Session, arguments: list[str], streams: Streams) -> int:
    streams.out(session.directory + "\n")
    return 0


def _hostname(session: Session, arguments: list[str], streams: Streams) -> int:
    streams.out(session.hostname + "\n")
    return 0


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
    """Shows the mounts that every container has; mounting anything else ends well."""
    everything = {"overlay": "/", "proc": "/proc", "sysfs": "/sys", "cgroup2": "/sys/fs/cgroup"}
    if not arguments or (arguments[0] == "-t" and len(arguments) == 2):
        for kind, place in everything.items():
            if not arguments or arguments[1] == kind:
                streams.out(f"{kind} on {place} type {kind} (ro,relatime)\n")
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


def _ip(session: Session, arguments: list[str], streams: Streams) -> int:
    """Changes need rights that containers have not; of what is there nothing is told."""
    if (
        any(each in arguments for each in ("add", "del", "delete", "set", "change"))
        and not session.files.user.privileged
    ):
        streams.err("ip: RTNETLINK answers: Operation not permitted\n")
        return 2
    return 0


def _chmod(session: Session, arguments: list[str], streams: Streams) -> int:
    words = [each for each in arguments if not each.startswith("-")]
    if words and re.fullmatch("[0-7]{3,4}", words[0]):
        for name in words[1:]:
            session.files.change_mode(session.path(name), int(words[0], 8))
    return 0


def _hexdump(session: Session, arguments: list[str], streams: Streams) -> int:
    """The canonical form, whatever is asked for."""
    for text in texts(session, [each for each in arguments if not each.startswith("-")], streams, "hexdump"):
        if text is None:
            return 1
        data = text.encode("utf-8", "surrogateescape")
        for at in range(0, len(data), 16):
            row = data[at : at + 16]
            left, right = row[:8].hex(" "), row[8:].hex(" ")
            shown = "".join(chr(each) if 32 <= each < 127 else "." for each in row)
            streams.out(f"{at:08x}  {left:23}  {right:23}  |{shown}|\n")
        if data:
            streams.out(f"{len(data):08x}\n")
    return 0


def _uname(session: Session, arguments: list[str], streams: Streams) -> int:
    streams.out(f"Linux {session.hostname} simulated x86_64 GNU/Linux\n" if arguments else "Linux\n")
    return 0


def _seq(session: Session, arguments: list[str], streams: Streams) -> int:
    numbers = [_number(each) for each in arguments]
    first, step, last = 1, 1, 0
    match numbers:
        case [last]:
            pass
        case [first, last]:
            pass
        case [first, step, last]:
            pass
    if step:
        values = range(first, last + (1 if step > 0 else -1), step)
        streams.out("".join(f"{value}\n" for value in values[:100_000]))
    return 0


def _count_of(arguments: list[str]) -> tuple[int, list[str]]:
    count, names = 10, []
    rest = list(arguments)
    while rest:
        each = rest.pop(0)
        if each in ("-n", "-c") and rest:
            count = abs(_number(rest.pop(0)))
        elif re.fullmatch(r"-n?\d+", each):
            count = _number(each.lstrip("-n"))
        elif not each.startswith("-"):
            names.append(each)
    return count, names


def _head(session: Session, arguments: list[str], streams: Streams) -> int:
    count, names = _count_of(arguments)
    for text in texts(session, names, streams, "head"):
        if text is None:
            return 1
        streams.out("".join(text.splitlines(keepends=True)[:count]))
    return 0


def _tail(session: Session, arguments: list[str], streams: Streams) -> Running:
    count, names = _count_of(arguments)
    follows = any(re.fullmatch("-[a-zA-Z0-9]*[fF][a-zA-Z0-9]*", each) for each in arguments)
    if follows and names == ["/dev/null"]:
        names = []
        yield FOREVER
    for text in texts(session, names, streams, "tail"):
        if text is None and not follows:
            return 1
        streams.out("".join((text or "").splitlines(keepends=True)[-count:] if count else []))
    if follows:
        yield FOREVER
    return 0


def _grep(session: Session, arguments: list[str], streams: Streams) -> int:
    flags = "".join(each[1:] for each in arguments if re.fullmatch("-[a-zA-Z]+", each))
    words = [each for each in arguments if not re.fullmatch("-[a-zA-Z]+", each)]
    if not words:
        return 2
    options = re2.Options()
    options.case_sensitive = "i" not in flags
    options.log_errors = False
    try:
        pattern = re2.compile(re2.escape(words[0]) if "F" in flags else words[0], options)
    except re2.error:
        return 2
    lines = [
        line
        for text in texts(session, words[1:], streams, "grep")
        for line in (text or "").splitlines()
        if (pattern.search(line) is not None) != ("v" in flags)
    ]
    if "c" in flags:
        streams.out(f"{len(lines)}\n")
    elif "q" not in flags:
        streams.out("".join(f"{line}\n" for line in lines))
    return 0 if lines else 1


def _wc(session: Session, arguments: list[str], streams: Streams) -> int:
    flags = "".join(each[1:] for each in arguments if each.startswith("-"))
    for text in texts(session, [each for each in arguments if not each.startswith("-")], streams, "wc"):
        text = text or ""
        counts = {"l": text.count("\n"), "w": len(text.split()), "c": len(text.encode())}
        streams.out(" ".join(str(counts[kind]) for kind in "lwc" if kind in (flags or "lwc")) + "\n")
    return 0


def _tee(session: Session, arguments: list[str], streams: Streams) -> int:
    for name in arguments:
        if not name.startswith("-"):
            session.files.write(session.path(name), streams.stdin, append="-a" in arguments)
    streams.out(streams.stdin)
    return 0


def _digest(kind: str) -> Program:
    def program(session: Session, arguments: list[str], streams: Streams) -> int:
        for name, text in zip(arguments or ["-"], texts(session, arguments, streams, kind), strict=False):
            if text is None:
                return 1
            streams.out(f"{hashlib.new(kind.removesuffix('sum'), text.encode()).hexdigest()}  {name}\n")
        return 0

    return program


def _base64(session: Session, arguments: list[str], streams: Streams) -> int:
    decode = any(each in ("-d", "--decode", "-D") for each in arguments)
    for text in texts(session, [each for each in arguments if not each.startswith("-")], streams, "base64"):
        try:
            data = (text or "").encode()
            streams.out(base64.b64decode(data).decode() if decode else base64.b64encode(data).decode() + "\n")
        except ValueError:
            streams.err("base64: invalid input\n")
            return 1
    return 0


def _read(session: Session, arguments: list[str], streams: Streams) -> int:
    line, newline, rest = streams.stdin.partition("\n")
    streams.stdin = rest
    names = [each for each in arguments if not each.startswith("-")] or ["REPLY"]
    values = line.split(None, len(names) - 1)
    for number, name in enumerate(names):
        session.variables[name] = values[number] if number < len(values) else ""
    return 0 if newline or line else 1


def _perl(session: Session, arguments: list[str], streams: Streams) -> int:
    """The one program in it that everybody runs: the digits of pi."""
    asked = re.search(r"bpi\((\d{1,4})\)", " ".join(arguments))
    if asked is not None:
        streams.out(f"{_pi(int(asked[1]))}\n")
    return 0


def _pi(digits: int) -> str:
    digits = min(digits, 4000)
    unit = int(10 ** (digits + 10))

    def arctangent(inverse: int) -> int:
        total = term = unit // inverse
        odd, sign = 1, 1
        while term:
            term //= inverse * inverse
            odd, sign = odd + 2, -sign
            total += sign * (term // odd)
        return total

    text = str(4 * (4 * arctangent(5) - arctangent(239)) // 10**10)
    return f"{text[0]}.{text[1:digits]}"


def _shift(session: Session, arguments: list[str], streams: Streams) -> int:
    session.arguments = session.arguments[_number(arguments[0]) if arguments else 1 :]
    return 0


def _test(session: Session, arguments: list[str], streams: Streams) -> int:
    words = list(arguments)
    if words and words[-1] in ("]", "]]"):
        words.pop()
    return 0 if _holds(session, words) else 1


def _holds(session: Session, words: list[str]) -> bool:
    for joint, take in (("-o", any), ("||", any), ("-a", all), ("&&", all)):
        if joint in words[1:-1]:
            at = words.index(joint, 1)
            return take((_holds(session, words[:at]), _holds(session, words[at + 1 :])))
    if words and words[0] == "!":
        return not _holds(session, words[1:])
    if not words:
        return False
    if len(words) == 1:
        return bool(words[0])
    files = session.files
    if len(words) == 2:
        path = session.path(words[1])
        match words[0]:
            case "-f" | "-r" | "-w" | "-x":
                return files.is_file(path) or (words[0] != "-f" and files.is_directory(path))
            case "-e":
                return files.is_file(path) or files.is_directory(path)
            case "-d":
                return files.is_directory(path)
            case "-s":
                return bool(files.read(path))
            case "-n":
                return bool(words[1])
            case "-z":
                return not words[1]
        return False
    left, operator, right = words[:3]
    if operator in ("=", "=="):
        return left == right
    if operator == "!=":
        return left != right
    if not all(re.fullmatch(r"[-+]?\d{1,18}", each.strip()) for each in (left, right)):
        return False
    first, second = int(left), int(right)
    comparisons = {
        "-eq": first == second, "-ne": first != second, "-lt": first < second,
        "-le": first <= second, "-gt": first > second, "-ge": first >= second,
    }  # fmt: skip
    return comparisons.get(operator, False)


def _reading(program: Program, words: int = 0) -> Program:
    """With what somebody types, where nothing else is there to be read: all of it, up to its end. It is read unless
    there are more than so many words besides options: those name files."""

    def run(session: Session, arguments: list[str], streams: Streams) -> Any:
        named = sum(not each.startswith("-") for each in arguments)
        if streams.stdin or session.typed.closed or named > words:
            return program(session, arguments, streams)
        return _when_typed(program, session, arguments, streams)

    return run


def _when_typed(program: Program, session: Session, arguments: list[str], streams: Streams) -> Running:
    typed, text = session.typed, ""
    while True:
        text, typed.text = text + typed.text, ""
        if typed.closed:
            break
        yield WAIT_FOR_INPUT
    streams.stdin = text
    outcome = program(session, arguments, streams)
    return int(outcome) if isinstance(outcome, int) else (yield from outcome)


def _read_typed(session: Session, arguments: list[str], streams: Streams) -> Any:
    if streams.stdin or session.typed.closed:
        return _read(session, arguments, streams)
    return _when_a_line_is_typed(session, arguments, streams)


def _when_a_line_is_typed(session: Session, arguments: list[str], streams: Streams) -> Running:
    typed = session.typed
    while "\n" not in typed.text and not typed.closed:
        yield WAIT_FOR_INPUT
    line, newline, typed.text = typed.text.partition("\n")
    streams.stdin = line + newline
    return _read(session, arguments, streams)


PROGRAMS: dict[str, Program] = {
    "sleep": _sleep, "exit": _exit, "return": _return, "break": _break, "continue": _continue, "true": _true,
    ":": _true, "false": _false, "echo": _echo, "printf": _printf, "cat": _reading(_cat), "touch": _touch, "rm": _rm,
    "mkdir": _mkdir, "ls": _ls, "date": _date, "env": _env, "printenv": _printenv, "export": _export,
    "local": _export, "readonly": _export, "unset": _unset, "set": _set, "cd": _cd, "pwd": _pwd,
    "hostname": _hostname, "whoami": _whoami, "uname": _uname, "seq": _seq, "head": _reading(_head, 1),
    "tail": _reading(_tail, 1), "grep": _reading(_grep, 1), "wc": _reading(_wc), "tee": _reading(_tee, 99),
    "md5sum": _reading(_digest("md5sum")), "sha256sum": _reading(_digest("sha256sum")),
    "base64": _reading(_base64), "read": _read_typed, "shift": _shift, "test": _test, "[": _test, "[[": _test,
    "kill": _true, "tar": _reading(tar, 99), "perl": _perl, "id": _id, "chmod": _chmod, "mount": _mount,
    "hexdump": _reading(_hexdump),
    "awk": _reading(text_programs.awk, 1), "cut": _reading(text_programs.cut), "sed": _reading(text_programs.sed, 1),
    "tr": _reading(text_programs.tr, 9), "sort": _reading(text_programs.sort), "uniq": _reading(text_programs.uniq),
    "expr": text_programs.expr, "basename": text_programs.basename, "dirname": text_programs.dirname,
    "curl": web_programs.curl, "wget": web_programs.wget,
    "nc": _reading(web_programs.nc, 2), "cp": text_programs.cp, "mv": text_programs.mv,
    "agnhost": agnhost("/agnhost"), "agnhost-2": agnhost("/agnhost-2"),
    "nnp": lambda session, arguments, streams: agnhost("nnp", rises=True)(session, ["nonewprivs"], streams),
    "sysctl": _sysctl, "ip": _ip,
    "pause": lambda session, arguments, streams: _sleep(session, ["infinity"], streams),
}  # fmt: skip
