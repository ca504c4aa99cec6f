"""The program of compat/go as a process: commands that exit, and commands that run until stopped."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

TIMEOUT_S = 90.0


def run(program: Path, command: str, *arguments: str, messages: list[dict[str, Any]] | None = None) -> list[Any]:
    """Returns the printed values of a command, one per line; `messages` go to its standard input."""
    lines = "".join(json.dumps(message) + "\n" for message in messages or [])
    result = subprocess.run(
        [str(program), command, *arguments],
        input=lines,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


class Ongoing:
    """A command that runs until its standard input is closed; its output is stored in files of `folder`."""

    def __init__(self, folder: Path, name: str, program: Path, command: str, *arguments: str) -> None:
        self._output = folder / f"{name}.out"
        self._errors = folder / f"{name}.err"
        with self._output.open("wb") as output, self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [str(program), command, *arguments], stdin=subprocess.PIPE, stdout=output, stderr=errors
            )

    def lines(self) -> list[dict[str, Any]]:
        """Returns the complete lines printed so far."""
        whole = self._output.read_bytes().rpartition(b"\n")[0]
        return [json.loads(line) for line in whole.splitlines()]

    def finish(self) -> list[dict[str, Any]]:
        """Stop the command and return its whole output. Fails on a nonzero exit code."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        code = self._process.wait(TIMEOUT_S)
        assert code == 0, self._errors.read_text()[-2000:]
        return self.lines()

    def kill(self) -> None:
        """Kill the process if it is still running."""
        self._process.kill()
        self._process.wait()
