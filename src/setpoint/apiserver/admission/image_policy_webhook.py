"""ImagePolicyWebhook: a webhook says whether the images of a Pod may run. Its answers are remembered for a while."""

from __future__ import annotations

import logging
from hashlib import sha256
from typing import NamedTuple

import orjson

from setpoint.apiserver.admission.image_policy_settings import ImagePolicySettings
from setpoint.apiserver.admission.plugin import Attributes, Obj, Plugin
from setpoint.apiserver.config_files import SWITCH, TEXT, many, struct
from setpoint.apiserver.review_webhook import ReviewWebhook, Unwelcome
from setpoint.apiserver.webhook_client import WebhookProblem
from setpoint.kinds.catalog import RESOURCES, Resource
from setpoint.meta.clock import Clock
from setpoint.meta.decode import DecodeError, decode
from setpoint.meta.errors import from_status
from setpoint.meta.goformat import quote
from setpoint.meta.names import qualified_name
from setpoint.meta.schema import Shape, Type
from setpoint.meta.ttl_cache import TtlCache

log = logging.getLogger("setpoint.apiserver")

_VERSION, _KIND = "imagepolicy.k8s.io/v1alpha1", "ImageReview"
_ABOUT_IMAGES = ".image-policy.k8s.io/"
_AUDIT = "imagepolicywebhook.image-policy.k8s.io/"
_FAILED_OPEN = "failed-open"
_NOTE = f"alpha.image-policy.k8s.io/{_FAILED_OPEN}"
_MOST_ANSWERS = 1024

_NOTES = Type(Shape.MAP, go="map[string]string", item=TEXT)
_CONTAINER = struct("v1alpha1.ImageReviewContainerSpec", image=TEXT)
_REVIEW = struct(
    "v1alpha1.ImageReview",
    kind=TEXT,
    apiVersion=TEXT,
    spec=struct("v1alpha1.ImageReviewSpec", containers=many(_CONTAINER), annotations=_NOTES, namespace=TEXT),
    status=struct("v1alpha1.ImageReviewStatus", allowed=SWITCH, reason=TEXT, auditAnnotations=_NOTES),
)


class _Answer(NamedTuple):
    allowed: bool
    reason: str
    notes: dict[str, str]


class ImagePolicyWebhook(Plugin):
    name = "ImagePolicyWebhook"

    def __init__(self, webhook: ReviewWebhook, settings: ImagePolicySettings, clock: Clock) -> None:
        self._webhook = webhook
        self._settings = settings
        self._answers: TtlCache[bytes, _Answer] = TtlCache(_MOST_ANSWERS, clock)

    def handles(self, operation: str, resource: Resource, subresource: str) -> bool:
        is_pod = (resource.group, resource.plural) == ("", "pods")
        return is_pod and operation in ("CREATE", "UPDATE") and subresource in ("", "ephemeralcontainers")

    async def validate(self, attrs: Attributes) -> None:
        assert attrs.obj is not None
        spec = _spec(attrs.obj, attrs)
        try:
            answer = await self._answer(spec)
        except WebhookProblem as problem:
            self._unanswered(attrs, problem)
            return
        for key, value in answer.notes.items():
            _annotate(attrs, _AUDIT + key, value)
        if answer.allowed:
            return
        if answer.reason:
            raise attrs.forbidden(f"image policy webhook backend denied one or more images: {answer.reason}")
        raise attrs.forbidden("one or more images rejected by webhook backend")

    async def _answer(self, spec: Obj) -> _Answer:
        """Raises WebhookProblem."""
        key = sha256(orjson.dumps(spec, option=orjson.OPT_SORT_KEYS)).digest()
        known = self._answers.get(key)
        if known is None:
            known = _read(await self._webhook.review(_VERSION, _KIND, spec))
            kept_for = self._settings.allow_ttl if known.allowed else self._settings.deny_ttl
            self._answers.keep(key, known, kept_for)
        return known

    def _unanswered(self, attrs: Attributes, problem: WebhookProblem) -> None:
        if self._settings.default_allow:
            _annotate(attrs, _AUDIT + _FAILED_OPEN, "true")
            # Only those who look at the Pod after us see this: it is not stored.
            meta = (attrs.obj or {})["metadata"]
            noted = {**meta, "annotations": {**(meta.get("annotations") or {}), _NOTE: "true"}}
            attrs.obj = {**(attrs.obj or {}), "metadata": noted}
            return
        if isinstance(problem, Unwelcome):
            raise from_status(problem.status)
        raise attrs.forbidden(str(problem))


def _spec(pod: Obj, attrs: Attributes) -> Obj:
    """What the webhook is told of a Pod, and nothing more."""
    keys = ("ephemeralContainers",) if attrs.subresource else ("containers", "initContainers")
    images = [container.get("image", "") for key in keys for container in pod["spec"].get(key) or ()]
    notes = pod["metadata"].get("annotations") or {}
    told = {
        "containers": [{"image": image} if image else {} for image in images],
        "annotations": {key: value for key, value in notes.items() if _ABOUT_IMAGES in key},
        "namespace": attrs.namespace,
    }
    return {key: value for key, value in told.items() if value}


def _read(review: Obj) -> _Answer:
    """Raises WebhookProblem."""
    version, kind = review.get("apiVersion") or _VERSION, review.get("kind") or _KIND
    if (version, kind) != (_VERSION, _KIND):
        if kind == "Status" or any((one.api_version, one.kind) == (version, kind) for one in RESOURCES):
            found, wanted = (f"({of.rpartition('/')[2]}.{one})" for of, one in ((version, kind), (_VERSION, _KIND)))
            raise WebhookProblem(f"converting {found} to {wanted}: unknown conversion")
        scheme = "pkg/api/legacyscheme/scheme.go:30"
        raise WebhookProblem(
            f"no kind {quote(kind)} is registered for version {quote(version)} in scheme {quote(scheme)}"
        )
    try:
        status = decode(_REVIEW, review).get("status") or {}
    except DecodeError as error:
        raise WebhookProblem(str(error)) from None
    return _Answer(status.get("allowed", False), status.get("reason", ""), status.get("auditAnnotations") or {})


def _annotate(attrs: Attributes, key: str, value: str) -> None:
    """What is no name of an annotation is left out, and what is there stays."""
    if key.count("/") == 1 and not qualified_name(key):
        attrs.audit.setdefault(key, value)
    else:
        log.warning("failed to set admission audit annotation %r: annotation key has invalid format", key)
