"""Modules and memory of a broker with default settings when it is ready, and the recorded budget.

`python -m tests.app.start_budget` records the present figures in `start_budget.json`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

BUDGET = Path(__file__).with_name("start_budget.json")
SOURCE = Path(__file__).parents[2] / "src"
TIMEOUT_S = 120
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"

PROGRAM = """
import gc, os, signal, sys
def report(number, frame):
    gc.collect()
    text = "\\n".join((str(sys.getallocatedblocks()), *sorted(sys.modules), ""))
    path = sys.orig_argv[-1] + "/report"
    with open(path + ".new", "w") as file:
        file.write(text)
    os.replace(path + ".new", path)
signal.signal(signal.SIGUSR1, report)
from ottla.__main__ import main
main()
"""
"""`ottla start`, which reports on SIGUSR1 below its data directory."""


class Started(NamedTuple):
    """A start."""

    modules: list[str]
    """All modules, also those of other packages."""
    sizes: dict[str, int]
    """Bytes of source of each module of Ottla."""
    blocks: int
    """Allocated blocks of memory, after a garbage collection."""
    python: str = PYTHON


def recorded() -> Started:
    """The budget."""
    content = json.loads(BUDGET.read_text())
    return Started(sorted(content["sizes"]), content["sizes"], content["blocks"], content["python"])


def measure(folder: Path) -> Started:
    """Start a broker on an empty directory, and look at it when it is ready."""
    ready, report = folder / "ready.json", folder / "data" / "report"
    arguments = ["--port", "0", "--ready-file", str(ready), "--data-dir", str(folder / "data")]
    # A process that writes bytecode files, as the first one of a checkout does, allocates more.
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", PROGRAM, "start", *arguments]
    process = subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        wait_for(process, ready)
        process.send_signal(signal.SIGUSR1)
        wait_for(process, report)
    finally:
        process.terminate()
        process.communicate(timeout=TIMEOUT_S)
    blocks, *modules = report.read_text().split()
    return Started(modules, sizes_of(modules), int(blocks))


def wait_for(process: subprocess.Popen[str], path: Path) -> None:
    """Wait for a file that the process moves into place."""
    deadline = time.monotonic() + TIMEOUT_S
    while not path.exists():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline, f"{path} was not written"
        time.sleep(0.005)


def sizes_of(modules: list[str]) -> dict[str, int]:
    """Bytes of source; a compiled module counts as its Python twin."""
    sizes = {}
    for name in modules:
        if name.partition(".")[0] != "ottla":
            continue
        path = SOURCE.joinpath(*name.removesuffix("_py").split("."))
        candidates = (path.with_name(f"{path.name}_py.py"), path.with_suffix(".py"), path / "__init__.py")
        sizes[name.removesuffix("_py")] = next(each.stat().st_size for each in candidates if each.exists())
    return sizes


def main() -> None:
    """Record a start."""
    with tempfile.TemporaryDirectory() as folder:
        started = measure(Path(folder))
    content = {"python": started.python, "blocks": started.blocks, "sizes": started.sizes}
    BUDGET.write_text(json.dumps(content, indent=1) + "\n")
    print(f"{len(started.sizes)} modules of {sum(started.sizes.values())} bytes, {started.blocks} blocks of memory")


if __name__ == "__main__":
    main()
