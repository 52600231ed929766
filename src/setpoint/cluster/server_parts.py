"""The parts of an API server while the composition root collects them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

from setpoint.apiserver.api_resources import ApiResources
from setpoint.apiserver.filters.authenticate import AuthenticatorChain
from setpoint.apiserver.filters.rbac import ComponentAuthorizer
from setpoint.apiserver.node_connection import NodeRoutes
from setpoint.apiserver.routing import Handler
from setpoint.apiserver.server import PathHandler
from setpoint.apiserver.write_hooks import Hooks


@dataclass(slots=True)
class PartsBuilder:
    """See `ServerParts` for the meaning of the fields."""

    resources: ApiResources
    authenticator: AuthenticatorChain
    nodes: NodeRoutes
    own_identities: ComponentAuthorizer = field(default_factory=ComponentAuthorizer)
    hooks: dict[tuple[str, str], Hooks] = field(default_factory=dict)
    subresource_handlers: dict[tuple[str, str, str], Mapping[str, Handler]] = field(default_factory=dict)
    computed: dict[tuple[str, str], Handler] = field(default_factory=dict)
    paths: dict[str, PathHandler] = field(default_factory=dict)
    unlisted_paths: dict[str, PathHandler] = field(default_factory=dict)
    background: list[Callable[[], Coroutine[Any, Any, None]]] = field(default_factory=list)
