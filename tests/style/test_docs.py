"""Documents keep step with the code: settings are generated, named tests and files exist, the map stays short."""

from __future__ import annotations

import ast
import importlib.util
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MAP = ROOT / "ARCHITECTURE.md"
PROMISES = ROOT / "SAFETY.md"
DOCUMENTS = [MAP, PROMISES, ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
WRITTEN = ("src", "tests", "bench", "compat", "docs", "examples", ".ci")
SUFFIXES = {".py", ".pyi", ".pyx", ".c", ".md", ".sh", ".js", ".go", ""}
MADE = {"__pycache__", "results", "node_modules"}

MAX_MAP_LINES = 300
TEST_NAME = re.compile(r"`((?:tests|compat)/[\w/]+\.py)((?:::\w+)*)`")
SOURCE_NAME = re.compile(r"`((?:src/ottla/|docs/|bench/|compat/)?[\w/]+/[\w./]*\w\.(?:py|pyx|md))(?::\w+)?`")
PAGE_NAME = re.compile(r"[\w./-]+\.md\b")
ELSEWHERE = re.compile(
    r"\bdocuments? \d+\b|\bpromise \d|\bpromises \d+(?: to|,)|\s/(?:home|root|work)/\w|\bshared/(?:spec|design)",
    re.IGNORECASE,
)
LINK = re.compile(r"\]\((?!https?:)([^)#]+)\)")


def configuration_page() -> str:
    """The current output of `docs/generate.py`."""
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.configuration_page()


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
    assert written == configuration_page(), "docs/configuration.md is old: run `make docs`"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_named_tests_exist(document):
    missing = []
    for path, name in TEST_NAME.findall(document.read_text()):
        if not (ROOT / path).is_file() or (name and name.removeprefix("::") not in names_in(ROOT / path)):
            missing.append(path + name)
    assert not missing


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_named_files_exist(document):
    text = document.read_text()
    named = {name for name in SOURCE_NAME.findall(text) if not name.startswith("tests/")} | set(LINK.findall(text))
    roots = (document.parent, ROOT, ROOT / "src" / "ottla")
    missing = sorted(name for name in named if not any((root / name).exists() for root in roots))
    assert not missing


def written_files() -> Iterator[Path]:
    """All that people wrote here, results of measurements aside."""
    yield from (path for path in ROOT.iterdir() if path.suffix in {".md", ".toml"} or path.name == "Makefile")
    for folder in WRITTEN:
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in SUFFIXES and path.is_file() and not MADE & set(path.relative_to(ROOT).parts):
                yield path


def test_cited_documents_are_available():
    """A reader has this repository, Kafka's documents and KIPs, but not the papers of a module's author."""
    made = {"table.md"}  # bench writes it
    found = []
    for path in written_files():
        text = path.read_text(encoding="utf-8", errors="replace")
        if path == Path(__file__):
            continue
        pages = {name for name in PAGE_NAME.findall(text) if Path(name).name not in made}
        missing = {
            name for name in pages if not any((root / name).exists() for root in (ROOT, ROOT / "docs", path.parent))
        }
        found += [f"{path.relative_to(ROOT)}: {name}" for name in sorted(missing | set(ELSEWHERE.findall(text)))]
    assert not found


def test_every_invariant_names_what_holds_it():
    contracts = {
        contract["name"]
        for contract in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    }
    invariants = re.findall(r"\*\*Invariant:\*\*(.*?)(?=\n\n|\n- |\Z)", MAP.read_text(), re.DOTALL)
    assert len(invariants) > 20
    for invariant in invariants:
        quoted = {" ".join(name.split()) for name in re.findall(r'"([^"]+)"', invariant)}
        assert {*TEST_NAME.findall(invariant), *(quoted & contracts)}, f"nothing holds:{invariant}"


def test_the_map_is_short_enough_to_be_read():
    assert len(MAP.read_text().splitlines()) < MAX_MAP_LINES


def test_every_package_is_on_the_map():
    packages = {path.parent.name for path in (ROOT / "src" / "ottla").glob("*/__init__.py")}
    listed = set(re.findall(r"^\| `(\w+)/` \|", MAP.read_text(), re.MULTILINE))
    assert packages == listed
