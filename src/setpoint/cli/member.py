"""`setpoint member`: the members of the etcd that the machines of the control plane run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from setpoint.cli.command import Command
from setpoint.cli.failures import Failed
from setpoint.cli.flags import switch
from setpoint.cli.invocation import Invocation
from setpoint.cli.running import DATA_DIR, directory_of, has_member, none_runs
from setpoint.cli.server_options import SERVER_FLAGS
from setpoint.cli.serving import ready, serve, server
from setpoint.cli.tabwriter import align

_USER = "`setpoint member`"
_OWN_FLAGS = ("advertise-address", "etcd-client-port", "etcd-peer-port")

if TYPE_CHECKING:
    from setpoint.cluster.etcd_members import EtcdMembers


def _members(invocation: Invocation) -> EtcdMembers:
    from setpoint.cluster.config import ConfigError
    from setpoint.cluster.etcd_packages import check_etcd_packages

    directory = directory_of(invocation)
    if not has_member(directory):
        raise Failed(f"{directory} has no member of etcd; `setpoint up --etcd embedded` creates the first one")
    try:
        check_etcd_packages(_USER)
        # An optional dependency.
        from setpoint.cluster.etcd_member import MemberRecord
        from setpoint.cluster.etcd_members import EtcdMembers

        record = MemberRecord.read(directory)
    except ConfigError as error:
        raise Failed(str(error)) from None
    assert record is not None
    return EtcdMembers(directory, record, invocation.io.clock)


async def show(invocation: Invocation) -> None:
    from setpoint.cluster.config import ConfigError

    invocation.no_arguments()
    try:
        known = await _members(invocation).known()
    except ConfigError as error:
        raise Failed(str(error)) from None
    rows = [["NAME", "STATE", "ROLE", "PEER URL", "CLIENT URL", "THIS MACHINE"]]
    for one in known:
        member = one.member
        state = "healthy" if one.is_healthy else ("unreachable" if member.has_started else "never started")
        role = "learner" if member.is_learner else "voter"
        urls = [",".join(member.peer_urls), ",".join(member.client_urls)]
        rows.append([member.name, state, role, *urls, "yes" if one.is_own else ""])
    invocation.print(align("\n".join("\t".join(row) for row in rows), least=6, padding=3))


async def remove(invocation: Invocation) -> None:
    from setpoint.cluster.config import ConfigError

    if len(invocation.args) != 1:
        raise Failed("name one member, or its peer URL: setpoint member remove NAME")
    name = invocation.args[0]
    try:
        members = _members(invocation)
        known = await members.known()
        target = next((one for one in known if name and name in (one.member.name, *one.member.peer_urls)), None)
        if target is None:
            raise Failed(f"there is no member {name}; `setpoint member list` shows all")
        if target.is_own:
            raise Failed(f"{name} is the member of this machine: `setpoint reset` removes it with its data")
        otherwise = "; --force removes it nevertheless"
        await members.remove(target, known, force=invocation.flags.force, otherwise=otherwise)
    except ConfigError as error:
        raise Failed(str(error)) from None
    invocation.print(f"The member {name} was removed.")


async def recover(invocation: Invocation) -> None:
    from setpoint.cluster.config import ApiServerConfig, ConfigError

    invocation.no_arguments()
    directory = directory_of(invocation)
    none_runs(directory)
    if not has_member(directory):
        raise Failed(f"{directory} has no member of etcd")
    if not invocation.flags.yes:
        raise Failed(
            "this makes the machine the only member of etcd, with the data that it has. The others must be lost or "
            "stopped for good: reset them before they join again. Say --yes to continue"
        )
    config = ApiServerConfig(directory, bind_address="", store="etcd", etcd="embedded")
    if running := await _members(invocation).others_that_answer():
        raise Failed(
            f"members of other machines run: {', '.join(running)}. If more than half of all can run, `setpoint up` "
            "starts this one too, and nothing is lost. Otherwise stop the others for good first, with "
            "`setpoint reset --yes --force`"
        )
    try:
        from setpoint.cluster.etcd_server import member_alone  # an optional dependency

        async with member_alone(config, lambda _: None, force_new_cluster=True) as member:
            name = member.record.name
    except ConfigError as error:
        raise Failed(str(error)) from None
    invocation.print(
        f"{name} is the only member of etcd now. `setpoint up` starts the control plane; then join the others."
    )


@server
def run_alone(invocation: Invocation) -> None:
    from setpoint.cluster.config import ApiServerConfig
    from setpoint.cluster.etcd_packages import check_etcd_packages
    from setpoint.cluster.signals import stop_on_signals

    invocation.no_arguments()
    directory, flags = directory_of(invocation), invocation.flags
    none_runs(directory)
    config = ApiServerConfig(
        directory,
        bind_address="",
        advertise_address=flags.advertise_address,
        store="etcd",
        etcd="embedded",
        etcd_client_port=flags.etcd_client_port,
        etcd_peer_port=flags.etcd_peer_port,
    )

    async def main() -> None:
        stop = stop_on_signals()
        check_etcd_packages(_USER)
        from setpoint.cluster.etcd_server import member_alone  # an optional dependency

        async with member_alone(config, lambda _: None) as member:
            pki = config.pki / "etcd"
            names = ("--etcd-cafile", pki / "ca.crt"), ("--etcd-certfile", pki / "member.crt")
            words = [f"{flag} {path}" for flag, path in (*names, ("--etcd-keyfile", pki / "member.key"))]
            ready(invocation, f"etcd is ready; use it with --etcd-servers {member.record.local_url} {' '.join(words)}")
            await stop.wait()

    serve(main)


COMMAND = Command(
    "List the members of the etcd of the control plane; remove one, or run one alone",
    children={
        "run": Command(
            "Run the member of this machine alone, without an API server: to restore a backup, for example",
            run_alone,
            (
                DATA_DIR,
                *(flag for flag in SERVER_FLAGS if flag.name in _OWN_FLAGS),
            ),
            connects=False,
        ),
        "list": Command("List the members, and which of them answer", show, (DATA_DIR,), connects=False),
        "recover": Command(
            "Continue as the only member, after more than half of the machines were lost for good",
            recover,
            (DATA_DIR, switch("yes", "y", help="Confirm that the other machines do not run any more.")),
            connects=False,
        ),
        "remove": Command(
            "Remove the member of a machine that is gone for good",
            remove,
            (DATA_DIR, switch("force", help="Remove it even if the others lose their quorum.")),
            usage="NAME",
            connects=False,
        ),
    },
    usage="[command]",
)
