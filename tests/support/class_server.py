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
        self._teacher_key = ""

    def teacher(self, context: GuardedContext) -> GuardedPage:
        """The teacher's page. The link lets one browser in; later contexts get the key of the first one."""
        if self._teacher_key:
            script = f"if (location.origin !== 'null') localStorage.setItem('setpoint.key', '{self._teacher_key}')"
            context.context.add_init_script(script)
            return context.new_page().enter(self.origin)
        page = context.new_page().enter(self.teacher_link)
        self._teacher_key = page.session_key()
        return page

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
