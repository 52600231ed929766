"""What can be told of a command without running it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from setpoint.node.runtime.process import KILLED, TERMINATED
from setpoint.node.runtime.shell.agnhost import SPEAKING
from setpoint.node.runtime.shell.interpreter import exists, is_shell
from setpoint.node.runtime.shell.programs import NOT_SIMULATED, PROGRAMS, SERVERS, TASKS

HELLO = """
Hello from Docker!
This message shows that your installation appears to be working correctly.
"""

_SILENT_LOOP = re.compile(
    r"\s*(?:while\s+(?:true|:|\[\s*1\s*\])|while\s+sleep\s+[0-9.]+[smhd]?)\s*;?\s*do\s+"
    r"(?:(?:sleep\s+[0-9.]+[smhd]?|:|true)\s*;?\s*)*done\s*;?\s*"
)
_ENDLESS_SLEEP = re.compile(r"\s*(?:exec\s+)?(?:sleep\s+inf(?:inity)?|tail\s+-[fF]\s+/dev/null)\s*;?\s*")


def runs_for_ever(argv: Sequence[str]) -> bool:
    """It starts, says nothing and never ends: a server, or a loop that only sleeps."""
    name = argv[0].rpartition("/")[2]
    if is_shell(argv[0]):
        if len(argv) >= 3 and re.fullmatch("-[a-z]*c", argv[1]):
            text = argv[2]
            return _SILENT_LOOP.fullmatch(text) is not None or _ENDLESS_SLEEP.fullmatch(text) is not None
        return False
    if name in ("agnhost", "agnhost-2"):
        return len(argv) < 2 or argv[1] not in SPEAKING
    known = exists(name) or name in TASKS or name in NOT_SIMULATED or name == "hello-world"
    return not known and "/" not in argv[0].lstrip("/")


def is_meant_to_end(pod: Mapping[str, Any], name: str) -> bool:
    """Return whether a program of which nothing is known does its work and ends, instead of serving until stopped.

    So it is in init containers that are no sidecars, and in Pods that a controller made to run to completion: those of
    Jobs and of custom resources that are not restarted when they end."""
    for container in pod["spec"].get("initContainers") or ():
        if container["name"] == name:
            return bool(container.get("restartPolicy") != "Always")
    if pod["spec"].get("restartPolicy", "Always") == "Always":
        return False
    return any(owner.get("controller") for owner in pod["metadata"].get("ownerReferences") or ())


def is_riddle(argv: Sequence[str] | None) -> bool:
    """Nobody knows what it does, and so it runs for ever: unlike what is known to do so."""
    if argv is None:
        return True
    name = argv[0].rpartition("/")[2]
    return not (is_shell(argv[0]) or name in ("agnhost", "agnhost-2"))


def greeting(argv: Sequence[str]) -> str:
    """What a program that then runs for ever says when it starts."""
    return "Paused\n" if [each.rpartition("/")[2] for each in argv] == ["agnhost", "pause"] else ""


def is_known(program: str) -> bool:
    """Whether there is anything to run by this name."""
    return exists(program) or program == "hello-world"


def is_missing(program: str) -> bool:
    """Whether an image of which everything is known has no such program. What is named by its path may be on a volume,
    where nobody knows what another program has put."""
    return "/" not in program and not is_known(program) and program not in (*SERVERS, *NOT_SIMULATED)


def outlives_a_signal(
    container: Mapping[str, Any], spec: Mapping[str, Any], interpreted: bool, wish: str
) -> tuple[float | None, int]:
    """How long it goes on after SIGTERM (None: until it is killed), and how it ends then.

    Servers end at once and well. A shell or a `sleep` that is the first process of its container does not hear signals
    for which it has no handler; as any other process it ends by them. `wish` is what the Pod's annotation says:
    `ignore`, seconds, or seconds:code."""
    if wish == "ignore":
        return None, KILLED
    match = re.fullmatch(r"([0-9.]+)s?(?::([0-9]{1,3}))?", wish)
    if match is not None:
        return float(match[1]), int(match[2] or 0)
    first = [*(container.get("command") or []), *(container.get("args") or [])]
    deaf = interpreted or (bool(first) and (is_shell(first[0]) or first[0].rpartition("/")[2] in PROGRAMS))
    if not deaf:
        return 0.0, 0
    return (0.0, TERMINATED) if spec.get("shareProcessNamespace") or spec.get("hostPID") else (None, KILLED)
