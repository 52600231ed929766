"""The keys of service account tokens. The one that signs is made on first use, and kept in a file that only its owner
reads, or nowhere but in memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path

from setpoint.meta.token_key import BadSignature, TokenKey, UnknownKey, VerifyingKey

__all__ = ["BadSignature", "SigningKey", "TokenKeys", "UnknownKey"]


class SigningKey(TokenKey):
    """Whatever the file holds; RSA is made, because every reader of tokens understands it."""

    def __init__(self, path: Path | None, *, is_ours: bool = True) -> None:
        """Without a path it is gone with the process. One that is not ours must be there."""
        super().__init__(self.pem)
        self._path = path
        self._is_ours = is_ours
        self._kept = b""

    def pem(self) -> bytes:
        if self._path is None:
            self._kept = self._kept or _made()
            return self._kept
        try:
            return self._path.read_bytes()
        except FileNotFoundError:
            if not self._is_ours:
                raise
            return self._make(self._path)

    def _make(self, path: Path) -> bytes:
        pem = _made()
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary = path.with_name(f"{path.name}.{os.getpid()}")
        temporary.unlink(missing_ok=True)  # one that was left behind may have any mode
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(pem)
            file.flush()
            os.fsync(file.fileno())
        try:
            # Unlike a rename, a link never replaces the key of another server that was faster.
            os.link(temporary, path)
        except FileExistsError:
            pem = path.read_bytes()
        finally:
            temporary.unlink()
        return pem


def _made() -> bytes:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key

    return generate_private_key(65537, 2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


class TokenKeys:
    """One that signs, and all whose tokens are good: those of before a rotation, too, and those of others."""

    def __init__(self, signing: TokenKey, others: Callable[[], Sequence[VerifyingKey]] | None = None) -> None:
        """`others`: what tokens are verified with, if not with the signing key alone. Loaded when first needed."""
        self.signing = signing
        self._others = others

    @cached_property
    def verifying(self) -> tuple[VerifyingKey, ...]:
        return (self.signing,) if self._others is None else tuple(self._others())

    def open(self, token: str) -> bytes | None:
        """The claims of a token with a good signature; None: it is no token at all. Raises UnknownKey, BadSignature."""
        refusal: UnknownKey | BadSignature = UnknownKey()
        for key in self.verifying:
            try:
                return key.open(token)
            except UnknownKey:
                continue
            except BadSignature as error:
                refusal = error
        raise refusal

    @property
    def published(self) -> list[dict[str, str]]:
        return [key.published for key in self.verifying]

    @property
    def algorithms(self) -> list[str]:
        return sorted({key.algorithm for key in self.verifying})
