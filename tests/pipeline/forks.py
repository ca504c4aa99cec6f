"""Processes that will be killed, forked from one with preloaded imports, which are the expensive part.

`forks.py SCRIPT` is that process. For each line of its input, the JSON of an environment and of arguments, it forks a
process, prints its id, and at the next line lets it call the script's `main`; then it prints the exit code.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import subprocess
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

PRELOADED = (
    "ottla.pipeline.sinks.delta",
    "ottla.pipeline.sinks.iceberg",
    "ottla.pipeline.sinks.parquet",
    "pyarrow.dataset",
    "pyiceberg.catalog.sql",
    "obstore.store",
)
"""Modules that the scripts import on the way; missing extras are skipped."""


class Forks:
    """The process that forks; it has no other thread, so it only imports."""

    def __init__(self, script: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, *arguments: str, before: Callable[[int], None] = lambda _: None) -> int:
        """The exit code of a fork, negative after a signal; `before` gets its id before it starts."""
        pid = int(self._ask(json.dumps([dict(os.environ), arguments])))
        before(pid)
        return int(self._ask(""))

    def _ask(self, line: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        return self._process.stdout.readline()

    def close(self) -> None:
        self._process.communicate()


def _serve(script: str) -> None:
    main = runpy.run_path(script)["main"]
    for module in PRELOADED:
        with suppress(ImportError):
            importlib.import_module(module)
    while line := sys.stdin.readline():
        environment, arguments = json.loads(line)
        gate, opener = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(opener)
            os.read(gate, 1)
            _live(main, environment, arguments)
        os.close(gate)
        print(pid, flush=True)
        sys.stdin.readline()
        os.close(opener)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


def _live(main: Callable[..., None], environment: dict[str, str], arguments: list[str]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    try:
        main(*arguments)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


if __name__ == "__main__":
    _serve(sys.argv[1])
