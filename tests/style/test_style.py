"""Rules that no linter knows: sizes, the hot path, module docstrings, loggers, an honest release file."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from .tree import ROOT, SOURCE, module_id, modules, parsed, place, report

MAX_FUNCTION_LINES = 70
MAX_FILE_LINES = 800

HOT_PATH = {
    # module: (names it must not use, because each means work for every record)
    "net/connection.py",
    "net/outbound.py",
    "protocol/_hot_py.py",
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
    "protocol/_hot_py.py: read_client_id",
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
PLACEHOLDER = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
MAY_OVERFLOW = re.compile(r"style: (function|file) size: \S+")


Functions = ast.FunctionDef | ast.AsyncFunctionDef


def large_files(path: Path) -> Iterator[str]:
    """A file of too many lines."""
    text = path.read_text()
    count = len(text.splitlines())
    if count > MAX_FILE_LINES and not MAY_OVERFLOW.search(text[:2000]):
        yield f"{place(path)} {count} lines"


def test_files_are_short() -> None:
    report(found for path in modules() for found in large_files(path))


def large_functions(path: Path) -> Iterator[str]:
    """Functions of too many lines."""
    lines = path.read_text().splitlines()
    for node in ast.walk(parsed(path)):
        if isinstance(node, Functions):
            size = (node.end_lineno or node.lineno) - node.lineno + 1
            reason = MAY_OVERFLOW.search(lines[node.lineno - 2]) if node.lineno >= 2 else None
            if size > MAX_FUNCTION_LINES and not reason:
                yield f"{place(path, node.lineno)} {node.name} has {size} lines"


def test_functions_are_short() -> None:
    report(found for path in modules() for found in large_functions(path))


def without_docstring(path: Path) -> Iterator[str]:
    """A module that does not open with its purpose."""
    if not ast.get_docstring(parsed(path)):
        yield f"{place(path)} no docstring"


def test_every_module_has_a_docstring() -> None:
    report(found for path in modules() for found in without_docstring(path))


def work_per_record(path: Path) -> Iterator[str]:
    """Statements that wait, and calls that create an object for each record."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Await | ast.AsyncFunctionDef):
            yield f"{place(path, node.lineno)} the hot path is flat and synchronous"
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in PER_RECORD_NAMES:
                yield f"{place(path, node.lineno)} calls {called}"


def test_hot_path_builds_nothing_for_a_record() -> None:
    report(found for name in sorted(HOT_PATH) for found in work_per_record(SOURCE / name))


def asserts(path: Path) -> Iterator[str]:
    """All assert statements."""
    return (f"{place(path, node.lineno)} assert" for node in ast.walk(parsed(path)) if isinstance(node, ast.Assert))


def test_invariants_survive_optimisation() -> None:
    """`python -O` strips assert, so none may guard an invariant."""
    report(found for path in modules() for found in asserts(path))


def misnamed_loggers(path: Path) -> Iterator[str]:
    """Loggers of a module with another name or variable, and `getLogger` without `logging`."""
    for node in ast.walk(parsed(path)):
        if (
            isinstance(node, ast.ImportFrom)
            and node.module == "logging"
            and "getLogger" in {n.name for n in node.names}
        ):
            yield f"{place(path, node.lineno)} getLogger without logging"
    for statement in parsed(path).body:
        text = ast.unparse(statement) if isinstance(statement, ast.Assign | ast.AnnAssign) else ""
        if "getLogger" in text and text != "logger = logging.getLogger(__name__)":
            yield f"{place(path, statement.lineno)} {text}"


def test_a_logger_is_named_logger_and_after_its_module() -> None:
    """So that the logger name in a log line leads to the file, and a package's name to all of its lines."""
    report(found for path in modules() for found in misnamed_loggers(path))


def test_every_folder_of_modules_is_a_package() -> None:
    """Else it works from a checkout and is not installed."""
    report(f"{place(path)} no __init__.py" for path in modules() if not (path.parent / "__init__.py").exists())


def placeholders(path: Path) -> Iterator[str]:
    """Lines with a mark of unfinished work."""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if marker := PLACEHOLDER.search(line):
            yield f"{place(path, number)} {marker.group()}"


def test_no_placeholder_is_left() -> None:
    report(found for path in modules() for found in placeholders(path))


def test_classifiers_list_only_pythons_that_were_run() -> None:
    listed = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text())
    run = re.search(r"^pythons=\((.*)\)$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)
    assert run is not None
    assert listed == run[1].split() == ["3.11", "3.12", "3.13"]


def asserts_with_or(path: Path) -> Iterator[str]:
    """Asserts of one condition or another. The tree is not cached: there are thousands of tests."""
    for node in ast.walk(ast.parse(path.read_text(), path)):
        if isinstance(node, ast.Assert) and isinstance(node.test, ast.BoolOp) and isinstance(node.test.op, ast.Or):
            yield f"{place(path, node.lineno)} assert with or"


def test_no_assert_leaves_a_choice() -> None:
    """With `assert a or b` it remains unknown which half holds: the other may never have been true."""
    paths = (path for folder in ("tests", "bench", "compat") for path in sorted((ROOT / folder).rglob("*.py")))
    report(found for path in paths for found in asserts_with_or(path))


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


def booleans_of(path: Path) -> Iterator[str]:
    """The public functions of a module that take a bool by position, except the listed ones."""
    for node in booleans_by_position(parsed(path)):
        if f"{module_id(path)}: {node.name}" not in BOOLEANS_BY_POSITION:
            yield f"{place(path, node.lineno)} {node.name} takes a bool by position"


def test_booleans_are_named_where_they_are_given() -> None:
    """`end(member, True)` is unreadable. Hot functions and values passed as a tuple are listed as exceptions."""
    report(found for path in modules() for found in booleans_of(path))
    found = {f"{module_id(path)}: {node.name}" for path in modules() for node in booleans_by_position(parsed(path))}
    report(f"BOOLEANS_BY_POSITION: {name} does not take one" for name in sorted(BOOLEANS_BY_POSITION - found))


def test_planted_violations_are_reported_with_their_lines(tmp_path: Path) -> None:
    planted = tmp_path / "planted.py"
    source = """
        import logging
        from logging import getLogger
        log = logging.getLogger("other")
        async def fetch(partition, is_follower: bool):
            assert partition or is_follower
            return build_batch()  # TO_DO
        """
    lines = textwrap.dedent(source).strip().replace("TO_DO", "TODO").splitlines()
    planted.write_text("\n".join([*lines, "def large():", *(["    pass"] * 800)]))
    rules = (large_files, large_functions, without_docstring, work_per_record, asserts, misnamed_loggers, placeholders)
    found = [each for rule in (*rules, asserts_with_or, booleans_of) for each in rule(planted)]
    assert found == [
        "planted.py:1 807 lines",
        "planted.py:7 large has 801 lines",
        "planted.py:1 no docstring",
        "planted.py:4 the hot path is flat and synchronous",
        "planted.py:6 calls build_batch",
        "planted.py:5 assert",
        "planted.py:2 getLogger without logging",
        "planted.py:3 log = logging.getLogger('other')",
        "planted.py:6 TODO",
        "planted.py:5 assert with or",
        "planted.py:4 fetch takes a bool by position",
    ]
    with pytest.raises(pytest.fail.Exception, match=r"^2 violations\na\nb$"):
        report(["a", "b"])
