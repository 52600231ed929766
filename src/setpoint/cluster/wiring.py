"""Which parts go into an API server: admission plugins, authorization, special subresources, documents."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from setpoint.apiserver import causes
from setpoint.apiserver.admission.builtin import Surroundings, UnknownPlugin, build
from setpoint.apiserver.admission.dynamic.served import Served
from setpoint.apiserver.admission.node_restriction import NodeRestriction
from setpoint.apiserver.admission.plugin import Chain, Plugin
from setpoint.apiserver.aggregation.documents import ApiServiceHooks, RemoteDocuments
from setpoint.apiserver.aggregation.routing import Aggregation
from setpoint.apiserver.allocation.cluster_ips import ClusterIps
from setpoint.apiserver.allocation.node_ports import NodePorts
from setpoint.apiserver.allocation.service_hooks import ServiceHooks
from setpoint.apiserver.call import Call
from setpoint.apiserver.config_files import FileProblem
from setpoint.apiserver.custom import definitions
from setpoint.apiserver.documents import listed_paths
from setpoint.apiserver.fairness.fairness import Fairness
from setpoint.apiserver.fairness.metrics import told
from setpoint.apiserver.far_server import FarServers, NearFirst
from setpoint.apiserver.filters.inflight import InFlight
from setpoint.apiserver.handlers.binding import bind
from setpoint.apiserver.handlers.component_status import ComponentStatuses
from setpoint.apiserver.handlers.eviction import Evictions
from setpoint.apiserver.handlers.node_proxy import Proxies
from setpoint.apiserver.handlers.pod_streams import PodStreams
from setpoint.apiserver.handlers.scale import BuiltInScaling, ScaleHandlers
from setpoint.apiserver.health import Health
from setpoint.apiserver.http.certificates import CertificateFiles
from setpoint.apiserver.http.message import Answer, Response
from setpoint.apiserver.negotiate import Form
from setpoint.apiserver.openapi.service import OpenApi
from setpoint.apiserver.own_writes import ensure
from setpoint.apiserver.post_start import FLOW_CONTROL
from setpoint.apiserver.quota_status import update_usage
from setpoint.apiserver.reader import CacheReader
from setpoint.apiserver.registry import Registry
from setpoint.apiserver.routing import Handler
from setpoint.apiserver.server import ApiServer, PathHandler
from setpoint.apiserver.watch_cache import Entry, Obj
from setpoint.apiserver.webhook_client import WebhookClient
from setpoint.apiserver.zpages import Flagz, Statusz
from setpoint.cluster.access import wire_access
from setpoint.cluster.config import ApiServerConfig, ConfigError
from setpoint.cluster.config_flags import flags_of
from setpoint.cluster.far_servers import NetworkServers
from setpoint.cluster.front_proxy import FrontProxy
from setpoint.kinds.catalog import RESOURCES
from setpoint.meta.exposition import CONTENT_TYPE, text

_FLOWS = "flowcontrol.apiserver.k8s.io"


def wire(
    api: ApiServer, config: ApiServerConfig, certificates: CertificateFiles | None, servers: FarServers | None = None
) -> ServiceHooks:
    """`servers`: how webhooks and aggregated API servers are reached; by default over the network."""
    front = FrontProxy(certificates, api.clock, config) if certificates is not None else None
    if servers is None:
        network = NetworkServers(api.clock, (lambda: front.certificate) if front is not None else None)
        servers = NearFirst(network, api.nodes, CacheReader(api), api.clock)
    authorizers = wire_access(api, config, servers)
    api.env.authorizer = api.authorizer
    if not config.allow_privileged:
        # Few clusters do without.
        from setpoint.apiserver.privileged_pods import unprivileged_only

        unprivileged_only(api.env.hooks)
    api.env.admission = Chain(_plugins(api, config, servers, _enabled(config, authorizers)))
    api.health = _health(api, config)
    if config.enable_priority_and_fairness:
        api.fairness = _fairness(api, config)
        api.in_flight = InFlight(0, 0)  # it counts, and bounds nothing
    api.paths["/metrics"] = _metrics(api)
    api.paths["/metrics/slis"] = _indicators(api)
    api.paths["/statusz"] = Statusz(api.clock, partial(listed_paths, api)).answer
    api.paths["/flagz"] = Flagz(flags_of(config)).answer
    api.unlisted[causes.PATH] = causes.serve_causes(api.store)
    _gauges(api)
    openapi = OpenApi()
    openapi.install(api.paths)
    api.env.hooks[(definitions.GROUP, definitions.PLURAL)] = definitions.Definitions(api, openapi, servers)
    api.aggregation = Aggregation(servers, CacheReader(api))
    remote = RemoteDocuments(api, api.aggregation, openapi, front.publish if front is not None else None)
    api.env.hooks[("apiregistration.k8s.io", "apiservices")] = ApiServiceHooks(remote)
    api.probe = remote.probe
    _subresources(api)
    services = api.env.hooks[("", "services")] = _services(api, config)
    return services


def _services(api: ApiServer, config: ApiServerConfig) -> ServiceHooks:
    families = ["IPv6" if ":" in cidr else "IPv4" for cidr in config.service_cidrs]
    ports = NodePorts(api.store, api.ids, config.service_node_port_range)
    return ServiceHooks(ClusterIps(api, api.ids), ports, families)


def _plugins(api: ApiServer, config: ApiServerConfig, servers: FarServers, enabled: list[str]) -> list[Plugin]:
    async def create_namespace(name: str) -> Entry:
        return await ensure(api, "", "namespaces", {"metadata": {"name": name}})

    async def write_usage(quota: Obj, used: dict[str, str]) -> None:
        await update_usage(api, quota, used)

    surroundings = Surroundings(
        CacheReader(api),
        api.authorizer,
        api.clock,
        api.ids,
        create_namespace,
        write_usage,
        api.resources.values,
        Served(api),
        WebhookClient(servers, CacheReader(api), api.clock),
        (config.default_not_ready_toleration_seconds, config.default_unreachable_toleration_seconds),
    )
    try:
        if config.admission_control_config_file:
            # Few servers have one.
            from setpoint.cluster.admission_file import plugin_documents
            from setpoint.cluster.static_admission import static_manifests
            from setpoint.cluster.webhook_identities import webhook_identities
            from setpoint.cluster.webhook_kubeconfig import review_webhook

            surroundings.told = plugin_documents(config.admission_control_config_file).get
            surroundings.review_webhook = partial(review_webhook, servers, api.clock, api.ids)
            surroundings.webhook_identities = partial(webhook_identities, api.clock)
            surroundings.manifests = partial(static_manifests, api.background, api.clock)
        return build(surroundings, enabled, config.disable_admission_plugins)
    except UnknownPlugin as error:
        raise ConfigError(str(error)) from None
    except FileProblem as problem:
        raise ConfigError(f"--admission-control-config-file: {problem}") from None


def _enabled(config: ApiServerConfig, authorizers: frozenset[str]) -> list[str]:
    """Nodes that may write by the Node authorizer are held to what is theirs, unless somebody does not want that."""
    restriction = NodeRestriction.name
    unwanted = restriction in (*config.enable_admission_plugins, *config.disable_admission_plugins)
    more = [restriction] if "Node" in authorizers and not unwanted else []
    return [*config.enable_admission_plugins, *more]


def _fairness(api: ApiServer, config: ApiServerConfig) -> Fairness:
    reader = CacheReader(api)
    seats = config.max_requests_inflight + config.max_mutating_requests_inflight
    caches, schemas, levels = api.caches, f"{_FLOWS}/flowschemas/", f"{_FLOWS}/prioritylevelconfigurations/"

    def revision() -> int:
        """Moves whenever a flow schema or priority level changes."""
        try:
            return caches[schemas].changed + caches[levels].changed
        except KeyError:
            return -2  # the server is still starting

    fairness = Fairness(lambda plural: reader.list(_FLOWS, plural), revision, api.clock, api.turns, seats)
    api.background.append(fairness.run)
    api.metrics.sources.append(lambda: told(fairness))

    async def dump(call: Call) -> Answer:
        from setpoint.apiserver.fairness.dumps import Dumps  # for the few who look

        return Dumps(fairness).answer(call)

    for what in ("priority_levels", "queues", "requests"):
        api.unlisted[f"/debug/api_priority_and_fairness/dump_{what}"] = dump
    return fairness


def _subresources(api: ApiServer) -> None:
    """What is not simply a write of the object itself."""
    scale: dict[str, Handler] = ScaleHandlers(BuiltInScaling()).by_verb
    for group, plural in (
        ("apps", "deployments"),
        ("apps", "replicasets"),
        ("apps", "statefulsets"),
        ("", "replicationcontrollers"),
    ):
        api.subresources[(group, plural, "scale")] = scale
    evictions = Evictions(api)
    api.subresources[("", "pods", "binding")] = {"create": bind}
    api.subresources[("", "pods", "eviction")] = {"create": evictions.evict}
    streams = PodStreams(api.nodes, CacheReader(api), api.authorizer)
    api.subresources[("", "pods", "log")] = {"get": streams.log}
    for name, opened in (
        ("exec", streams.exec), ("attach", streams.attach), ("portforward", streams.port_forward),
    ):  # fmt: skip
        api.subresources[("", "pods", name)] = {"get": opened, "create": opened}

    proxies = Proxies(api.nodes, CacheReader(api))
    for plural, passed in (("nodes", proxies.node), ("pods", proxies.pod), ("services", proxies.service)):
        verbs = ("get", "create", "update", "patch", "delete")
        api.subresources[("", plural, "proxy")] = dict.fromkeys(verbs, passed)

    async def bind_by_name(call: Call, _: Registry, form: Form) -> Answer:
        return await bind(call, api.registry("", "pods"), form)

    api.reviews[("", "bindings")] = bind_by_name
    api.reviews[("", "componentstatuses")] = ComponentStatuses({"etcd-0": lambda: _store_problem(api)}).handle


def _store_problem(api: ApiServer) -> str:
    """Return why the store cannot be used, for good or for now; empty: it can."""
    return api.store.failure or api.store.unavailable or ""


def _health(api: ApiServer, config: ApiServerConfig) -> Health:
    def ok() -> str:
        return ""

    def store() -> str:
        return api.store.failure or ""

    def store_reachable() -> str:
        return _store_problem(api)

    built_in = frozenset(resource.storage_prefix for resource in RESOURCES)

    def synced() -> str:
        if not api.ready:
            return "the caches are not filled yet"
        # Upstream has no informers for custom kinds.
        corrupt = [cache.prefix for cache in api.caches.values() if cache.corrupt and cache.prefix in built_in]
        return f"not readable: {', '.join(corrupt)}" if corrupt else ""

    def shutdown() -> str:
        return "process is shutting down" if api.stopping else ""

    steps = api.post_start.checks(() if config.enable_priority_and_fairness else FLOW_CONTROL)
    # The server reaches itself within the process, where no certificate can expire.
    live = {"ping": ok, "log": ok, "loopback-serving-certificate": ok, "etcd": store, **steps}
    ready = {"ping": ok, "log": ok, "etcd": store, "etcd-readiness": store_reachable, "informer-sync": synced}
    return Health({"healthz": live, "livez": live, "readyz": {**ready, **steps, "shutdown": shutdown}})


def _gauges(api: ApiServer) -> None:
    """What is read when somebody asks, under upstream's names."""
    metrics = api.metrics

    def in_flight() -> Iterable[tuple[dict[str, str], float]]:
        for kind, reading in (("readOnly", True), ("mutating", False)):
            yield {"request_kind": kind}, api.in_flight.now[reading]

    def watches() -> Iterable[tuple[dict[str, str], float]]:
        for registry in api.registries.values():
            resource = registry.resource
            if registry.cache.watch_count and resource.storage == (resource.group, resource.version):
                labels = {"verb": "WATCH", "group": resource.group, "version": resource.version}
                yield {**labels, "resource": resource.plural}, registry.cache.watch_count

    def objects() -> Iterable[tuple[dict[str, str], float]]:
        for registry in api.registries.values():
            resource = registry.resource
            if resource.storage == (resource.group, resource.version):
                yield {"group": resource.group, "resource": resource.plural}, len(registry.cache)

    def size() -> Iterable[tuple[dict[str, str], float]]:
        return (({}, api.store.size()),)

    metrics.gauge("apiserver_current_inflight_requests", "Requests being handled, watches aside.", in_flight)
    metrics.gauge("apiserver_longrunning_requests", "Open watches.", watches)
    metrics.gauge("apiserver_resource_objects", "Objects stored.", objects)
    metrics.gauge("apiserver_storage_size_bytes", "Bytes that the store takes.", size)


def _metrics(api: ApiServer) -> PathHandler:
    async def metrics(call: Call) -> Answer:
        return Response(200, api.metrics.text(), [("Content-Type", CONTENT_TYPE)])

    return metrics


def _indicators(api: ApiServer) -> PathHandler:
    async def indicators(call: Call) -> Answer:
        return Response(200, text(api.health.families()).encode(), [("Content-Type", CONTENT_TYPE)])

    return indicators
