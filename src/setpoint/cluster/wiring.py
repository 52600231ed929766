"""Builds an API server from its parts: admission plugins, authorization, subresources, documents, metrics."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from setpoint.apiserver import diagnostics
from setpoint.apiserver.admission.builtin import PluginDependencies, UnknownPlugin, build
from setpoint.apiserver.admission.dynamic.served_resources import ServedResources
from setpoint.apiserver.admission.node_restriction import NodeRestriction
from setpoint.apiserver.admission.plugin import Chain, Plugin
from setpoint.apiserver.aggregation import Aggregation, ApiServiceHooks, RemoteDocuments
from setpoint.apiserver.allocation.cluster_ips import ClusterIps
from setpoint.apiserver.allocation.node_ports import NodePorts
from setpoint.apiserver.allocation.service_hooks import ServiceHooks
from setpoint.apiserver.api_resources import ApiResources, CacheReader
from setpoint.apiserver.cache_entry import Entry
from setpoint.apiserver.config_files import FileProblem
from setpoint.apiserver.custom import definitions
from setpoint.apiserver.diagnostics import Flagz, Statusz
from setpoint.apiserver.fairness.fairness import Fairness, flow_control_metrics
from setpoint.apiserver.filters.authenticate import AuthenticatorChain
from setpoint.apiserver.filters.authorize import AuthorizerChain
from setpoint.apiserver.filters.request_limits import InFlight
from setpoint.apiserver.handlers.binding import bind
from setpoint.apiserver.handlers.component_status import ComponentStatuses
from setpoint.apiserver.handlers.eviction import Evictions
from setpoint.apiserver.handlers.node_proxy import Proxies
from setpoint.apiserver.handlers.pod_streams import PodStreams
from setpoint.apiserver.handlers.scale import BuiltInScaling, ScaleHandlers
from setpoint.apiserver.health import FLOW_CONTROL, Health
from setpoint.apiserver.history.endpoints import HISTORY_PATH, HistoryEndpoints
from setpoint.apiserver.history.past import PREFIX as PAST_PREFIX
from setpoint.apiserver.history.past import Past
from setpoint.apiserver.history.reader import HistoryReader
from setpoint.apiserver.history.timeline import TIMELINE_PATH, TimelineEndpoint
from setpoint.apiserver.history.undo import UNDO_PATH, UndoEndpoint
from setpoint.apiserver.history.when import MARKS, Moments
from setpoint.apiserver.history.writes import WRITES_PATH, WritesEndpoint
from setpoint.apiserver.internal_writes import ensure, update_usage
from setpoint.apiserver.negotiate import Form
from setpoint.apiserver.node_connection import NodeRoutes
from setpoint.apiserver.non_resource_urls import listed_paths
from setpoint.apiserver.openapi.service import OpenApi
from setpoint.apiserver.registry import Registry
from setpoint.apiserver.remote_servers import RemoteServers, SimulatedPodsFirst
from setpoint.apiserver.request_context import RequestContext
from setpoint.apiserver.routing import Handler
from setpoint.apiserver.server import ApiServer, PathHandler, ServerParts
from setpoint.apiserver.upkeep.server_objects import token_usage
from setpoint.apiserver.watchers import Watchers
from setpoint.apiserver.webhook_client import WebhookClient
from setpoint.apiserver.why import WHY_PATH
from setpoint.cluster.access import wire_access, wire_reviews
from setpoint.cluster.certificates import CertificateFiles
from setpoint.cluster.config import ApiServerConfig, ConfigError, flags_of
from setpoint.cluster.network_servers import NetworkServers
from setpoint.cluster.outgoing_tls import FrontProxy
from setpoint.cluster.server_parts import PartsBuilder
from setpoint.kinds.catalog import RESOURCES
from setpoint.meta.exposition import CONTENT_TYPE, text
from setpoint.meta.objects import Obj
from setpoint.wire.message import Answer, Response

if TYPE_CHECKING:
    from setpoint.apiserver.audit.auditor import Auditor
    from setpoint.apiserver.tracing import Tracer

_FLOWS = "flowcontrol.apiserver.k8s.io"


def build_server(
    resources: ApiResources,
    config: ApiServerConfig,
    authenticator: AuthenticatorChain,
    *,
    certificates: CertificateFiles | None = None,
    nodes: NodeRoutes | None = None,
    servers: RemoteServers | None = None,
    auditor: Auditor | None = None,
    tracer: Tracer | None = None,
    needs_rewrite: Callable[[str], Awaitable[bool]] | None = None,
    unlisted_paths: Mapping[str, PathHandler] | None = None,
    background: Iterable[Callable[[], Coroutine[Any, Any, None]]] = (),
) -> ApiServer:
    """Build an API server for these resources. Raises ConfigError.

    `authenticator` holds what the caller already knows; the authenticators of the configuration are added to it.
    `servers` reaches webhooks and aggregated API servers, by default over the network. The other parameters are parts
    that depend on the caller; see `ServerParts`."""
    parts = PartsBuilder(resources, authenticator, nodes or NodeRoutes())
    parts.unlisted_paths.update(unlisted_paths or {})
    clock, reader = resources.clock, CacheReader(resources)
    front = FrontProxy(certificates, clock, config) if certificates is not None else None
    if servers is None:
        network = NetworkServers(clock, (lambda: front.certificate) if front is not None else None)
        servers = SimulatedPodsFirst(network, parts.nodes, reader, clock)
    token_use = token_usage(resources)
    authorizers = wire_access(parts, config, servers, token_use)
    authorizer = authorizers.chain
    if not config.allow_privileged:
        from setpoint.apiserver.privileged_pods import unprivileged_only  # few servers need it

        unprivileged_only(parts.hooks)
    admission = Chain(_plugins(parts, config, servers, authorizer, _enabled(config, authorizers.types)))
    wire_reviews(parts, admission, authorizer)
    health = _health(resources, config)
    if config.enable_priority_and_fairness:
        fairness, in_flight = _fairness(parts, config), InFlight(0, 0)  # it counts, and bounds nothing
    else:
        fairness, in_flight = None, InFlight(config.max_requests_inflight, config.max_mutating_requests_inflight)
    parts.paths["/metrics"] = _metrics(resources)
    parts.paths["/metrics/slis"] = _indicators(health)
    parts.paths["/statusz"] = Statusz(clock, partial(listed_paths, resources, health, parts.paths)).answer
    parts.paths["/flagz"] = Flagz(flags_of(config)).answer
    parts.unlisted_paths[diagnostics.CAUSES_PATH] = diagnostics.serve_causes(resources.store)
    history = HistoryReader(resources.store)
    moments = Moments(history, lambda: reader.get("", "configmaps", *MARKS) or {})
    past = Past(resources, history, moments, servers)
    parts.unlisted_paths[PAST_PREFIX] = past.answer
    endpoints = HistoryEndpoints(resources, history, moments, authorizer)
    parts.unlisted_paths[HISTORY_PATH] = endpoints.history
    parts.unlisted_paths[WRITES_PATH] = WritesEndpoint(resources, endpoints, history, moments).answer
    parts.unlisted_paths[TIMELINE_PATH] = TimelineEndpoint(endpoints, history, moments).answer
    parts.unlisted_paths[UNDO_PATH] = UndoEndpoint(resources, history, moments, authorizer).answer
    watchers = Watchers(clock)
    parts.unlisted_paths[WHY_PATH] = _why(resources, history, moments, authorizer, watchers)
    _gauges(resources, in_flight)
    openapi = OpenApi()
    openapi.install(parts.paths)
    custom = definitions.Definitions(resources, openapi, servers)
    parts.hooks[(definitions.GROUP, definitions.PLURAL)] = custom
    parts.background.append(custom.run)
    aggregation = Aggregation(servers, reader)
    remote = RemoteDocuments(resources, aggregation, openapi, front.publish if front is not None else None)
    parts.hooks[("apiregistration.k8s.io", "apiservices")] = ApiServiceHooks(remote)
    _subresources(parts, authorizer)
    services = parts.hooks[("", "services")] = _services(resources, config)
    server = ApiServer(
        resources,
        ServerParts(
            authenticator=parts.authenticator,
            authorizer=authorizer,
            own_identities=parts.own_identities,
            admission=admission,
            health=health,
            in_flight=in_flight,
            fairness=fairness,
            auditor=auditor,
            tracer=tracer,
            nodes=parts.nodes,
            services=services,
            hooks=parts.hooks,
            subresource_handlers=parts.subresource_handlers,
            computed=parts.computed,
            paths=parts.paths,
            unlisted_paths=parts.unlisted_paths,
            aggregation=aggregation,
            probe=remote.probe,
            definitions=custom,
            watchers=watchers,
            token_use=token_use,
            background=(*parts.background, *background),
            needs_rewrite=needs_rewrite,
        ),
    )
    past.configure(server.parts)
    return server


def _services(api: ApiResources, config: ApiServerConfig) -> ServiceHooks:
    families = ["IPv6" if ":" in cidr else "IPv4" for cidr in config.service_cidrs]
    ports = NodePorts(api.store, api.ids, config.service_node_port_range)
    return ServiceHooks(ClusterIps(api, api.ids), ports, families)


def _plugins(
    parts: PartsBuilder,
    config: ApiServerConfig,
    servers: RemoteServers,
    authorizer: AuthorizerChain,
    enabled: list[str],
) -> list[Plugin]:
    api = parts.resources

    async def create_namespace(name: str) -> Entry:
        return await ensure(api, "", "namespaces", {"metadata": {"name": name}})

    async def write_usage(quota: Obj, used: dict[str, str]) -> None:
        await update_usage(api, quota, used)

    dependencies = PluginDependencies(
        CacheReader(api),
        authorizer,
        api.clock,
        api.ids,
        create_namespace,
        write_usage,
        api.served.values,
        ServedResources(api),
        WebhookClient(servers, CacheReader(api), api.clock),
        (config.default_not_ready_toleration_seconds, config.default_unreachable_toleration_seconds),
    )
    try:
        if config.admission_control_config_file:
            # Imported here because few servers have such a file.
            from setpoint.cluster.admission_config import plugin_documents, static_manifests
            from setpoint.cluster.webhook_kubeconfig import review_webhook, webhook_identities

            dependencies.configuration = plugin_documents(config.admission_control_config_file).get
            dependencies.review_webhook = partial(review_webhook, servers, api.clock, api.ids)
            dependencies.webhook_identities = partial(webhook_identities, api.clock)
            dependencies.manifests = partial(static_manifests, parts.background, api.clock)
        return build(dependencies, enabled, config.disable_admission_plugins)
    except UnknownPlugin as error:
        raise ConfigError(str(error)) from None
    except FileProblem as problem:
        raise ConfigError(f"--admission-control-config-file: {problem}") from None


def _enabled(config: ApiServerConfig, authorizers: frozenset[str]) -> list[str]:
    """Return the plugins to enable. With the Node authorizer, NodeRestriction is enabled unless flags name it."""
    restriction = NodeRestriction.name
    is_named = restriction in (*config.enable_admission_plugins, *config.disable_admission_plugins)
    implied = [restriction] if "Node" in authorizers and not is_named else []
    return [*config.enable_admission_plugins, *implied]


def _fairness(parts: PartsBuilder, config: ApiServerConfig) -> Fairness:
    api, reader = parts.resources, CacheReader(parts.resources)
    seats = config.max_requests_inflight + config.max_mutating_requests_inflight
    caches, schemas, levels = api.caches, f"{_FLOWS}/flowschemas/", f"{_FLOWS}/prioritylevelconfigurations/"

    def revision() -> int:
        """Return a number that changes with every change of a flow schema or priority level."""
        try:
            return caches[schemas].changed + caches[levels].changed
        except KeyError:
            return -2  # the server is still starting

    fairness = Fairness(lambda plural: reader.list(_FLOWS, plural), revision, api.clock, api.slicer, seats)
    parts.background.append(fairness.run)
    api.metrics.sources.append(lambda: flow_control_metrics(fairness))

    async def dump(ctx: RequestContext) -> Answer:
        from setpoint.apiserver.fairness.dumps import DebugTables  # rarely used

        return DebugTables(fairness).answer(ctx)

    for what in ("priority_levels", "queues", "requests"):
        parts.unlisted_paths[f"/debug/api_priority_and_fairness/dump_{what}"] = dump
    return fairness


def _subresources(parts: PartsBuilder, authorizer: AuthorizerChain) -> None:
    """Add the handlers of subresources that do more than write the object."""
    api, reader, handlers = parts.resources, CacheReader(parts.resources), parts.subresource_handlers
    scale: dict[str, Handler] = ScaleHandlers(BuiltInScaling()).by_verb
    for group, plural in (
        ("apps", "deployments"),
        ("apps", "replicasets"),
        ("apps", "statefulsets"),
        ("", "replicationcontrollers"),
    ):
        handlers[(group, plural, "scale")] = scale
    evictions = Evictions(api)
    handlers[("", "pods", "binding")] = {"create": bind}
    handlers[("", "pods", "eviction")] = {"create": evictions.evict}
    streams = PodStreams(parts.nodes, reader, authorizer)
    handlers[("", "pods", "log")] = {"get": streams.log}
    for name, opened in (
        ("exec", streams.exec),
        ("attach", streams.attach),
        ("portforward", streams.port_forward),
    ):
        handlers[("", "pods", name)] = {"get": opened, "create": opened}

    proxies = Proxies(parts.nodes, reader)
    for plural, passed in (("nodes", proxies.node), ("pods", proxies.pod), ("services", proxies.service)):
        verbs = ("get", "create", "update", "patch", "delete")
        handlers[("", plural, "proxy")] = dict.fromkeys(verbs, passed)

    async def bind_by_name(ctx: RequestContext, _: Registry, form: Form) -> Answer:
        return await bind(ctx, api.registry("", "pods"), form)

    parts.computed[("", "bindings")] = bind_by_name
    parts.computed[("", "componentstatuses")] = ComponentStatuses({"etcd-0": lambda: _store_problem(api)}).handle


def _store_problem(api: ApiResources) -> str:
    """Return why the store cannot be used, permanently or temporarily; empty if it can."""
    return api.store.failure or api.store.unavailable or ""


def _health(api: ApiResources, config: ApiServerConfig) -> Health:
    def ok() -> str:
        return ""

    def store() -> str:
        return api.store.failure or ""

    def store_reachable() -> str:
        return _store_problem(api)

    built_in = frozenset(resource.storage_prefix for resource in RESOURCES)

    def synced() -> str:
        if not api.ready:
            return "the caches have not synced yet"
        # Upstream has no informers for custom kinds.
        corrupt = [cache.prefix for cache in api.caches.values() if cache.corrupt and cache.prefix in built_in]
        return f"not readable: {', '.join(corrupt)}" if corrupt else ""

    def shutdown() -> str:
        return "process is shutting down" if api.stopping else ""

    steps = api.post_start.checks(() if config.enable_priority_and_fairness else FLOW_CONTROL)
    # The server's own clients are in its process, where no certificate can expire.
    live = {"ping": ok, "log": ok, "loopback-serving-certificate": ok, "etcd": store, **steps}
    ready = {"ping": ok, "log": ok, "etcd": store, "etcd-readiness": store_reachable, "informer-sync": synced}
    return Health({"healthz": live, "livez": live, "readyz": {**ready, **steps, "shutdown": shutdown}})


def _gauges(api: ApiResources, limits: InFlight) -> None:
    """Add gauges that are computed on request, under upstream's names."""
    metrics = api.metrics

    def in_flight() -> Iterable[tuple[dict[str, str], float]]:
        for kind, reading in (("readOnly", True), ("mutating", False)):
            yield {"request_kind": kind}, limits.now[reading]

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

    metrics.gauge("apiserver_current_inflight_requests", "Number of requests in progress, without watches.", in_flight)
    metrics.gauge("apiserver_longrunning_requests", "Number of open watches.", watches)
    metrics.gauge("apiserver_resource_objects", "Number of stored objects.", objects)
    metrics.gauge("apiserver_storage_size_bytes", "Size of the store in bytes.", size)


def _metrics(api: ApiResources) -> PathHandler:
    async def metrics(ctx: RequestContext) -> Answer:
        return Response(200, api.metrics.text(), [("Content-Type", CONTENT_TYPE)])

    return metrics


def _why(
    api: ApiResources, reader: HistoryReader, moments: Moments, authorizer: AuthorizerChain, watchers: Watchers
) -> PathHandler:
    async def why(ctx: RequestContext) -> Answer:
        # Imported here because most servers are never asked.
        from setpoint.apiserver.why.endpoint import serve_why
        from setpoint.apiserver.why.facts import Sources

        return await serve_why(Sources(api, reader, authorizer, watchers), moments)(ctx)

    return why


def _indicators(health: Health) -> PathHandler:
    async def indicators(ctx: RequestContext) -> Answer:
        return Response(200, text(health.families()).encode(), [("Content-Type", CONTENT_TYPE)])

    return indicators
