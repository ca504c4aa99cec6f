"""Commands that a page of the documentation prints, run as printed against another cluster."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1] / "docs"
COMMAND_S = 120
_BLOCK = re.compile(r"^ *```sh\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)


def printed_blocks(page: str) -> list[list[str]]:
    """The commands of each shell block of a page of docs/, without comments, each on one line."""
    text = (DOCS / page).read_text(encoding="utf-8").replace("\\\n", " ")
    lines = ([line.split("  #")[0] for line in block.splitlines()] for block in _BLOCK.findall(text))
    return [[" ".join(line.split()) for line in block if line.strip()] for block in lines]


class PrintedPage:
    """A page whose commands an operator runs in `folder`; `names` replaces printed placeholders and addresses."""

    def __init__(self, page: str, folder: Path, names: Mapping[str, str], **environment: str) -> None:
        self._page = page
        self._text = " ".join((DOCS / page).read_text(encoding="utf-8").replace("\\\n", " ").split())
        self._folder = folder
        self._names = names
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self._environment = {**os.environ, "PATH": path, **environment}

    def run(self, printed: str, *, code: int = 0) -> str:
        """Run a command of the page; returns its output."""
        assert printed in self._text, f"{self._page} does not print {printed!r}"
        command = printed
        for name, value in self._names.items():
            command = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", value, command)
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", command],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )
        output = done.stdout + done.stderr
        assert done.returncode == code, f"{command}\n{output}"
        assert "Traceback" not in output, output
        return output

    def run_block(self, first: str) -> str:
        """Run all commands of the block that begins with `first`; returns their output."""
        (block,) = (block for block in printed_blocks(self._page) if block[0].startswith(first))
        return "".join(self.run(command) for command in block)
