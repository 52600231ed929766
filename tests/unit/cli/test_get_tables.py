"""`get`: tables of several kinds, and of objects given by name."""

from __future__ import annotations

from command_line import Typed
from local_server import LocalServer


async def _config_maps(local_server: LocalServer, *names: str) -> None:
    for name in names:
        await local_server.client.create(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}}
        )


async def test_objects_given_by_name_are_sorted_together(typed: Typed, local_server: LocalServer) -> None:
    await _config_maps(local_server, "a", "b", "c")
    shown = await typed("get configmaps b c a --sort-by=.metadata.name --no-headers")
    assert [line.split()[0] for line in shown.splitlines()] == ["a", "b", "c"]


async def test_sorting_by_a_missing_field_is_an_error(typed: Typed, local_server: LocalServer) -> None:
    await _config_maps(local_server, "a", "b")
    refused = await typed.run("get configmaps --sort-by=.nope")
    assert refused.code == 1
    assert 'couldn\'t find any field with path "{.nope}"' in refused.err


async def test_kinds_in_no_namespace_share_the_column_of_those_before_them(
    typed: Typed, local_server: LocalServer
) -> None:
    await _config_maps(local_server, "a")
    first, second = (await typed("get configmaps,namespaces -A")).split("\n\n")
    assert first.startswith("NAMESPACE ") and second.startswith("NAMESPACE ")
    first, second = (await typed("get namespaces,configmaps -A")).split("\n\n")
    assert first.startswith("NAME ") and second.startswith("NAMESPACE ")


async def test_a_failed_path_is_shown(typed: Typed, local_server: LocalServer) -> None:
    await _config_maps(local_server, "a")
    refused = await typed.run("get configmap a -o jsonpath={.metadata.nmae} --allow-missing-template-keys=false")
    assert refused.code == 1 and refused.out == ""
    assert "did you mean name?" in refused.err.splitlines()[-1]
