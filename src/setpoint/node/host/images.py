"""Finds and pulls images.

Pulls of the same image run one after the other, and those with the same credentials share one pull. At most three
images are pulled at once: fewer than a kubelet with `serializeImagePulls: false` and no `maxParallelImagePulls` allows,
and more than one with `serializeImagePulls: true`, where one large image holds up all others.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from setpoint.meta.clock import Clock
from setpoint.meta.goformat import aggregate
from setpoint.meta.objects import ObjView
from setpoint.node.cri.client import CriClient, CriError
from setpoint.node.host.pod_executor import KeyedLocks
from setpoint.node.host.registry_credentials import Credential, InvalidPullSecret, credentials_for
from setpoint.node.runtime.images import parse_reference
from setpoint.node.runtime.interface import Image, ImageLookup, PullResult
from setpoint.tasks import TaskRegistry
from setpoint.wire.grpc import Code

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod

CONCURRENT_PULLS: Final = 3
_STATUS_TIMEOUT: Final = 120.0
_PULL_TIMEOUT: Final = 3600.0
"""Seconds after which a pull is given up. The runtime itself ends pulls that make no progress much earlier."""
_EXPLAINED: Final = {
    "RegistryUnavailable": "the registry is unavailable",
    "SignatureValidationFailed": "the signature validation failed",
}
"""The explanations that replace the beginning of the runtime's error, which is the reason."""

log = logging.getLogger("setpoint.node")


class SecretReader(Protocol):
    """Read access to Secrets."""

    def secret(self, namespace: str, name: str) -> ObjView | None: ...


class _PullKey(NamedTuple):
    image: str
    credentials: tuple[Credential, ...]


class NodeImages:
    """The images of a node."""

    def __init__(self, client: CriClient, secrets: SecretReader, clock: Clock) -> None:
        self._client = client
        self._secrets = secrets
        self._clock = clock
        self._slots = asyncio.Semaphore(CONCURRENT_PULLS)
        self._locks = KeyedLocks()
        self._pulls: dict[_PullKey, asyncio.Task[PullResult]] = {}
        self._tasks = TaskRegistry()

    async def find(self, image: str) -> ImageLookup:
        try:
            return ImageLookup(await self._status(image))
        except CriError as error:
            return ImageLookup(None, str(error))

    async def pull(self, image: str, pod: Pod) -> PullResult:
        """Pull an image with the credentials of a Pod. `waited_seconds` of the result is the time until it was
        there."""
        began = self._clock.monotonic()
        reference = parse_reference(image)
        try:
            found = credentials_for(reference.repository if reference is not None else image, self._pull_secrets(pod))
        except InvalidPullSecret as problem:
            return PullResult(None, str(problem))
        key = _PullKey(image, tuple(found))
        task = self._pulls.get(key)
        if task is None:
            task = self._pulls[key] = self._tasks.start(self._pull(key))
        # A caller that gives up does not end the pull: others may wait for it too.
        result = await asyncio.shield(task)
        waited = self._clock.monotonic() - began
        return result._replace(seconds=min(result.seconds, waited), waited_seconds=waited)

    async def stop(self) -> None:
        await self._tasks.stop()

    def _pull_secrets(self, pod: Pod) -> list[ObjView]:
        namespace = pod["metadata"]["namespace"]
        names = [each.get("name") or "" for each in pod["spec"].get("imagePullSecrets") or ()]
        found = [self._secrets.secret(namespace, name) for name in names if name]
        return [secret for secret in found if secret is not None]

    async def _pull(self, key: _PullKey) -> PullResult:
        try:
            async with self._locks.hold(key.image), self._slots:
                started = self._clock.monotonic()
                try:
                    result = await self._try_credentials(key)
                except CriError as error:
                    result = PullResult(None, str(error))
                return result._replace(seconds=self._clock.monotonic() - started)
        finally:
            del self._pulls[key]

    async def _try_credentials(self, key: _PullKey) -> PullResult:
        """Pull with each credential until one succeeds; without credentials if there are none."""
        errors: list[str] = []
        for credential in key.credentials or (None,):
            request: dict[str, Any] = {"image": {"image": key.image}}
            if credential is not None:
                request["auth"] = credential.auth_config()
            try:
                answer = await self._client.call("PullImage", request, timeout=_PULL_TIMEOUT)
            except CriError as error:
                # The code "unknown" says nothing; the kubelet omits it too.
                errors.append(error.message if error.code == Code.UNKNOWN else str(error))
                continue
            found = await self._status(key.image) or await self._status(answer.image_ref)
            if found is not None:
                return PullResult(found)
            errors.append(f'pulled image "{key.image}" is not present')
        return _failure(key.image, aggregate(errors))

    async def _status(self, image: str) -> Image | None:
        answer = await self._client.call("ImageStatus", {"image": {"image": image}}, timeout=_STATUS_TIMEOUT)
        found = answer.image
        if not found.id:
            return None
        digests, tags = list(found.repo_digests), list(found.repo_tags)
        # As containerd reports them in the statuses of containers.
        return Image([*tags, *digests, image][0], [*digests, found.id][0], int(found.size))


def _failure(image: str, error: str) -> PullResult:
    for reason, explanation in _EXPLAINED.items():
        if error.startswith(reason):
            text = f"image pull failed for {image} because {explanation}{error.removeprefix(reason)}"
            return PullResult(None, text, reason)
    return PullResult(None, error)
