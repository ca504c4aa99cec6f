"""The last release, unpacked from git: the tag before this commit, or the commit in `last_release.txt` without any tag.

It runs with the packages of this environment and with its pure modules, so nothing is compiled or downloaded.
"""

from __future__ import annotations

import compileall
import io
import subprocess
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RECORDED = Path(__file__).with_name("last_release.txt")
REVISION_CHARACTERS = 12


def last_release() -> str | None:
    """The commit of the last release; None if this is not a repository with its history."""
    described = _git("describe", "--tags", "--abbrev=0")
    if described.returncode and not RECORDED.exists():
        return None
    name = RECORDED.read_text().strip() if described.returncode else described.stdout.decode().strip()
    commit = _git("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
    return commit.stdout.decode().strip() if commit.returncode == 0 else None


def install(commit: str, folder: Path) -> str:
    """The path of a Python that runs Ottla of that commit."""
    archive = _git("archive", commit, "src")
    archive.check_returncode()
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(folder, filter="data")
    (folder / "src/ottla/_revision.txt").write_text(commit[:REVISION_CHARACTERS] + "\n")
    compileall.compile_dir(folder / "src", quiet=1)  # once, not in each broker at its start
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={folder}/src exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return str(python)


def _git(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=False)
