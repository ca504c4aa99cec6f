"""How far each test file is from each source file, by imports.

A file depends on the modules that it imports and on the conftest.py files of its directories. Two kinds of
dependencies are not imports: a module that is named in a string (commands are imported when they run) and a process
that is started (`-m ottla`, `ottla.testing`). They are counted as longer steps, so that files with direct imports come
first when time is limited.
"""

from __future__ import annotations

import ast
import heapq
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("src/ottla", "simulation", "tests", "compat", "bench", "release")
INDIRECT_STEP = 3
"""Length of a dependency by a string or by a process, where an import has 1."""
BROKER = "src/ottla/app/start.py"
"""The module that a process with `-m ottla` is assumed to run, beside the imports of its test."""

Steps = Mapping[str, Mapping[str, int]]
"""File to the files that it depends on directly, with the length of each step."""


def source_files() -> list[str]:
    """Paths of all Python files of the repository, and of those that are compiled."""
    return sorted(
        str(path.relative_to(ROOT))
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*.py*")
        if path.suffix in {".py", ".pyx"} and "no-such" not in path.parts
    )


def module_of(path: str) -> str:
    """`ottla.net.peer` for src/ottla/net/peer.py, `ottla.net` for its __init__.py, `tests.app.logins`."""
    return ".".join(Path(path.removeprefix("src/")).with_suffix("").parts).removesuffix(".__init__")


class Files:
    """Index of the repository's files by module and by name."""

    def __init__(self, paths: Iterable[str]) -> None:
        self.paths = set(paths)
        self.by_module = {module_of(path): path for path in sorted(paths)}
        self._by_stem: dict[str, list[str]] = defaultdict(list)
        for path in self.paths:
            if not path.startswith("src/"):
                self._by_stem[Path(path).stem].append(path)

    def imported(self, path: str, name: str) -> list[str]:
        """Files of an imported module; one without a package is in a directory of sys.path, its own first."""
        if name in self.by_module:
            return [self.by_module[name]]
        beside = str(Path(path).with_name(f"{name}.py"))
        if beside in self.paths:
            return [beside]
        return [] if path.startswith("src/") or "." in name else self._by_stem.get(name, [])

    def script(self, path: str, name: str) -> list[str]:
        """Files of a script that is named with its suffix."""
        beside = str(Path(path).with_name(name))
        return [beside] if beside in self.paths else self._by_stem.get(name.removesuffix(".py"), [])


def steps_of(path: str, tree: ast.Module, files: Files) -> dict[str, int]:
    """What one file depends on directly."""
    found: dict[str, int] = {}
    package = module_of(path) if path.endswith("__init__.py") else module_of(path).rpartition(".")[0]
    for module in imported_modules(package, tree, files.by_module):
        for other in files.imported(path, module):
            found[other] = 1
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str) or len(node.value) > 100:
            continue
        text = node.value
        if text in files.by_module and "." in text:
            found.setdefault(files.by_module[text], INDIRECT_STEP)
        elif text.endswith(".py") and not path.startswith("src/"):
            for other in files.script(path, text.rpartition("/")[2]):
                found.setdefault(other, INDIRECT_STEP)
        elif text == "ottla" and (path.startswith(("tests/", "compat/")) or path == "src/ottla/testing/broker.py"):
            found.setdefault(BROKER, INDIRECT_STEP)
    for folder in Path(path).parents if not path.startswith("src/") else ():
        conftest = str(folder / "conftest.py")
        if conftest in files.paths:
            found.setdefault(conftest, 1)
    found.pop(path, None)
    return found


def imported_modules(package: str, tree: ast.Module, known: Container[str]) -> Iterator[str]:
    """Names of imported modules, also of those imported in a function or for types only.

    A package counts only if the imported name is not a module in `known`. `package` resolves relative imports.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            inner = [f"{module}.{alias.name}" for alias in node.names]
            yield from (name if name in known else module for name in inner)


def dependencies(paths: Iterable[str], read: Mapping[str, str] | None = None) -> Steps:
    """Direct dependencies of every file; `read` has the text of files, by default those of the repository."""
    files = Files(paths)
    return {
        path: steps_of(path, ast.parse(read[path] if read else (ROOT / path).read_text()), files)
        if path.endswith(".py")
        else {}
        for path in sorted(files.paths)
    }


def distances_to(changed: Iterable[str], steps: Steps) -> dict[str, int]:
    """Length of the shortest chain of dependencies from each file to any of `changed`, for those that have one."""
    users: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for path, others in steps.items():
        for other, length in others.items():
            users[other].append((path, length))
    found: dict[str, int] = {}
    queue = [(0, path) for path in sorted(changed)]
    while queue:
        distance, path = heapq.heappop(queue)
        if path in found:
            continue
        found[path] = distance
        for user, length in users[path]:
            if user not in found:
                heapq.heappush(queue, (distance + length, user))
    return found
