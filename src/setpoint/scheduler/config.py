"""Parses the supported part of a KubeSchedulerConfiguration (kubescheduler.config.k8s.io/v1). Unknown fields are errors
that name their path."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from setpoint.meta.objects import ObjView

API_VERSION, KIND = "kubescheduler.config.k8s.io/v1", "KubeSchedulerConfiguration"
DEFAULT_NAME = "default-scheduler"

DEFAULT_PLUGINS: dict[str, int] = {
    "SchedulingGates": 0,
    "PrioritySort": 0,
    "NodeName": 0,
    "NodeUnschedulable": 0,
    "TaintToleration": 3,
    "NodeAffinity": 2,
    "NodePorts": 0,
    "NodeResourcesFit": 1,
    "VolumeRestrictions": 0,
    "NodeVolumeLimits": 0,
    "VolumeBinding": 0,
    "VolumeZone": 0,
    "PodTopologySpread": 2,
    "InterPodAffinity": 2,
    "DefaultPreemption": 0,
    "NodeResourcesBalancedAllocation": 1,
    "ImageLocality": 1,
    "DefaultBinder": 0,
}
"""The default plugins in upstream's order, with the weights of those that score."""
FILTERS = (
    "NodeName",
    "NodeUnschedulable",
    "TaintToleration",
    "NodeAffinity",
    "NodePorts",
    "NodeResourcesFit",
    "VolumeRestrictions",
    "NodeVolumeLimits",
    "VolumeBinding",
    "VolumeZone",
    "PodTopologySpread",
    "InterPodAffinity",
)
SCORERS = tuple(name for name, weight in DEFAULT_PLUGINS.items() if weight)
_DEFAULT_SCORES = tuple((name, DEFAULT_PLUGINS[name]) for name in SCORERS)
_POINTS = (
    "preEnqueue",
    "queueSort",
    "preFilter",
    "filter",
    "postFilter",
    "preScore",
    "score",
    "reserve",
    "permit",
    "preBind",
    "bind",
    "postBind",
)
_FIELDS = {
    "apiVersion",
    "kind",
    "parallelism",
    "leaderElection",
    "clientConnection",
    "enableProfiling",
    "enableContentionProfiling",
    "percentageOfNodesToScore",
    "podInitialBackoffSeconds",
    "podMaxBackoffSeconds",
    "profiles",
    "extenders",
    "delayCacheUntilActive",
}
_ARGUMENTS = {
    "DefaultPreemption": {"minCandidateNodesPercentage", "minCandidateNodesAbsolute"},
    "InterPodAffinity": {"hardPodAffinityWeight", "ignorePreferredTermsOfExistingPods"},
    "NodeAffinity": {"addedAffinity"},
    "NodeResourcesBalancedAllocation": {"resources"},
    "NodeResourcesFit": {"ignoredResources", "ignoredResourceGroups", "scoringStrategy"},
    "PodTopologySpread": {"defaultConstraints", "defaultingType"},
    "VolumeBinding": {"bindTimeoutSeconds"},
}
STRATEGIES = ("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio")


class ConfigError(ValueError):
    """The configuration is invalid; the message begins with the path of the field."""


class ProfileConfig(NamedTuple):
    name: str = DEFAULT_NAME
    filters: tuple[str, ...] = FILTERS
    """Filter plugins in the order in which they run."""
    scores: tuple[tuple[str, int], ...] = _DEFAULT_SCORES
    """Names and weights of score plugins."""
    preempts: bool = True
    gates: bool = True
    arguments: Mapping[str, ObjView] = MappingProxyType({})
    """Arguments by plugin."""

    def args(self, plugin: str) -> ObjView:
        return self.arguments.get(plugin) or {}


class Configuration(NamedTuple):
    profiles: tuple[ProfileConfig, ...] = (ProfileConfig(),)
    initial_backoff: float = 1.0
    max_backoff: float = 10.0


def load(document: ObjView) -> Configuration:
    """Parse a configuration. Raise ConfigError."""
    for name, wanted in (("apiVersion", API_VERSION), ("kind", KIND)):
        if document.get(name, wanted) != wanted:
            raise ConfigError(f"{name}: {document[name]!r} is not {wanted}")
    _known("", document, _FIELDS)
    if document.get("extenders"):
        raise ConfigError("extenders: not supported")
    initial_backoff = _number("podInitialBackoffSeconds", document, 1)
    max_backoff = _number("podMaxBackoffSeconds", document, 10)
    if max_backoff < initial_backoff:
        raise ConfigError("podMaxBackoffSeconds: must be greater than or equal to podInitialBackoffSeconds")
    profiles = tuple(_profile(f"profiles[{i}]", profile) for i, profile in enumerate(document.get("profiles") or ({},)))
    names = [profile.name for profile in profiles]
    for i, name in enumerate(names):
        if name in names[:i]:
            raise ConfigError(f"profiles[{i}].schedulerName: Duplicate value: {name!r}")
    return Configuration(profiles, initial_backoff, max_backoff)


def _profile(path: str, profile: ObjView) -> ProfileConfig:
    _known(f"{path}.", profile, {"schedulerName", "plugins", "pluginConfig", "percentageOfNodesToScore"})
    plugins = profile.get("plugins") or {}
    _known(f"{path}.plugins.", plugins, {"multiPoint", *_POINTS})
    everywhere = _merged(f"{path}.plugins.multiPoint", plugins.get("multiPoint"), DEFAULT_PLUGINS)

    def at(point: str, able: Iterable[str]) -> dict[str, int]:
        inherited = {name: weight for name, weight in everywhere.items() if name in able}
        return _merged(f"{path}.plugins.{point}", plugins.get(point), inherited, able)

    if "DefaultBinder" not in at("bind", ("DefaultBinder",)):
        raise ConfigError(f"{path}.plugins.bind: at least one bind plugin is needed")
    if "PrioritySort" not in at("queueSort", ("PrioritySort",)):
        raise ConfigError(f"{path}.plugins.queueSort: one queue sort plugin is needed")
    return ProfileConfig(
        name=profile.get("schedulerName") or DEFAULT_NAME,
        filters=tuple(at("filter", FILTERS)),
        scores=tuple((name, weight or 1) for name, weight in at("score", SCORERS).items()),
        preempts="DefaultPreemption" in at("postFilter", ("DefaultPreemption",)),
        gates="SchedulingGates" in at("preEnqueue", ("SchedulingGates",)),
        arguments=_arguments(f"{path}.pluginConfig", profile.get("pluginConfig") or ()),
    )


def _merged(
    path: str, given: ObjView | None, inherited: Mapping[str, int], able: Iterable[str] | None = None
) -> dict[str, int]:
    """Return the inherited plugins without the disabled ones; a re-enabled plugin replaces the inherited one."""
    given = given or {}
    _known(f"{path}.", given, {"enabled", "disabled"})
    disabled = [_plugin(f"{path}.disabled[{i}]", entry) for i, entry in enumerate(given.get("disabled") or ())]
    found = {} if "*" in disabled else {name: weight for name, weight in inherited.items() if name not in disabled}
    for i, entry in enumerate(given.get("enabled") or ()):
        name = _plugin(f"{path}.enabled[{i}]", entry)
        if name == "*" or (able is not None and name not in able):
            raise ConfigError(f"{path}.enabled[{i}].name: {name} does nothing there")
        found[name] = int(entry.get("weight") or DEFAULT_PLUGINS[name])
    return found


def _plugin(path: str, entry: ObjView) -> str:
    _known(f"{path}.", entry, {"name", "weight"})
    name = str(entry.get("name") or "")
    if name != "*" and name not in DEFAULT_PLUGINS:
        raise ConfigError(f"{path}.name: there is no plugin {name!r}")
    return name


def _arguments(path: str, given: Iterable[ObjView]) -> dict[str, ObjView]:
    found: dict[str, ObjView] = {}
    for i, entry in enumerate(given):
        _known(f"{path}[{i}].", entry, {"name", "args"})
        name, args = _plugin(f"{path}[{i}]", {"name": entry.get("name")}), entry.get("args") or {}
        if name in found:
            raise ConfigError(f"{path}[{i}]: repeated config for plugin {name}")
        _known(f"{path}[{i}].args.", args, {"apiVersion", "kind", *_ARGUMENTS.get(name, ())})
        _check_arguments(f"{path}[{i}].args", name, args)
        found[name] = args
    return found


def _check_arguments(path: str, name: str, args: ObjView) -> None:
    if name == "NodeResourcesFit" and args.get("scoringStrategy"):
        strategy = args["scoringStrategy"]
        if strategy.get("type", "LeastAllocated") not in STRATEGIES:
            raise ConfigError(
                f"{path}.scoringStrategy.type: {strategy['type']!r} is not one of {', '.join(STRATEGIES)}"
            )
        if strategy.get("type") == "RequestedToCapacityRatio":
            _check_shape(f"{path}.scoringStrategy.requestedToCapacityRatio.shape", strategy)
    if name == "PodTopologySpread":
        kind = args.get("defaultingType") or "System"
        if kind not in ("System", "List"):
            raise ConfigError(f"{path}.defaultingType: {kind!r} is not one of System, List")
        if kind == "System" and args.get("defaultConstraints"):
            raise ConfigError(f"{path}.defaultingType: when .defaultConstraints are not empty, must be List")
        for i, constraint in enumerate(args.get("defaultConstraints") or ()):
            if constraint.get("labelSelector"):
                raise ConfigError(
                    f"{path}.defaultConstraints[{i}].labelSelector: constraint must not define a selector"
                )
    if name == "VolumeBinding":
        _number(f"{path}.bindTimeoutSeconds", args, 0)
    if name == "InterPodAffinity" and not 0 <= _number(f"{path}.hardPodAffinityWeight", args, 1) <= 100:
        raise ConfigError(f"{path}.hardPodAffinityWeight: not in valid range [0, 100]")


def _check_shape(path: str, strategy: ObjView) -> None:
    shape = (strategy.get("requestedToCapacityRatio") or {}).get("shape") or ()
    if not shape:
        raise ConfigError(f"{path}: at least one point must be specified")
    last = -1
    for i, point in enumerate(shape):
        if not 0 <= point.get("utilization", 0) <= 100 or point.get("utilization", 0) <= last:
            raise ConfigError(f"{path}[{i}].utilization: must be from 0 to 100, and rising")
        if not 0 <= point.get("score", 0) <= 10:
            raise ConfigError(f"{path}[{i}].score: not in valid range [0, 10]")
        last = point.get("utilization", 0)


def _known(path: str, given: ObjView, fields: Iterable[str]) -> None:
    for name in given:
        if name not in fields:
            raise ConfigError(f"{path}{name}: unknown field")


def _number(path: str, given: ObjView, default: float) -> float:
    value = given.get(path.rpartition(".")[2])
    if value is None:
        return default
    if not isinstance(value, int | float) or value < 0:
        raise ConfigError(f"{path}: must not be negative")
    return float(value)
