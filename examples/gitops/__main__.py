import os
import tempfile
from pathlib import Path

from setpoint.sdk import run

from .operator import gitops_operator
from .source import Sources

if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="gitops-") as copies:
        run(gitops_operator(Sources(Path(os.environ.get("GITOPS_ROOT", ".")), Path(copies))))
