"""The program of compat/go as a process: commands that end by themselves, and those that go on until they are told."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

TIMEOUT_S = 90.0


def run(program: Path, command: str, *arguments: str, messages: list[dict[str, Any]] | None = None) -> list[Any]:
    """What a command printed, a value a line; `messages` go to its standard input."""
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
    """A command that goes on until its standard input is closed; its output is kept in files of `folder`."""

    def __init__(self, folder: Path, name: str, program: Path, command: str, *arguments: str) -> None:
        self._output = folder / f"{name}.out"
        self._errors = folder / f"{name}.err"
        with self._output.open("wb") as output, self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [str(program), command, *arguments], stdin=subprocess.PIPE, stdout=output, stderr=errors
            )

    def lines(self) -> list[dict[str, Any]]:
        """What it has printed by now, whole lines only."""
        whole = self._output.read_bytes().rpartition(b"\n")[0]
        return [json.loads(line) for line in whole.splitlines()]

    def finish(self) -> list[dict[str, Any]]:
        """Tell it to end; everything that it printed. Fails when it did not end well."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        code = self._process.wait(TIMEOUT_S)
        assert code == 0, self._errors.read_text()[-2000:]
        return self.lines()

    def kill(self) -> None:
        """The end in any case; nothing if it has ended."""
        self._process.kill()
        self._process.wait()
