"""Every configuration that is made from a Pod can be encoded, and nothing of it is lost."""

from __future__ import annotations

from typing import Any

from host_pods import make_config, make_pod, make_settings
from hypothesis import given
from hypothesis import strategies as st

from setpoint.node.cri.messages import METHODS
from setpoint.node.host.container_config import container_config
from setpoint.node.host.pod_config import IdRange, PodFeatures, sandbox_config
from setpoint.node.host.pod_dns import ResolvConf, pod_dns
from setpoint.node.host.security import ImageUser

Choices = st.SearchStrategy[Any]
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=6)
IDS = st.integers(0, 2**31 - 1)
AMOUNT = st.sampled_from(["0", "1m", "100m", "1", "1.5", "64Mi", "1Gi", "1e3", "7E", "100E"])


def some(required: dict[str, Choices] | None = None, **optional: Choices) -> Choices:
    return st.fixed_dictionaries(required or {}, optional=optional)


def profiles(*kinds: str) -> Choices:
    return some({"type": st.sampled_from(kinds), "localhostProfile": st.just("a/b.json")})


SECCOMP = profiles("RuntimeDefault", "Unconfined", "Localhost")
AMOUNTS: Choices = st.fixed_dictionaries(
    {}, optional={"cpu": AMOUNT, "memory": AMOUNT, "hugepages-2Mi": st.just("4Mi")}
)
RESOURCES = some(requests=AMOUNTS, limits=AMOUNTS)
SELINUX = some(user=TEXT, level=TEXT)
CONTAINER = some(
    command=st.lists(TEXT, max_size=2),
    args=st.lists(st.sampled_from(["$(A)", "$$", "x"]), max_size=3),
    workingDir=TEXT,
    stdin=st.booleans(),
    tty=st.booleans(),
    terminationMessagePath=st.sampled_from(["", "/dev/termination-log"]),
    resources=RESOURCES,
    ports=st.lists(
        some({"containerPort": st.integers(1, 65535)}, hostPort=st.integers(1, 65535), hostIP=TEXT), max_size=2
    ),
    lifecycle=some(preStop=st.just({"sleep": {"seconds": 1}})),
    securityContext=some(
        runAsUser=IDS,
        runAsGroup=IDS,
        privileged=st.booleans(),
        allowPrivilegeEscalation=st.booleans(),
        readOnlyRootFilesystem=st.booleans(),
        procMount=st.sampled_from(["Default", "Unmasked"]),
        capabilities=some(add=st.lists(TEXT, max_size=2), drop=st.just(["ALL"])),
        seccompProfile=SECCOMP,
        appArmorProfile=SECCOMP,
        seLinuxOptions=SELINUX,
    ),
)
SPEC = some(
    hostNetwork=st.booleans(),
    hostPID=st.booleans(),
    hostIPC=st.booleans(),
    hostUsers=st.booleans(),
    shareProcessNamespace=st.booleans(),
    dnsPolicy=st.sampled_from(["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"]),
    dnsConfig=some(
        searches=st.lists(TEXT, max_size=40), options=st.lists(some({"name": TEXT}, value=TEXT), max_size=2)
    ),
    subdomain=st.just("sub"),
    setHostnameAsFQDN=st.booleans(),
    overhead=AMOUNTS,
    resources=RESOURCES,
    terminationGracePeriodSeconds=st.integers(0, 9),
    securityContext=some(
        runAsUser=IDS,
        runAsGroup=IDS,
        fsGroup=IDS,
        supplementalGroups=st.lists(IDS, max_size=2),
        supplementalGroupsPolicy=st.sampled_from(["Merge", "Strict"]),
        sysctls=st.lists(some({"name": TEXT, "value": TEXT}), max_size=2),
        seccompProfile=SECCOMP,
        appArmorProfile=SECCOMP,
        seLinuxOptions=SELINUX,
    ),
)
METADATA = some(labels=st.dictionaries(TEXT, TEXT, max_size=2), annotations=st.dictionaries(TEXT, TEXT, max_size=2))
SETTINGS = some(
    {
        "features": st.just(lambda: PodFeatures(True, True)),
        "cgroup_version": st.sampled_from([1, 2]),
        "swap_controller": st.booleans(),
        "huge_page_sizes": st.sampled_from([(), ("2MB", "1GB")]),
        "min_oom_score_adj": st.sampled_from([None, 0]),
    }
)
USERS = st.sampled_from([ImageUser(), ImageUser(5), ImageUser(None, "nginx")])
HOST = ResolvConf(("8.8.8.8",), ("example.com",))


def decoded(message: Any, like: Any) -> Any:
    """Return the fields of a decoded message that a dict has, as a dict."""
    if isinstance(like, dict):
        if hasattr(message, "ListFields"):
            return {name: decoded(getattr(message, name), value) for name, value in like.items()}
        return dict(message)
    if isinstance(like, list):
        pairs = zip(message, like, strict=True)
        return [decoded(one, other) for one, other in pairs]
    return message


@given(st.lists(CONTAINER, min_size=1, max_size=2), SPEC, METADATA, SETTINGS, USERS, st.text(max_size=4))
def test_encoding(
    containers: list[dict[str, Any]],
    spec: dict[str, Any],
    metadata: dict[str, Any],
    choices: dict[str, Any],
    image_user: ImageUser,
    value: str,
) -> None:
    pod = make_pod(*containers, metadata=metadata, **spec)
    settings = make_settings(**choices)
    dns = pod_dns(pod, HOST, settings).config
    sandbox = sandbox_config(pod, 1, settings, "/pods/x", dns, id_range=IdRange(65536))
    mount = {"container_path": "/m", "host_path": "/v", "readonly": True, "propagation": 1, "recursive_read_only": True}
    container = container_config(
        make_config(pod),
        [mount],
        {"A": "x", "B": value.encode("utf-8", "surrogatepass").decode("utf-8", "surrogateescape")},
        settings,
        image_user=image_user,
        pod_ips=["10.244.0.5"],
        target_id="abc",
        extra_groups=[3],
        id_range=IdRange(65536),
    )
    request = METHODS["CreateContainer"].request
    encoded = request(pod_sandbox_id="s", config=container, sandbox_config=sandbox).SerializeToString()
    again = request.FromString(encoded)
    assert decoded(again.config, container) == container
    assert decoded(again.sandbox_config, sandbox) == sandbox
    user = container["linux"]["security_context"].get("run_as_user")
    # A user id of 0 must be present in the message: without it the runtime would use that of the image.
    assert again.config.linux.security_context.HasField("run_as_user") is (user is not None)
