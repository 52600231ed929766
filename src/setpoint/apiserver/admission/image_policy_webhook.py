"""ImagePolicyWebhook: a webhook decides whether the images of a Pod may run; its answers are cached."""

from __future__ import annotations

import logging
from hashlib import sha256
from typing import Any, NamedTuple

import orjson

from setpoint.apiserver.admission.plugin import Attributes, Plugin
from setpoint.apiserver.config_files import SWITCH, TEXT, FileProblem, many, struct
from setpoint.apiserver.kubeconfig_webhooks import ForbiddenByWebhook, ReviewWebhook
from setpoint.apiserver.webhook_client import WebhookError
from setpoint.kinds.catalog import RESOURCES, Resource
from setpoint.meta.body import BodyError, parse_json, parse_yaml
from setpoint.meta.caching import TtlCache
from setpoint.meta.clock import Clock
from setpoint.meta.decode import DecodeError, decode
from setpoint.meta.errors import from_status
from setpoint.meta.goformat import quote
from setpoint.meta.names import qualified_name
from setpoint.meta.objects import Obj
from setpoint.meta.schema import Shape, Type
from setpoint.meta.times import format_duration

_SECOND, _MILLISECOND = 1_000_000_000, 1_000_000
_DISABLED = -1
_SECTION = "imagePolicy"
_TIME = Type(Shape.INT64, go="time.Duration")
_SETTINGS = struct(
    "imagepolicy.imagePolicyWebhookConfig",
    kubeConfigFile=TEXT,
    allowTTL=_TIME,
    denyTTL=_TIME,
    retryBackoff=_TIME,
    defaultAllow=SWITCH,
)
_DOCUMENT = struct("imagepolicy.AdmissionConfig", imagePolicy=_SETTINGS)
_NAMES = {name.lower(): name for name in (_SECTION, *_SETTINGS.fields)}
_VERSION, _KIND = "imagepolicy.k8s.io/v1alpha1", "ImageReview"
_ABOUT_IMAGES = ".image-policy.k8s.io/"
_AUDIT = "imagepolicywebhook.image-policy.k8s.io/"
_FAILED_OPEN = "failed-open"
_FAILED_OPEN_ANNOTATION = f"alpha.image-policy.k8s.io/{_FAILED_OPEN}"
_MAX_CACHED_REVIEWS = 1024
_STRING_MAP = Type(Shape.MAP, go="map[string]string", item=TEXT)
_CONTAINER = struct("v1alpha1.ImageReviewContainerSpec", image=TEXT)
_REVIEW = struct(
    "v1alpha1.ImageReview",
    kind=TEXT,
    apiVersion=TEXT,
    spec=struct("v1alpha1.ImageReviewSpec", containers=many(_CONTAINER), annotations=_STRING_MAP, namespace=TEXT),
    status=struct("v1alpha1.ImageReviewStatus", allowed=SWITCH, reason=TEXT, auditAnnotations=_STRING_MAP),
)


class ImagePolicySettings(NamedTuple):
    """The configuration of the plugin, in an old format without kind and version."""

    kubeconfig: str
    """Path of the kubeconfig with the address of the webhook."""
    allow_ttl: float = 300.0
    """Seconds for which an allowing answer is cached."""
    deny_ttl: float = 30.0
    """Seconds for which a denying answer is cached."""
    backoff: float = 0.5
    """Seconds before the first retry; later ones wait longer."""
    default_allow: bool = False
    """Whether Pods are admitted if the webhook gives no answer."""


def read_image_policy(data: bytes | None) -> ImagePolicySettings:
    """Read the configuration, JSON or YAML, with upstream's leniency. Raises FileProblem."""
    if data is None:
        raise FileProblem("no config specified")
    given: dict[str, Any] = _read_settings(data).get(_SECTION) or {}
    # In upstream's order, which decides which of several mistakes is reported.
    backoff = _duration(given.get("retryBackoff", 0), _MILLISECOND, 1, 300 * _SECOND, 500 * _MILLISECOND)
    allow = _duration(given.get("allowTTL", 0), _SECOND, _SECOND, 1800 * _SECOND, 300 * _SECOND)
    deny = _duration(given.get("denyTTL", 0), _SECOND, _SECOND, 1800 * _SECOND, 30 * _SECOND)
    return ImagePolicySettings(given.get("kubeConfigFile", ""), allow, deny, backoff, given.get("defaultAllow", False))


def _read_settings(data: bytes) -> dict[str, Any]:
    if not data:
        raise FileProblem("EOF")
    is_json, json_error, where = data.lstrip()[:1] == b"{", "", ""
    try:
        found, json_error = _json(data) if is_json else (None, "")
        if not is_json or json_error:
            found = parse_yaml(data)[0]
    except BodyError as error:
        raise FileProblem(json_error or f"error converting YAML to JSON: {error}") from None
    if not is_json:
        where = "error unmarshaling JSON: while decoding JSON: "
    try:
        settings: dict[str, Any] = decode(_DOCUMENT, _lenient(found))
    except DecodeError as error:
        raise FileProblem(f"{where}{error}") from None
    return settings


def _json(data: bytes) -> tuple[Any, str]:
    """Return the parsed value, or None and an error message; the text may still be valid YAML."""
    try:
        return parse_json(data)[0], ""
    except BodyError as error:
        return None, "unexpected EOF" if "unexpected end" in str(error) else str(error)


def _lenient(found: Any) -> Any:
    """Accept names in any case, numbers for strings, and floats for integers, as upstream does."""
    if not isinstance(found, dict):
        return found
    made = {}
    for given, value in found.items():
        name = _NAMES.get(given.lower(), given)
        if name == _SECTION:
            value = _lenient(value)
        elif name == "kubeConfigFile" and isinstance(value, int | float):
            value = str(value).lower() if isinstance(value, bool) else str(value)
        elif isinstance(value, float) and value.is_integer():
            value = int(value)
        made[name] = value
    return made


def _duration(value: int, unit: int, minimum: int, maximum: int, default: int) -> float:
    """Convert a setting to seconds. Raises FileProblem if it is out of bounds."""
    if value == _DISABLED:
        return 0.0
    nanoseconds = (value * unit + 2**63) % 2**64 - 2**63 if value else default  # wraps around as a 64-bit integer
    if not minimum <= nanoseconds <= maximum:
        bounds = f"between {format_duration(minimum)} and {format_duration(maximum)}"
        raise FileProblem(f"valid value is {bounds}, got {format_duration(nanoseconds)}")
    return nanoseconds / _SECOND


log = logging.getLogger("setpoint.apiserver")


class _Review(NamedTuple):
    """The answer of the webhook."""

    allowed: bool
    reason: str
    annotations: dict[str, str]


class ImagePolicyWebhook(Plugin):
    name = "ImagePolicyWebhook"

    def __init__(self, webhook: ReviewWebhook, settings: ImagePolicySettings, clock: Clock) -> None:
        self._webhook = webhook
        self._settings = settings
        self._answers: TtlCache[bytes, _Review] = TtlCache(_MAX_CACHED_REVIEWS, clock)

    def handles(self, operation: str, resource: Resource, subresource: str) -> bool:
        is_pod = (resource.group, resource.plural) == ("", "pods")
        return is_pod and operation in ("CREATE", "UPDATE") and subresource in ("", "ephemeralcontainers")

    async def validate(self, attrs: Attributes) -> None:
        assert attrs.obj is not None
        spec = _spec(attrs.obj, attrs)
        try:
            answer = await self._answer(spec)
        except WebhookError as problem:
            self._on_failure(attrs, problem)
            return
        for key, value in answer.annotations.items():
            _annotate(attrs, _AUDIT + key, value)
        if answer.allowed:
            return
        if answer.reason:
            raise attrs.forbidden(f"image policy webhook backend denied one or more images: {answer.reason}")
        raise attrs.forbidden("one or more images rejected by webhook backend")

    async def _answer(self, spec: Obj) -> _Review:
        """Return the cached answer, or ask the webhook. Raises WebhookError."""
        key = sha256(orjson.dumps(spec, option=orjson.OPT_SORT_KEYS)).digest()
        known = self._answers.get(key)
        if known is None:
            known = _read_review(await self._webhook.review(_VERSION, _KIND, spec))
            ttl = self._settings.allow_ttl if known.allowed else self._settings.deny_ttl
            self._answers.put(key, known, ttl)
        return known

    def _on_failure(self, attrs: Attributes, problem: WebhookError) -> None:
        if self._settings.default_allow:
            _annotate(attrs, _AUDIT + _FAILED_OPEN, "true")
            # Later plugins see this annotation; it is not stored.
            meta = (attrs.obj or {})["metadata"]
            noted = {**meta, "annotations": {**(meta.get("annotations") or {}), _FAILED_OPEN_ANNOTATION: "true"}}
            attrs.obj = {**(attrs.obj or {}), "metadata": noted}
            return
        if isinstance(problem, ForbiddenByWebhook):
            raise from_status(problem.status)
        raise attrs.forbidden(str(problem))


def _spec(pod: Obj, attrs: Attributes) -> Obj:
    """Return the specification of the ImageReview: the Pod's images, namespace and image policy annotations."""
    keys = ("ephemeralContainers",) if attrs.subresource else ("containers", "initContainers")
    images = [container.get("image", "") for key in keys for container in pod["spec"].get(key) or ()]
    annotations = pod["metadata"].get("annotations") or {}
    given = {
        "containers": [{"image": image} if image else {} for image in images],
        "annotations": {key: value for key, value in annotations.items() if _ABOUT_IMAGES in key},
        "namespace": attrs.namespace,
    }
    return {key: value for key, value in given.items() if value}


def _read_review(review: Obj) -> _Review:
    """Decode the webhook's response. Raises WebhookError."""
    version, kind = review.get("apiVersion") or _VERSION, review.get("kind") or _KIND
    if (version, kind) != (_VERSION, _KIND):
        if kind == "Status" or any((one.api_version, one.kind) == (version, kind) for one in RESOURCES):
            found, wanted = (f"({of.rpartition('/')[2]}.{one})" for of, one in ((version, kind), (_VERSION, _KIND)))
            raise WebhookError(f"converting {found} to {wanted}: unknown conversion")
        scheme = "pkg/api/legacyscheme/scheme.go:30"
        raise WebhookError(
            f"no kind {quote(kind)} is registered for version {quote(version)} in scheme {quote(scheme)}"
        )
    try:
        status = decode(_REVIEW, review).get("status") or {}
    except DecodeError as error:
        raise WebhookError(str(error)) from None
    return _Review(status.get("allowed", False), status.get("reason", ""), status.get("auditAnnotations") or {})


def _annotate(attrs: Attributes, key: str, value: str) -> None:
    """Add an audit annotation unless it exists; a key that is no qualified name is logged and dropped."""
    if key.count("/") == 1 and not qualified_name(key):
        attrs.audit.setdefault(key, value)
    else:
        log.warning("failed to set admission audit annotation %r: annotation key has invalid format", key)
