"""How this server shows itself to aggregated API servers, and how they learn whom to believe.

Who has a certificate of the front proxy's authority may say in a header who somebody is. So it is an authority of its
own, which signs nothing else.
"""

from __future__ import annotations

from datetime import timedelta
from functools import cached_property
from pathlib import Path

import orjson

from setpoint.apiserver.http.certificates import CertificateFiles, ensure_certificates, issue_client_certificate
from setpoint.apiserver.own_writes import ensure
from setpoint.apiserver.server import ApiServer
from setpoint.cluster.access_config import AccessConfig
from setpoint.cluster.config import ApiServerConfig
from setpoint.cluster.private_files import FRONT_PROXY, write_private
from setpoint.meta.clock import Clock

NAME = "front-proxy-client"
_LIFETIME = timedelta(days=30)


class FrontProxy:
    def __init__(self, files: CertificateFiles, clock: Clock, config: ApiServerConfig | None = None) -> None:
        """`config`: which other clients and proxies are to be believed."""
        self._files = files
        self._clock = clock
        self._config = config

    @cached_property
    def _authority(self) -> CertificateFiles:
        return ensure_certificates(self._files.ca.with_name(FRONT_PROXY), self._clock.now())

    @cached_property
    def certificate(self) -> Path:
        """Certificate and key in one file, new with every start; made when the first server is dialled."""
        certificate, key = issue_client_certificate(self._authority, NAME, [], self._clock.now(), _LIFETIME)
        path = self._authority.ca.with_name(f"{NAME}.pem")
        write_private(path, certificate + key)
        return path

    async def publish(self, api: ApiServer) -> None:
        """What aggregated servers read when they start."""
        clients, told = self._config.client_ca_file if self._config else "", AccessConfig()
        if self._config is not None:
            told = self._config.access
        others = told.requestheader_client_ca_file
        # Without names, whoever has a certificate of that authority is a proxy.
        names = [] if others and not told.requestheader_allowed_names else [NAME, *told.requestheader_allowed_names]
        data = {
            "client-ca-file": _joined(self._files.ca, clients),
            "requestheader-allowed-names": _listed(names),
            "requestheader-client-ca-file": _joined(self._authority.ca, others),
            "requestheader-extra-headers-prefix": _listed(
                ["X-Remote-Extra-", *told.requestheader_extra_headers_prefix]
            ),
            "requestheader-group-headers": _listed(["X-Remote-Group", *told.requestheader_group_headers]),
            "requestheader-uid-headers": _listed(["X-Remote-Uid", *told.requestheader_uid_headers]),
            "requestheader-username-headers": _listed(["X-Remote-User", *told.requestheader_username_headers]),
        }
        meta = {"name": "extension-apiserver-authentication", "namespace": "kube-system"}
        await ensure(api, "", "configmaps", {"metadata": meta, "data": data})


def _joined(own: Path, other: str) -> str:
    return own.read_text() + (Path(other).read_text() if other else "")


def _listed(texts: list[str]) -> str:
    return orjson.dumps(list(dict.fromkeys(texts))).decode()
