"""No command that shows the past, its causes or a plan prints values of Secrets."""

from __future__ import annotations

from base64 import b64encode

from command_line import Typed

VALUES = ("geheim", "anders", "nochmal")


async def test_values_of_secrets_are_not_printed(typed: Typed) -> None:
    """`get` shows them, because that is what it is asked for."""

    async def applied(password: str) -> str:
        manifest = f"apiVersion: v1\nkind: Secret\nmetadata: {{name: s, namespace: shop}}\nstringData: {{password: {password}}}\n"
        await typed("apply -n shop -f -", stdin=manifest)
        lines = (await typed("history secret/s -n shop")).splitlines()
        return lines[1].split()[0]

    await typed("create namespace shop")
    await applied(VALUES[0])
    changed = await applied(VALUES[1])
    printed = [
        await typed(f"undo {changed} --plan"),
        await typed(f"undo {changed} -o json"),
        await typed(f"restore --at {int(changed) - 1} secret/s -n shop --plan"),
        await typed(f"restore --at {int(changed) - 1} secret/s -n shop -o json"),
        await typed("history secret/s -n shop"),
        await typed("history secret/s -n shop -o wide"),
        await typed("history secret/s -n shop -o json"),
        await typed("why secret/s data.password -n shop"),
        await typed("why secret/s data.password -n shop -o json"),
        (await typed.run(f"diff --from {int(changed) - 1} secret/s -n shop")).out,
    ]
    await applied(VALUES[2])
    conflict = await typed.run(f"undo {changed} --yes")
    assert conflict.code == 1
    printed += [conflict.out, conflict.err]
    await typed("delete namespace shop --wait=false")
    await typed("delete secret s -n shop")
    deleted = (await typed("history secret/s -n shop")).splitlines()[1].split()[0]
    printed += [await typed(f"undo {deleted} --plan"), await typed(f"undo {deleted} -o json")]
    for text in printed:
        assert text.strip(), printed
        for value in VALUES:
            assert value not in text and b64encode(value.encode()).decode() not in text, text
