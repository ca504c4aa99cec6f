"""A directory of this machine for what is held only while something runs."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ottla.common.errors import OperatorError
from ottla.pipeline.model.failure import os_reason


@contextmanager
def scratch_directory(who: str) -> Iterator[Path]:
    """A new one, removed at the end with all that is in it; `who` is in its name. Raises OperatorError."""
    with explain_scratch_errors():
        path = Path(tempfile.mkdtemp(prefix=f"ottla-{who}-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def explain_scratch_errors() -> Iterator[None]:
    """Refusals of the system to keep something in such a directory, with the way out."""
    try:
        yield
    except OSError as error:
        raise OperatorError(
            f"there is no place for what is held meanwhile: {os_reason(error)}; free some, or name another by TMPDIR "
            "in the environment"
        ) from error
