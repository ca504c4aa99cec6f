"""Counts the words that `docs/internals/style.md` bans, in texts that users read and in all others.

A package has two counts: `user` (documents, help texts, messages, log lines: the string literals of the package) and
`other` (docstrings, comments, names, tests). `python -m tests.style.words PATH...` lists the places, `--write` records
the counts in `words.json`.
"""

from __future__ import annotations

import ast
import io
import json
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("src/ottla", "simulation", "tests", "compat", "bench", "deploy", "release", "examples", "docs")
SUFFIXES = {".py", ".pyx", ".md", ".js", ".go", ".java"}
LEFT_OUT = {"__pycache__", "node_modules", "results", "data"}
DEFINITIONS = {"tests/style/words.py", "docs/internals/glossary.md"}
"""Files that list banned words."""
COUNTS = Path(__file__).with_name("words.json")

BANNED = re.compile(
    r"""
    \b(?:
        tell|tells|telling|told|untold
      | who|whom|whoever|nobody|somebody|everybody|anybody|he|him|his
      | anew|wish|wishes|wished|mend|mends|mended|mending
      | (?:goes|go|went|gone|going)\ on
      | (?<!there\ )(?:is|are|was|were)\ no(?=\ [a-z])(?!\ (?:longer|more|less|way|need|such|one))
      | (?:comes?|came|coming)\ (?:into\ being|to\ be)
      | (?:lies|lie|lay|lying)\ (?:in|on|at|outside|below|above|behind|beside|under|within)
      | (?:stands?|stood|standing)\ (?:in|at|on|for\ itself|there|here|beside|below|above|behind)
      | left\ alone|made\ out|takes?\ part|have\ part|has\ part|in\ vain|at\ length|by\ far
      | what\ (?:is|was|are|were|a|an|the|it|its|they|each|came|comes|has|had|of|no|cannot|can't|does|did|would|could
          |may|must)
      | of\ what|that\ which|what(?=[.,;:)])
    )\b
    """,
    re.VERBOSE | re.IGNORECASE,
)
BANNED_IN_NAMES = re.compile(
    r"(?:^|_)(?:tell|tells|telling|told|who|whom|whoever|nobody|somebody|everybody|anybody|he|him|his|anew"
    r"|wish|wishes|wished|mend|mends|mended|mending|goes_on|go_on|going_on|went_on|is_no|are_no|was_no"
    r"|what_is|what_a|what_the|what_it|of_what)(?=_|$)"
)


class Place(NamedTuple):
    """One banned word."""

    path: str
    line: int
    is_user_text: bool
    found: str
    text: str


def search(path: str, line: int, text: str, *, is_user_text: bool) -> Iterator[Place]:
    """The banned words in a text that starts at `line`."""
    for number, each in enumerate(text.splitlines()):
        for match in BANNED.finditer(each):
            yield Place(path, line + number, is_user_text, match.group(), each.strip())


def defined_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Functions, classes, parameters and assigned names, with their lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr


def search_python(path: str, text: str) -> Iterator[Place]:
    """The banned words in string literals, comments and names of a module."""
    tree = ast.parse(text)
    statements = (getattr(node, "body", None) for node in ast.walk(tree))
    bodies = [body for body in statements if isinstance(body, list)]
    docstrings = {id(each.value) for body in bodies for each in body if isinstance(each, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            # The docstring of a command is its help.
            is_shown = id(node) not in docstrings or "/cli/" in path
            is_user_text = is_shown and path.startswith("src/")
            yield from search(path, node.lineno, node.value, is_user_text=is_user_text)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield from search(path, token.start[0], token.string, is_user_text=False)
    for line, name in defined_names(tree):
        snake_case = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
        for match in BANNED_IN_NAMES.finditer(snake_case):
            yield Place(path, line, False, match.group().strip("_"), name)


def places(files: Iterable[Path]) -> Iterator[Place]:
    """The banned words in files."""
    for path in files:
        name = str(path.relative_to(ROOT))
        text = path.read_text(encoding="utf-8", errors="replace")
        if path.suffix == ".py":
            yield from search_python(name, text)
        else:
            yield from search(name, 1, text, is_user_text=path.suffix == ".md" or path.name == "Makefile")


def searched_files() -> Iterator[Path]:
    """Every file with prose."""
    yield from sorted(path for path in ROOT.iterdir() if path.suffix == ".md" or path.name == "Makefile")
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            name = str(path.relative_to(ROOT))
            if path.suffix in SUFFIXES and name not in DEFINITIONS and not LEFT_OUT & set(path.parts):
                yield path


def package_of(path: str) -> str:
    """The unit of counting: `src/ottla/storage`, `tests/storage`, `docs/guides`, `README.md`."""
    parts = path.split("/")
    return "/".join(parts[: 3 if parts[0] == "src" else 2]) if len(parts) > 2 else parts[0]


@cache
def current_counts() -> dict[str, dict[str, int]]:
    """The counts of each package that has any."""
    counts: dict[str, Counter[str]] = {}
    for place in places(searched_files()):
        counter = counts.setdefault(package_of(place.path), Counter())
        counter["user" if place.is_user_text else "other"] += 1
    return {name: dict(sorted(counts[name].items())) for name in sorted(counts)}


def recorded_counts() -> dict[str, dict[str, int]]:
    """The counts in `words.json`."""
    found: dict[str, dict[str, int]] = json.loads(COUNTS.read_text())
    return found


def main(arguments: list[str]) -> None:
    """List places, record the counts, or print them."""
    if arguments == ["--write"]:
        COUNTS.write_text(json.dumps(current_counts(), indent=1) + "\n")
    elif arguments:
        chosen = [ROOT / each for each in arguments]
        for place in places(path for path in searched_files() if any(map(path.is_relative_to, chosen))):
            mark = "USER " if place.is_user_text else ""
            print(f"{place.path}:{place.line}: {mark}[{place.found}] {place.text[:160]}")
    else:
        for name, counter in current_counts().items():
            print(f"{name:32} {counter.get('user', 0):6} {counter.get('other', 0):6}")


if __name__ == "__main__":
    main(sys.argv[1:])
