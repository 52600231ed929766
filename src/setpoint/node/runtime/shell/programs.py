"""The programs that a simulated container has, as functions of their arguments."""

from __future__ import annotations

from setpoint.node.runtime.shell.agnhost import AGNHOST_PROGRAMS
from setpoint.node.runtime.shell.connection_programs import CONNECTION_PROGRAMS
from setpoint.node.runtime.shell.control_programs import CONTROL_PROGRAMS
from setpoint.node.runtime.shell.file_programs import FILE_PROGRAMS
from setpoint.node.runtime.shell.http_programs import HTTP_PROGRAMS
from setpoint.node.runtime.shell.line_programs import LINE_PROGRAMS
from setpoint.node.runtime.shell.looking_programs import LOOKING_PROGRAMS
from setpoint.node.runtime.shell.machine_programs import MACHINE_PROGRAMS
from setpoint.node.runtime.shell.name_programs import NAME_PROGRAMS
from setpoint.node.runtime.shell.outside_programs import OUTSIDE_PROGRAMS
from setpoint.node.runtime.shell.postgres_programs import POSTGRES_PROGRAMS
from setpoint.node.runtime.shell.printing_programs import PRINTING_PROGRAMS
from setpoint.node.runtime.shell.session import Program
from setpoint.node.runtime.shell.text_programs import TEXT_PROGRAMS

INSTANT = frozenset((
    "chown", "chgrp", "ln", "sync", "go", "make", "gcc", "gzip", "gunzip", "unzip", "stress", "ulimit", "umask",
    "clear", "logger", "ifconfig", "route", "useradd", "adduser", "groupadd", "addgroup", "passwd", "su",
    "update-ca-certificates", "openssl", "jq", "xargs", "file",
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
    **HTTP_PROGRAMS,
    **NAME_PROGRAMS,
    **CONNECTION_PROGRAMS,
    **OUTSIDE_PROGRAMS,
    **POSTGRES_PROGRAMS,
    **AGNHOST_PROGRAMS,
}
