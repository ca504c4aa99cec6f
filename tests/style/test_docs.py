"""Documents match the code: pages are generated, named tests and files exist, each promise has evidence."""

from __future__ import annotations

import ast
import importlib.util
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from ottla.common import runbooks

from .tree import ROOT, place, place_at, report

MAP = ROOT / "docs" / "internals" / "architecture.md"
GUIDES = ROOT / "docs" / "guides"
REFERENCE = ROOT / "docs" / "reference"
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
WRITTEN = ("src", "tests", "bench", "compat", "deploy", "docs", "examples", "release", ".ci")
SUFFIXES = {".py", ".pyi", ".pyx", ".c", ".md", ".sh", ".js", ".go", ""}
WRITTEN_BY_BENCH = {"table.md"}
MADE = {"__pycache__", "results", "node_modules"}

MAX_MAP_LINES = 300
MAX_README_BYTES = 8192
TEST_NAME = re.compile(r"`((?:tests|compat)/[\w/]+\.py)((?:::\w+)*)`")
SOURCE_NAME = re.compile(r"`((?:src/ottla/|docs/|bench/|compat/)?[\w/]+/[\w./]*\w\.(?:py|pyx|md))(?::\w+)?`")
PAGE_NAME = re.compile(r"[\w./-]+\.md\b")
ELSEWHERE = re.compile(
    r"\bdocuments? \d+\b|\bpromise \d|\bpromises \d+(?: to|,)|\s/(?:home|root|work)/\w|\bshared/(?:spec|design)",
    re.IGNORECASE,
)
LINK = re.compile(r"\]\((?!https?:)([^)#]+)\)")


def generator(name: str) -> ModuleType:
    """A module of docs/ that generates a page."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def names_in(path: Path) -> set[str]:
    """Functions and classes of a test module, those of a class as `Class::name`."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}::{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef)}
    return found


def test_configuration_page_matches_the_tables():
    written = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert written == generator("generate").configuration_page(), "configuration.md is out of date, run `make docs`"


def test_command_line_page_matches_the_commands():
    written = (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    assert written == generator("generate_cli").cli_page(), "docs/reference/cli.md is out of date, run `make docs`"


def test_every_promise_has_evidence():
    """Each promise has a marked test, and each marker names a promise."""
    script = generator("generate_evidence")
    assert len(script.promises()) > 50
    assert not script.defects()


def test_evidence_page_is_current():
    written = (ROOT / "docs" / "evidence.md").read_text(encoding="utf-8")
    assert written == generator("generate_evidence").evidence_page(), "docs/evidence.md is outdated: run `make docs`"


def test_limits_page_matches_the_code():
    written = (ROOT / "docs" / "operations" / "limits.md").read_text(encoding="utf-8")
    assert written == generator("generate_limits").limits_page(written), "limits.md is outdated: run `make docs`"


def test_list_of_documents_is_current(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    written = (ROOT / "docs" / "llms.txt").read_text(encoding="utf-8")
    assert written == generator("generate_llms").llms_file(), "docs/llms.txt is outdated: run `make docs`"


def absent_tests(document: Path) -> Iterator[str]:
    """Tests that a document names and that do not exist."""
    for number, line in enumerate(document.read_text().splitlines(), 1):
        for path, name in TEST_NAME.findall(line):
            if not (ROOT / path).is_file() or (name and name.removeprefix("::") not in names_in(ROOT / path)):
                yield f"{place(document, number)} {path}{name}"


def test_named_tests_exist():
    report(found for document in DOCUMENTS for found in absent_tests(document))


def absent_files(document: Path) -> Iterator[str]:
    """Files that a document names or links and that do not exist."""
    roots = (document.parent, ROOT, ROOT / "src" / "ottla")
    text = document.read_text()
    for match in (*SOURCE_NAME.finditer(text), *LINK.finditer(text)):
        is_test = match.re is SOURCE_NAME and match[1].startswith("tests/")
        if not is_test and not any((root / match[1]).exists() for root in roots):
            yield f"{place_at(document, text, match.start())} {match[1]}"


def test_named_files_exist():
    report(found for document in DOCUMENTS for found in absent_files(document))


def test_a_planted_name_of_an_absent_file_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("`tests/style/test_docs.py::test_no`\n`net/nowhere.py`, `net/connection.py`\n[a](b.md)\n")
    assert [*absent_tests(page), *absent_files(page)] == [
        "page.md:1 tests/style/test_docs.py::test_no",
        "page.md:2 net/nowhere.py",
        "page.md:3 b.md",
    ]


def test_runbooks_are_named_by_messages_or_monitoring():
    """Each path in `common/runbooks.py` exists and is used; each other runbook has an alert."""
    paths = {name: path for name, path in vars(runbooks).items() if name.isupper()}
    assert not [path for path in paths.values() if not (ROOT / path).is_file()]
    source = ROOT / "src" / "ottla"
    texts = [path.read_text() for path in source.rglob("*.py") if path != source / "common" / "runbooks.py"]
    assert not [name for name in paths if not any(re.search(rf"[ ,(]{name}\b", text) for text in texts)]
    monitoring = LINK.findall((ROOT / "docs" / "operations" / "monitoring.md").read_text())
    named = {Path(path).name for path in (*paths.values(), *monitoring)}
    assert {path.name for path in (ROOT / "docs" / "operations" / "runbooks").glob("*.md")} <= named


def is_generated(path: Path) -> bool:
    """Whether a tool created the file: caches, results of benchmarks, metadata of an installation."""
    parts = path.relative_to(ROOT).parts
    return bool(MADE & set(parts)) or any(part.endswith(".egg-info") for part in parts)


def written_files() -> Iterator[Path]:
    """All that people wrote here, results of measurements aside."""
    yield from (path for path in ROOT.iterdir() if path.suffix in {".md", ".toml"} or path.name == "Makefile")
    for folder in WRITTEN:
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in SUFFIXES and path.is_file() and not is_generated(path):
                yield path


def unavailable_documents(path: Path) -> Iterator[str]:
    """Pages that a file cites and that a reader does not have."""
    text = path.read_text(encoding="utf-8", errors="replace")
    roots = (ROOT, ROOT / "docs", GUIDES, REFERENCE, path.parent)
    for match in (*PAGE_NAME.finditer(text), *ELSEWHERE.finditer(text)):
        name = match.group()
        is_here = match.re is PAGE_NAME and (
            Path(name).name in WRITTEN_BY_BENCH or any((root / name).exists() for root in roots)
        )
        if not is_here:
            yield f"{place_at(path, text, match.start())} {name}"


def test_cited_documents_are_available():
    """A reader has this repository, Kafka's documents and KIPs, but not the papers of a module's author."""
    files = (path for path in written_files() if path != Path(__file__))
    report(found for path in files for found in unavailable_documents(path))


def test_every_import_contract_is_on_the_map():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    text = MAP.read_text()
    assert not [contract["name"] for contract in contracts if f'"{contract["name"]}"' not in text]


def test_readme_is_at_most_8_kilobytes():
    assert (ROOT / "README.md").stat().st_size <= MAX_README_BYTES


def test_the_map_is_short_enough_to_be_read():
    assert len(MAP.read_text().splitlines()) < MAX_MAP_LINES


def test_every_package_is_on_the_map():
    packages = {path.parent.name for path in (ROOT / "src" / "ottla").glob("*/__init__.py")}
    listed = set(re.findall(r"^\| `(\w+)/` \|", MAP.read_text(), re.MULTILINE))
    assert packages == listed
