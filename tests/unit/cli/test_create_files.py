"""`create -f`."""

from __future__ import annotations

from command_line import Typed

MAP = """
apiVersion: v1
kind: ConfigMap
metadata: {name: NAME}
data: {a: b}
"""


def config_map(name: str) -> str:
    return MAP.replace("NAME", name)


async def test_objects_are_created_in_order_and_printed(typed: Typed) -> None:
    both = config_map("one") + "---" + config_map("two")
    assert await typed("create -f -", both) == "configmap/one created\nconfigmap/two created\n"
    assert await typed("create -f - -o name", config_map("three")) == "configmap/three\n"


async def test_an_existing_object_fails_and_the_others_are_created(typed: Typed) -> None:
    await typed("create -f -", config_map("one"))
    done = await typed.run("create -f -", config_map("one") + "---" + config_map("two"))
    assert (done.code, done.out) == (1, "configmap/two created\n")
    assert done.err == (
        'Error from server (AlreadyExists): error when creating "STDIN": configmaps "one" already exists\n'
    )


async def test_dry_runs_store_nothing(typed: Typed) -> None:
    assert await typed("create -f - --dry-run=client", config_map("one")) == "configmap/one created (dry run)\n"
    assert await typed("create -f - --dry-run=server", config_map("one")) == "configmap/one created (server dry run)\n"
    assert await typed("create -f -", config_map("one")) == "configmap/one created\n"
    assert 'Invalid dry-run value (x). Must be "none", "server", or "client".' in await typed.refused(
        "create -f - --dry-run=x", config_map("two")
    )


async def test_documents_before_a_malformed_one_are_created(typed: Typed) -> None:
    done = await typed.run("create -f -", config_map("one") + "---\n: : [\n")
    assert (done.code, done.out) == (1, "configmap/one created\n")
    assert done.err.startswith("error: error parsing STDIN: ")


async def test_unknown_fields_are_rejected_warned_of_or_dropped(typed: Typed) -> None:
    wrong = config_map("one") + "odd: 1\n"
    assert 'unknown field "odd"' in await typed.refused("create -f -", wrong)
    warned = await typed.run("create -f - --validate=warn", wrong)
    assert (warned.code, warned.err) == (0, 'Warning: unknown field "odd"\n')
    await typed("create -f - --validate=false", config_map("two") + "odd: 1\n")


async def test_save_config_writes_the_last_applied_annotation(typed: Typed) -> None:
    out = await typed("create -f - --save-config --dry-run=client -o json", config_map("one"))
    assert '"kubectl.kubernetes.io/last-applied-configuration": "{\\"apiVersion\\":\\"v1\\",\\"data\\"' in out
    assert '\\"metadata\\":{\\"annotations\\":{},\\"name\\":\\"one\\",\\"namespace\\":\\"default\\"}}\\n"' in out


async def test_missing_arguments_are_reported(typed: Typed) -> None:
    assert await typed.refused("create") == "error: must specify one of -f and -k\n"
    assert "Unexpected args: [x y]\nSee 'setpoint create -h' for help and examples" in await typed.refused(
        "create -f - x y"
    )
    assert await typed.refused("create -f -", "") == "error: no objects passed to create\n"
    assert 'no matches for kind "Nothing" in version "v1"' in await typed.refused(
        "create -f -", "{kind: Nothing, apiVersion: v1}"
    )


async def test_raw_sends_a_file_unchanged(typed: Typed) -> None:
    out = await typed(
        "create --raw /api/v1/namespaces/default/configmaps -f -",
        '{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"raw"}}',
    )
    assert '"name":"raw"' in out
