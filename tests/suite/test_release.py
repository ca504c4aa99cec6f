"""Conditions of `make release`. The long trial is the command itself."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from release.preconditions import (
    ReleaseError,
    clean_revision,
    interpreter,
    package_version,
    release_notes,
    supported_pythons,
)

ROOT = Path(__file__).resolve().parents[2]
CHANGELOG = (
    "# Changelog\n\n## 0.10.0 (2026-12-01)\n\n## 0.2.0 (2026-12-01)\n\n### Broker\n- New.\n\n## 0.1.0\n\nFirst.\n"
)


def test_notes_are_the_section_of_the_version() -> None:
    assert release_notes(CHANGELOG, "0.2.0") == "### Broker\n- New.\n"
    assert release_notes(CHANGELOG, "0.1.0") == "First.\n"


@pytest.mark.parametrize("version", ["0.10.0", "0.3.0", "0.2", "0x2.0"], ids=["empty", "absent", "prefix", "pattern"])
def test_version_without_changelog_entry_is_refused(version: str) -> None:
    with pytest.raises(ReleaseError, match=r"CHANGELOG\.md has no entry"):
        release_notes(CHANGELOG, version)


def test_present_version_has_release_notes() -> None:
    assert release_notes((ROOT / "CHANGELOG.md").read_text(), package_version(ROOT))


def test_chart_has_the_version_of_the_package() -> None:
    chart = (ROOT / "deploy/helm/ottla/Chart.yaml").read_text()
    assert re.findall(r'^(?:appV|v)ersion: "?([^"\n]+)"?$', chart, re.MULTILINE) == [package_version(ROOT)] * 2


def test_tree_with_changes_is_refused(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        identity = ("-c", "user.name=a", "-c", "user.email=a@example.com")
        subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True)

    git("init")
    git("commit", "--allow-empty", "--message=first")
    assert len(clean_revision(tmp_path)) == 40
    (tmp_path / "new.py").touch()
    with pytest.raises(ReleaseError, match=r"new\.py"):
        clean_revision(tmp_path)


def test_wheels_are_for_the_versions_of_the_classifiers() -> None:
    assert supported_pythons(ROOT)[:3] == ["3.11", "3.12", "3.13"]


def test_missing_interpreter_is_refused() -> None:
    with pytest.raises(ReleaseError, match=r"python3\.1 was not found"):
        interpreter("python3.1")
