"""The serving certificate of a node's kubelet API, which changes while the server runs.

Until the cluster has signed a certificate, the node uses one that it signs itself, as the kubelet does. The API server
does not verify certificates of nodes unless `--kubelet-certificate-authority` is set.
"""

from __future__ import annotations

import logging
import ssl

from setpoint.cluster.certificates import ensure_certificates
from setpoint.cluster.node_certificates import SERVING_SIGNER, StoredCertificate, WantedCertificate
from setpoint.cluster.node_joining import NodeFiles
from setpoint.meta.clock import Clock, Ids
from setpoint.node.host.blocking import BlockingPool
from setpoint.wire.tls import server_tls_context

log = logging.getLogger("setpoint.node")


class ServingCertificate:
    """Holds the TLS context of the kubelet API. New connections use the newest certificate."""

    def __init__(
        self,
        files: NodeFiles,
        node: str,
        names: tuple[str, ...],
        clock: Clock,
        ids: Ids,
        pool: BlockingPool | None = None,
    ) -> None:
        """`names` are the DNS names and addresses of the node. Raises OSError."""
        self.stored = StoredCertificate(files.serving, clock, ids, pool)
        self._files = files
        self._node = node
        self._names = names
        self._clock = clock
        self.context: ssl.SSLContext = server_tls_context(files.ca)
        """The context of the server, which asks clients for certificates of the cluster's authority."""
        self._load()

    @property
    def is_signed(self) -> bool:
        """Return whether the cluster has signed the certificate in use."""
        pair = self.stored.pair
        return pair is not None and self.stored.is_valid and set(self._names) <= pair.names

    def wanted(self) -> WantedCertificate | None:
        """Return the certificate to request; None if the node has no address yet."""
        return WantedCertificate(self._node, SERVING_SIGNER, self._names) if self._names else None

    async def renewed(self) -> None:
        """Use the certificate that has just been stored."""
        self._load()

    def _load(self) -> None:
        if self.is_signed:
            self.context.load_cert_chain(self._files.serving)
            return
        own = ensure_certificates(self._files.self_signed, self._clock.now(), extra_names=self._names)
        self.context.load_cert_chain(own.certificate, own.key)
