"""`ottla user` on a real broker, without passwords in its output."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from ottla.cli.user import user

from .conftest import Run

CONFIGS: Mapping[str, str] = {}
PASSWORD = "correct horse battery"


def listed(run: Run) -> list[tuple[str, str, int]]:
    return [tuple(row.values()) for row in json.loads(run(user, "list", "--json").stdout)]


def test_the_life_of_a_user(run: Run, tmp_path: Path) -> None:
    assert listed(run) == []
    added = run(user, "add", "ann", stdin=f"{PASSWORD}\n{PASSWORD}\n")
    assert added.stdout == "User ann now has a password for SCRAM-SHA-512.\n"
    path = tmp_path / "password"
    path.write_text(PASSWORD + "\n")
    both = ("--mechanism", "SCRAM-SHA-256", "--mechanism", "scram-sha-512")
    run(user, "add", "bob", *both, "--password-file", str(path), "--iterations", "16384")
    run(user, "add", "eve", "--password-file", "-", stdin=PASSWORD)
    assert listed(run) == [
        ("ann", "SCRAM-SHA-512", 4096),
        ("bob", "SCRAM-SHA-256", 16384),
        ("bob", "SCRAM-SHA-512", 16384),
        ("eve", "SCRAM-SHA-512", 4096),
    ]
    assert run(user, "list").stdout.splitlines()[1] == "ann   SCRAM-SHA-512        4096"
    assert run(user, "remove", "bob", "--mechanism", "SCRAM-SHA-256").stdout == "Removed 1 password of user bob.\n"
    assert PASSWORD not in added.output
    for name in ("ann", "bob", "eve"):
        run(user, "remove", name)
    assert listed(run) == []


def test_mistakes_print_one_line(run: Run, tmp_path: Path) -> None:
    assert "user 'nobody' has no password\n" in run(user, "remove", "nobody", exit_code=1).stderr
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "long").write_text("x" * 4097 + "\n")
    refused = {"empty": "has an empty first line", "missing": "can't be read", "long": "larger than 4096"}
    for path, words in refused.items():
        result = run(user, "add", "ann", "--password-file", str(tmp_path / path), exit_code=2).stderr
        assert words in result
        assert result.count("\n") == 1
    run(user, "add", "ann", "--iterations", "4095", exit_code=2)
    assert "Username must not be empty" in run(user, "add", "", "--password-file", "-", stdin="x", exit_code=1).stderr
