"""What a node may ask for in the name of its Pods: tokens and certificates of their service accounts."""

from __future__ import annotations

from setpoint.apiserver.admission.plugin import Attributes, Obj, Reader
from setpoint.apiserver.admission.service_account import MIRROR
from setpoint.apiserver.filters.authorize import Access, AuthorizerChain
from setpoint.meta.errors import NotFound, PlainServerError


class NodeTokens:
    def __init__(self, reader: Reader, authorizer: AuthorizerChain) -> None:
        self._reader = reader
        self._authorizer = authorizer

    async def check_token(self, node: str, attrs: Attributes) -> None:
        if attrs.operation != "CREATE" or attrs.subresource != "token":
            return
        assert attrs.obj is not None
        spec = attrs.obj.get("spec") or {}
        ref = spec.get("boundObjectRef") or {}
        if (ref.get("apiVersion"), ref.get("kind")) != ("v1", "Pod") or not ref.get("name"):
            raise attrs.forbidden("node requested token not bound to a pod")
        if not ref.get("uid"):
            raise attrs.forbidden("node requested token with a pod binding without a uid")
        pod = self._reader.get("", "pods", attrs.namespace, ref["name"])
        if pod is None:
            raise NotFound.of("", "pod", ref["name"])
        if ref["uid"] != pod["metadata"]["uid"]:
            raise attrs.forbidden(
                f"the UID in the bound object reference ({ref['uid']}) does not match the UID in record. The object "
                "might have been deleted and then recreated"
            )
        if pod["spec"].get("nodeName", "") != node:
            raise attrs.forbidden("node requested token bound to a pod scheduled on a different node")
        await self._check_audience(attrs, pod, spec.get("audiences") or [])

    async def _check_audience(self, attrs: Attributes, pod: Obj, audiences: list[str]) -> None:
        if len(audiences) > 1:
            raise attrs.forbidden("node may only request 0 or 1 audiences")
        audience = audiences[0] if audiences else ""
        problems: list[str] = []
        if self._uses_audience(pod, audience, problems):
            return
        if problems:
            text = problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
            raise attrs.forbidden(f'error validating audience "{audience}": {text}')
        if not await self._may(attrs, "request-serviceaccounts-token-audience", audience, attrs.name):
            raise attrs.forbidden(f'{attrs.user.name} is not authorized to request tokens for audience "{audience}"')

    def _uses_audience(self, pod: Obj, audience: str, problems: list[str]) -> bool:
        """Whether a volume of the Pod needs tokens for it, itself or by the driver that serves it."""
        namespace = pod["metadata"].get("namespace", "")
        for volume in pod["spec"].get("volumes") or ():
            for source in (volume.get("projected") or {}).get("sources") or ():
                token = source.get("serviceAccountToken")
                if token is not None and token.get("audience", "") == audience:
                    return True
            try:
                driver = self._driver(pod, namespace, volume)
                found = self._reader.get("storage.k8s.io", "csidrivers", "", driver) if driver else None
                if driver and found is None:
                    raise NotFound.of("storage.k8s.io", "csidriver", driver)
            except NotFound as error:
                problems.append(error.message)
                continue
            requests = ((found or {}).get("spec") or {}).get("tokenRequests") or ()
            if any(request.get("audience", "") == audience for request in requests):
                return True
        return False

    def _driver(self, pod: Obj, namespace: str, volume: Obj) -> str:
        if (volume.get("ephemeral") or {}).get("volumeClaimTemplate") is not None:
            claim = f"{pod['metadata']['name']}-{volume['name']}"
        elif volume.get("persistentVolumeClaim") is not None:
            claim = volume["persistentVolumeClaim"].get("claimName", "")
        else:
            return str((volume.get("csi") or {}).get("driver", ""))
        found = self._reader.get("", "persistentvolumeclaims", namespace, claim)
        if found is None:
            raise NotFound.of("", "persistentvolumeclaim", claim)
        name = found["spec"].get("volumeName", "")
        bound = self._reader.get("", "persistentvolumes", "", name) if name else None
        if bound is None:
            raise NotFound.of("", "persistentvolume", name)
        return str((bound["spec"].get("csi") or {}).get("driver", ""))

    async def check_certificate(self, node: str, attrs: Attributes) -> None:
        if attrs.operation != "CREATE":
            raise attrs.forbidden(f"unexpected operation {attrs.operation}")
        if attrs.subresource:
            raise attrs.forbidden(f"unexpected subresource {attrs.subresource}")
        assert attrs.obj is not None
        spec = attrs.obj["spec"]
        about = f"{attrs.namespace}/{spec.get('podName', '')}"
        self._check_node(node, attrs, spec, about)
        pod = self._reader.get("", "pods", attrs.namespace, spec.get("podName", ""))
        if pod is None:
            why = NotFound.of("", "pod", spec.get("podName", "")).message
            raise PlainServerError(f'while retrieving pod "{about}" named in the PodCertificateRequest: {why}')
        if spec.get("podUID", "") != pod["metadata"]["uid"]:
            raise PlainServerError(
                f'PodCertificateRequest for pod "{about}" contains pod UID ("{spec.get("podUID", "")}") which differs '
                f'from running pod "{pod["metadata"]["uid"]}"'
            )
        if pod["spec"].get("nodeName", "") != spec.get("nodeName", ""):
            raise attrs.forbidden(
                f'pod "{about}" is not running on node "{spec.get("nodeName", "")}" named in the PodCertificateRequest'
            )
        if MIRROR in (pod["metadata"].get("annotations") or {}):
            raise attrs.forbidden(f'pod "{about}" is a mirror pod')
        self._check_account(attrs, spec, pod, about)
        signer = spec.get("signerName", "")
        if _mounts_certificate(pod, signer):
            return
        # Slashes cannot stand in the name of a resource.
        resource, account = signer.replace("/", ":"), spec.get("serviceAccountName", "")
        if not await self._may(attrs, "request-serviceaccounts-podcertificate-signer", resource, account):
            raise attrs.forbidden(
                f'pod "{about}" does not mount a podCertificate projected volume for signer "{signer}"'
            )

    def _check_node(self, node: str, attrs: Attributes, spec: Obj, about: str) -> None:
        named = spec.get("nodeName", "")
        if named != node:
            raise attrs.forbidden(
                f'PodCertificateRequest.Spec.NodeName="{named}", which is not the requesting node "{node}"'
            )
        found = self._reader.get("", "nodes", "", node)
        if found is None:
            why = NotFound.of("", "node", node).message
            raise PlainServerError(f'while retrieving node "{node}" named in the PodCertificateRequest: {why}')
        if found["metadata"]["uid"] != spec.get("nodeUID", ""):
            raise PlainServerError(
                f'PodCertificateRequest for pod "{about}" names node UID "{spec.get("nodeUID", "")}", inconsistent '
                f'with the running node ("{found["metadata"]["uid"]}")'
            )

    def _check_account(self, attrs: Attributes, spec: Obj, pod: Obj, about: str) -> None:
        name, running = spec.get("serviceAccountName", ""), pod["spec"].get("serviceAccountName", "")
        if name != running:
            raise attrs.forbidden(
                f'PodCertificateRequest for pod "{about}" contains serviceAccountName ("{name}") that differs from '
                f'running pod ("{running}")'
            )
        account = self._reader.get("", "serviceaccounts", attrs.namespace, name)
        if account is None:
            why = NotFound.of("", "serviceaccount", name).message
            raise PlainServerError(
                f'while retrieving service account "{attrs.namespace}/{name}" named in the PodCertificateRequest: {why}'
            )
        if spec.get("serviceAccountUID", "") != account["metadata"]["uid"]:
            raise PlainServerError(
                f'PodCertificateRequest for pod "{about}" names service account UID '
                f'"{spec.get("serviceAccountUID", "")}", which differs from the running service account '
                f'("{account["metadata"]["uid"]}")'
            )

    async def _may(self, attrs: Attributes, verb: str, resource: str, name: str) -> bool:
        access = Access(
            attrs.user, verb, attrs.resource.group, attrs.resource.version, resource, namespace=attrs.namespace,
            name=name,
        )  # fmt: skip
        return await self._authorizer.allows(access)


def _mounts_certificate(pod: Obj, signer: str) -> bool:
    return any(
        (source.get("podCertificate") or {}).get("signerName") == signer
        for volume in pod["spec"].get("volumes") or ()
        for source in (volume.get("projected") or {}).get("sources") or ()
    )
