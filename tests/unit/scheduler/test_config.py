"""Parsing and validation of scheduler configurations."""

from __future__ import annotations

from typing import Any

import pytest
from scheduler_objects import a_node, a_pod

from setpoint.meta.objects import Obj
from setpoint.scheduler.cluster_events import QueueingHints
from setpoint.scheduler.config import FILTERS, ConfigError, Configuration, load
from setpoint.scheduler.engine import Engine
from setpoint.scheduler.framework import FitError
from setpoint.scheduler.listers import Listers
from setpoint.scheduler.nominations import Nominations
from setpoint.system import RandomIds


def test_defaults() -> None:
    assert load({}) == Configuration()
    (profile,) = Configuration().profiles
    assert profile.name == "default-scheduler"
    assert dict(profile.scores) == {
        "TaintToleration": 3,
        "NodeAffinity": 2,
        "NodeResourcesFit": 1,
        "PodTopologySpread": 2,
        "InterPodAffinity": 2,
        "NodeResourcesBalancedAllocation": 1,
        "ImageLocality": 1,
    }


def test_profiles_enable_and_disable_plugins() -> None:
    found = load(
        {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "podMaxBackoffSeconds": 30,
            "profiles": [
                {},
                {
                    "schedulerName": "packing",
                    "plugins": {
                        "multiPoint": {"disabled": [{"name": "ImageLocality"}]},
                        "score": {
                            "disabled": [{"name": "*"}],
                            "enabled": [{"name": "NodeResourcesFit", "weight": 5}],
                        },
                        "filter": {"disabled": [{"name": "NodePorts"}]},
                        "postFilter": {"disabled": [{"name": "DefaultPreemption"}]},
                    },
                    "pluginConfig": [
                        {"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "MostAllocated"}}}
                    ],
                },
            ],
        }
    )
    default, packing = found.profiles
    assert (found.max_backoff, default.filters) == (30.0, FILTERS)
    assert packing.scores == (("NodeResourcesFit", 5),)
    assert "NodePorts" not in packing.filters and "NodeName" in packing.filters
    assert not packing.preempts
    assert packing.args("NodeResourcesFit") == {"scoringStrategy": {"type": "MostAllocated"}}


def profile_of(**profile: Any) -> Obj:
    return {"profiles": [profile]}


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"kind": "Other"}, "kind: 'Other' is not KubeSchedulerConfiguration"),
        ({"apiVersion": "kubescheduler.config.k8s.io/v1beta3"}, "apiVersion: 'kubescheduler.config.k8s.io/v1beta3' is"),
        ({"podsPerSecond": 4}, "podsPerSecond: unknown field"),
        ({"extenders": [{}]}, "extenders: not supported"),
        ({"podInitialBackoffSeconds": 60}, "podMaxBackoffSeconds: must be greater than or equal"),
        ({"profiles": [{}, {}]}, "profiles[1].schedulerName: Duplicate value: 'default-scheduler'"),
        (profile_of(plugins={"guess": {}}), "profiles[0].plugins.guess: unknown field"),
        (
            profile_of(plugins={"filter": {"enabled": [{"name": "Wishful"}]}}),
            "profiles[0].plugins.filter.enabled[0].name: there is no plugin 'Wishful'",
        ),
        (
            profile_of(plugins={"filter": {"enabled": [{"name": "ImageLocality"}]}}),
            "profiles[0].plugins.filter.enabled[0].name: ImageLocality does nothing there",
        ),
        (
            profile_of(plugins={"bind": {"disabled": [{"name": "*"}]}}),
            "profiles[0].plugins.bind: at least one bind plugin is",
        ),
        (
            profile_of(pluginConfig=[{"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "Feeling"}}}]),
            "profiles[0].pluginConfig[0].args.scoringStrategy.type: 'Feeling' is not one of LeastAllocated",
        ),
        (
            profile_of(pluginConfig=[{"name": "NodeName", "args": {"a": 1}}]),
            "profiles[0].pluginConfig[0].args.a: unknown field",
        ),
        (
            profile_of(pluginConfig=[{"name": "PodTopologySpread", "args": {"defaultConstraints": [{"maxSkew": 1}]}}]),
            "profiles[0].pluginConfig[0].args.defaultingType: when .defaultConstraints are not empty, must be List",
        ),
        (
            profile_of(pluginConfig=[{"name": "InterPodAffinity", "args": {"hardPodAffinityWeight": 101}}]),
            "profiles[0].pluginConfig[0].args.hardPodAffinityWeight: not in valid range [0, 100]",
        ),
        (
            profile_of(pluginConfig=[{"name": "VolumeBinding", "args": {"bindTimeoutSeconds": -1}}]),
            "profiles[0].pluginConfig[0].args.bindTimeoutSeconds: must not be negative",
        ),
        (
            profile_of(pluginConfig=[{"name": "NodeName"}, {"name": "NodeName"}]),
            "profiles[0].pluginConfig[1]: repeated config",
        ),
    ],
)
def test_messages_contain_the_path_of_the_field(document: Obj, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(document)
    assert str(caught.value).startswith(message)


def test_profiles_decide_independently() -> None:
    fullest = {"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "MostAllocated"}}}
    only_ssd = {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "Exists"}]}]
        }
    }
    found = load(
        {
            "profiles": [
                {},
                {
                    "schedulerName": "packing",
                    "pluginConfig": [fullest],
                    "plugins": {"score": {"disabled": [{"name": "NodeResourcesBalancedAllocation"}]}},
                },
                {
                    "schedulerName": "ssd",
                    "pluginConfig": [{"name": "NodeAffinity", "args": {"addedAffinity": only_ssd}}],
                },
            ]
        }
    )
    engine = Engine(found, Listers(), Nominations(lambda key: None), RandomIds(1), QueueingHints())
    for name in ("a", "b"):
        engine.snapshot.put_node(a_node(name))
    engine.snapshot.put(a_pod("there", "a", cpu="1", memory="1Gi"), "a")

    def decide(scheduler: str) -> str:
        pod = a_pod("new", cpu="1", memory="1Gi", schedulerName=scheduler)
        return engine.decide(pod)[1].node

    assert (decide("default-scheduler"), decide("packing")) == ("b", "a")
    with pytest.raises(FitError, match="2 node\\(s\\) didn't match scheduler-enforced node affinity"):
        decide("ssd")
