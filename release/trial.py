"""Trial of an installed Ottla: its version, a broker, one record through it, and the console.

The interpreter of the environment under test runs this file with `-I`, so the source tree cannot be imported. It uses
the standard library only.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

OTTLA = str(Path(sys.executable).with_name("ottla"))
START_TIMEOUT_S = 300
"""Also enough for a busy machine; an idle one needs less than a second."""
STOP_TIMEOUT_S = 120
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith(("OTTLA_", "PYTHON"))}
RECORD = "alice:/index.html"


def ottla(*arguments: str, given: str = "") -> str:
    """The output of a command that must succeed."""
    command = [OTTLA, *arguments]
    done = subprocess.run(command, input=given, capture_output=True, text=True, env=ENVIRONMENT, check=False)
    if done.returncode:
        raise SystemExit(f"ottla {' '.join(arguments)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


@contextmanager
def running(directory: Path, *arguments: str) -> Iterator[dict[str, Any]]:
    """The ready file of a process, which is stopped by SIGTERM at the end."""
    ready = directory / f"{arguments[0]}.json"
    log = directory / f"{arguments[0]}.log"
    with log.open("wb") as output:
        command = [OTTLA, *arguments, "--ready-file", str(ready)]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=ENVIRONMENT)
    try:
        end = time.monotonic() + START_TIMEOUT_S
        while not ready.exists():
            if process.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"ottla {arguments[0]} did not start:\n{log.read_text()}")
            time.sleep(0.05)
        yield json.loads(ready.read_text())
        process.terminate()
        if process.wait(STOP_TIMEOUT_S):
            raise SystemExit(f"ottla {arguments[0]} ended with {process.returncode}:\n{log.read_text()}")
    finally:
        process.kill()
        process.wait()


def check_version(record_module: str, revision: str) -> None:
    """`ottla --version` names the record module and the revision that was built."""
    printed = ottla("--version")
    print(printed.splitlines()[0])
    if f"record module: {record_module}," not in printed or f"revision: {revision})" not in printed:
        raise SystemExit(f"record module {record_module} and revision {revision} were expected")


def check_record(server: str) -> None:
    """A record is produced and consumed."""
    ottla("topic", "create", "trial", "-b", server)
    ottla("produce", "trial", "--key-separator", ":", "-b", server, given=RECORD + "\n")
    consumed = json.loads(ottla("consume", "trial", "--from-beginning", "--max", "1", "--format", "json", "-b", server))
    if f"{consumed['key']}:{consumed['value']}" != RECORD:
        raise SystemExit(f"{RECORD} was produced, and this was consumed: {consumed}")
    print("a record was produced and consumed")


def check_console(server: str, directory: Path) -> None:
    """The console answers with a page, and its stylesheet is part of the package."""
    with running(directory, "console", "-b", server, "--port", "0") as console:
        with urllib.request.urlopen(console["url"], timeout=60) as answer:
            page = answer.read().decode()
        title = re.search(r"<title>([^<]*)</title>", page)
        style = re.search(r'href="([^"]+\.css[^"]*)"', page)
        if title is None or style is None:
            raise SystemExit(f"{console['url']} is not a page of the console:\n{page[:1000]}")
        with urllib.request.urlopen(urllib.parse.urljoin(console["url"], style[1]), timeout=60) as sheet:
            print(f"console: HTTP {answer.status}, page {title[1]!r}, {len(page)} bytes; style HTTP {sheet.status}")


def main() -> None:
    """Exits with 1 and the reason at the first failure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record-module", required=True, help="compiled or pure")
    parser.add_argument("--revision", required=True)
    parser.add_argument("--console", action="store_true", help="open a page of the console")
    options = parser.parse_args()
    check_version(options.record_module, options.revision)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        with running(directory, "start", "--data-dir", str(directory / "data"), "--port", "0") as broker:
            server = broker["bootstrap_servers"]
            check_record(server)
            if options.console:
                check_console(server, directory)


if __name__ == "__main__":
    main()
