"""ConfigMaps, Secrets and ServiceAccounts."""

from __future__ import annotations

from base64 import b64decode

from setpoint.cli.describe.context import DescribeContext, Writer, meta
from setpoint.cli.describe.events import find_events, reference_to, write_events, write_found_events
from setpoint.cli.describe.metadata import write_head
from setpoint.client.resources import builtin
from setpoint.meta.errors import ApiError
from setpoint.meta.objects import Obj

_TOKEN_TYPE = "kubernetes.io/service-account-token"
_ACCOUNT_NAME, _ACCOUNT_UID = "kubernetes.io/service-account.name", "kubernetes.io/service-account.uid"


async def configmap(obj: Obj, ctx: DescribeContext) -> str:
    w = Writer()
    write_head(w, obj)
    w.write(0, "\nData\n====\n")
    data, binary = obj.get("data") or {}, obj.get("binaryData") or {}
    for key in sorted(data):
        w.write(0, f"{key}:\n----\n")
        w.write(0, f"{data[key]}\n\n")
    w.write(0, "\nBinaryData\n====\n")
    for key in sorted(binary):
        w.write(0, f"{key}: {len(b64decode(binary[key]))} bytes\n")
    w.write(0, "\n")
    if ctx.show_events:
        # kubectl prints nothing for this kind if the user may not list its events.
        write_found_events(w, ctx, await find_events(ctx, reference_to(obj, "ConfigMap")))
    return w.text()


async def secret(obj: Obj, ctx: DescribeContext) -> str:
    """Describe a Secret by the sizes of its values; the token of a service account is shown."""
    w = Writer()
    write_head(w, obj)
    w.write(0, f"\nType:\t{obj.get('type', '')}\n")
    w.write(0, "\nData\n====\n")
    data = obj.get("data") or {}
    for key in sorted(data):
        content = b64decode(data[key] or "")
        if key == "token" and obj.get("type") == _TOKEN_TYPE:
            w.field(key, content.decode(errors="replace"))
        else:
            w.field(key, f"{len(content)} bytes")
    return w.text()


async def serviceaccount(obj: Obj, ctx: DescribeContext) -> str:
    w = Writer()
    write_head(w, obj)
    pulled = [each.get("name", "") for each in obj.get("imagePullSecrets") or ()]
    if ctx.minor >= 35:
        _write_names(w, "Image pull secrets:", pulled, set())
    else:
        mounted = [each.get("name", "") for each in obj.get("secrets") or ()]
        tokens, missing = await _secrets(ctx, obj, {*pulled, *mounted})
        _write_names(w, "Image pull secrets:", pulled, missing)
        _write_names(w, "Mountable secrets: ", mounted, missing)
        _write_names(w, "Tokens:            ", tokens, missing)
    await write_events(w, ctx, obj, "ServiceAccount")
    return w.text()


async def _secrets(ctx: DescribeContext, account: Obj, named: set[str]) -> tuple[list[str], set[str]]:
    """Return the account's tokens, and the referenced Secrets that do not exist."""
    about = meta(account)
    try:
        found = await ctx.all(builtin("secrets"), about.get("namespace", ""))
    except ApiError:
        return [], set()
    tokens = []
    for each in found:
        annotations = meta(each).get("annotations") or {}
        owner = annotations.get(_ACCOUNT_NAME), annotations.get(_ACCOUNT_UID)
        if each.get("type") == _TOKEN_TYPE and owner == (about.get("name"), about.get("uid")):
            tokens.append(meta(each)["name"])
    return tokens, named - {meta(each)["name"] for each in found}


def _write_names(w: Writer, title: str, names: list[str], missing: set[str]) -> None:
    for at, name in enumerate(names):
        w.row(0, " " * len(title) if at else title, f"{name} (not found)" if name in missing else name)
    if not names:
        w.row(0, title, "<none>")
