"""The programs that a simulated container has, as functions of their arguments."""

from __future__ import annotations

from setpoint.node.runtime.shell.agnhost import AGNHOST_PROGRAMS
from setpoint.node.runtime.shell.control_programs import CONTROL_PROGRAMS
from setpoint.node.runtime.shell.file_programs import FILE_PROGRAMS
from setpoint.node.runtime.shell.line_programs import LINE_PROGRAMS
from setpoint.node.runtime.shell.looking_programs import LOOKING_PROGRAMS
from setpoint.node.runtime.shell.machine_programs import MACHINE_PROGRAMS
from setpoint.node.runtime.shell.printing_programs import PRINTING_PROGRAMS
from setpoint.node.runtime.shell.session import Program
from setpoint.node.runtime.shell.text_programs import TEXT_PROGRAMS
from setpoint.node.runtime.shell.web_programs import WEB_PROGRAMS

INSTANT = frozenset((
    "chown", "chgrp", "ln", "sync", "umount", "ping", "nslookup",
    "dig", "host", "telnet", "apt", "apt-get", "apk", "yum", "dnf", "pip", "pip3", "npm", "go", "make", "gcc",
    "git", "kubectl", "gzip", "gunzip", "unzip", "stress", "ulimit", "umask", "stty", "clear",
    "logger", "iptables", "ifconfig", "route", "useradd", "adduser", "groupadd", "addgroup", "passwd", "su",
    "update-ca-certificates", "openssl", "jq", "xargs", "top",
    "free", "mknod", "mkfifo", "file", "psql", "pg_basebackup", "pg_dump", "pg_dumpall", "pg_isready",
))  # fmt: skip
"""Programs that do their work elsewhere and end well, at once and without a word."""

PROGRAMS: dict[str, Program] = {
    **CONTROL_PROGRAMS,
    **FILE_PROGRAMS,
    **LINE_PROGRAMS,
    **LOOKING_PROGRAMS,
    **MACHINE_PROGRAMS,
    **PRINTING_PROGRAMS,
    **TEXT_PROGRAMS,
    **WEB_PROGRAMS,
    **AGNHOST_PROGRAMS,
}
