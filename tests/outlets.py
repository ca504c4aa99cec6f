"""Standard streams that are closed or take nothing, and how commands end that have them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ottla.app import main

REFUSED = "ottla: cannot write to standard output: "
OUTLETS = {
    "full": (2, f"{REFUSED}no space left on device\n"),
    "closed": (2, f"{REFUSED}bad file descriptor\n"),
    "without a reader": (0, ""),
    "beside a closed input": (0, ""),
}
"""Exit code and standard error, of a command that has something to print."""


@contextmanager
def standard_output(outlet: str) -> Iterator[None]:
    """Descriptor 1, or 0 where that is closed, is as the name of the outlet says."""
    changed = 0 if outlet == "beside a closed input" else 1
    kept = os.dup(changed)
    try:
        if outlet in ("closed", "beside a closed input"):
            os.close(changed)
        elif outlet == "full":
            os.dup2(full := os.open("/dev/full", os.O_WRONLY), changed)
            os.close(full)
        else:
            unread, broken = os.pipe()
            os.close(unread)
            os.dup2(broken, changed)
            os.close(broken)
        yield
    finally:
        os.dup2(kept, changed)
        os.close(kept)


class Ends:
    """Runs commands in this process, as the process entry does."""

    def __init__(self, patch: pytest.MonkeyPatch, captured: pytest.CaptureFixture[str]) -> None:
        self._patch = patch
        self._captured = captured

    def __call__(self, outlet: str, *arguments: str | Path) -> tuple[object, str]:
        """Exit code and standard error of `ottla ...`."""
        self._captured.readouterr()
        with self._patch.context() as patch, standard_output(outlet):
            patch.setattr(sys, "argv", ["ottla", *map(str, arguments)])
            patch.setattr(sys, "stdout", None)  # where they were before comes back
            patch.setattr(sys, "stderr", None)
            with pytest.raises(SystemExit) as raised:
                main.main()
        lines = self._captured.readouterr().err.splitlines(keepends=True)
        # librdkafka reports lost brokers there for as long as a client of an earlier test exists.
        return raised.value.code, "".join(line for line in lines if "|rdkafka#" not in line)
