"""Temporary directories for the data of a running command."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ottla.common.errors import OperatorError
from ottla.pipeline.model.failure import os_reason


@contextmanager
def scratch_directory(purpose: str) -> Iterator[Path]:
    """A new directory, removed at the end with its content; `purpose` is in its name. Raises OperatorError."""
    with explain_scratch_errors():
        path = Path(tempfile.mkdtemp(prefix=f"ottla-{purpose}-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def explain_scratch_errors() -> Iterator[None]:
    """Convert errors of the system in such a directory to OperatorError with the remedy."""
    try:
        yield
    except OSError as error:
        raise OperatorError(
            f"no temporary directory can be used: {os_reason(error)}; free some space, or set TMPDIR in the "
            "environment to another directory"
        ) from error
