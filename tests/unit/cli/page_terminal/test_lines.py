"""Lines that are typed in the terminal of the page."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import pytest
from page_terminal import page_terminal

from setpoint.cli.invocation import CommandIO
from setpoint.cli.main import run_within
from setpoint.cli.page_terminal.shell import ShellLimits
from setpoint.client.kubeconfig import Access
from setpoint.testing import VirtualCluster, virtual
from setpoint.web.workspace import Workspaces

MANIFEST = """\
apiVersion: v1
kind: ConfigMap
metadata:
  name: settings
data:
  colour: green
"""

SAME_AS_CLI = """
get pods
get pods -o wide
get pods -o name
get deployments,services
get deploy web -o yaml
get deploy web -o json
get deploy web -o jsonpath={.spec.replicas}
get pods -l app=web --show-labels
get pods -A --sort-by=.metadata.name
get pods -o custom-columns=NAME:.metadata.name,NODE:.spec.nodeName
get all
get nothing
get pod nobody
get nodes
get events --sort-by=.lastTimestamp
describe deployment web
describe pod -l app=web
describe node node-1
explain pod.spec.containers
explain deployment --recursive
api-resources
api-versions
version
auth can-i delete pods
auth whoami
cluster-info
rollout history deployment/web
rollout status deployment/web
top nodes
get --raw /version
label deployment web tier=front --dry-run=server
annotate deployment web note=x --dry-run=server
scale deployment web --replicas=2 --dry-run=server
set image deployment/web nginx=nginx:1.27 --dry-run=server
expose deployment web --port=80 --dry-run=server
create configmap a --from-literal=x=y --dry-run=server
get configmap kube-root-ca.crt -o yaml
delete deployment web --dry-run=server
create namespace other --dry-run=server
apply -f nowhere.yaml
help
"""


class Terminal(BytesIO):
    def isatty(self) -> bool:
        return True


async def server_address(cluster: VirtualCluster) -> str:
    found = await cluster.client.sender.json("GET", "/api")
    return f"https://{found['serverAddressByClientCIDRs'][0]['serverAddress']}"


async def cli_output(cluster: VirtualCluster, line: str) -> bytes:
    """Return the output of a command line on a terminal."""
    out = Terminal()
    io = CommandIO(
        stdin=BytesIO(),
        stdout=out,
        stderr=out,
        environment={},
        clock=cluster.clock,
        connect=lambda access, _: cluster.client.named("setpoint"),
        access=Access(await server_address(cluster)),
        on_host=False,
    )
    await run_within(line.split(), io)
    return out.getvalue()


@virtual(nodes=2)
async def test_commands_print_the_same_as_in_a_terminal_of_the_machine(cluster: VirtualCluster) -> None:
    lines = SAME_AS_CLI.strip().splitlines()
    assert len(lines) >= 40
    async with page_terminal(cluster.client, cluster.clock) as terminal:
        await terminal("kubectl create deployment web --image=nginx --replicas=3")
        await cluster.settle()
        for line in lines:
            expected = (await cli_output(cluster, line)).decode()
            assert await terminal(f"kubectl {line}") == expected, line
            assert expected


@virtual(nodes=2)
async def test_pipes_loops_and_here_documents(cluster: VirtualCluster) -> None:
    async with page_terminal(cluster.client, cluster.clock) as terminal:
        await terminal("kubectl create deployment web --image=nginx --replicas=2")
        await terminal("kubectl rollout status deployment/web")
        assert await terminal("kubectl get pods -o name | wc -l") == "2\n"
        assert await terminal("kubectl get pods --no-headers | awk '{print $3}' | sort -u") == "Running\n"
        looped = await terminal("for p in $(kubectl get pods -o name); do kubectl get $p -o name | tr a-z A-Z; done")
        assert looped.count("POD/WEB-") == 2
        read = await terminal("kubectl get pods -o name | while read p; do echo got $p; kubectl get $p -o name; done")
        assert read.count("got pod/web-") == 2 and read.count("\npod/web-") == 2

        assert await terminal("cat > settings.yaml <<EOF") == "" and terminal.sent[-1] == {"more": True}
        assert await terminal(f"cat > settings.yaml <<EOF\n{MANIFEST}EOF") == ""
        assert terminal.workspace.file_texts() == {"settings.yaml": MANIFEST}
        assert await terminal("kubectl apply -f settings.yaml") == "configmap/settings created\n"
        assert await terminal("cat settings.yaml | sed s/green/red/ | kubectl apply -f -") == (
            "configmap/settings configured\n"
        )
        assert await terminal("kubectl diff -f *.yaml") != "" and terminal.status == 1
        assert await terminal("kubectl get cm settings -o jsonpath={.data.colour} > colour; cat colour; ls") == (
            "redcolour\nsettings.yaml\n"
        )
        colour = "for c in blue $(cat colour); do if [ $c = red ]; then echo found; fi; done"
        assert await terminal(colour) == "found\n"
        assert await terminal("x=5; y=$((x * 2)); echo $y; false") == "10\n" and terminal.status == 1
        assert await terminal("echo $? $x") == "1 5\n"


@virtual(nodes=1)
async def test_a_watch_ends_with_the_reader_of_its_pipe_or_with_ctrl_c(cluster: VirtualCluster) -> None:
    async with page_terminal(cluster.client, cluster.clock) as terminal:
        await terminal("kubectl create deployment web --image=nginx --replicas=3")
        await terminal("kubectl rollout status deployment/web")
        began = cluster.clock.now()
        shown = await terminal("kubectl get pods -w | head -3")
        assert len(shown.splitlines()) == 3 and shown.startswith("NAME")
        assert (cluster.clock.now() - began).total_seconds() < 1

        at = terminal.start("kubectl get pods -w -o name")
        await terminal.until_shown(at, "pod/web-")
        terminal.conversation.say({"line": "echo second"})
        assert await terminal.until(at, "busy")
        await cluster.client.delete(("apps/v1", "Deployment"), "web", "default")
        await cluster.sleep(5)
        assert terminal.shown_since(at).count("pod/web-") > 3
        terminal.conversation.say({"input": "\x03"})
        assert (await terminal.until(at, "prompt"))["status"] == 130
        assert terminal.shown_since(at).endswith("^C\n")
        assert await terminal("echo still here") == "still here\n"


@virtual(nodes=1)
async def test_input_is_typed_while_a_command_runs(cluster: VirtualCluster) -> None:
    async with page_terminal(cluster.client, cluster.clock) as terminal:
        await terminal("kubectl create configmap a; kubectl run sh --image=busybox --command -- sleep 1d")
        await terminal("kubectl wait --for=condition=Ready pod/sh")
        at = terminal.start("kubectl delete configmap a --interactive")
        await terminal.until_shown(at, "Do you want to continue")
        terminal.conversation.say({"input": "y\n"})
        await terminal.until(at, "prompt")
        assert 'configmap "a" deleted' in terminal.shown_since(at)

        at = terminal.start("cat > typed.txt")
        terminal.conversation.say({"input": "one\n"})
        terminal.conversation.say({"input": "two\n"})
        terminal.conversation.say({"input": "\x04"})
        await terminal.until(at, "prompt")
        assert terminal.workspace.file_texts()["typed.txt"] == "one\ntwo\n"

        at = terminal.start("kubectl apply -f -")
        terminal.conversation.say({"input": MANIFEST})
        terminal.conversation.say({"input": "\x04"})
        await terminal.until(at, "prompt")
        assert terminal.shown_since(at) == "configmap/settings created\n"

        assert await terminal("echo piped | kubectl exec -i sh -- cat") == "piped\n"
        at = terminal.start("kubectl exec -it sh -- sh")
        assert await terminal.until(at, "raw") == {"raw": True}
        terminal.conversation.say({"input": "echo hello $((40 + 2))\r"})
        await terminal.until_shown(at, "hello 42")
        terminal.conversation.say({"input": "exit\r"})
        await terminal.until(at, "prompt")
        assert {"raw": False} in terminal.sent[at:]


@virtual(nodes=0, controllers=[])
async def test_control_sequences_of_one_line_do_not_reach_the_next(cluster: VirtualCluster) -> None:
    async with page_terminal(cluster.client, cluster.clock) as terminal:
        assert await terminal("printf 'a\\033]52;c;never ended'") == "a"
        assert await terminal("echo b") == "b\n"
        assert await terminal("printf '\\033[31mred\\033]0;t\\007\\033[2J\\n'") == "\x1b[31mred\x1b[2J\n"


@virtual(nodes=1)
async def test_files_are_edited_in_the_page(cluster: VirtualCluster) -> None:
    async with page_terminal(cluster.client, cluster.clock) as terminal:
        at = terminal.start("nano settings.yaml && kubectl apply -f settings.yaml")
        edit = (await terminal.until(at, "edit"))["edit"]
        assert edit == {"id": 1, "path": "/home/user/settings.yaml"}
        terminal.workspace.files.write(edit["path"], MANIFEST)
        terminal.conversation.say({"edited": 1, "saved": True})
        await terminal.until(at, "prompt")
        assert terminal.shown_since(at) == "configmap/settings created\n"

        at = terminal.start("kubectl edit configmap settings")
        edit = (await terminal.until(at, "edit"))["edit"]
        text = terminal.workspace.files.read(edit["path"])
        assert text is not None and "colour: green" in text and text.startswith("# Please edit")
        terminal.workspace.files.write(edit["path"], text.replace("green", "violet"))
        terminal.conversation.say({"edited": edit["id"], "saved": True})
        await terminal.until(at, "prompt")
        assert terminal.shown_since(at) == "configmap/settings edited\n"
        assert await terminal("kubectl get cm settings -o jsonpath={.data.colour}") == "violet"
        assert not terminal.workspace.files.read(edit["path"])

        at = terminal.start("kubectl edit configmap settings")
        edit = (await terminal.until(at, "edit"))["edit"]
        terminal.conversation.say({"input": "\x03"})
        assert (await terminal.until(at, "prompt"))["status"] == 130
        assert {"edit": {"id": edit["id"], "path": ""}} in terminal.sent[at:]


@virtual(nodes=1)
async def test_commands_read_and_write_files_of_the_workspace(cluster: VirtualCluster) -> None:
    async with page_terminal(cluster.client, cluster.clock) as terminal:
        await terminal("mkdir base; echo 'colour=red' > env; printf '{.metadata.name}' > name.jsonpath")
        await terminal(f"cat > base/settings.yaml <<'EOF'\n{MANIFEST}EOF")
        await terminal("cat > base/kustomization.yaml <<EOF\nresources: [settings.yaml]\nnamePrefix: my-\nEOF")
        assert "name: my-settings" in await terminal("kubectl kustomize base")
        assert await terminal("kubectl apply -k base") == "configmap/my-settings created\n"
        assert await terminal("kubectl apply -f base/settings.yaml -f base/settings.yaml --dry-run=client") != ""
        assert "no such file or directory" in await terminal("cd base; kubectl kustomize ../nowhere; cd ..")
        assert await terminal("kubectl create configmap files --from-file=base --from-env-file=env") == (
            "error: from-env-file cannot be combined with from-file or from-literal\n"
        )
        assert await terminal("kubectl create configmap files --from-file=base") == "configmap/files created\n"
        assert await terminal("kubectl get cm files -o jsonpath-file=name.jsonpath") == "files"
        assert "kustomization.yaml" in await terminal("kubectl get cm files -o yaml > files.yaml; grep kust files.yaml")
        await terminal("kubectl run box --image=busybox --command -- sleep 1d")
        await terminal("kubectl wait --for=condition=Ready pod/box")
        assert await terminal("kubectl cp base box:/tmp/copy; kubectl exec box -- ls /tmp/copy") == (
            "kustomization.yaml\nsettings.yaml\n"
        )
        assert await terminal("kubectl cp box:/tmp/copy/settings.yaml back.yaml; cat back.yaml") == MANIFEST
        assert await terminal("head -n 1 back.yaml; head back.yaml; tail back.yaml; tail -n +1 back.yaml") == (
            MANIFEST.splitlines(keepends=True)[0] + MANIFEST * 3
        ), "they do not wait for input"
        assert "can't open" in await terminal("head missing")
        assert await terminal("kubectl cp missing box:/tmp") == "error: missing doesn't exist in local filesystem\n"
        assert await terminal("kubectl apply -f base/missing.yaml") == (
            'error: the path "base/missing.yaml" does not exist\n'
        )
        assert await terminal("kubectl cluster-info dump --output-directory=dump; ls dump | head -1") != ""


@virtual(nodes=1)
async def test_long_output_is_left_out_or_read_in_pages(cluster: VirtualCluster) -> None:
    async with page_terminal(cluster.client, cluster.clock) as terminal:
        began = cluster.clock.now()
        shown = await terminal("for i in 1 2 3 4 5 6; do seq 100000; done")
        assert 200_000 < len(shown) < 300_000
        assert "lines left out; `| less` shows all" in shown
        assert 0.5 < (cluster.clock.now() - began).total_seconds() < 3

        at = terminal.start("seq 100000")
        await terminal.until(at, "output")
        terminal.conversation.say({"input": "\x03"})
        await terminal.until(at, "prompt")
        assert await terminal("echo next") == "next\n"

        at = terminal.start("seq 3000 | less")
        page = (await terminal.until(at, "page"))["page"]
        assert page["text"].startswith("1\n2\n") and page["text"].endswith("\n3000\n")
        terminal.conversation.say({"paged": True})
        await terminal.until(at, "prompt")
        assert await terminal("echo a | less | tr a b") == "b\n"

        at = terminal.start(r"printf '\033[31mred\033[0m\033]0;title\007\033[6n\001\n' | less")
        page = (await terminal.until(at, "page"))["page"]
        assert page["text"] == "\x1b[31mred\x1b[0m␁\n", "the rules of all output apply to what is paged"
        terminal.conversation.say({"paged": True})
        await terminal.until(at, "prompt")


@virtual(nodes=0, controllers=[])
async def test_endless_loops_and_growing_values_are_stopped(cluster: VirtualCluster) -> None:
    limits = ShellLimits(steps=2_000, seconds=60)
    async with page_terminal(cluster.client, cluster.clock, limits=limits) as terminal:
        assert "more than 2,000 steps" in await terminal("while true; do :; done")
        assert "more than 2,000 steps" in await terminal("while true; do echo x; done | while read a; do b=$a; done")
        assert "ran for more than 60 s" in await terminal("while true; do sleep 1; done")
        assert "more than 1 MiB" in await terminal("a=xxxxxxxx; while true; do a=$a$a; done")
        assert "more than 2 MiB of input" in await terminal("for i in 1 2 3 4 5; do seq 100000; done | sort | tail -1")
        assert "more than 2 MiB of output" in await terminal("x=$(for i in 1 2 3 4 5; do seq 100000; done)")
        assert await terminal("sleep 5 & echo on") == (
            "background jobs are not available here; open another terminal\non\n"
        )
        assert terminal.status == 0
        assert await terminal("f() { f; }; f") != "" and terminal.status == 2
        assert "No space left" in await terminal("seq 100000 > a; seq 100000 > b; seq 100000 > c")
        assert "No space left" in await terminal("for i in $(seq 200); do echo x > f$i; done")
        assert len(terminal.workspace.files.texts()) == 100


@virtual(nodes=1)
async def test_a_command_is_repeated_every_few_seconds(cluster: VirtualCluster) -> None:
    async with page_terminal(cluster.client, cluster.clock) as terminal:
        at = terminal.start("watch -n 5 kubectl get nodes")
        await cluster.sleep(11)
        shown = terminal.shown_since(at)
        assert shown.count("Every 5s: kubectl get nodes") == 3 and shown.count("node-1") == 3
        terminal.conversation.say({"input": "\x03"})
        await terminal.until(at, "prompt")


@virtual(nodes=1)
async def test_completion(cluster: VirtualCluster) -> None:
    async with page_terminal(cluster.client, cluster.clock) as terminal:
        await terminal("echo x > web.yaml; mkdir charts; kubectl run web --image=nginx")
        assert await terminal.completions("kube") == ["kubectl"]
        assert await terminal.completions("kubectl rollo") == ["rollout"]
        assert await terminal.completions("k get deployments.a") == ["deployments.apps"]
        assert await terminal.completions("k get pods w") == ["web"]
        assert await terminal.completions("echo $(k get pod w") == ["web"]
        assert await terminal.completions("kubectl get pods | gre") == ["grep"]
        assert await terminal.completions("kubectl apply -f w") == ["web.yaml"]
        assert await terminal.completions("kubectl apply --filename=w") == ["web.yaml"]
        assert await terminal.completions("kubectl get pods -o=js") == []
        assert "json" in await terminal.completions("kubectl get pods --output=")
        assert await terminal.completions("cd ") == ["charts/"]
        assert await terminal.completions("cat < w") == ["web.yaml"]
        assert await terminal.completions("why deployment.apps/") == []
        assert await terminal.completions("cat ~/we") == ["~/web.yaml"]


@virtual(nodes=0, controllers=[])
async def test_lines_are_remembered_for_all_terminals_of_a_user(cluster: VirtualCluster) -> None:
    workspaces = Workspaces()
    async with page_terminal(cluster.client, cluster.clock, workspaces=workspaces) as terminal:
        await terminal("echo one > file")
        await terminal("   ")
        await terminal("cd /tmp; pwd")
        assert terminal.sent[-1]["prompt"] == "/tmp"
        assert [line.text for line in terminal.workspace.typed] == ["echo one > file", "cd /tmp; pwd"]
        assert "    1  echo one > file\n" in await terminal("history")
        assert await terminal("exit 3") == "" and terminal.sent[-1] == {"exit": 3}
    async with page_terminal(cluster.client, cluster.clock, workspaces=workspaces) as terminal:
        assert terminal.sent[0]["history"] == ["echo one > file", "cd /tmp; pwd", "history", "exit 3"]
        assert await terminal("cat file") == "one\n"
    assert workspaces.of("admin", "/at/55").typed and not workspaces.of("other", "").typed
    assert not workspaces.of("admin", "/forks/try").typed


@virtual(nodes=0, controllers=[])
async def test_files_and_lines_are_kept_over_restarts(cluster: VirtualCluster, tmp_path: Path) -> None:
    async with page_terminal(
        cluster.client, cluster.clock, workspaces=Workspaces(directory=tmp_path / "w")
    ) as terminal:
        await terminal("echo one > file")
        assert [*(tmp_path / "w").iterdir()], "the server may be killed before the terminal closes"
        await terminal("echo two >> file")
    async with page_terminal(
        cluster.client, cluster.clock, workspaces=Workspaces(directory=tmp_path / "w")
    ) as terminal:
        assert terminal.sent[0]["history"] == ["echo one > file", "echo two >> file"]
        assert await terminal("cat file") == "one\ntwo\n"


@virtual(nodes=0, controllers=[])
async def test_invalid_messages_end_the_conversation(cluster: VirtualCluster) -> None:
    from setpoint.meta.errors import BadRequest

    for message in ("text", {"unknown": 1}, {"size": [0, 5]}, {"line": "x" * 300_000}):
        with pytest.raises(BadRequest):
            async with page_terminal(cluster.client, cluster.clock) as terminal:
                terminal.conversation.say(message)
                await cluster.sleep(1)
