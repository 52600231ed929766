"""Creates the service account `default` in every namespace, which Pods use unless they name another."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from setpoint.client import Client
from setpoint.client.resources import builtin
from setpoint.controllers.options import ControllerOptions
from setpoint.controllers.pod_control import is_namespace_terminating
from setpoint.meta.errors import AlreadyExists, ApiError, NotFound
from setpoint.reconcile import Controller, Informer, Manager

Obj = dict[str, Any]

NAMESPACES, ACCOUNTS = builtin("namespaces"), builtin("serviceaccounts")
_DEFAULT = "default"


def service_account_controller(manager: Manager, _: ControllerOptions) -> Controller:
    name = "service-account-controller"
    namespaces, accounts = manager.informer(NAMESPACES), manager.informer(ACCOUNTS)
    ensure = EnsureDefault(manager.client_for(name), namespaces, accounts)
    controller = Controller(name, ensure.reconcile, manager.clock)

    def namespace_changed(old: Obj | None, new: Obj | None) -> None:
        if new is not None:
            controller.enqueue(new["metadata"]["name"])

    def account_changed(old: Obj | None, new: Obj | None) -> None:
        if new is None and old is not None and old["metadata"]["name"] == _DEFAULT:
            controller.enqueue(old["metadata"]["namespace"])

    namespaces.add_handler(namespace_changed)
    accounts.add_handler(account_changed)
    return controller


class EnsureDefault:
    def __init__(self, client: Client, namespaces: Informer, accounts: Informer) -> None:
        self._client = client
        self._namespaces = namespaces
        self._accounts = accounts

    async def reconcile(self, name: str) -> None:
        namespace = self._namespaces.get(name)
        if namespace is None or (namespace.get("status") or {}).get("phase") != "Active":
            return
        if self._accounts.get(f"{name}/{_DEFAULT}") is not None:
            return
        account = {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": _DEFAULT, "namespace": name},
        }
        with suppress(AlreadyExists, NotFound):
            try:
                await self._client.create(account)
            except ApiError as error:
                if not is_namespace_terminating(error):
                    raise
