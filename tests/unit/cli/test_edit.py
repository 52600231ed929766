"""`edit`, and editing before creating."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from command_line import Typed
from local_server import LocalServer

PATH = os.environ["PATH"]
MAP = ("v1", "ConfigMap")
ONE = "{apiVersion: v1, kind: ConfigMap, metadata: {name: one}, data: {a: before}}\n"


@pytest.fixture
async def one(typed: Typed) -> None:
    await typed("apply -f -", ONE)


def taken(name: str) -> str:
    """A file that was left for the user: read and deleted."""
    text = Path(name).read_text()
    Path(name).unlink()
    return text


def script(tmp_path: Path, *bodies: str) -> str:
    """An editor that does one thing after another, each time it is started; what it saw is kept in `seen.N`."""
    path = tmp_path / "editor"
    cases = "\n".join(f"{at}) {body} ;;" for at, body in enumerate(bodies))
    path.write_text(
        f"#!/bin/sh\ncd {tmp_path}\nn=$(ls | grep -c '^seen')\ncp \"$1\" seen.$n\ncase $n in\n{cases}\nesac\n"
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


@pytest.mark.usefixtures("one")
async def test_changes_are_sent_as_a_patch(typed: Typed, local_server: LocalServer, tmp_path: Path) -> None:
    editor = script(tmp_path, 'sed -i s/before/after/ "$1"')
    assert await typed("edit cm/one", EDITOR=editor, PATH=PATH) == "configmap/one edited\n"
    seen = (tmp_path / "seen.0").read_text()
    assert seen.startswith("# Please edit the object below. Lines beginning with a '#' will be ignored,\n")
    assert "managedFields" not in seen
    found = await local_server.client.get(MAP, "one", "default")
    assert found["data"] == {"a": "after"}


@pytest.mark.usefixtures("one")
async def test_an_unchanged_or_empty_file_cancels_the_edit(typed: Typed, tmp_path: Path) -> None:
    done = await typed.run("edit cm one", EDITOR="true", PATH=PATH)
    assert (done.code, done.out, done.err) == (0, "", "Edit cancelled, no changes made.\n")
    done = await typed.run("edit cm one", KUBE_EDITOR="cp /dev/null", EDITOR="false", PATH=PATH)
    assert (done.code, done.err) == (0, "Edit cancelled, saved file was empty.\n")


@pytest.mark.usefixtures("one")
async def test_an_invalid_edit_is_reopened_with_the_error(
    typed: Typed, local_server: LocalServer, tmp_path: Path
) -> None:
    editor = script(
        tmp_path, 'sed -i "s/a: before/bad key: x/" "$1"', 'echo "]" >> "$1"', 'sed -i "s/bad key/good/; s/]//" "$1"'
    )
    done = await typed.run("edit cm one", EDITOR=editor, PATH=PATH)
    assert (done.code, done.out) == (0, "configmap/one edited\n")
    assert done.err == 'error: configmaps "one" is invalid\n'
    assert '# configmaps "one" was not valid:\n# * data[bad key]: Invalid value' in (tmp_path / "seen.1").read_text()
    assert "# The edited file had a syntax error: " in (tmp_path / "seen.2").read_text()
    assert (await local_server.client.get(MAP, "one", "default"))["data"] == {"good": "x"}


@pytest.mark.usefixtures("one")
async def test_a_cancelled_edit_is_saved_in_a_file(typed: Typed, tmp_path: Path) -> None:
    editor = script(tmp_path, 'sed -i "s/a: before/bad key: x/" "$1"')
    done = await typed.run("edit cm one", EDITOR=editor, PATH=PATH)
    assert done.code == 1
    assert "bad key: x" in taken(done.err.split('stored to "')[1].split('"')[0])
    assert done.err.endswith("error: Edit cancelled, no valid changes were saved.\n")


@pytest.mark.usefixtures("one")
async def test_a_conflict_is_reported_and_the_edit_saved(
    typed: Typed, local_server: LocalServer, tmp_path: Path
) -> None:
    await local_server.client.patch(MAP, "one", {"data": {"b": "c"}}, "default")
    editor = script(tmp_path, """sed -i 's/resourceVersion: .*/resourceVersion: "1"/; s/before/x/' "$1" """)
    done = await typed.run("edit cm one", EDITOR=editor, PATH=PATH)
    assert done.code == 1
    assert 'error: configmaps "one" could not be patched: ' in done.err
    assert "a: x" in taken(done.err.split("replace -f ")[1].split("`")[0])


@pytest.mark.usefixtures("one")
async def test_several_objects_and_json(typed: Typed, local_server: LocalServer, tmp_path: Path) -> None:
    await typed("apply -f -", ONE.replace("one", "two"))
    editor = script(tmp_path, """sed -i '0,/a: before/s//a: after/' "$1" """, """sed -i s/after/json/ "$1" """)
    assert await typed("edit cm", EDITOR=editor, PATH=PATH) == "configmap/one edited\nconfigmap/two skipped\n"
    assert '"data": {\n        "a": "json"' in await typed("edit cm one -o json", EDITOR=editor, PATH=PATH)
    assert (tmp_path / "seen.1").read_text().startswith("{\n")


@pytest.mark.usefixtures("one")
async def test_identity_fields_cannot_be_edited(typed: Typed) -> None:
    done = await typed.run("edit cm one", EDITOR="sed -i s/ConfigMap/Secret/", PATH=PATH)
    assert done.code == 1
    assert done.err.endswith("error: At least one of apiVersion, kind and name was changed\n")
    assert "kind: Secret" in taken(done.err.split('stored to "')[1].split('"')[0])


async def test_objects_are_edited_before_they_are_created(typed: Typed, local_server: LocalServer) -> None:
    assert await typed("create --edit -f -", ONE, EDITOR="sed -i s/before/made/", PATH=PATH) == (
        "configmap/one created\n"
    )
    assert (await local_server.client.get(MAP, "one", "default"))["data"] == {"a": "made"}


@pytest.mark.usefixtures("one")
async def test_the_last_applied_annotation_is_edited(typed: Typed, local_server: LocalServer) -> None:
    line = "apply edit-last-applied cm/one"
    assert await typed(line, EDITOR="sed -i s/before/told/", PATH=PATH) == "configmap/one edited\n"
    assert "a: told" in await typed("apply view-last-applied cm/one")
    assert (await local_server.client.get(MAP, "one", "default"))["data"] == {"a": "before"}


@pytest.mark.usefixtures("one")
async def test_a_missing_editor_is_an_error(typed: Typed) -> None:
    assert 'unable to launch the editor "nowhere"' in await typed.refused("edit cm one", EDITOR="nowhere", PATH=PATH)
    failed = await typed.refused("edit cm one", EDITOR="false", PATH=PATH)
    assert 'there was a problem with the editor "false"' in failed
