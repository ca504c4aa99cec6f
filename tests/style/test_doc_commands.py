"""Commands in documents name subcommands and options that exist. `tests/pipeline/test_readme.py` runs them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click

from ottla.app.main import cli

from .tree import ROOT, report

GENERATED = ROOT / "docs/reference/cli.md"
BLOCK = re.compile(r"^```(?:sh|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ANY_BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`(ottla [a-z][^`]*)`")
ENDS = {"|", "||", "&&", ";", "&", "(", ")"}
HELP = {"-h", "--help"}


def pages() -> Iterator[Path]:
    """README, CONTRIBUTING, CHANGELOG, docs/ and the READMEs of examples."""
    yield from sorted(ROOT.glob("*.md"))
    yield from sorted(path for path in (ROOT / "docs").rglob("*.md") if path != GENERATED)
    yield from sorted((ROOT / "examples").rglob("README.md"))


def words(text: str) -> list[str]:
    """The words of a shell line; comments are left out. Empty for text that is not a command."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars="|&;()")
    lexer.commenters = ""
    try:
        found = list(lexer)
    except ValueError:
        return []
    return found[: next((index for index, word in enumerate(found) if word.startswith("#")), len(found))]


def commands(text: str) -> Iterator[list[str]]:
    """The arguments of each `ottla` in blocks and in inline code."""
    lines = [line for block in BLOCK.findall(text) for line in block.replace("\\\n", " ").splitlines()]
    lines += [" ".join(each.split()) for each in INLINE.findall(ANY_BLOCK.sub("", text))]
    for line in lines:
        current: list[str] | None = None
        for word in [*words(line), ";"]:
            if word in ENDS or set(word) <= set("|&;()"):
                if current is not None:
                    yield current
                current = None
            elif current is not None:
                current.append(word)
            elif word == "ottla":
                current = []


def unknown(arguments: list[str]) -> str | None:
    """The first subcommand or option that does not exist; None if all do."""
    command: click.Command = cli
    context = click.Context(command, info_name="ottla")
    for word in arguments:
        if isinstance(command, click.Group) and not word.startswith("-"):
            inner = command.get_command(context, word) if word.islower() else None
            if inner is None:
                return word if word.islower() and word.isidentifier() else None
            command, context = inner, click.Context(inner, info_name=word, parent=context)
        elif word.startswith("--") or re.fullmatch(r"-[a-zA-Z]", word):
            options = {name for each in command.get_params(context) for name in (*each.opts, *each.secondary_opts)}
            if word.partition("=")[0] not in options | HELP:
                return word
    return None


def test_documented_commands_and_options_exist():
    found, checked = [], 0
    for page in pages():
        for arguments in commands(page.read_text(encoding="utf-8")):
            checked += 1
            if (name := unknown(arguments)) is not None:
                found.append(f"{page.relative_to(ROOT)} {name} in `ottla {' '.join(arguments)}`")
    report(found)
    assert checked > 100
