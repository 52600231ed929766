"""`exec`, `attach`, `cp` and `port-forward`, with real programs and ports."""

from __future__ import annotations

import asyncio
import io
import socket
import tarfile
from pathlib import Path

import pytest
from command_line import Typed
from kubelet_by_hand import Kubelet
from local_server import LocalServer
from real_programs import RealPrograms

from setpoint.cli.failures import Failed
from setpoint.cli.files import HostFiles
from setpoint.cli.pod_session import _Keys, detach_keys
from setpoint.cli.verbs.cp import packed, place, unpack
from setpoint.cli.verbs.port_forward import Pair, addresses, pairs
from setpoint.meta.objects import Obj


def pod(name: str, *containers: str) -> Obj:
    made = [
        {"name": one, "image": "i", "ports": [{"containerPort": 80, "name": "web"}]} for one in containers or ("main",)
    ]
    meta = {"name": name, "namespace": "default", "labels": {"app": name}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": made}}


@pytest.fixture
async def node(typed: Typed, local_server: LocalServer) -> RealPrograms:
    """With a Pod `one`, a Pod `two` with two containers, and one that has ended."""
    kubelet = Kubelet(local_server.client, local_server.clock)
    for made in (pod("one"), pod("two", "a", "b"), pod("over")):
        await kubelet.run(await local_server.client.create(made))
    for ended in await kubelet.pods("app=over"):
        await kubelet.succeed(ended)
    typed.transport = found = RealPrograms(local_server)
    return found


# -- exec -----------------------------------------------------------------------------------------------------------


async def test_exec_carries_all_three_streams_and_the_exit_code(typed: Typed, node: RealPrograms) -> None:
    done = await typed.run("exec -i one -- sh -c 'cat; echo bad >&2; exit 7'", stdin="typed\n")
    assert (done.code, done.out) == (7, "typed\n")
    assert done.err == "bad\ncommand terminated with exit code 7\n"
    assert node.asked == [
        "exec?container=main&stdin=true&stdout=true&stderr=true&command=sh&command=-c"
        "&command=cat%3B%20echo%20bad%20%3E%262%3B%20exit%207"
    ]


async def test_data_larger_than_one_message_is_transferred(typed: Typed, node: RealPrograms) -> None:
    text = "0123456789abcde\n" * 20_000
    assert await typed("exec -i one -- cat", stdin=text) == text


async def test_without_stdin_nothing_is_read(typed: Typed, node: RealPrograms) -> None:
    assert await typed("exec one -- cat", stdin="not for you") == ""


async def test_the_selected_container(typed: Typed, node: RealPrograms) -> None:
    done = await typed.run("exec two -- true")
    assert (done.code, done.err) == (0, 'Defaulted container "a" out of: a, b\n')
    assert (await typed.run("exec two -q -- true")).err == ""
    await typed("exec two -c b -- true")
    assert "container=b&" in node.asked[-1]
    assert "container c is not valid for pod two out of: a, b" in await typed.refused("exec two -c c -- true")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("exec", "error: pod, type/name or --filename must be specified"),
        ("exec one", "error: you must specify at least one command for the container"),
        ("exec one ls", "exec [POD] [COMMAND] is not supported anymore. Use exec [POD] -- [COMMAND] instead"),
        ("exec -- ls", "error: pod, type/name or --filename must be specified"),
        ("exec nobody -- ls", 'Error from server (NotFound): pods "nobody" not found'),
        ("exec over -- ls", "cannot exec into a container in a completed pod; current phase is Succeeded"),
        ("attach over", "cannot attach a container in a completed pod; current phase is Succeeded"),
        ("attach one --pod-running-timeout 0s", "--pod-running-timeout must be higher than zero"),
        ("attach two -c c", "cannot attach to the container: container c is not valid for pod two out of: a, b"),
        ("cp one", "source and destination are required"),
        ("cp one:/a two:/b", "one of src or dest must be a local file specification"),
        ("cp a b", "one of src or dest must be a remote file specification"),
        ("cp :a b", "filespec must match the canonical format: [[namespace/]pod:]file/path"),
        ("cp a/b/c:d e", "filespec must match the canonical format: [[namespace/]pod:]file/path"),
        ("cp one: b", "filepath can not be empty"),
        ("cp /no/such/file one:/tmp", "/no/such/file doesn't exist in local filesystem"),
        ("port-forward one", "TYPE/NAME and list of ports are required for port-forward"),
        ("port-forward over 80", "unable to forward port because pod is not running. Current status=Succeeded"),
        ("port-forward one 80 --address x", "x is not a valid IP"),
        ("port-forward one 1:2:3", "invalid port format '1:2:3'"),
    ],
)
async def test_invalid_arguments_are_rejected(typed: Typed, node: RealPrograms, line: str, told: str) -> None:
    assert told in await typed.refused(line)
    assert not node.asked


async def test_errors_of_the_node_are_shown(typed: Typed, node: RealPrograms) -> None:
    node.refusal = b"not today"
    assert await typed.refused("exec one -- ls") == "Error from server: unable to upgrade connection: not today\n"
    told = await typed.refused("port-forward one 80")
    assert told == "error: error upgrading connection: unable to upgrade connection: not today\n"


async def test_attach_mentions_that_output_is_logged(typed: Typed, node: RealPrograms) -> None:
    done = await typed.run("attach -i one", stdin="hello\n")
    assert (done.code, done.out) == (0, "hello\n")
    assert done.err.startswith("All commands and output from this session will be recorded in container logs")
    assert (await typed.run("attach -iq one", stdin="hello\n")).err == ""


async def test_run_attaches_to_the_created_pod(typed: Typed, node: RealPrograms) -> None:
    kubelet = Kubelet(typed.server.client, typed.server.clock)
    running = asyncio.ensure_future(typed.run("run new --image=i -iq --rm --restart=Never", stdin="hello\n"))
    made: list[Obj] = []
    for _ in range(500):
        made = made or await kubelet.pods("run=new")
        if made and not made[0]["spec"].get("nodeName"):
            await kubelet.run(*made)
            made[0]["spec"]["nodeName"] = "by-hand"
        if node.asked:
            break
        await asyncio.sleep(0.01)
    await kubelet.end(made[0], 4)
    done = await running
    assert (done.code, done.out) == (4, "hello\n")
    assert "pod default/new terminated (Error)" in done.err
    assert not await kubelet.pods("run=new")


# -- keys -----------------------------------------------------------------------------------------------------------


def test_detach_keys_may_arrive_one_by_one() -> None:
    keys = _Keys(detach_keys("ctrl-p,ctrl-q"))
    assert keys.passed(b"ab\x10") == b"ab"
    assert keys.passed(b"c") == b"\x10c"
    assert keys.passed(b"\x10\x10") == b"\x10"
    assert not keys.complete
    assert keys.passed(b"\x11rest") == b""
    assert keys.complete
    with pytest.raises(Failed, match="could not bind detach keys"):
        detach_keys("ctrl-p,meta-q")


# -- cp -------------------------------------------------------------------------------------------------------------


async def test_files_and_directories_are_copied_both_ways(typed: Typed, node: RealPrograms, tmp_path: Path) -> None:
    source, far = tmp_path / "source", tmp_path / "far"
    (source / "deep" / "er").mkdir(parents=True)
    (source / "empty").mkdir()
    (source / "deep" / "er" / "text").write_text("text " * 10_000)
    (source / "run").write_bytes(b"\x00\xff")
    (source / "run").chmod(0o755)
    (source / "link").symlink_to("run")
    far.mkdir()
    await typed(f"cp {source} one:{far}")
    assert (far / "source" / "run").stat().st_mode & 0o777 == 0o755
    assert (far / "source" / "link").readlink() == Path("run")
    assert (far / "source" / "empty").is_dir()
    await typed(f"cp {source}/run one:{far}/renamed")
    assert (far / "renamed").read_bytes() == b"\x00\xff"

    back = tmp_path / "back"
    done = await typed.run(f"cp one:{far}/source {back}")
    assert done.code == 0
    assert (back / "deep" / "er" / "text").read_text() == "text " * 10_000
    assert not (back / "link").exists()
    assert "warning: skipping symlink:" in done.err and "consider using" in done.err
    await typed(f"cp default/one:{far}/renamed {tmp_path}/single")
    assert (tmp_path / "single").read_bytes() == b"\x00\xff"


async def test_an_interrupted_copy_is_resumed(typed: Typed, node: RealPrograms, tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(bytes(range(256)) * 400)
    node.cut_after = 1000
    done = await typed.run(f"cp one:{tmp_path}/big {tmp_path}/copy --retries 2")
    assert done.code == 0, done.err
    assert "Resuming copy at 1000 bytes, retry 1/2" in done.out
    assert (tmp_path / "copy").read_bytes() == (tmp_path / "big").read_bytes()


async def test_a_missing_file_is_an_error(typed: Typed, node: RealPrograms, tmp_path: Path) -> None:
    done = await typed.run(f"cp one:{tmp_path}/nothing {tmp_path}/copy")
    assert done.code == 2
    assert "No such file" in done.out
    assert not (tmp_path / "copy").exists()


def archive(*entries: tuple[str, bytes, str]) -> io.BytesIO:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for name, kind, link in entries:
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, link
            info.size = 4 if kind == tarfile.REGTYPE else 0
            tar.addfile(info, io.BytesIO(b"evil"))
    made.seek(0)
    return made


@pytest.mark.parametrize("name", ["d/../../out", "d/../../../../out", "d/a/../../../out", "d/..\\..\\out"])
def test_nothing_is_written_outside_the_destination(tmp_path: Path, name: str) -> None:
    """CVE-2019-11246."""
    target = tmp_path / "in" / "target"
    told: list[str] = []
    unpack(HostFiles(), archive((name, tarfile.REGTYPE, "")), "d", str(target), lambda text, _: told.append(text))
    assert len(told) == 1 and "is outside target destination, skipping" in told[0]
    assert not list(tmp_path.rglob("out"))


def test_links_out_of_the_destination_are_skipped(tmp_path: Path) -> None:
    """CVE-2019-11246."""
    target, told = tmp_path / "target", list[str]()
    target.mkdir()
    (target / "here").symlink_to(tmp_path)
    entries = (
        ("d/away", tarfile.SYMTYPE, str(tmp_path)),
        ("d/away/out", tarfile.REGTYPE, ""),
        ("d/here/out", tarfile.REGTYPE, ""),
        ("d/hard", tarfile.LNKTYPE, "/etc/passwd"),
        ("d/pipe", tarfile.FIFOTYPE, ""),
    )
    unpack(HostFiles(), archive(*entries), "d", str(target), lambda text, _: told.append(text))
    assert not (tmp_path / "out").exists()
    assert sorted(path.name for path in target.iterdir()) == ["away", "here"]
    assert (target / "away").is_dir() and not (target / "away").is_symlink()
    assert len(told) == 3


def test_an_unexpected_archive_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(Failed, match="tar contents corrupted"):
        unpack(HostFiles(), archive(("etc/passwd", tarfile.REGTYPE, "")), "d", str(tmp_path), lambda *_: None)
    with pytest.raises(Failed, match="broken"):
        unpack(HostFiles(), io.BytesIO(b"x" * 2048), "d", str(tmp_path), lambda *_: None)


async def test_long_and_non_unicode_names(tmp_path: Path) -> None:
    odd = tmp_path / ("n" * 120) / "\udcff-odd"
    odd.parent.mkdir()
    odd.write_text("content")
    data = b"".join([piece async for piece in packed(HostFiles(), str(odd.parent), "there", print)])
    unpack(HostFiles(), io.BytesIO(data), "there", str(tmp_path / "copy"), print)
    assert (tmp_path / "copy" / odd.name).read_text() == "content"


def test_file_specifications() -> None:
    assert place("a/b/") == ("a/b", "", "")
    assert place("pod:/x/") == ("/x", "pod", "")
    assert place("ns/pod:x:y") == ("x:y", "pod", "ns")


# -- port-forward ---------------------------------------------------------------------------------------------------


async def test_a_forwarded_port_reaches_the_pod(typed: Typed, node: RealPrograms) -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello " + await reader.readline())
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    remote = server.sockets[0].getsockname()[1]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        local = probe.getsockname()[1]
    running = asyncio.ensure_future(typed.run(f"port-forward one {local}:{remote} --address 127.0.0.1"))
    while True:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", local)
            break
        except OSError:
            await asyncio.sleep(0.01)
    writer.write(b"you\n")
    assert await reader.read() == b"hello you\n"
    await typed.server.client.delete(("v1", "Pod"), "one", "default", grace_period=0)
    done = await running
    server.close()
    assert done.out == f"Forwarding from 127.0.0.1:{local} -> {remote}\nHandling connection for {local}\n"
    assert (done.code, done.err) == (1, "error: lost connection to pod\n")


SERVICE: Obj = {
    "kind": "Service",
    "metadata": {"name": "s"},
    "spec": {
        "ports": [
            {"name": "plain", "port": 8080, "targetPort": "web"},
            {"name": "secure", "port": 443, "targetPort": 8443},
            {"name": "udp", "port": 53, "protocol": "UDP", "targetPort": 53},
        ]
    },
}


@pytest.mark.parametrize(
    ("word", "of_pod", "of_service"),
    [
        ("80", Pair(80, 80), "Service s does not have a service port 80"),
        (":80", Pair(0, 80), "Service s does not have a service port 80"),
        ("9000:web", Pair(9000, 80), "Service 's' does not have a named port 'web'"),
        ("443", Pair(443, 443), Pair(443, 8443)),
        (":plain", "Pod 'p' does not have a named port 'plain'", Pair(0, 80)),
        ("plain", "Pod 'p' does not have a named port 'plain'", Pair(8080, 80)),
        ("53", Pair(53, 53), "UDP protocol is not supported for 53"),
        ("x:443", "error parsing local port 'x': strconv.ParseUint: parsing \"x\": invalid syntax", None),
        ("70000", "error parsing local port '70000': strconv.ParseUint: parsing \"70000\": value out of range", None),
        ("1:0", "remote port must be > 0", None),
        ("1:", "remote port cannot be empty", None),
    ],
)
def test_port_specifications(word: str, of_pod: Pair | str, of_service: Pair | str | None) -> None:
    for owner, wanted in ((pod("p"), of_pod), (SERVICE, of_service)):
        if isinstance(wanted, str):
            with pytest.raises(Failed) as raised:
                pairs([word], owner, pod("p"))
            assert str(raised.value) == wanted
        elif wanted is not None:
            assert pairs([word], owner, pod("p")) == [wanted]


def test_listen_addresses() -> None:
    assert addresses(["localhost"]) == [("127.0.0.1", False), ("::1", False)]
    assert addresses(["0.0.0.0", "::"]) == [("0.0.0.0", True), ("::", True)]
