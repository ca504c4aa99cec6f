"""Conditions of a release, checked before anything is built."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path


class ReleaseError(Exception):
    """A release is refused or failed; the message is one sentence with the remedy, or the output of a command."""


def clean_revision(root: Path) -> str:
    """The commit of a tree without changes."""
    changes = _git(root, "status", "--porcelain")
    if changes:
        raise ReleaseError(f"the tree has changes: commit or remove them:\n{changes}")
    return _git(root, "rev-parse", "HEAD")


def package_version(root: Path) -> str:
    """`__version__` of the package, read without an import."""
    (version,) = re.findall(r'^__version__ = "(.+)"$', (root / "src/ottla/__init__.py").read_text(), re.MULTILINE)
    return str(version)


def release_notes(changelog: str, version: str) -> str:
    """The section of a version, without its heading."""
    section = re.search(rf"^## {re.escape(version)}(?: [^\n]*)?\n(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    if section is None or not section[1].strip():
        raise ReleaseError(f"CHANGELOG.md has no entry for version {version}: add a section `## {version}`")
    return section[1].strip() + "\n"


def supported_pythons(root: Path) -> list[str]:
    """Versions in the classifiers of pyproject.toml, such as 3.11."""
    classifiers = tomllib.loads((root / "pyproject.toml").read_text())["project"]["classifiers"]
    return [each.rpartition(" ")[2] for each in classifiers if re.search(r":: Python :: \d+\.\d+$", each)]


def interpreter(name: str) -> str:
    """The path of an interpreter that can create environments: one on the path, or one that pyenv installed."""
    pyenv = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser()
    for path in (shutil.which(name), *sorted(pyenv.glob(f"versions/*/bin/{name}"))):
        if path and not subprocess.run([path, "-c", "import venv"], capture_output=True, check=False).returncode:
            return str(path)
    raise ReleaseError(f"{name} was not found: install it with its module venv, or name interpreters with --python")


def minor_version(python: str) -> str:
    """The version of an interpreter, such as 3.11."""
    command = [python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True).stdout.strip()
