"""Runs lifecycle hooks of containers. A pre-stop hook runs at most once for each run of a container: a file in the
container's directory marks that it was begun, so that a restarted agent does not run it again."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final, NamedTuple

from setpoint.meta.clock import Clock
from setpoint.meta.goformat import quote
from setpoint.meta.objects import ObjView
from setpoint.node.cri.client import CriClient, CriError
from setpoint.node.host.blocking import BlockingPool
from setpoint.node.host.directories import NodeDirectories
from setpoint.node.host.http_get import GetRequest, RequestFailed, get, request_of
from setpoint.node.host.probes import KUBERNETES_VERSION
from setpoint.node.runtime.interface import HookResult

_MAX_SECONDS: Final = 24 * 3600.0
"""Seconds after which a hook has failed. The grace period of the Pod, after which it is cancelled, is shorter."""
_MARKER_PREFIX: Final = "pre-stop-"

log = logging.getLogger("setpoint.node")


class HookTarget(NamedTuple):
    """The container that a hook belongs to."""

    uid: str
    pod: str
    """The Pod as `name_namespace(uid)`."""
    container_id: str
    ip: str
    """The address of the Pod; empty if it is not known."""


class HookRunner:
    """Runs the hooks of a node's containers."""

    def __init__(self, client: CriClient, directories: NodeDirectories, pool: BlockingPool, clock: Clock) -> None:
        self._client = client
        self._directories = directories
        self._pool = pool
        self._clock = clock

    async def run(self, target: HookTarget, container: ObjView, hook: ObjView, *, pre_stop: bool) -> HookResult:
        if pre_stop:
            directory = self._directories.container(target.uid, container["name"])
            if not await self._pool.run(_mark, directory, target.container_id):
                return HookResult(True)
        problem = await self._run(target, container, hook)
        return HookResult(not problem, problem)

    async def _run(self, target: HookTarget, container: ObjView, hook: ObjView) -> str:
        """Return the kubelet's message if the hook failed."""
        where = f"for Container {quote(container['name'])} in Pod {quote(target.pod)} failed - error:"
        if (action := hook.get("exec")) is not None:
            command = list(action.get("command") or ())
            problem, output = await self._exec(target.container_id, command)
            text = f"Exec lifecycle hook ([{' '.join(command)}]) {where} {problem}, message: {quote(output)}"
            return text if problem else ""
        if (action := hook.get("httpGet")) is not None:
            problem = await self._http(target, container, action)
            return f"HTTP lifecycle hook ({action.get('path') or ''}) {where} {problem}" if problem else ""
        if (action := hook.get("sleep")) is not None:
            await self._clock.sleep(float(action.get("seconds") or 0))
            return ""
        return "Cannot run handler: invalid handler"

    async def _exec(self, container_id: str, command: list[str]) -> tuple[str, str]:
        """Return what went wrong, or an empty string, and the output."""
        request = {"container_id": container_id, "cmd": command, "timeout": 0}
        try:
            answer = await self._client.call("ExecSync", request, timeout=_MAX_SECONDS)
        except CriError as error:
            return str(error), ""
        if answer.exit_code == 0:
            return "", ""
        stderr = bytes(answer.stderr).decode("utf-8", "replace")
        output = bytes(answer.stdout).decode("utf-8", "replace") + stderr
        return f"command '{' '.join(command)}' exited with {answer.exit_code}: {stderr}", output

    async def _http(self, target: HookTarget, container: ObjView, action: ObjView) -> str:
        """Send the request of a hook. Any response is a success; a server without TLS is asked without it."""
        if not action.get("host") and not target.ip:
            return "failed to find networking container"
        try:
            request = request_of(action, container, target.ip, f"kube-lifecycle/{KUBERNETES_VERSION}")
        except ValueError as error:
            return str(error)
        try:
            await get(request, self._clock, _MAX_SECONDS)
        except RequestFailed as failure:
            if not failure.is_http_on_https:
                return str(failure)
            log.info("the HTTPS request of a lifecycle hook to %s got an HTTP response", request.authority)
            try:
                await get(_without_tls(request), self._clock, _MAX_SECONDS)
            except RequestFailed:
                return str(failure)
        return ""


def marker_path(directory: Path, container_id: str) -> Path:
    """Return the file in a container's directory that exists if the pre-stop hook of a run was begun."""
    return directory / f"{_MARKER_PREFIX}{container_id}"


def _without_tls(request: GetRequest) -> GetRequest:
    headers = tuple(each for each in request.headers if each[0] != "Authorization")
    return GetRequest("http", request.host, request.port, request.target, headers, request.host_header)


def _mark(directory: Path, container_id: str) -> bool:
    """Create the file that marks the hook as begun. Return False if it exists already. Blocks."""
    directory.mkdir(parents=True, exist_ok=True)
    try:
        marker_path(directory, container_id).touch(mode=0o600, exist_ok=False)
    except FileExistsError:
        return False
    # After a crash of the machine the containers have ended anyway, so the file need not be durable.
    return True
