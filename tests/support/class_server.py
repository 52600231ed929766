"""A class in a process of its own, and learners who join it in a browser."""

from __future__ import annotations

import re
import subprocess
import sys

from browser import GuardedContext, GuardedPage
from page_cluster import page_files


class ClassServer:
    """A `setpoint class` in a process of its own."""

    def __init__(self, seats: int, *flags: str) -> None:
        command = [sys.executable, "-m", "setpoint", "class", "--seats", str(seats), "--workers", "2", "--listen"]
        command += ["127.0.0.1:0", "--page-files", str(page_files()), *flags]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        text = "".join(self._process.stdout.readline() for _ in range(3))
        links = re.findall(r"http://\S+", text)
        assert len(links) == 2, text
        self.join_link, self.teacher_link = links
        self.origin = self.join_link.partition("/#")[0]

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(20)
        assert self._process.stdout is not None
        self._process.stdout.close()


def joined(context: GuardedContext, link: str, name: str) -> GuardedPage:
    page = context.new_page()
    page.page.goto(link)
    page.get_by_label("Your name").fill(name)
    page.keyboard.press("Enter")
    return page
