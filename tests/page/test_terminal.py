"""The terminal of the page in a browser: typing, completion, history, interrupts, files, and hostile output."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator

import pytest
from axe_findings import findings
from browser import GuardedContext, GuardedPage
from page_cluster import PageCluster
from page_typist import Typist
from playwright.sync_api import expect

CONFIG = """\
apiVersion: v1
kind: ConfigMap
metadata:
name: settings
"""


HELD_MESSAGES = """
// Messages of the tab stay in the tab while window.__held is a list; window.__sent are those before.
const send = WebSocket.prototype.send;
window.__sent = [];
WebSocket.prototype.send = function (data) {
  window.__held ? window.__held.push(() => send.call(this, data)) : (window.__sent.push(data), send.call(this, data));
};
"""


@pytest.fixture
def typist(page: GuardedPage) -> Iterator[Typist]:
    page.go("#/objects/namespaces")
    yield Typist(page).open()


def test_lines_pipes_and_here_documents(typist: Typist) -> None:
    page = typist.page
    assert typist.line("kubectl create deployment web --image=nginx --replicas=2") == "deployment.apps/web created"
    assert "successfully rolled out" in typist.line("kubectl rollout status deployment/web")
    assert typist.line("kubectl get pods -l app=web -o name | wc -l") == "2"
    assert typist.line("kubectl get deploy web -o jsonpath={.spec.replicas}") == "2"
    for line in ("cat > cm.yaml <<EOF", "apiVersion: v1", "kind: ConfigMap", "metadata:", "  name: typed", "EOF"):
        page.keyboard.type(line)
        page.press("Enter")
        page.page.wait_for_timeout(100)
    typist.until_prompt()
    assert typist.line("kubectl apply -f cm.yaml; ls *.yaml") == "configmap/typed created\ncm.yaml"
    assert typist.line("for i in 1 2 3; do echo $i; done | tac | head -2") == "3\n2"
    assert "cannot be used in this terminal" in typist.line("setpoint up").replace("\n", "")
    page.go("#/objects/pods?ns=default")
    page.until_text("web-")  # the list beside it follows


def test_completion_history_and_editing_keys(typist: Typist) -> None:
    page = typist.page
    typist.line("echo first")
    page.keyboard.type("clear\nkubec")
    page.press("Tab")
    typist.until("kubectl ")
    page.keyboard.type("get deployments.a")
    page.press("Tab")
    typist.until("$ kubectl get deployments.apps")
    page.press("Control+u")
    page.keyboard.type("kubectl get no")
    page.press("Tab")
    page.page.wait_for_timeout(300)
    page.press("Tab")
    typist.until("nodes.metrics.k8s.io")
    page.press("Control+c")
    typist.until_prompt()
    page.press("ArrowUp", "ArrowUp")
    typist.until("$ echo first")
    page.keyboard.type(" again")
    page.press("Home", "Delete", "Delete", "Delete", "Delete")
    page.keyboard.type("printf")
    page.press("Enter")
    typist.until_prompt()
    assert "\nfirst" in typist.shown()
    page.press("Control+r")
    page.keyboard.type("fir")
    typist.until("(search: fir)")
    page.press("Escape", "Control+u")
    assert typist.line("echo one two | tr ' ' -") == "one-two"


def test_a_watch_is_interrupted(typist: Typist, cluster: PageCluster) -> None:
    page = typist.page
    cluster.create_deployment("watched", 1)
    page.keyboard.type("clear\nkubectl get pods -w\n")
    typist.until("watched-")
    page.press("Control+c")
    typist.until("^C")
    typist.until_prompt()
    assert typist.line("kubectl get pods -w | head -1").startswith("NAME")


def test_a_line_that_is_typed_while_the_prompt_returns_is_not_mixed_with_the_next(
    new_context: Callable[..., GuardedContext],
) -> None:
    page = new_context().new_page()
    page.page.add_init_script(HELD_MESSAGES)
    typist = Typist(page.enter()).open()
    typist.until_prompt()
    page.keyboard.type("sleep 1\n")
    page.until("window.__sent.some((message) => message.includes('sleep 1'))")
    page.evaluate("window.__held = []")
    page.keyboard.type("echo typed\n")  # on its way when the command ends
    page.until(
        "[...document.querySelectorAll('.terminal-screen .xterm-rows > div')]"
        ".filter((row) => row.textContent.replaceAll('\\xa0', ' ').startsWith('~ $')).length > 1"
    )
    page.keyboard.type("for i in 1 2; do echo $i; done")
    page.evaluate("window.__held.splice(0).forEach((deliver) => deliver()); window.__held = null")
    typist.until("\n~ $ for i")
    page.press("Enter")
    typist.until("\n1\n2\n~ $")
    lines = [row for row in typist.shown().split("\n") if row.startswith("~ $")]
    assert lines == ["~ $ sleep 1", "~ $ echo typed", "~ $ for i in 1 2; do echo $i; done", "~ $"]
    # What is typed ahead is shown where it is typed: before the output on the same line, or on a line after it.
    assert re.search(r"typed\n(for i in 1 2; do echo \$i; done\n)?~ \$ for i", typist.shown())


def test_nano_saves_a_file_that_is_applied(typist: Typist) -> None:
    page = typist.page
    page.keyboard.type("clear\nnano settings.yaml\n")
    field = page.page.locator(".editor-field")
    field.wait_for()
    page.keyboard.type(CONFIG)
    page.until_text("ConfigMap settings would be created")
    assert "  name: settings" in field.input_value()  # indented by itself
    page.press("Control+s")
    page.press("Control+x")
    field.wait_for(state="detached")
    typist.until_prompt()
    assert typist.line("kubectl apply -f settings.yaml") == "configmap/settings created"
    page.keyboard.type("clear\nkubectl edit configmap settings\n")
    field.wait_for()
    page.evaluate(
        "(() => { const field = document.querySelector('.editor-field');"
        "field.setSelectionRange(field.value.length, field.value.length); })()"
    )
    page.keyboard.type("data:\ncolour: green")
    page.press("Control+s", "Control+x")
    typist.until("configmap/settings edited")
    assert typist.line("kubectl get cm settings -o jsonpath={.data.colour}") == "green"


def test_a_shell_in_a_pod(typist: Typist) -> None:
    page = typist.page
    typist.line("kubectl run box --image=busybox --command -- sleep 1d")
    typist.line("kubectl wait --for=condition=Ready pod/box")
    page.keyboard.type("clear\nkubectl exec -it box -- sh\n")
    typist.until("/ #")
    page.keyboard.type("echo $((20 + 22))\nexit\n")
    typist.until("42")
    typist.until_prompt()


def test_much_output_does_not_block_typing(new_context: Callable[..., GuardedContext]) -> None:
    """The tab receives a bounded part of the output, in slices that it displays one at a time."""
    page = new_context().new_page()
    slices: list[str] = []

    def received(payload: str | bytes) -> None:
        data = json.loads(payload).get("data") if isinstance(payload, str) else None
        if isinstance(data, dict) and "output" in data:
            slices.append(data["output"])

    page.page.on("websocket", lambda socket: socket.on("framereceived", received))
    typist = Typist(page.enter()).open()
    page.keyboard.type("for i in 1 2 3 4 5 6; do seq 100000; done\n")  # 3.4 MB
    page.keyboard.type("echo typed meanwhile")
    typist.until("$ echo typed meanwhile", timeout=60.0)
    assert "lines left out" in "".join(slices)
    page.press("Enter")
    typist.until("\ntyped meanwhile")
    assert typist.line("echo on") == "on"
    assert max(map(len, slices)) <= 16 << 10
    assert 256 << 10 <= sum(map(len, slices)) < 1 << 20


def test_hostile_output_changes_neither_title_nor_clipboard(
    new_context: Callable[..., GuardedContext], cluster: PageCluster
) -> None:
    context = new_context(permissions=["clipboard-read", "clipboard-write"])
    page = context.new_page().enter()
    page.go("#/objects/pods?ns=default")
    title = page.page.title()
    page.evaluate("navigator.clipboard.writeText('mine')")
    typist = Typist(page).open()
    attack = (
        r"\033]52;c;c3RvbGVu\007\033]0;owned\007\033]2;owned\007\033]8;;http://evil.test\007click\033]8;;\007"
        r"\033[?1049h\033[2J\033[20t\033Pq\033\\\000end"
    )
    typist.line(f"printf '{attack}\\n' > evil; cat evil")
    for _ in range(3):
        typist.line("for i in 1 2 3; do cat evil; done")
    assert "end" in typist.shown()
    name = "<img src=x onerror=window.__canary=1>"
    assert typist.line(f"cp evil '{name}'; ls '{name}'") == name
    assert page.evaluate("window.__canary === undefined")
    script = f"printf '{attack}\\n'; sleep 1d"
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "evil"},
        "spec": {"containers": [{"name": "c", "image": "busybox", "command": ["sh", "-c", script]}]},
    }
    cluster.api("POST", "/api/v1/namespaces/default/pods", body)
    typist.line("kubectl wait --for=condition=Ready pod/evil")
    typist.line("kubectl logs evil")
    assert "end" in typist.shown()
    page.go("#/objects/pods/default/evil?ns=default&tab=logs")
    page.until("document.querySelector('.logs-line')?.textContent.includes('end')")
    assert page.page.title() == title or "owned" not in page.page.title()
    assert page.evaluate("navigator.clipboard.readText()") == "mine"
    assert page.page.locator(".xterm-rows a, .logs a").count() == 0


def test_a_flood_of_escape_sequences_leaves_a_terminal_that_works(typist: Typist) -> None:
    """A million changes of colour, thousands of switches between screens, and text that reorders itself."""
    typist.line(
        "printf '" + r"\033[31m\033[0m" * 32 + "' > colours; printf '" + r"\033[?1049h\033[?1049l" * 16 + "' > screens"
    )
    for _ in range(5):  # 65,536 sequences
        typist.line("cat colours colours > more; cat more more > colours")
    typist.line("for i in 1 2 3 4 5 6 7 8; do cat colours colours; done")
    for _ in range(3):
        typist.line("cat screens screens > more; cat more more > screens")
    typist.line("cat screens; printf '\\033[0m\\n'")
    typist.line(r"printf 'a\342\200\256b\n'")
    assert typist.line("echo alive") == "alive"


def test_several_terminals_paste_and_leaving(typist: Typist) -> None:
    page = typist.page
    typist.line("x=1; cd /tmp")
    page.get_by_role("button", name="New terminal").click()
    typist.until_prompt()
    assert typist.line("echo -$x-; pwd") == "--\n/home/user"
    page.get_by_role("tab", name="Terminal 1").click()
    typist.until("/tmp $")
    # A paste of several lines asks once.
    page.evaluate(
        "(() => { const data = new DataTransfer(); data.setData('text/plain', 'echo a\\necho b\\n');"
        "document.querySelector('.terminal-screen textarea').dispatchEvent("
        "new ClipboardEvent('paste', { clipboardData: data, bubbles: true, cancelable: true })); })()"
    )
    page.get_by_role("dialog", name="Paste several lines?").get_by_role("button", name="Run them").click()
    typist.until("\na\nb")
    typist.until_prompt()
    page.press("Control+Shift+Escape")
    assert page.evaluate("document.activeElement.id") == "tab-terminal-1"
    # The panel can be closed: the terminal is as it was.
    page.get_by_role("button", name="Close Terminal", exact=True).click()
    page.press("`")
    typist.until("/tmp $")
    assert findings(page) == []
    page.get_by_label("Screen reader").check()
    page.page.locator(".xterm-accessibility").wait_for(state="attached")
    assert findings(page) == []


def test_the_key_goes_to_the_terminal_that_is_open(typist: Typist) -> None:
    """From the view into the terminal, without a way through all that is in between. Within it, the key closes it."""
    page = typist.page
    page.press("Control+Shift+Escape", "g", "m", "`")
    assert page.evaluate("document.activeElement.closest('.terminal-screen') !== null")
    assert typist.line("echo here") == "here"
    page.press("Control+Shift+Escape", "`")
    expect(page.locator(".terminal-screen")).to_have_count(0)


def test_a_phone_has_a_row_of_keys(new_context: Callable[..., GuardedContext]) -> None:
    page = new_context(viewport={"width": 390, "height": 800}, has_touch=True).new_page().enter()
    typist = Typist(page).open()
    page.keyboard.type("kubectl get node")
    page.get_by_role("button", name="Tab", exact=True).tap()
    typist.until("nodes")
    page.get_by_role("button", name="Ctrl-C").tap()
    typist.until_prompt()
    box = page.page.locator(".terminal-screen").bounding_box()
    assert box is not None and box["height"] > 400 and box["width"] > 380
    assert findings(page) == []


def test_the_terminal_goes_on_after_the_server_was_restarted(typist: Typist, cluster: PageCluster) -> None:
    page = typist.page
    page.guard.allowed += ["ERR_CONNECTION_REFUSED", "WebSocket connection to"]
    typist.line("echo kept > kept.txt")
    cluster.stop()
    typist.until("The connection was lost")
    cluster.start()
    page.until("!document.querySelector('.banner.lost')", 30)
    page.press("Enter")
    typist.until_prompt()
    assert typist.line("cat kept.txt") == "kept"
