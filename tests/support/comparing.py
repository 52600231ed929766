"""The same line typed to the real kubectl and to `setpoint`, on one server: output and exit code must be the same.

    both.reads('''
        get pods
        get pods -o wide
    ''')
    both.writes('''
        create deployment web --image=nginx
        scale deployment web --replicas=3
    ''')

Each of the two has a namespace of its own, for what they write; `{ns}` in a line stands for it, and so can be part of
the names of objects that are in no namespace. What differs by nature (uids, revisions, times, generated names, the
namespace) is smoothed away. Lines that start with `#` are comments; a line may begin with `!`: it must fail.
"""

from __future__ import annotations

import difflib
import os
import re
import shlex
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from command_line import Result, typed_offline
from kubectl_environment import kubectl_environment

Smooth = tuple[str, str]
_GENERATED = "[bcdfghjklmnpqrstvwxz2456789]"
_SMOOTH: tuple[Smooth, ...] = (
    (r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "UID"),
    (r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z\b", "TIME"),
    (r'(resourceVersion"?: ?)"\d+"', r"\1RV"),
    (rf"-{_GENERATED}{{8,10}}-{_GENERATED}{{5}}\b", "-HASH-XXXXX"),
    (r"\b[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d [+-]\d{4}\b", "DATE"),
)
_MANAGERS_YAML = re.compile(r"^( *)managedFields:\n((?:\1[- ] .*\n)+)", re.MULTILINE)
_MANAGERS_JSON = re.compile(r'^( *)"managedFields": \[\n(.*?)\n\1\]', re.MULTILINE | re.DOTALL)


@dataclass
class Both:
    """One kubectl binary and our own command line."""

    kubectl: Path
    kubeconfig: Path
    home: Path
    namespace: str
    smooth: list[Smooth] = field(default_factory=list)
    """More that differs by nature: patterns and what they become."""

    def __post_init__(self) -> None:
        for name in (self.theirs, self.ours):
            self._setpoint(["create", "namespace", name], "", {})

    @property
    def theirs(self) -> str:
        return f"{self.namespace}-kubectl"

    @property
    def ours(self) -> str:
        return f"{self.namespace}-setpoint"

    def given(self, manifest: str) -> None:
        """Objects that both find: made in both namespaces."""
        for name in (self.theirs, self.ours):
            done = self._setpoint(["-n", name, "apply", "-f", "-"], manifest.replace("{ns}", name), {})
            assert done.code == 0, done.err

    def until(self, line: str, seconds: float = 60.0) -> None:
        """Our own command line is asked until it succeeds."""
        end = time.monotonic() + seconds
        while (done := self._setpoint(_words(line, self.ours), "", {})).code:
            assert time.monotonic() < end, f"$ {line}\n{done.err}"
            time.sleep(0.5)

    def reads(self, lines: str, *, stdin: str = "", **environment: str) -> None:
        """Both in the same namespace. What does not come out the same is looked at again: time goes on between the
        two."""
        self._each(lines, lambda line: self._compare(line, self.ours, self.ours, stdin, environment, tries=3))

    def writes(self, lines: str, *, stdin: str = "", **environment: str) -> None:
        """One after the other, each of the two in its own namespace."""
        self._each(lines, lambda line: self._compare(line, self.theirs, self.ours, stdin, environment, tries=1))

    def theirs_does(self, line: str, stdin: str = "", **environment: str) -> str:
        """What kubectl prints, in our namespace: for stories that the two tell in turn."""
        return self._kubectl(_words(line, self.ours), stdin, environment).out

    def ours_does(self, line: str, stdin: str = "", **environment: str) -> str:
        """What `setpoint` prints."""
        return self._setpoint(_words(line, self.ours), stdin, environment).out

    def _each(self, lines: str, compare: Callable[[str], str]) -> None:
        typed = [line.strip() for line in lines.strip().splitlines()]
        problems = [problem for line in typed if line and not line.startswith("#") if (problem := compare(line))]
        assert not problems, f"{len(problems)} lines differ\n\n" + "\n\n".join(problems)

    def _compare(self, line: str, theirs: str, ours: str, stdin: str, environment: dict[str, str], tries: int) -> str:
        """What differs; empty: nothing."""
        fails, line = line.startswith("!"), line.lstrip("! ")
        for _ in range(tries):
            started = time.monotonic()
            # The two at the same time: each writes to a namespace of its own.
            with ThreadPoolExecutor(1) as beside:
                typed = beside.submit(self._kubectl, _words(line, theirs), stdin.replace("{ns}", theirs), environment)
                own = self._setpoint(_words(line, ours), stdin.replace("{ns}", ours), environment)
            real = typed.result()
            elapsed = time.monotonic() - started
            wanted, got = self._smoothed(real.out, theirs), self._smoothed(own.out, ours)
            if real.code == own.code and (wanted == got or differ_only_in_ages(wanted, got, elapsed)):
                if fails != (real.code != 0):
                    return f"$ {line}\nboth end with {real.code}: {real.err}"
                return ""
        diff = difflib.unified_diff(wanted.splitlines(True), got.splitlines(True), "kubectl", "setpoint", n=2)
        said = f"exit codes {real.code} and {own.code}\nkubectl: {real.err}setpoint: {own.err}"
        return f"$ {line}\n{said}{''.join(diff)}"

    def _smoothed(self, text: str, namespace: str) -> str:
        text = text.replace(namespace, "NAMESPACE")
        for pattern, becomes in (*self.smooth, *_SMOOTH):
            text = re.sub(pattern, becomes, text)
        return managers_in_order(text)

    def _kubectl(self, words: list[str], stdin: str, environment: dict[str, str]) -> Result:
        command = [str(self.kubectl), "--kubeconfig", str(self.kubeconfig), *words]
        env = kubectl_environment(self.home, **environment)
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60, env=env, cwd=self.home)
        return Result(done.returncode, done.stdout, done.stderr)

    def _setpoint(self, words: list[str], stdin: str, environment: dict[str, str]) -> Result:
        env = {"PATH": os.environ["PATH"], "KUBECONFIG": str(self.kubeconfig), **environment}
        before = Path.cwd()
        os.chdir(self.home)
        try:
            return typed_offline(shlex.join(words), self.home, stdin, **env)
        finally:
            os.chdir(before)


_AGE = re.compile(r"(?=\d)(?:(\d+)y)?(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")
_AGE_UNITS = (365 * 86400, 86400, 3600, 60, 1)


def differ_only_in_ages(wanted: str, got: str, elapsed: float) -> bool:
    """Return whether the texts are equal but for ages, which differ by no more than the time that both commands took.

    The widths of columns may differ too, because 10s is wider than 9s."""
    wanted_lines, got_lines = wanted.splitlines(), got.splitlines()
    if len(wanted_lines) != len(got_lines):
        return False
    for one, other in zip(wanted_lines, got_lines, strict=True):
        words, other_words = one.split(), other.split()
        if len(words) != len(other_words):
            return False
        for word, other_word in zip(words, other_words, strict=True):
            if word != other_word:
                ages = _age(word), _age(other_word)
                if ages[0] is None or ages[1] is None or abs(ages[0] - ages[1]) > elapsed + 1:
                    return False
    return True


def _age(word: str) -> int | None:
    """Return the seconds of an age such as 2m5s; None if the word is none."""
    found = _AGE.fullmatch(word)
    if found is None or not any(found.groups()):
        return None
    return sum(int(part or 0) * unit for part, unit in zip(found.groups(), _AGE_UNITS, strict=True))


def managers_in_order(text: str) -> str:
    """The server has them by time, to the second, and then by name: two who write the same one after the other find
    them in different orders when a second ends in between."""
    return _MANAGERS_JSON.sub(_json_in_order, _MANAGERS_YAML.sub(_yaml_in_order, text))


def _yaml_in_order(managers: re.Match[str]) -> str:
    indent, entries = managers.groups()
    ordered = sorted(entries.split(f"{indent}- ")[1:])
    return f"{indent}managedFields:\n" + "".join(f"{indent}- {entry}" for entry in ordered)


def _json_in_order(managers: re.Match[str]) -> str:
    indent, entries = managers.groups()
    ordered = sorted(re.split(r"(?<=\}),\n(?=" + indent + r"    \{)", entries))
    return f'{indent}"managedFields": [\n' + ",\n".join(ordered) + f"\n{indent}]"


def _words(line: str, namespace: str) -> list[str]:
    words = shlex.split(line.replace("{ns}", namespace))
    return words if words[0] == "config" else ["-n", namespace, *words]
