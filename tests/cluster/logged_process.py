"""Processes that are killed, stopped and restarted individually by their ids, each with its output in a file."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

STOP_TIMEOUT_S = 90.0
"""A controlled shutdown alone may take a minute."""


class LoggedProcess:
    """One process, in a session of its own."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self.process: subprocess.Popen[bytes] | None = None

    def run(self, command: Sequence[str]) -> None:
        """Run it for the first time or again."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def kill(self) -> None:
        """kill -9."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """Stop it like a supervisor, which for a broker is a controlled shutdown; returns the exit code."""
        return self._end(signal.SIGTERM)

    def _end(self, number: int) -> int:
        process, self.process = self.process, None
        assert process is not None
        os.kill(process.pid, number)
        return process.wait(STOP_TIMEOUT_S)

    def log_text(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""
