"""Rules that no linter knows: sizes, the hot path, module docstrings, loggers, an honest release file."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from .tree import ROOT, SOURCE, module_id, modules, parsed

MAX_FUNCTION_LINES = 70
MAX_FILE_LINES = 800

HOT_PATH = {
    # module: (names it must not use, because each means work for every record)
    "net/connection.py",
    "net/outbound.py",
    "protocol/framing.py",
    "protocol/produce.py",
    "protocol/fetch.py",
    "server/handlers/data/produce.py",
    "server/handlers/data/fetch.py",
    "server/handlers/data/fetching.py",
    "server/handlers/data/consumer_fetch.py",
    "replica/partition.py",
    "storage/log/log.py",
    "storage/log/log_reader.py",
    "storage/log/log_segments.py",
    "storage/log/log_writer.py",
    "storage/segment/data.py",
    "storage/segment/index.py",
    "storage/segment/indexes.py",
    "storage/segment/outlines.py",
    "storage/segment/search.py",
}
BOOLEANS_BY_POSITION = {
    # Hot: a call by position costs less.
    "protocol/header.py: read_client_id",
    "protocol/primitives.py: append_count",
    "protocol/primitives.py: append_nullable_string",
    "protocol/primitives.py: append_topic",
    "record/_batch_py.py: refused_records",
    "replica/fetch_session.py: accept",
    "replica/partition.py: acknowledged",
    "replica/partition.py: append_records",
    "replica/partition.py: read",
    # Both are kept, compared and given on as a pair.
    "controller/driver.py: on_leader_change",
    "controller/external_topic_changes.py: on_leader_change",
    "controller/migration.py: on_leader_change",
    "controller/znode_requests.py: on_leader_change",
    "metadata/log.py: on_leader_change",
    "server/requests/control.py: on_leader_change",
    "server/zookeeper/migration_lifecycle.py: on_leader_change",
    "zookeeper/migrating.py: on_leader_change",
    # Spark calls them so.
    "pipeline/datasource/provider.py: streamWriter",
    "pipeline/datasource/provider.py: writer",
}
PER_RECORD_NAMES = {"Record", "RecordData", "build_batch", "records", "index_records", "iter_records"}
MAY_OVERFLOW = re.compile(r"style: (function|file) size: \S+")


@pytest.mark.parametrize("path", modules(), ids=module_id)
def test_sizes_and_docstring(path: Path) -> None:
    text = path.read_text()
    tree = parsed(path)
    lines = text.splitlines()
    if not MAY_OVERFLOW.search(text[:2000]):
        assert len(lines) <= MAX_FILE_LINES, f"{path.name} has {len(lines)} lines"
    assert ast.get_docstring(tree), "a module opens with its purpose"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            size = (node.end_lineno or node.lineno) - node.lineno + 1
            reason = MAY_OVERFLOW.search(lines[node.lineno - 2]) if node.lineno >= 2 else None
            limit = size if reason else MAX_FUNCTION_LINES
            assert size <= limit, f"{path.name}:{node.lineno} {node.name} has {size} lines"


@pytest.mark.parametrize("name", sorted(HOT_PATH))
def test_hot_path_builds_nothing_for_a_record(name: str) -> None:
    for node in ast.walk(parsed(SOURCE / name)):
        assert not isinstance(node, ast.Await | ast.AsyncFunctionDef), f"{name} is flat and synchronous"
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            assert called not in PER_RECORD_NAMES, f"{name}:{node.lineno} calls {called}"


@pytest.mark.parametrize("path", modules(), ids=module_id)
def test_invariants_survive_optimisation(path: Path) -> None:
    """`python -O` strips assert, so none may guard an invariant."""
    found = [node.lineno for node in ast.walk(parsed(path)) if isinstance(node, ast.Assert)]
    assert not found, f"assert in {path.name} at lines {found}"


@pytest.mark.parametrize("path", modules(), ids=module_id)
def test_a_logger_is_named_logger_and_after_its_module(path: Path) -> None:
    """So that the logger name in a log line leads to the file, and a package's name to all of its lines."""
    imported = [
        node.lineno
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.ImportFrom) and node.module == "logging" and "getLogger" in {n.name for n in node.names}
    ]
    assert not imported, f"getLogger without logging in {path.name} at lines {imported}"
    for node in parsed(path).body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and "getLogger" in ast.unparse(node):
            assert ast.unparse(node) == "logger = logging.getLogger(__name__)", f"{path.name}:{node.lineno}"


def test_every_folder_of_modules_is_a_package() -> None:
    """Else it works from a checkout and is not installed."""
    assert not [str(path.parent) for path in modules() if not (path.parent / "__init__.py").exists()]


def test_no_placeholder_is_left() -> None:
    marker = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
    found = [
        f"{path}:{number}"
        for path in modules()
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if marker.search(line)
    ]
    assert not found, found


def test_classifiers_list_only_pythons_that_were_run() -> None:
    listed = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text())
    run = re.search(r"^pythons=\((.*)\)$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)
    assert run is not None
    assert listed == run[1].split() == ["3.11", "3.12", "3.13"]


def test_no_assert_leaves_a_choice() -> None:
    """With `assert a or b` it remains unknown which half holds: the other may never have been true."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for folder in ("tests", "bench", "compat")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Assert) and isinstance(node.test, ast.BoolOp) and isinstance(node.test.op, ast.Or)
    ]
    assert not found


def booleans_by_position(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Public functions that take a bool by position beside something else; commands of click are called by name."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or node.name.startswith("_"):
            continue
        taken = [*node.args.posonlyargs, *node.args.args]
        others = [each for each in taken if each.arg != "self"]
        flags = [
            each
            for each in others
            if each.annotation is not None and re.fullmatch(r"bool( \| None)?", ast.unparse(each.annotation))
        ]
        is_command = any(
            "click" in ast.unparse(each) or ".command" in ast.unparse(each) for each in node.decorator_list
        )
        if flags and len(others) > 1 and not is_command:
            yield node


def test_booleans_are_named_where_they_are_given() -> None:
    """`end(member, True)` is unreadable. Hot functions and values passed as a tuple are listed as exceptions."""
    found = {f"{module_id(path)}: {node.name}" for path in modules() for node in booleans_by_position(parsed(path))}
    assert found == BOOLEANS_BY_POSITION
