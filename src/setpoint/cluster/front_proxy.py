"""How this server shows itself to aggregated API servers, and how they learn whom to believe.

Who has a certificate of the front proxy's authority may say in a header who somebody is. So it is an authority of its
own, which signs nothing else.
"""

from __future__ import annotations

import os
from datetime import timedelta
from functools import cached_property
from pathlib import Path

from setpoint.apiserver.http.certificates import CertificateFiles, ensure_certificates, issue_client_certificate
from setpoint.apiserver.own_writes import ensure
from setpoint.apiserver.server import ApiServer
from setpoint.meta.clock import Clock

NAME = "front-proxy-client"
_LIFETIME = timedelta(days=30)


class FrontProxy:
    def __init__(self, files: CertificateFiles, clock: Clock) -> None:
        self._files = files
        self._clock = clock

    @cached_property
    def _authority(self) -> CertificateFiles:
        return ensure_certificates(self._files.ca.with_name("front-proxy"), self._clock.now())

    @cached_property
    def certificate(self) -> Path:
        """Certificate and key in one file, new with every start; made when the first server is dialled."""
        certificate, key = issue_client_certificate(self._authority, NAME, [], self._clock.now(), _LIFETIME)
        path = self._authority.ca.with_name(f"{NAME}.pem")
        path.unlink(missing_ok=True)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(certificate + key)
        return path

    async def publish(self, api: ApiServer) -> None:
        """What aggregated servers read when they start."""
        data = {
            "client-ca-file": self._files.ca.read_text(),
            "requestheader-allowed-names": f'["{NAME}"]',
            "requestheader-client-ca-file": self._authority.ca.read_text(),
            "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
            "requestheader-group-headers": '["X-Remote-Group"]',
            "requestheader-uid-headers": '["X-Remote-Uid"]',
            "requestheader-username-headers": '["X-Remote-User"]',
        }
        meta = {"name": "extension-apiserver-authentication", "namespace": "kube-system"}
        await ensure(api, "", "configmaps", {"metadata": meta, "data": data})
