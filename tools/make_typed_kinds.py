"""Writes the TypedDicts of the kinds that the code reads most: `python tools/make_typed_kinds.py [FOLDER]`.

The source is the field tables (`src/setpoint/kinds/data/fields.jsonl`), the output the modules of
`src/setpoint/kinds/typed/`, whose docstring says how they are used. The same tables give the same text;
`tests/unit/kinds/test_tables.py` compares it with what is checked in.
"""

from __future__ import annotations

import sys
from pathlib import Path

from setpoint.kinds.tables import definition_for, type_of
from setpoint.meta.schema import Shape, Type

FOLDER = Path(__file__).parents[1] / "src" / "setpoint" / "kinds" / "typed"

CORE, META = "io.k8s.api.core.v1", "io.k8s.apimachinery.pkg.apis.meta.v1"
MODULES: dict[str, tuple[str, list[str]]] = {
    "metadata": (
        "ObjectMeta, selectors and references of objects",
        [f"{META}.ObjectMeta", f"{META}.LabelSelector", f"{CORE}.NodeSelector", f"{CORE}.ObjectReference"],
    ),
    "volumes": ("The volumes of a Pod", [f"{CORE}.Volume"]),
    "containers": ("The containers of a Pod", [f"{CORE}.Container", f"{CORE}.EphemeralContainer"]),
    "pod": ("Pod and PodTemplateSpec", [f"{CORE}.Pod", f"{CORE}.PodTemplateSpec"]),
    "node": ("Node", [definition_for("", "v1", "Node")]),
    "persistent_volumes": (
        "PersistentVolume and PersistentVolumeClaim",
        [definition_for("", "v1", "PersistentVolume"), definition_for("", "v1", "PersistentVolumeClaim")],
    ),
    "workloads": (
        "Deployment, ReplicaSet and Job",
        [
            definition_for("apps", "v1", "Deployment"),
            definition_for("apps", "v1", "ReplicaSet"),
            definition_for("batch", "v1", "Job"),
        ],
    ),
    "service": ("Service", [definition_for("", "v1", "Service")]),
    "lease": ("Lease", [definition_for("coordination.k8s.io", "v1", "Lease")]),
    "event": ("Event (of the core group)", [definition_for("", "v1", "Event")]),
}
"""The first line of each module, and the definitions that it begins with.

A module has these and everything that they refer to and no earlier module has."""

SCALARS = {
    Shape.BOOL: "bool",
    Shape.INT32: "int",
    Shape.INT64: "int",
    Shape.FLOAT: "float",
    Shape.INT_OR_STRING: "int | str",
    Shape.ANY: "Any",
}
"""The Python types of the shapes that are not strings; quantities, times and bytes are."""


def class_name(definition: str) -> str:
    return definition.rpartition(".")[2]


def annotation(type_: Type) -> str:
    if type_.shape is Shape.STRUCT:
        return class_name(type_.name)
    if type_.item is not None and type_.shape is Shape.LIST:
        return f"Sequence[{annotation(type_.item)}]"
    if type_.item is not None and type_.shape is Shape.MAP:
        return f"Mapping[str, {annotation(type_.item)}]"
    return SCALARS.get(type_.shape, "str")


def structs_of(type_: Type) -> list[Type]:
    """Return the STRUCTs that a Type refers to directly: itself, or those of its elements."""
    if type_.shape is Shape.STRUCT:
        return [type_]
    return structs_of(type_.item) if type_.item is not None else []


def collect(definition: str, known: set[str], found: dict[str, Type]) -> None:
    """Add the definition and what it refers to, in the order of the fields, to `found`."""
    if definition in known or definition in found:
        return
    found[definition] = struct = type_of(definition)
    for field in struct.fields.values():
        for other in structs_of(field.type):
            collect(other.name, known, found)


def module_text(title: str, structs: dict[str, Type], homes: dict[str, str], name: str) -> str:
    classes = []
    foreign: dict[str, set[str]] = {}
    for definition in sorted(structs, key=class_name):
        rows = []
        for field in structs[definition].fields.values():
            rows.append(f"    {field.name}: ReadOnly[{annotation(field.type)}]\n")
            for other in structs_of(field.type):
                if homes[other.name] != name:
                    foreign.setdefault(homes[other.name], set()).add(class_name(other.name))
        classes.append(f"\n\nclass {class_name(definition)}(TypedDict, total=False):\n")
        classes += rows or ["    pass\n"]
    body = "".join(classes)
    lines = [f'"""{title}.\n\nGenerated from the field tables by `tools/make_typed_kinds.py`.\n"""\n\n']
    lines.append("from __future__ import annotations\n\n")
    abstract = [each for each in ("Mapping", "Sequence") if f"{each}[" in body]
    if abstract:
        lines.append(f"from collections.abc import {', '.join(abstract)}\n")
    typing = ["TYPE_CHECKING", *(["Any"] if "Any]" in body else []), "TypedDict"]
    lines.append(
        f"from typing import {', '.join(typing)}\n\nif TYPE_CHECKING:\n    from typing_extensions import ReadOnly\n"
    )
    if foreign:
        lines.append("\n")
    for module in sorted(foreign):
        lines.append(import_line(f"setpoint.kinds.typed.{module}", sorted(foreign[module], key=str.lower)))
    return "".join(lines) + body


def import_line(module: str, names: list[str]) -> str:
    line = f"    from {module} import {', '.join(names)}\n"
    if len(line) <= 121:
        return line
    return f"    from {module} import (\n" + "".join(f"        {name},\n" for name in names) + "    )\n"


def make_modules() -> dict[str, str]:
    """Return the text of each generated module by the name of its file."""
    homes: dict[str, str] = {}
    contents: dict[str, dict[str, Type]] = {}
    for name, (_, definitions) in MODULES.items():
        contents[name] = {}
        for definition in definitions:
            collect(definition, set(homes), contents[name])
        homes |= dict.fromkeys(contents[name], name)
    if len({class_name(definition) for definition in homes}) < len(homes):
        raise SystemExit("two definitions have the same last name")
    return {f"{name}.py": module_text(MODULES[name][0], contents[name], homes, name) for name in MODULES}


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    for file, text in make_modules().items():
        folder.joinpath(file).write_text(text)
        print(f"{folder / file}: {text.count(chr(10))} lines")
