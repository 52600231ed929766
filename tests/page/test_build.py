"""The committed files are those that the sources make, and the sources are sound. Needs node and installed packages."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest
from page_cluster import STATIC, page_files
from page_sources import PAGE, node

FORBIDDEN = re.compile(
    r"dangerouslySetInnerHTML|\.innerHTML|outerHTML\s*=|insertAdjacentHTML|document\.write|\beval\(|new Function\(|new Worker\("
)
MAX_FIRST, MAX_ALL = 80 * 1024, 260 * 1024
"""Bytes, compressed."""
OWN_URLS = re.compile(rb"https?://(?!www\.w3\.org/|127\.0\.0\.1|localhost)[a-z0-9.-]+\.[a-z]{2,}", re.IGNORECASE)
"""Addresses in the built files that are not names of XML namespaces."""


def contents(directory: Path) -> dict[str, bytes]:
    """The files by name; compressed ones as what they contain, since versions of zlib differ."""
    return {
        str(path.relative_to(directory)): gzip.decompress(path.read_bytes())
        if path.suffix == ".gz"
        else path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def built() -> Path:
    directory = page_files()
    if directory is None:
        pytest.skip("the page is not built")
    return directory


def test_the_committed_files_are_those_that_the_sources_make(tmp_path: Path) -> None:
    if not (STATIC / "index.html").is_file():
        pytest.skip("no built files are committed")
    node("node_modules/vite/bin/vite.js", "build", "--outDir", str(tmp_path / "built"), "--logLevel", "error")
    assert contents(tmp_path / "built") == contents(STATIC), (
        "run `npm run build` in page/ and commit src/setpoint/web/static"
    )


def test_the_sources_have_no_type_errors() -> None:
    node("node_modules/typescript/bin/tsc", "--noEmit")


def test_the_sources_make_no_markup_from_text() -> None:
    found = [
        f"{path.relative_to(PAGE)}: {match[0]}"
        for path in sorted((PAGE / "src").rglob("*.ts*"))
        for match in FORBIDDEN.finditer(path.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_packages_have_exact_versions_and_no_place() -> None:
    about = json.loads((PAGE / "package.json").read_text())
    versions = {**about["dependencies"], **about["devDependencies"]}
    assert [each for each in versions.items() if not re.fullmatch(r"\d+\.\d+\.\d+", each[1])] == []
    lock = json.loads((PAGE / "package-lock.json").read_text())
    own = {**lock["packages"][""].get("dependencies", {}), **lock["packages"][""].get("devDependencies", {})}
    assert own == versions
    packages = [each for name, each in lock["packages"].items() if name]
    # `npm ci` refuses a lock without the packages of other platforms, also those that it does not install.
    wanted = {name for each in packages for name in each.get("optionalDependencies", {})}
    assert [name for name in sorted(wanted) if f"node_modules/{name}" not in lock["packages"]] == []
    assert all(each["integrity"].startswith("sha512-") and "resolved" not in each for each in packages)


def test_the_built_files_are_small_and_name_no_other_place() -> None:
    directory = built()

    def sizes(names: set[str]) -> int:
        return sum((directory / f"{name}.gz").stat().st_size for name in names)

    # The document names everything that the first view needs, so that nothing is found late.
    first = {
        "index.html",
        *re.findall(r'(?:src|href)="\./(assets/[^"]+\.(?:js|css))"', (directory / "index.html").read_text()),
    }
    for name in [each for each in first if each.endswith(".js")]:
        imported = re.findall(r'(?:from|import)"\./([^"]+)"', (directory / name).read_text())
        assert {f"assets/{each}" for each in imported} <= first, (
            f"{name} imports a file that the document does not name"
        )
    everything = {
        str(path.relative_to(directory)) for path in (directory / "assets").iterdir() if path.suffix in (".js", ".css")
    }
    assert sizes(first) <= MAX_FIRST and sizes(everything | {"index.html"}) <= MAX_ALL
    foreign = {
        (name, match[0])
        for name, content in contents(directory).items()
        if name.endswith((".js", ".css", ".html"))
        for match in OWN_URLS.finditer(content)
    }
    assert foreign == set()


def test_the_licences_of_all_bundled_packages_are_listed() -> None:
    text = (built() / "licenses.txt").read_text(encoding="utf-8")
    about = json.loads((PAGE / "package.json").read_text())
    for name, version in about["dependencies"].items():
        assert f"{name} {version}\nLicense: " in text
    assert text.count("License: ") >= len(about["dependencies"])


def test_no_script_or_style_is_inline() -> None:
    document = (built() / "index.html").read_text()
    assert (
        re.findall(r"<script(?![^>]*\bsrc=)", document) == [] and "<style" not in document and "style=" not in document
    )
    assert document.count("__CSP_NONCE__") >= 2


def test_the_document_contains_the_first_frame() -> None:
    """Header and navigation can be painted before a script runs."""
    document = (built() / "index.html").read_text()
    frame = document[document.index('<div id="app"><div class="first-frame" aria-hidden="true">') :]
    labels = re.findall(r'<span class="label">([^<]+)</span>', frame)
    assert labels[:2] == ["Objects", "Chain"] and len(labels) >= 8 and "undefined" not in frame
