"""`create`: create objects from files or, with subcommands, from arguments (`create deployment web --image=nginx`)."""

from __future__ import annotations

from setpoint.cli.command import Command, Lazy
from setpoint.cli.failures import EXPECTED, Failed, raise_all, with_source
from setpoint.cli.flags import switch, text
from setpoint.cli.invocation import Invocation
from setpoint.cli.resources import FILES, Target, from_files
from setpoint.cli.writing import (
    DRY_RUN,
    OUTPUT,
    RECORD,
    SAVE_CONFIG,
    VALIDATE,
    DryRun,
    Results,
    dry_run,
    field_manager,
    recorded,
    validation,
)
from setpoint.cli.writing.annotation import saved
from setpoint.cli.writing.options import send_raw
from setpoint.meta.objects import Obj


def _of(module: str, summary: str, *aliases: str, constant: str = "COMMAND") -> Lazy:
    return Lazy(summary, f"{__name__}.{module}", aliases, constant=constant)


CHILDREN: dict[str, Command | Lazy] = {
    "clusterrole": _of("role", "Create a cluster role", constant="CLUSTER_ROLE"),
    "clusterrolebinding": _of(
        "binding", "Create a cluster role binding for a particular cluster role", constant="CLUSTER_ROLE_BINDING"
    ),
    "configmap": _of("configmap", "Create a config map from a local file, directory or literal value", "cm"),
    "cronjob": _of("workloads", "Create a cron job with the specified name", "cj", constant="CRON_JOB"),
    "deployment": _of("workloads", "Create a deployment with the specified name", "deploy", constant="DEPLOYMENT"),
    "ingress": _of("ingress", "Create an ingress with the specified name", "ing"),
    "job": _of("workloads", "Create a job with the specified name", constant="JOB"),
    "namespace": _of("plain", "Create a namespace with the specified name", "ns", constant="NAMESPACE"),
    "poddisruptionbudget": _of(
        "plain", "Create a pod disruption budget with the specified name", "pdb", constant="BUDGET"
    ),
    "priorityclass": _of("plain", "Create a priority class with the specified name", "pc", constant="PRIORITY_CLASS"),
    "quota": _of("plain", "Create a quota with the specified name", "resourcequota", constant="QUOTA"),
    "role": _of("role", "Create a role with single rule", constant="ROLE"),
    "rolebinding": _of(
        "binding", "Create a role binding for a particular role or cluster role", constant="ROLE_BINDING"
    ),
    "secret": _of("secret", "Create a secret using a specified subcommand"),
    "service": _of("service", "Create a service using a specified subcommand", "svc"),
    "serviceaccount": _of(
        "plain", "Create a service account with the specified name", "sa", constant="SERVICE_ACCOUNT"
    ),
    "token": _of("token", "Request a service account token"),
}


async def run(invocation: Invocation) -> None:
    flags = invocation.flags
    if invocation.args:
        invocation.usage(f"Unexpected args: [{' '.join(invocation.args)}]")
    dry, directive = dry_run(invocation), validation(invocation)
    results = Results(invocation, dry)
    if not flags.filename and not flags.kustomize:
        raise Failed("must specify one of -f and -k")
    if flags.raw:
        if flags.edit:
            raise Failed("--raw and --edit are mutually exclusive")
        await send_raw(invocation, "POST", flags.raw)
        return
    if flags.edit:
        # Imported here because editing is rare.
        from setpoint.cli.editing import edit_before_create

        await edit_before_create(invocation)
        return
    errors: list[Exception] = []
    count = 0
    async for target in from_files(invocation, errors, labels=flags.selector, validate=directive != "Ignore"):
        count += 1
        try:
            results.add(await _create(invocation, target, dry, directive), "created")
        except EXPECTED as error:
            errors.append(with_source(error, "creating", target.source))
    raise_all(errors)
    if not count:
        raise Failed("no objects passed to create")


async def _create(invocation: Invocation, target: Target, dry: DryRun, directive: str) -> Obj:
    assert target.obj is not None
    obj = recorded(invocation, saved(target.obj, invocation.flags.save_config))
    if dry is DryRun.CLIENT:
        return obj
    if (obj.get("metadata") or {}).get("resourceVersion"):
        obj = {**obj, "metadata": {key: one for key, one in obj["metadata"].items() if key != "resourceVersion"}}
    return await invocation.client.create(
        obj,
        resource=target.resource,
        namespace=target.namespace,
        dry_run=dry is DryRun.SERVER,
        field_manager=invocation.flags.field_manager,
        field_validation=directive,
    )


COMMAND = Command(
    "Create a resource from a file or from stdin",
    run,
    (
        *FILES,
        *OUTPUT,
        *DRY_RUN,
        *VALIDATE,
        *SAVE_CONFIG,
        *RECORD,
        *field_manager("kubectl-create"),
        text("selector", "l", help="Selector (label query): of the objects in the files, only those that match."),
        switch("edit", help="Edit the API resource before creating"),
        switch("windows-line-endings", help="Only relevant if --edit=true: lines end as on Windows."),
        text("raw", help="Raw URI to POST to the server. Uses the transport specified by the kubeconfig file."),
    ),
    usage="-f FILENAME [flags]",
    about="Create a resource from a file or from stdin. JSON and YAML are accepted.",
    examples="""
    # What a file describes
    setpoint create -f ./pod.yaml

    # What another command prints
    cat pod.json | setpoint create -f -

    # The same, changed in an editor before it is created
    setpoint create -f registry.yaml --edit
    """,
    children=CHILDREN,
)
