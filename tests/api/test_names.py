"""Names of `from ottla import ...` and their modules match the stub."""

from __future__ import annotations

import ast
from pathlib import Path

import ottla


def test_stub_lists_all_exported_names():
    stub = ast.parse(Path(ottla.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    listed = {
        alias.asname: f"{node.module}".removeprefix("ottla.")
        for node in stub.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert listed == vars(ottla)["_CLIENT"]


def test_completion_and_a_star_find_all_of_them():
    found: dict[str, object] = {}
    exec("from ottla import *", found)
    names = set(vars(ottla)["_CLIENT"])
    assert names <= set(found)
    assert names < set(dir(ottla))
