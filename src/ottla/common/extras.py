"""Optional dependencies: one error names the missing packages and the command that installs them."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping

from ottla.common.errors import OperatorError


def install_command(requirement: str) -> str:
    """For the Python that runs this, as a shell takes it; `requirement` such as ottla[pipeline]."""
    return f"`{sys.executable} -m pip install '{requirement}'`"


def require_packages(dependent: str, packages: Mapping[str, str], requirement: str) -> None:
    """Raise OperatorError unless all can be imported.

    `dependent`: a subject and its verb; `packages`: module -> package; `requirement`: the extra that brings all of
    them.
    """
    missing = [package for module, package in packages.items() if not _importable(module)]
    if missing:
        are = "is" if len(missing) == 1 else "are"
        raise OperatorError(
            f"{dependent} {', '.join(missing)}, which {are} not installed: run {install_command(requirement)}"
        )


def _importable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of the package around it
        return False
