"""Processes that are to die, each forked of one that has imported what they need, which costs more than what they do.

`forks.py SCRIPT` is that one. For each line of its input, the JSON of an environment and of arguments, it forks a
process, tells its id, and at the next line lets it call the script's `main`; then it tells how that ended.
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
"""What the scripts import on their way; where an extra is missing, they do without."""


class Forks:
    """The process that is forked; no other thread may be in it, so it does nothing but import."""

    def __init__(self, script: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, *arguments: str, before: Callable[[int], None] = lambda _: None) -> int:
        """The exit code of one, negative where a signal ended it; `before` it does anything, its id is told."""
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
