"""Which parts go into an API server: admission plugins, authorization, special subresources, documents."""

from __future__ import annotations

from setpoint.apiserver.filters.authorize import AlwaysAllow, AlwaysDeny, Authorizer, AuthorizerChain
from setpoint.apiserver.filters.rbac import RbacAuthorizer
from setpoint.apiserver.health import Health
from setpoint.apiserver.http.certificates import CertificateFiles
from setpoint.apiserver.http.message import Answer, Response
from setpoint.apiserver.call import Call
from setpoint.apiserver.reader import CacheReader
from setpoint.apiserver.server import ApiServer
from setpoint.cluster.config import ApiServerConfig


def wire(api: ApiServer, config: ApiServerConfig, certificates: CertificateFiles | None) -> None:
    api.authorizer = AuthorizerChain(_authorizers(api, config))
    api.health = _health(api)
    api.paths["/metrics"] = _metrics(api)


def _authorizers(api: ApiServer, config: ApiServerConfig) -> list[Authorizer]:
    modes: list[Authorizer] = []
    for mode in config.authorization_mode:
        if mode == "AlwaysAllow":
            modes.append(AlwaysAllow())
        elif mode == "AlwaysDeny":
            modes.append(AlwaysDeny())
        else:
            modes.append(RbacAuthorizer(CacheReader(api)))
    return modes


def _health(api: ApiServer) -> Health:
    def ok() -> str:
        return ""

    def store() -> str:
        try:
            api.store.revision  # noqa: B018 (a broken store says so here)
        except Exception as error:
            return str(error)
        return ""

    def synced() -> str:
        return "" if api.ready else "the caches are not filled yet"

    common = {"ping": ok, "log": ok, "etcd": store}
    return Health(
        {
            "healthz": common,
            "livez": common,
            "readyz": {**common, "etcd-readiness": store, "informer-sync": synced, "shutdown": synced},
        }
    )


def _metrics(api: ApiServer):  # type: ignore[no-untyped-def]
    async def metrics(call: Call) -> Answer:
        return Response(200, api.metrics.text(), [("Content-Type", "text/plain; version=0.0.4; charset=utf-8")])

    return metrics
