"""A registry on the loopback interface of a machine, with the images of the tests."""

from __future__ import annotations

import json
import shutil
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from images import TAG, Image, images_for_tests, push
from real_machine import RealMachine, wait_until

PORT, PRIVATE_PORT, CLOSED_PORT = 5000, 5001, 5999
"""The ports of the registry and of the private one, and one on which nothing listens."""
USER, PASSWORD = "tester", "secret"
_PASSWORD_HASH = "$2b$04$zZJbredX5h/GengBvKWmTOSjiYQa/kxmZYFohFcBSsjinQZJzrfHm"
_START_TIMEOUT = 20.0


class Registry:
    """A registry that runs. One with a password has the images too."""

    def __init__(self, machine: RealMachine, port: int, credentials: str, log: Path) -> None:
        self.host = f"127.0.0.1:{port}"
        self.url = f"http://{self.host}"
        self.log = log
        self._machine = machine
        self._credentials = credentials

    def image(self, repository: str, tag: str = TAG) -> str:
        """Return the reference of an image for Pods, such as `127.0.0.1:5000/busybox:1`."""
        return f"{self.host}/{repository}:{tag}"

    def push(self, repository: str, image: Image, tag: str = TAG) -> None:
        """Upload an image. The calling thread may be outside of the machine's network."""
        with self._machine.entered():
            push(self.url, repository, image, tag, self._credentials)

    def answers(self) -> bool:
        with self._machine.entered():
            try:
                urllib.request.urlopen(f"{self.url}/v2/", timeout=5).close()
            except urllib.error.HTTPError as error:
                return error.code == 401
            except OSError:
                return False
        return True


@contextmanager
def registry(machine: RealMachine, *, private: bool = False, images: Path | None = None) -> Iterator[Registry]:
    """Run a registry with the images of the tests. A private one requires USER and PASSWORD.

    `images` is a directory that outlives the registry: the images are uploaded to the first one only.
    """
    port = PRIVATE_PORT if private else PORT
    directory = machine.directory / f"registry-{port}"
    directory.mkdir()
    storage = images or directory / "storage"
    filled = storage.exists()
    config = directory / "config.json"
    config.write_text(json.dumps(_config(port, storage, directory if private else None)))
    running = Registry(machine, port, f"{USER}:{PASSWORD}" if private else "", directory / "log")
    process = machine.spawn(["docker-registry", "serve", config], running.log, reported=False)

    def started() -> bool:
        assert process.poll() is None, f"the registry ended: {running.log.read_text()}"
        return running.answers()

    try:
        wait_until(started, _START_TIMEOUT, lambda: f"the registry does not answer: {running.log.read_text()}")
        if not filled:
            try:
                for repository, image in images_for_tests().items():
                    running.push(repository, image)
            except BaseException:
                shutil.rmtree(storage, ignore_errors=True)
                raise
        yield running
    finally:
        process.kill()
        process.wait()


def _config(port: int, storage: Path, password: Path | None) -> dict[str, object]:
    """Return the configuration in JSON, which is valid YAML."""
    config: dict[str, object] = {
        "version": 0.1,
        "log": {"level": "error", "accesslog": {"disabled": True}},
        "storage": {"filesystem": {"rootdirectory": str(storage)}, "delete": {"enabled": True}},
        "http": {"addr": f"127.0.0.1:{port}"},
    }
    if password is not None:
        file = password / "htpasswd"
        file.write_text(f"{USER}:{_PASSWORD_HASH}\n")
        config["auth"] = {"htpasswd": {"realm": "private", "path": str(file)}}
    return config
