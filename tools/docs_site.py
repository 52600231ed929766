"""Build hook of the documentation site: adds the pages that are not written in `docs/`.

- Documents beside `docs/` (README.md, ARCHITECTURE.md, the READMEs of the examples ...) become pages of the site.
- The reference of the command line is generated from the parsers of the commands.
- The references of `setpoint.sdk` and `setpoint.testing` are generated from signatures and docstrings.

The navigation lists all pages of `docs/decisions/`. Links between documents are written for the repository:
`on_page_markdown` rewrites them for the site, and replaces a link to a file that is not part of it by its text.
"""

from __future__ import annotations

import ast
import inspect
import posixpath
import re
import sys
import textwrap
from importlib import import_module
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[1]

OTHER_DOCUMENTS = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "explanation/architecture.md",
    "CONTRIBUTING.md": "explanation/contributing.md",
    "CHANGELOG.md": "reference/changelog.md",
    "bench/README.md": "explanation/benchmarks.md",
    "examples/README.md": "how-to/examples.md",
    "examples/postgres_operator/README.md": "how-to/example-postgres.md",
    "examples/coolstorage_operator/README.md": "how-to/example-storage.md",
    "examples/gitops/README.md": "how-to/example-gitops.md",
    "examples/three_tier/README.md": "how-to/example-three-tier.md",
}
"""Documents outside of `docs/`, by their path in the repository, with their path in the site."""

_REPOSITORY_PATHS = {page: document for document, page in OTHER_DOCUMENTS.items()}
_FENCE = re.compile(r"(^ *```.*?^ *```$)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")


def on_config(config: Any) -> Any:
    """List the pages of `docs/decisions/` under "Decisions" in the navigation."""
    pages = sorted(path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs" / "decisions").glob("*.md"))
    for section in config.nav:
        for entry in section.get("Explanation", ()):
            if "Decisions" in entry:
                entry["Decisions"] = pages
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the generated pages to the files of the site."""
    sys.path.insert(0, str(ROOT / "src"))  # MkDocs restores the path after it has loaded this module
    pages = {page: (ROOT / document).read_text() for document, page in OTHER_DOCUMENTS.items()}
    pages["reference/commands.md"] = command_reference()
    pages["reference/sdk.md"] = module_reference("setpoint.sdk")
    pages["reference/testing.md"] = module_reference("setpoint.testing")
    for path, text in pages.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Rewrite the links of a document from paths in the repository to paths in the site."""
    here = page.file.src_uri
    document = _REPOSITORY_PATHS.get(here, f"docs/{here}")

    def rewrite(match: re.Match[str]) -> str:
        text, link = match.groups()
        target, hash_sign, anchor = link.partition("#")
        if "://" in link or not target:
            return match[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(document), target))
        found = OTHER_DOCUMENTS.get(path, path.removeprefix("docs/") if path.startswith("docs/") else "")
        if files.get_file_from_path(found) is None:
            return text
        return f"[{text}]({posixpath.relpath(found, posixpath.dirname(here) or '.')}{hash_sign}{anchor})"

    parts = _FENCE.split(markdown)
    return "".join(part if index % 2 else _LINK.sub(rewrite, part) for index, part in enumerate(parts))


def command_reference() -> str:
    """Return the page of all commands: each with its help, as `setpoint COMMAND --help-all` prints it."""
    from setpoint.cli.catalog import GROUPS
    from setpoint.cli.command import Command, Lazy, loaded
    from setpoint.cli.help import help_text, options_text

    lines = ["# Commands", "", "This page is generated from the command line's own parsers.", ""]

    def add(name: str, command: Command | Lazy, level: int) -> None:
        if command.hidden:
            return
        command = loaded(command)
        lines.extend([f"{'#' * level} `{name}`", "", "```text", help_text(command, name, every_flag=True), "```", ""])
        for child, one in command.children.items():
            add(f"{name} {child}", one, min(level + 1, 6))

    for title, commands in GROUPS.items():
        lines += [f"## {title}", ""]
        for name, command in commands.items():
            add(f"setpoint {name}", command, 3)
    lines += ["## Options of every command", "", "```text", options_text(), "```"]
    return "\n".join(lines)


def module_reference(name: str) -> str:
    """Return the page of a module: everything in its `__all__`, with signatures and docstrings."""
    module = import_module(name)
    parts = [f"# `{name}`", _text(inspect.getdoc(module) or "")]
    for exported in module.__all__:
        found = getattr(module, exported)
        parts.append(f"## `{exported}`")
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(found))).body[0]
        except (OSError, TypeError, SyntaxError):
            parts.append(_text(inspect.getdoc(found) or ""))
            continue
        if isinstance(tree, ast.ClassDef):
            parts += _class_reference(tree)
        elif isinstance(tree, ast.FunctionDef | ast.AsyncFunctionDef):
            about = ast.get_docstring(tree) or ""
            parts += [_signature(tree), _text(about)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _class_reference(tree: ast.ClassDef) -> list[str]:
    bases = ", ".join(map(ast.unparse, tree.bases))
    parts = [f"```python\nclass {tree.name}{f'({bases})' if bases else ''}\n```", _text(ast.get_docstring(tree) or "")]
    for index, node in enumerate(tree.body):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and not node.target.id.startswith("_"):
            following = tree.body[index + 1] if index + 1 < len(tree.body) else None
            about = ""
            if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
                about = inspect.cleandoc(str(following.value.value))
            parts += [f"```python\n{ast.unparse(node)}\n```", _text(about)]
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            about = ast.get_docstring(node) or ""
            if not node.name.startswith("_") or (node.name == "__init__" and about):
                parts += [_signature(node), _text(about)]
    return parts


def _signature(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """Return the head of a function as a block of code; removes the body from `node`."""
    node.body = []
    node.decorator_list = [one for one in node.decorator_list if isinstance(one, ast.Name) and one.id == "property"]
    return f"```python\n{ast.unparse(node).strip().removesuffix(':')}\n```"


def _text(docstring: str) -> str:
    """Return a docstring as Markdown: a list needs an empty line before its first item."""
    return re.sub(r"(?m)^(?![-\s])(.+)\n(?=- )", r"\1\n\n", docstring)
