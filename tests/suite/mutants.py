"""Mutation trial: small defects in a copy of the source, and the share that the nearest tests find.

For each area a sample of mutants is drawn with a seed. Operators of cosmic-ray make them: a comparison, a number, a
condition, a loop, a handler or a decorator is changed in one place. Texts for logs, annotations, assertions and similar
code without effect are excluded (`excluded`). The test files nearest to the changed file run until one fails, limited
by their recorded durations; tests with processes only if they import the changed file themselves.

A survivor is a question: the mutant may be equivalent, or no test covers the line. Tests that are farther away or take
longer did not run. The checkout is not changed.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from .dependencies import ROOT, Steps, dependencies, distances_to, source_files
from .selection import NOT_UNIT, UNKNOWN_S, git, recorded, test_files

AREAS: Mapping[str, tuple[str, ...]] = {
    "storage": ("storage",),
    "replication": ("replica", "controller/leader*"),
    "coordinators": ("coordinator",),
    "security": ("security",),
    "pipeline": ("pipeline/sinks", "pipeline/model", "pipeline/load"),
}
"""Paths below src/ottla."""
OPERATORS = (
    "AddNot",
    "ExceptionReplacer",
    "NumberReplacer",
    "RemoveDecorator",
    "ReplaceAndWithOr",
    "ReplaceOrWithAnd",
    "ReplaceBreakWithContinue",
    "ReplaceContinueWithBreak",
    "ReplaceFalseWithTrue",
    "ReplaceTrueWithFalse",
    "ReplaceBinaryOperator_Add_Sub",
    "ReplaceBinaryOperator_Sub_Add",
    "ReplaceComparisonOperator_Eq_NotEq",
    "ReplaceComparisonOperator_NotEq_Eq",
    "ReplaceComparisonOperator_Gt_GtE",
    "ReplaceComparisonOperator_Gt_LtE",
    "ReplaceComparisonOperator_GtE_Gt",
    "ReplaceComparisonOperator_GtE_Lt",
    "ReplaceComparisonOperator_Lt_GtE",
    "ReplaceComparisonOperator_Lt_LtE",
    "ReplaceComparisonOperator_LtE_Gt",
    "ReplaceComparisonOperator_LtE_Lt",
    "ReplaceComparisonOperator_Is_IsNot",
    "ReplaceComparisonOperator_IsNot_Is",
    "ReplaceUnaryOperator_Delete_Not",
    "ReplaceUnaryOperator_Delete_USub",
    "ZeroIterationForLoop",
)
"""Those of cosmic-ray whose mutants are not noticed by any call: `is` instead of `+` would be."""
NO_EFFECT = {"dataclass", "final", "overload", "override", "runtime_checkable", "zip"}
"""Decorators, and calls whose keywords (slots, frozen, strict) only guard against mistakes."""
WITH_PROCESSES = NOT_UNIT | {"style", "suite", "testing"}
"""Directories whose tests need processes, or read sources; in tests/pipeline only files with one of these words do."""
STARTS = re.compile(r"\b(?:bootstrap|Broker|commands_in_session|ottla_broker|spark|subprocess)\b")
TESTS_S = 60.0
"""Recorded seconds of the test files of one mutant."""
SLOWER = 4
"""A run that takes this many times the recorded duration, and a minute more, hangs."""
PYTEST = (sys.executable, "-m", "pytest", "-x", "-rfE", "--tb=no", "-p", "no:cacheprovider")

Position = tuple[int, int]
"""Line and column."""


class Mutant(NamedTuple):
    """One change of one file, as cosmic-ray numbers them."""

    path: str
    position: Position
    operator: str
    occurrence: int


class Outcome(NamedTuple):
    """`found`, `survived`, `hang` (counted as found) or `not compiled`; the tests that failed."""

    kind: str
    failed: tuple[str, ...] = ()


def excluded(tree: ast.Module) -> Iterator[tuple[Position, Position]]:
    """Spans without mutants: assertions, annotations, log calls, formatted texts, code for type checkers."""
    for node in ast.walk(tree):
        found: list[ast.AST | None] = []
        match node:
            case ast.Assert() | ast.If(test=ast.Name("TYPE_CHECKING") | ast.Compare(left=ast.Name("__name__"))):
                found = [node]
            case ast.Assign(targets=[ast.Name("__slots__")]) | ast.Call(func=ast.Attribute(ast.Name("logger"))):
                found = [node]
            case ast.Call(func=ast.Name(name)) if name in NO_EFFECT:
                found = [*node.keywords]
            case ast.AnnAssign() | ast.arg():
                found = [node.annotation]
            case ast.JoinedStr():
                found = [node]
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                found = [getattr(node, "returns", None)]
                for decorator in node.decorator_list:
                    called = decorator.func if isinstance(decorator, ast.Call) else decorator
                    if isinstance(called, ast.Name) and called.id in NO_EFFECT:
                        yield (decorator.lineno, 0), (decorator.lineno, decorator.col_offset)
        for part in filter(None, found):
            yield (part.lineno, part.col_offset), (part.end_lineno, part.end_col_offset)  # type: ignore[attr-defined]


def mutants_of(path: str, source: str) -> dict[Position, list[Mutant]]:
    """All mutants of a file, by position."""
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.operators.provider import OperatorProvider

    spans = list(excluded(ast.parse(source)))
    nodes = list(ast_nodes(get_ast(source)))
    found: dict[Position, list[Mutant]] = defaultdict(list)
    for name in OPERATORS:
        operator = OperatorProvider()[name]()
        positions = (start for node in nodes for start, _ in operator.mutation_positions(node))
        for occurrence, position in enumerate(positions):
            if not any(start <= position < end for start, end in spans):
                found[position].append(Mutant(path, position, name, occurrence))
    return found


def mutated(mutant: Mutant, source: str) -> str | None:
    """The changed text of the file; None if it does not compile."""
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.operators.provider import OperatorProvider

    text = mutate_code(source, OperatorProvider()[mutant.operator](), mutant.occurrence)
    try:
        compile(text, mutant.path, "exec")
    except SyntaxError:
        return None
    return str(text)


def sample(area: str, count: int, seed: int) -> list[Mutant]:
    """Mutants of an area: a file by its size, a position in it, and one of the mutants there."""
    chance = random.Random(f"{area} {seed}")
    paths = sorted({path for each in AREAS[area] for path in (ROOT / "src/ottla").glob(each)})
    files = [file for path in paths for file in (sorted(path.rglob("*.py")) if path.is_dir() else [path])]
    texts = {str(file.relative_to(ROOT)): file.read_text() for file in files}
    places: dict[str, dict[Position, list[Mutant]]] = {}
    drawn: dict[tuple[str, Position], Mutant] = {}
    for path in chance.choices(list(texts), [len(text) for text in texts.values()], k=20 * count):
        if path not in places:
            places[path] = mutants_of(path, texts[path])
        position = chance.choice(sorted(places[path])) if places[path] else None
        if position is not None and len(drawn) < count:
            drawn.setdefault((path, position), chance.choice(places[path][position]))
    return list(drawn.values())


def is_light(path: str, steps: Steps) -> bool:
    """Whether a test file starts no process and no Spark session, itself or by its imports from tests/."""
    folder = path.split("/")[1]
    if folder != "pipeline":
        return folder not in WITH_PROCESSES
    parts = {path, *steps[path]} - {"tests/pipeline/conftest.py"}
    return not any(STARTS.search((ROOT / part).read_text()) for part in parts if part.startswith("tests/"))


def nearest(
    changed: str,
    files: Mapping[str, bool],
    distances: Mapping[str, int],
    durations: Mapping[str, float],
    limit_s: float = TESTS_S,
) -> list[str]:
    """Test files for a change, nearest first, whose durations together fit the limit.

    Of equal distances come first those whose names have a word of the changed file's name, then short ones. `files` has
    True for those that are light: others only count if they import the changed file themselves.
    """
    words = set(Path(changed).stem.split("_"))

    def rank(path: str) -> tuple[int, bool, float, str]:
        return distances[path], words.isdisjoint(Path(path).stem.split("_")), durations.get(path, UNKNOWN_S), path

    chosen = []
    for path in sorted((path for path in files if path in distances), key=rank):
        seconds = durations.get(path, UNKNOWN_S)
        if seconds <= limit_s and (files[path] or distances[path] <= 1):
            chosen.append(path)
            limit_s -= seconds
    return chosen


class Copy:
    """A copy of the checkout, in which one file at a time is changed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._mutants = 0
        self._passing: set[str] = set()
        self._failing: set[str] = set()
        tracked = git("ls-files", "--cached", "--others", "--exclude-standard").splitlines()
        compiled = [str(path.relative_to(ROOT)) for path in (ROOT / "src").rglob("*.so")]
        for path in {*tracked, *compiled}:
            if (ROOT / path).is_file():
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / path, folder / path)
        # Its order, longest tests first, is not ours.
        (folder / "tests/suite/durations.json").unlink()

    def outcome(self, path: str, text: str, tests: Sequence[str], limit_s: float) -> Outcome:
        """Result of the tests with a changed file. Tests that also fail without the change do not count."""
        file = self._folder / path
        before, times = file.read_bytes(), file.stat()
        self._mutants += 1
        while True:
            file.write_text(text)
            # Compiled modules are valid for a second and a size; each mutant has a second of its own.
            os.utime(file, (times.st_atime, times.st_mtime + self._mutants))
            try:
                code, failed = self._run(tests, limit_s)
            finally:
                file.write_bytes(before)
                os.utime(file, (times.st_atime, times.st_mtime))
            if code == 0:
                return Outcome("survived")
            if code is None:
                return Outcome("hang")
            known = len(self._failing)
            if self._all_pass(failed or tests) or len(self._failing) == known:
                return Outcome("found", failed)

    def _all_pass(self, tests: Iterable[str]) -> bool:
        """Whether the tests, or the collection of test files, pass without a change. Failing ones do not run again."""
        for test in sorted(set(tests) - self._passing):
            code, _ = self._run([test, *([] if "::" in test else ["--collect-only"])], 10 * TESTS_S)
            (self._passing if code == 0 else self._failing).add(test)
        return not self._failing & set(tests)

    def _run(self, tests: Iterable[str], limit_s: float) -> tuple[int | None, tuple[str, ...]]:
        """Exit code of pytest, None for a hang, and the failed tests."""
        arguments = [test for test in tests if test not in self._failing]
        arguments += [f"--deselect={test}" for test in sorted(self._failing)]
        environment = {**os.environ, "PYTHONPATH": str(self._folder / "src")}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        with subprocess.Popen(
            [*PYTEST, *arguments],
            cwd=self._folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        ) as process:
            try:
                output, _ = process.communicate(timeout=limit_s)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                return None, ()
        failed = re.findall(r"^(?:FAILED|ERROR) (tests/\S+?\.py(?:::.*?)?)(?: - .*)?$", output, re.MULTILINE)
        return process.returncode, tuple(failed)


def described(mutant: Mutant, before: str, after: str) -> str:
    """The changed lines."""
    old, new = before.splitlines(), after.splitlines()
    start = next((number for number, pair in enumerate(zip(old, new, strict=False)) if pair[0] != pair[1]), 0)
    end = max(1, len(old) - len(new) + 1)
    lines = [f"- {line.strip()}" for line in old[start : start + end]]
    lines += [f"+ {line.strip()}" for line in new[start : start + 1]]
    return f"{mutant.path}:{start + 1}: {mutant.operator}\n  " + "\n  ".join(lines)


def trial(
    copy: Copy, mutants: Iterable[tuple[str, Mutant]], steps: Steps, end: float
) -> Iterator[tuple[str, Outcome, str]]:
    """Area, outcome and description of each mutant, until the time `end`."""
    durations, files = recorded(), {path: is_light(path, steps) for path in test_files("tests")}
    for area, mutant in mutants:
        if time.monotonic() > end:
            return
        before = (ROOT / mutant.path).read_text()
        after = mutated(mutant, before)
        if after is None:
            yield area, Outcome("not compiled"), f"{mutant.path}:{mutant.position[0]}: {mutant.operator}"
            continue
        tests = nearest(mutant.path, files, distances_to([mutant.path], steps), durations)
        limit_s = 60 + SLOWER * sum(durations.get(path, UNKNOWN_S) for path in tests)
        outcome = copy.outcome(mutant.path, after, tests, limit_s) if tests else Outcome("survived")
        text = described(mutant, before, after)
        if outcome.kind == "survived":
            text += "\n  ran " + (" ".join(tests) or "no test")
        yield area, outcome, text


def table(counts: Mapping[str, Mapping[str, int]]) -> str:
    """Outcomes of each area."""
    lines = [f"{'area':<14}{'found':>7}{'survived':>10}{'not compiled':>14}"]
    for area, each in counts.items():
        found = each.get("found", 0) + each.get("hang", 0)
        lines.append(f"{area:<14}{found:>7}{each.get('survived', 0):>10}{each.get('not compiled', 0):>14}")
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.suite.mutants", description=__doc__)
    parser.add_argument("areas", nargs="*", metavar="AREA", help=f"default: {' '.join(AREAS)}")
    parser.add_argument("--count", type=int, default=12, help="mutants of each area")
    parser.add_argument("--seed", type=int, default=int(time.strftime("%Y%m%d")), help="default: the date")
    parser.add_argument("--minutes", type=float, default=60, help="no further mutant is tried after this time")
    options = parser.parse_args(arguments)
    areas = options.areas or list(AREAS)
    if unknown := set(areas) - set(AREAS):
        parser.error(f"unknown area {', '.join(sorted(unknown))}; choose from {', '.join(AREAS)}")
    end = time.monotonic() + 60 * options.minutes
    print(f"seed {options.seed}", flush=True)
    samples = {area: sample(area, options.count, options.seed) for area in areas}
    # In turn: a trial that ends early has some of each area.
    turns = [
        (area, samples[area][turn]) for turn in range(options.count) for area in areas if turn < len(samples[area])
    ]
    counts: dict[str, Counter[str]] = {area: Counter() for area in areas}
    with tempfile.TemporaryDirectory(prefix="ottla-mutants-") as folder:
        for area, outcome, text in trial(Copy(Path(folder)), turns, dependencies(source_files()), end):
            counts[area][outcome.kind] += 1
            print(f"\n{outcome.kind}: {text}", *(f"\n  by {test}" for test in outcome.failed[:1]), sep="", flush=True)
    print(f"\n{table(counts)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
