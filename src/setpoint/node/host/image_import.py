"""Imports images into containerd with its own client program, `ctr`."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from setpoint.meta.clock import Clock
from setpoint.node.host.pause_image import PAUSE_IMAGE, PINNED_LABEL, pause_archive
from setpoint.tasks import within

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
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
        except OSError as error:
            raise ImageImportError(f"cannot run {self._program}: {error.strerror}") from error
        try:
            output, errors = await within(self._clock, _TIMEOUT, process.communicate(content))
        except TimeoutError:
            raise ImageImportError(f"{self._program} {' '.join(arguments)} takes too long") from None
        finally:
            if process.returncode is None:
                process.kill()
        if process.returncode:
            message = errors.decode(errors="replace").strip()[:_MAX_MESSAGE]
            raise ImageImportError(f"{self._program} {' '.join(arguments)} failed: {message}")
        return output.decode(errors="replace")
