"""Shows with the findings about containers that have exited what these wrote last.

The log is read with the rights of the asker, and is what the container's author wrote: few lines, of few bytes, with
visible control characters."""

from __future__ import annotations

from collections.abc import Sequence

from setpoint.meta.objects import ObjView
from setpoint.view.why.answer import ContainerLog, Finding
from setpoint.view.why.facts import Facts, LogBounds, LogEnd

_MAX_LOGS = 2
"""Maximum number of logs that are read for one answer."""
_BOUNDS = LogBounds(lines=5, size=4096, seconds=1.0)
_MAX_LINE = 240
"""Maximum number of characters of a line that are shown."""
_CUT = "..."
_LOGS_COMMAND = "`setpoint logs "


def log_of(pod: ObjView, status: ObjView) -> ContainerLog | None:
    """Return which log says why a container has exited: that of the current instance if it has, else that of the
    previous one; None if none has exited. The lines are still to be read."""
    exited = bool((status.get("state") or {}).get("terminated"))
    if not exited and not (status.get("lastState") or {}).get("terminated"):
        return None
    meta = pod["metadata"]
    return ContainerLog(str(meta.get("namespace") or ""), str(meta["name"]), str(status["name"]), not exited)


async def read_logs(facts: Facts, findings: Sequence[Finding]) -> None:
    """Read the logs of the first findings that have one, and say of the others of these why there are no lines."""
    wanted = [(each, each.log) for each in findings if each.log is not None][:_MAX_LOGS]
    if not wanted:
        return
    ends = await facts.logs([log for _, log in wanted], _BOUNDS)
    for (finding, log), end in zip(wanted, ends, strict=True):
        if end is LogEnd.FORBIDDEN:
            right = "the right to get pods/log, to see the end of its log"
            finding.help = [*(each for each in finding.help if not each.startswith(_LOGS_COMMAND)), right]
        elif end is LogEnd.LATE:
            finding.evidence = [*finding.evidence, f"its node did not send its log within {_BOUNDS.seconds:.0f} s"]
        elif isinstance(end, bytes):
            log.lines = shown_lines(end, _BOUNDS)
            if not log.lines:
                finding.evidence = [*finding.evidence, "its log is empty"]


def shown_lines(data: bytes, bounds: LogBounds) -> list[str]:
    """Return the last lines of a log as they may be shown."""
    is_cut = len(data) >= bounds.size
    lines = data[: bounds.size].decode("utf-8", "replace").split("\n")
    if lines[-1] == "":
        lines.pop()
    elif is_cut:
        lines[-1] += _CUT
    return [_shown(each.removesuffix("\r")) for each in lines[-bounds.lines :]]


def _shown(line: str) -> str:
    if len(line) > _MAX_LINE:
        line = line[: _MAX_LINE - len(_CUT)] + _CUT
    if line.isprintable():
        return line
    return "".join(each if each.isprintable() or each == "\t" else _escaped(each) for each in line)


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")
