"""`python -m tests.robustness`: run the robustness suite."""

from __future__ import annotations

import argparse
import asyncio
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from random import SystemRandom

from tests.robustness import network
from tests.robustness.faults import FAULTS
from tests.robustness.run import Options, check, run


def main() -> int:
    arguments = _arguments()
    if arguments.check is not None:
        return 0 if check(arguments.check) else 1
    missing = [program for program in ("etcd", "etcdctl") if shutil.which(program) is None]
    if missing:
        sys.exit(f"not installed: {', '.join(missing)} (apt-get install etcd-server etcd-client)")
    isolated = not arguments.loopback and network.can_isolate()
    if isolated:
        network.enter(sys.argv[1:])
    directory = arguments.directory or Path(tempfile.mkdtemp(prefix="setpoint-robustness-"))
    directory.mkdir(parents=True, exist_ok=True)
    options = Options(
        seed=arguments.seed if arguments.seed is not None else SystemRandom().randrange(1_000_000),
        faults=arguments.faults,
        seconds=60 * arguments.minutes,
        rate=arguments.rate,
        directory=directory,
        isolated=isolated,
        kubectl=not arguments.no_kubectl and shutil.which("kubectl") is not None,
        only=tuple(filter(None, arguments.only.split(","))),
    )
    with asyncio.Runner() as runner:
        task = runner.get_loop().create_task(run(options))
        # Without a handler, the first process of a namespace ignores SIGTERM.
        runner.get_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        try:
            passed = runner.run(_result(task))
        except (KeyboardInterrupt, asyncio.CancelledError):
            sys.exit(f"interrupted; the history is in {directory}")
    if passed and not arguments.keep and arguments.directory is None:
        shutil.rmtree(directory, ignore_errors=True)
    return 0 if passed else 1


async def _result(task: asyncio.Task[bool]) -> bool:
    return await task


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m tests.robustness", description=__doc__)
    parser.add_argument("--seed", type=int, help="seed of the faults and of the clients; by default a random one")
    parser.add_argument("--faults", type=int, default=len(FAULTS), help="how many faults are injected")
    parser.add_argument("--minutes", type=float, default=0.0, help="begin no fault after this time")
    parser.add_argument("--rate", type=float, default=10.0, help="calls a second of each client")
    parser.add_argument("--only", default="", help=f"only these faults: {', '.join(each.name for each in FAULTS)}")
    parser.add_argument("--loopback", action="store_true", help="no namespaces, only faults of processes")
    parser.add_argument("--no-kubectl", action="store_true", help="without the loop of kubectl commands")
    parser.add_argument("--directory", type=Path, help="for the history, data and logs; by default a temporary one")
    parser.add_argument("--check", type=Path, metavar="FILE", help="only check the history of an earlier run")
    parser.add_argument("--keep", action="store_true", help="keep the temporary directory after success too")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
