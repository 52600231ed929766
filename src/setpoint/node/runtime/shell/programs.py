"""The programs that a simulated container has, as functions of their arguments."""

from __future__ import annotations

from setpoint.node.runtime.shell.account_programs import ACCOUNT_PROGRAMS
from setpoint.node.runtime.shell.agnhost import AGNHOST_PROGRAMS
from setpoint.node.runtime.shell.archive_programs import ARCHIVE_PROGRAMS
from setpoint.node.runtime.shell.connection_programs import CONNECTION_PROGRAMS
from setpoint.node.runtime.shell.control_programs import CONTROL_PROGRAMS
from setpoint.node.runtime.shell.file_programs import FILE_PROGRAMS
from setpoint.node.runtime.shell.http_programs import HTTP_PROGRAMS
from setpoint.node.runtime.shell.interface_programs import INTERFACE_PROGRAMS
from setpoint.node.runtime.shell.line_programs import LINE_PROGRAMS
from setpoint.node.runtime.shell.looking_programs import LOOKING_PROGRAMS
from setpoint.node.runtime.shell.machine_programs import MACHINE_PROGRAMS
from setpoint.node.runtime.shell.name_programs import NAME_PROGRAMS
from setpoint.node.runtime.shell.outside_programs import OUTSIDE_PROGRAMS
from setpoint.node.runtime.shell.postgres_programs import POSTGRES_PROGRAMS
from setpoint.node.runtime.shell.printing_programs import PRINTING_PROGRAMS
from setpoint.node.runtime.shell.session import Program
from setpoint.node.runtime.shell.small_programs import SMALL_PROGRAMS
from setpoint.node.runtime.shell.stress import STRESS_PROGRAMS
from setpoint.node.runtime.shell.text_programs import TEXT_PROGRAMS

TASKS = frozenset((
    "go", "make", "cmake", "gcc", "cc", "cargo", "mvn", "gradle", "yq", "file", "helm",
))  # fmt: skip
"""Programs of images whose contents nobody knows that do some work and end: they are taken to have done it."""

NOT_SIMULATED = frozenset((
    "ar", "arping", "at", "base32", "bc", "blkid", "cal", "chattr", "chroot", "cksum", "column", "comm", "cpio",
    "crontab", "csplit", "dc", "dmesg", "dos2unix", "dpkg", "ed", "expand", "factor", "fallocate", "fdisk", "flock",
    "fmt", "fold", "fuser", "getconf", "getopt", "getopts", "install", "iostat", "ipcs", "join", "jq", "let",
    "less", "locale", "login", "lsattr", "lsblk", "lscpu", "lsmod", "lsof", "lspci", "lsusb", "lzma", "man",
    "mapfile", "mkpasswd", "modinfo", "more", "mountpoint", "mpstat", "netstat", "nsenter", "numfmt", "od",
    "openssl", "passwd", "paste", "patch", "pivot_root", "pmap", "popd", "pstree", "pushd", "readarray", "renice",
    "rsync", "run-parts", "scp", "script", "sha3sum", "shred", "shuf", "split", "ss", "ssh", "strace", "strings",
    "sum", "taskset", "tcpdump", "tftp", "traceroute", "tree", "tsort", "unexpand", "unshare", "unxz", "unzip",
    "uptime", "uudecode", "uuencode", "vi", "vmstat", "watch", "who", "xxd", "xz", "yes", "zip",
))  # fmt: skip
"""What well-known images have, or people look for in them, and nothing here can do: there it says so."""

SERVERS = frozenset(("httpd", "crond", "cron", "syslogd", "telnetd", "ftpd", "udhcpd", "inetd", "sshd"))
"""Programs of well-known images that run until they are stopped."""

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
    **ACCOUNT_PROGRAMS,
    **ARCHIVE_PROGRAMS,
    **INTERFACE_PROGRAMS,
    **SMALL_PROGRAMS,
    **STRESS_PROGRAMS,
    **AGNHOST_PROGRAMS,
}
