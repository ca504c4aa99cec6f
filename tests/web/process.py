"""`ottla console` as a process."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

WAIT_S = 120.0


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `ottla` to its end."""
    command = [sys.executable, "-m", "ottla", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)


@contextmanager
def console(folder: Path, *arguments: str) -> Iterator[str]:
    """The address of a console on a free port, which is stopped at the end."""
    ready = folder / "ready.json"
    command = [sys.executable, "-m", "ottla", "console", "--port", "0", "--ready-file", str(ready), *arguments]
    with (folder / "console.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    try:
        yield wait_for(ready, process)
    finally:
        process.terminate()
        exit_code = process.wait(WAIT_S)
    assert exit_code == 0


def wait_for(ready: Path, process: subprocess.Popen[bytes] | None = None) -> str:
    """The address in a ready file, once it exists."""
    deadline = time.monotonic() + WAIT_S
    while not ready.exists():
        assert time.monotonic() < deadline, "the console was not ready in time"
        if process is not None:
            assert process.poll() is None, "the console ended"
        time.sleep(0.05)
    return str(json.loads(ready.read_text())["url"])
