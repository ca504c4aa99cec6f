"""The shape of the source: no circle of imports, no constructor or class larger than a reader can hold in mind."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path

from ..suite.dependencies import imported_modules, module_of
from .tree import ROOT, SOURCE, modules, parsed, place, report

MAX_CONSTRUCTOR_ARGUMENTS = 10
MAX_PUBLIC_METHODS = 25
MAX_METHODS = 30

LARGE_CLASSES = {
    # class: (public methods, all methods)
    # A method for each kind of record, field, setting or fault, which all have the same form.
    "simulation.cluster_faults.ClusterNemesis": (2, 31),
    "ottla.common.config.broker_configs.BrokerConfig": (35, 41),
    "ottla.metadata.delta.MetadataDelta": (26, 34),
    "ottla.record.batch.BatchView": (30, 34),
    # A state machine whose methods are its transitions: the steps share all of its state.
    "ottla.controller.migration.Migration": (8, 34),
    "ottla.coordinator.runtime.context.CoordinatorContext": (12, 44),
    "ottla.net.connection.Connection": (16, 42),
    "ottla.quorum.driver.QuorumDriver": (23, 42),
    "ottla.replica.fetcher.ReplicaFetcher": (5, 35),
    "ottla.replica.moves.ReplicaMoves": (10, 31),
    "ottla.zookeeper.log.ZooKeeperLog": (25, 46),
    # The state of a group, which its protocol's requests read and change.
    "ottla.coordinator.group.classic.group.ClassicGroup": (37, 44),
    "ottla.coordinator.group.modern.consumer.group.ConsumerGroup": (41, 46),
    "ottla.coordinator.group.modern.share.group.ShareGroup": (33, 35),
    # The protocol of a table, with a private step for each part of a commit.
    "ottla.pipeline.sinks.delta.DeltaTarget": (19, 35),
    "ottla.pipeline.sinks.iceberg.IcebergTarget": (19, 36),
    # Facades of a log, a replica or a node that are still to be split.
    "ottla.quorum.metadata_log.ReplicaLog": (32, 33),
    "ottla.replica.partition.Partition": (38, 49),
    "ottla.server.broker.Broker": (16, 44),
    "ottla.storage.directory.log_manager.LogManager": (27, 41),
    "ottla.storage.log.log.Log": (47, 49),
}
"""Classes above the limits. The counts may only fall; a class within the limits is removed."""

WHOLE_NODE = {"broker", "requests.control", "requests.dispatch", "wiring.apis", "wiring.components", "wiring.contexts"}
"""Modules of `server` that have everything, or serve it."""

Graph = Mapping[str, set[str]]


def import_graph(trees: Mapping[str, ast.Module]) -> Graph:
    """Which of the modules imports which, wherever the statement stands."""
    return {
        name: {each for each in imported_modules("", tree, trees) if each in trees and each != name}
        for name, tree in trees.items()
    }


def circles(graph: Graph) -> list[set[str]]:
    """The strongly connected components of more than one module, by Tarjan's algorithm."""
    index: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[set[str]] = []

    def visit(name: str) -> None:
        index[name] = lowest[name] = len(index)
        stack.append(name)
        for other in sorted(graph[name]):
            if other not in index:
                visit(other)
            if other in stack:
                lowest[name] = min(lowest[name], lowest[other])
        if lowest[name] == index[name]:
            component = set(stack[stack.index(name) :])
            del stack[stack.index(name) :]
            if len(component) > 1:
                found.append(component)

    for name in sorted(graph):
        if name not in index:
            visit(name)
    return found


def constructors(trees: Mapping[str, ast.Module]) -> Iterator[tuple[str, int]]:
    """Classes with an `__init__` of their own, and how many arguments it has beside `self`."""
    for name, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                for method in node.body:
                    if isinstance(method, ast.FunctionDef) and method.name == "__init__":
                        taken = method.args
                        count = len(taken.posonlyargs) + len(taken.args) + len(taken.kwonlyargs) - 1
                        yield f"{name}.{node.name}", count


def methods(trees: Mapping[str, ast.Module]) -> Iterator[tuple[str, tuple[int, int]]]:
    """Classes, and how many public methods and methods in all they define; an overload or a setter counts once."""
    for name, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                defined = {each.name for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}
                yield f"{name}.{node.name}", (sum(not each.startswith("_") for each in defined), len(defined))


def whole_tree() -> dict[str, ast.Module]:
    """Every module of the package by its name."""
    return {module_of(str(path.relative_to(ROOT))): parsed(path) for path in modules()}


def test_imports_form_no_circle() -> None:
    """Also for imports for types only, or within a function: a reader of one module must read the other."""
    report(" -> ".join(sorted(circle)) for circle in circles(import_graph(whole_tree())))


def reaching_beyond_a_context(graph: Graph) -> set[tuple[str, str]]:
    """Handlers and their contexts with their imports of the whole node."""
    whole = {f"ottla.server.{name}" for name in WHOLE_NODE}
    return {(name, each) for name in graph if ".handlers." in name for each in graph[name] & whole}


def test_handlers_touch_their_node_by_a_context_alone() -> None:
    graph = import_graph(whole_tree())
    assert {f"ottla.server.{name}" for name in WHOLE_NODE} <= graph.keys()
    report(f"{name} imports {whole}" for name, whole in sorted(reaching_beyond_a_context(graph)))


def test_a_planted_reach_is_found() -> None:
    graph = {
        "ottla.server.handlers.data.fetch": {"ottla.server.wiring.components", "ottla.server.requests.api"},
        "ottla.server.wiring.components": set(),
    }
    assert reaching_beyond_a_context(graph) == {("ottla.server.handlers.data.fetch", "ottla.server.wiring.components")}


def test_constructors_take_few_arguments() -> None:
    """Records (dataclasses, NamedTuples) have no `__init__` of their own and don't count, nor do tables of settings."""
    counts = constructors(whole_tree())
    report(f"{name} takes {count} arguments" for name, count in counts if count > MAX_CONSTRUCTOR_ARGUMENTS)


def is_defined(name: str) -> bool:
    """Whether `server.handlers.data` is a package, `quorum.driver` a module, or `quorum.raft.Raft` is defined there."""
    parts = name.split(".")
    if SOURCE.joinpath(*parts).is_dir() or SOURCE.joinpath(*parts).with_suffix(".py").exists():
        return True
    module = SOURCE.joinpath(*parts[:-1]).with_suffix(".py")
    if not module.exists():
        return False
    tree = parsed(module)
    assigned = {
        target for node in tree.body if isinstance(node, ast.AnnAssign) for target in [ast.unparse(node.target)]
    }
    functions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return parts[-1] in assigned | {node.name for node in tree.body if isinstance(node, functions)}


def undefined_implementations(path: Path) -> Iterator[str]:
    """Implementations that the docstring of an interface names and that do not exist."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.ClassDef):
            _, _, named = (ast.get_docstring(node) or "").partition("\nImplementation")
            for name in re.findall(r"`([a-z_]\w*(?:\.\w+)+)`", named):
                if not is_defined(name):
                    yield f"{place(path, node.lineno)} {node.name}: {name} does not exist"


def test_named_implementations_exist() -> None:
    """A row of a table or an interface leads nowhere by "go to definition": its docstring names the next module."""
    report(found for path in modules() for found in undefined_implementations(path))


def test_a_planted_implementation_is_missed(tmp_path: Path) -> None:
    names = ["quorum.driver", "server.handlers.data", "quorum.raft.Raft", "quorum.raft.Wrong", "quorum.wrong.Raft"]
    text = ", ".join(f"`{name}`" for name in names)
    (tmp_path / "m.py").write_text(f'class P:\n    """A thing.\n\n    Implementations: {text}.\n    """\n')
    assert list(undefined_implementations(tmp_path / "m.py")) == [
        "m.py:1 P: quorum.raft.Wrong does not exist",
        "m.py:1 P: quorum.wrong.Raft does not exist",
    ]


def test_classes_have_few_methods() -> None:
    """A large class is split along its callers, by composition; `LARGE_CLASSES` is a ratchet."""
    found = {
        name: (public, total)
        for name, (public, total) in methods(whole_tree())
        if public > MAX_PUBLIC_METHODS or total > MAX_METHODS
    }
    assert found == LARGE_CLASSES, "split a class that grew; lower or remove the counts of one that shrank"


def test_a_planted_circle_is_found() -> None:
    sources = {
        "p": "from p.c import y",
        "p.a": "from p import b",
        "p.b": """
            from typing import TYPE_CHECKING
            if TYPE_CHECKING:
                from p.c import y
            """,
        "p.c": """
            def f():
                import p.a
            """,
        "p.d": "from p.a import x",
        "p.e": "from p import y",
    }
    graph = import_graph({name: ast.parse(textwrap.dedent(source)) for name, source in sources.items()})
    assert graph == {"p": {"p.c"}, "p.a": {"p.b"}, "p.b": {"p.c"}, "p.c": {"p.a"}, "p.d": {"p.a"}, "p.e": {"p"}}
    assert circles(graph) == [{"p.a", "p.b", "p.c"}]


def test_a_planted_constructor_is_counted() -> None:
    tree = ast.parse("class Few:\n    def __init__(self, a, /, b, *, c=1): ...\nclass Record:\n    a: int\n")
    assert list(constructors({"m": tree})) == [("m.Few", 3)]


def test_planted_methods_are_counted() -> None:
    tree = ast.parse(
        """
class Few:
    def __init__(self): ...
    @property
    def size(self): ...
    @size.setter
    def size(self, value): ...
    async def _wait(self): ...
    class Inner:
        def one(self): ...
"""
    )
    assert dict(methods({"m": tree})) == {"m.Few": (1, 3), "m.Inner": (1, 1)}
