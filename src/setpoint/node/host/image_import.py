"""Imports images into containerd with its own client program, `ctr`."""

from __future__ import annotations

import logging
from pathlib import Path

from setpoint.meta.clock import Clock
from setpoint.node.host.pause_image import PAUSE_IMAGE, PINNED_LABEL, pause_archive
from setpoint.node.host.programs import ProgramError, run_program

log = logging.getLogger("setpoint.node")

CRI_NAMESPACE = "k8s.io"
_TIMEOUT = 60.0
_MAX_MESSAGE = 500


class ImageImportError(Exception):
    """An image cannot be imported."""


class ImageImporter:
    """Imports OCI archives into the images that the container runtime sees."""

    def __init__(self, socket: Path, clock: Clock, program: str = "ctr") -> None:
        self._socket = socket
        self._clock = clock
        self._program = program

    async def ensure_pause_image(self, architecture: str) -> str:
        """Import the sandbox image if it is not there, and return its name. Raise ImageImportError, or
        UnsupportedArchitecture."""
        if PAUSE_IMAGE not in (await self._run("images", "list", "-q")).split():
            await self._run("images", "import", "-", content=pause_archive(architecture))
            log.info("imported the sandbox image %s", PAUSE_IMAGE)
        await self._run("images", "label", PAUSE_IMAGE, PINNED_LABEL)
        return PAUSE_IMAGE

    async def _run(self, *arguments: str, content: bytes = b"") -> str:
        command = (self._program, "--address", str(self._socket), "--namespace", CRI_NAMESPACE, *arguments)
        try:
            result = await run_program(self._clock, _TIMEOUT, *command, content=content)
        except ProgramError as error:
            raise ImageImportError(str(error)) from None
        if result.code:
            message = result.errors.strip()[:_MAX_MESSAGE]
            raise ImageImportError(f"{self._program} {' '.join(arguments)} failed: {message}")
        return result.output
