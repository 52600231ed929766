"""Who may act for a signer of certificates."""

from __future__ import annotations

from setpoint.apiserver.filters.authorize import Access, AuthorizerChain
from setpoint.kinds.strategy import UserInfo


async def may(authorizer: AuthorizerChain, user: UserInfo, verb: str, signer: str) -> bool:
    """For this signer, or for all of its domain."""
    for name in (signer, signer.split("/")[0] + "/*"):
        if await authorizer.allows(Access(user, verb, "certificates.k8s.io", "*", "signers", name=name)):
            return True
    return False
