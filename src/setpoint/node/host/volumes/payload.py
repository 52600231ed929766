"""Determines the files of projected volumes from the objects that they are projected from."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from setpoint.meta.objects import ObjView
from setpoint.node.host.volumes.interface import SetUpError
from setpoint.node.host.volumes.pod_certificates import CredentialsReader
from setpoint.node.host.volumes.projected import Payload, ProjectedFile
from setpoint.node.host.volumes.tokens import TokenCache
from setpoint.node.projection import (
    DEFAULT_MODE,
    SourceLister,
    common_user,
    missing_source,
    projection_of,
    source_files,
    sources_of,
)

if TYPE_CHECKING:
    from setpoint.kinds.typed import Pod
    from setpoint.node.pod_status import PodState

_PRIVATE_MODE = 0o600


class Contents(NamedTuple):
    """The files of a volume, or why they cannot be determined."""

    payload: Payload | None
    problem: str = ""


async def contents_of(
    volume: ObjView,
    pod: Pod,
    pod_state: PodState,
    lister: SourceLister,
    tokens: TokenCache,
    credentials: CredentialsReader,
) -> Contents:
    """Return the current files of a projected volume. Tokens that are due are requested."""
    default = (projection_of(volume) or {}).get("defaultMode", DEFAULT_MODE)
    user = common_user(pod["spec"])
    restricted = user is not None or (pod["spec"].get("securityContext") or {}).get("fsGroup") is not None
    private = (_PRIVATE_MODE if restricted else default, user)
    payload: dict[str, ProjectedFile] = {}
    problems: list[str] = []
    for index, source in enumerate(sources_of(volume)):
        problem = missing_source(source, pod["metadata"]["namespace"], lister)
        if problem:
            problems.append(problem)
            continue
        for path, content, mode in source_files(source, pod, {}, pod_state, lister):
            if source.get("clusterTrustBundle") is not None:
                payload[path] = ProjectedFile(content, *private)
            else:
                payload[path] = ProjectedFile(content, default if mode is None else mode)
        wanted = source.get("serviceAccountToken")
        if wanted is not None:
            try:
                token = await tokens.token(pod, wanted)
            except SetUpError as error:
                problems.append(str(error))
                continue
            payload[wanted["path"]] = ProjectedFile(token.encode(), *private)
        wanted = source.get("podCertificate")
        if wanted is not None:
            try:
                key, chain = credentials(pod, volume["name"], index)
            except SetUpError as error:
                problems.append(str(error))
                continue
            files = (("credentialBundlePath", key + chain), ("keyPath", key), ("certificateChainPath", chain))
            payload |= {wanted[at]: ProjectedFile(content, *private) for at, content in files if wanted.get(at)}
    if not problems:
        return Contents(payload)
    unique = [*dict.fromkeys(problems)]
    return Contents(None, unique[0] if len(unique) == 1 else f"[{', '.join(unique)}]")
