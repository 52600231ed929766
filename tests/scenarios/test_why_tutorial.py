"""The tutorial docs/why.md: its commands are run one after the other, and its answers are those of the cluster."""

from __future__ import annotations

import re
from pathlib import Path

from why_scenarios import World

from setpoint.testing import run_virtual, virtual_cluster

PAGE = Path(__file__).resolve().parents[2] / "docs" / "why.md"
BLOCK = re.compile(r"^```\n(.*?)^```", re.MULTILINE | re.DOTALL)
HASH = re.compile(r"\bweb-[bcdfghjklmnpqrstvwxz2456789]{8,10}\b")


def test_the_commands_of_the_tutorial(tmp_path: Path) -> None:
    text = PAGE.read_text().partition("## More questions")[0]
    answers: list[tuple[str, str]] = []

    async def main() -> None:
        async with virtual_cluster() as cluster:
            world = World(cluster, tmp_path)
            variables: dict[str, str] = {}
            last = ""
            for block in BLOCK.findall(text):
                if not block.startswith(("setpoint ", "POD=", "NEW=")):
                    answers.append(
                        (HASH.sub("web-HASH", world.stable(block)), HASH.sub("web-HASH", world.stable(last)))
                    )
                    continue
                for line in block.strip().split("\n"):
                    variable, _, command = line.rpartition("=$(") if "=$(" in line else ("", "", line)
                    for name, value in variables.items():
                        command = command.replace(f"${name}", value)
                    code, last, error = await world.typed(command.removeprefix("setpoint ").rstrip(")"))
                    assert code == 0, f"{line}: {error}"
                    if variable:
                        variables[variable] = last
                    if "rollout" not in command and not command.startswith("setpoint why"):
                        await cluster.sleep(20)

    run_virtual(main)
    assert len(answers) == 6
    for written, answered in answers:
        assert answered == written
