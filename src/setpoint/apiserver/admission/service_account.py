"""ServiceAccount: sets a Pod's service account, its pull secrets, and the volume with the API token."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from setpoint.apiserver.admission.plugin import Attributes, Plugin, Reader
from setpoint.kinds.catalog import Resource
from setpoint.kinds.core.references import secret_names
from setpoint.meta.clock import Clock, Ids
from setpoint.meta.errors import PlainServerError
from setpoint.meta.goformat import parse_bool
from setpoint.meta.objects import Obj

MIRROR = "kubernetes.io/config.mirror"
_DEFAULT = "default"
_ENFORCE = "kubernetes.io/enforce-mountable-secrets"
_VOLUME = "kube-api-access-"
_MOUNT_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
_TOKEN_SECONDS = 3607
"""Lifetime of mounted tokens; the odd value distinguishes them from tokens that were requested for an hour."""
_ATTEMPTS = 9


class ServiceAccount(Plugin):
    name = "ServiceAccount"

    def __init__(self, reader: Reader, clock: Clock, ids: Ids) -> None:
        self._reader = reader
        self._clock = clock
        self._ids = ids

    def handles(self, operation: str, resource: Resource, subresource: str) -> bool:
        return (resource.group, resource.plural) == ("", "pods") and (operation, subresource) in (
            ("CREATE", ""),
            ("UPDATE", "ephemeralcontainers"),
        )

    async def mutate(self, attrs: Attributes) -> None:
        if attrs.operation != "CREATE":
            return
        assert attrs.obj is not None
        spec = attrs.obj["spec"]
        if _is_mirror(attrs.obj):
            # The node would not recognize a changed mirror Pod.
            _check_mirror(attrs, spec)
            return
        if not spec.get("serviceAccountName"):
            spec["serviceAccountName"] = spec["serviceAccount"] = _DEFAULT
        account = await self._account(attrs, spec["serviceAccountName"])
        if _mounts_token(spec, account):
            self._mount_token(spec)
        if not spec.get("imagePullSecrets"):
            secrets = [{"name": ref.get("name", "")} for ref in account.get("imagePullSecrets") or ()]
            if secrets:
                spec["imagePullSecrets"] = secrets
        _check_secrets(attrs, spec, account)

    async def validate(self, attrs: Attributes) -> None:
        assert attrs.obj is not None
        pod, spec = attrs.obj, attrs.obj["spec"]
        if attrs.operation == "CREATE" and _is_mirror(pod):
            _check_mirror(attrs, spec)
            return
        name = spec.get("serviceAccountName")
        if not name:
            about = f"{attrs.namespace}/{pod['metadata'].get('name', '')}"
            raise attrs.forbidden(f"no service account specified for pod {about}")
        _check_secrets(attrs, spec, await self._account(attrs, name))

    async def _account(self, attrs: Attributes, name: str) -> Obj:
        found = self._reader.get("", "serviceaccounts", attrs.namespace, name)
        if found is not None:
            return found
        if name == _DEFAULT:
            # The controller may not have created the account of a new namespace yet.
            pause = (100 + self._ids.below(100)) / 1000
            for _ in range(_ATTEMPTS):
                await self._clock.sleep(pause)
                found = self._reader.get("", "serviceaccounts", attrs.namespace, name)
                if found is not None:
                    return found
        raise attrs.forbidden(
            f'error looking up service account {attrs.namespace}/{name}: serviceaccount "{name}" not found'
        )

    def _mount_token(self, spec: Obj) -> None:
        volumes = spec.get("volumes") or []
        present = next((v["name"] for v in volumes if v.get("name", "").startswith(_VOLUME)), "")
        name = present or _VOLUME + self._ids.suffix()
        needed = False
        for key in ("initContainers", "containers"):
            for container in spec.get(key) or ():
                mounts = container.get("volumeMounts") or []
                # A mount at this path replaces the default one.
                if not any(mount.get("mountPath") == _MOUNT_PATH for mount in mounts):
                    mount = {"name": name, "readOnly": True, "mountPath": _MOUNT_PATH}
                    container["volumeMounts"] = [*mounts, mount]
                    needed = True
        if needed and not present:
            spec["volumes"] = [*volumes, {"name": name, "projected": _token_volume()}]


def _token_volume() -> dict[str, Any]:
    return {
        "sources": [
            {"serviceAccountToken": {"expirationSeconds": _TOKEN_SECONDS, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {
                "downwardAPI": {
                    "items": [
                        {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
                    ]
                }
            },
        ],
        "defaultMode": 0o644,
    }


def _is_mirror(pod: Obj) -> bool:
    return MIRROR in (pod["metadata"].get("annotations") or {})


def _mounts_token(spec: Obj, account: Obj) -> bool:
    """Return whether the token is mounted; the Pod's setting precedes the account's."""
    for holder in (spec, account):
        setting = holder.get("automountServiceAccountToken")
        if setting is not None:
            return bool(setting)
    return True


def _check_mirror(attrs: Attributes, spec: Obj) -> None:
    if spec.get("serviceAccountName"):
        raise attrs.forbidden("a mirror pod may not reference service accounts")
    if any(True for _ in secret_names(spec)):
        raise attrs.forbidden("a mirror pod may not reference secrets")
    for volume in spec.get("volumes") or ():
        for source in (volume.get("projected") or {}).get("sources") or ():
            if source.get("serviceAccountToken") is not None:
                raise attrs.forbidden("a mirror pod may not use ServiceAccountToken volume projections")


def _check_secrets(attrs: Attributes, spec: Obj, account: Obj) -> None:
    meta = account["metadata"]
    if not parse_bool((meta.get("annotations") or {}).get(_ENFORCE, "")):
        return
    if attrs.operation == "CREATE":
        problem = next(_unmountable(spec, account), "")
        if problem:
            raise attrs.forbidden(problem)
        return
    mountable = {ref.get("name", "") for ref in account.get("secrets") or ()}
    problem = next(_unmountable_in(spec, "ephemeralContainers", "ephemeral container", mountable, meta["name"]), "")
    if problem:
        # Upstream returns this error without a Forbidden status.
        raise PlainServerError(problem)


def _unmountable(spec: Obj, account: Obj) -> Iterator[str]:
    """Describe the secrets that the Pod uses and that its account does not list."""
    name = account["metadata"]["name"]
    mountable = {ref.get("name", "") for ref in account.get("secrets") or ()}
    ending = f"is not allowed because service account {name} does not reference that"
    for volume in spec.get("volumes") or ():
        if volume.get("secret") is not None:
            secret = volume["secret"].get("secretName", "")
            if secret not in mountable:
                yield f'volume with secret.secretName="{secret}" {ending} secret'
    yield from _unmountable_in(spec, "initContainers", "init container", mountable, name)
    yield from _unmountable_in(spec, "containers", "container", mountable, name)
    pulled = {ref.get("name", "") for ref in account.get("imagePullSecrets") or ()}
    for i, ref in enumerate(spec.get("imagePullSecrets") or ()):
        if ref.get("name", "") not in pulled:
            yield f'imagePullSecrets[{i}].name="{ref.get("name", "")}" {ending} imagePullSecret'


def _unmountable_in(spec: Obj, key: str, title: str, mountable: set[str], account: str) -> Iterator[str]:
    ending = f"is not allowed because service account {account} does not reference that secret"
    for container in spec.get(key) or ():
        about = f"{title} {container.get('name', '')}"
        for env in container.get("env") or ():
            ref = (env.get("valueFrom") or {}).get("secretKeyRef")
            if ref is not None and ref.get("name", "") not in mountable:
                what = f'envVar {env.get("name", "")} referencing secret.secretName="{ref.get("name", "")}"'
                yield f"{about} with {what} {ending}"
        for env in container.get("envFrom") or ():
            ref = env.get("secretRef")
            if ref is not None and ref.get("name", "") not in mountable:
                yield f'{about} with envFrom referencing secret.secretName="{ref.get("name", "")}" {ending}'
