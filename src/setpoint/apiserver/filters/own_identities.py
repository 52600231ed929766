"""The rights of those who are of our own making, and whose rights no role tells."""

from __future__ import annotations

from collections.abc import Iterable

from setpoint.apiserver.filters.authorize import Access, Decision, Rule, Rules
from setpoint.apiserver.filters.rbac_rules import concerns, permits
from setpoint.kinds.bootstrap.own_identities import OWN_IDENTITIES
from setpoint.kinds.strategy import UserInfo


class OwnIdentities:
    """Always asked last, whatever the modes are."""

    name = "setpoint"

    def __init__(self) -> None:
        self._rules: dict[str, tuple[Rule, ...]] = dict(OWN_IDENTITIES)

    def grant(self, user: str, rules: Iterable[Rule]) -> None:
        """To a component of this process: these and no others."""
        self._rules[user] = tuple(rules)

    def authorize(self, access: Access) -> tuple[Decision, str]:
        for rule in self._rules.get(access.user.name, ()):
            if concerns(rule, access) and permits(rule, access):
                return Decision.ALLOW, f"allowed to {access.user.name} itself"
        return Decision.NO_OPINION, ""

    def rules_for(self, user: UserInfo, namespace: str) -> Rules:
        return Rules(list(self._rules.get(user.name, ())), [])
