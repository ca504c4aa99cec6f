"""Machine instructions of a start and a stop of an empty broker, counted by valgrind.

python bench/instructions.py [--base DIR]

The count of the same source differs by less than 1 %, also on a busy machine. `--base` names the root of another
checkout, with its compiled modules in place, and prints the ratio to it. It needs valgrind.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TIMEOUT_S = 1800
COLLECTED = re.compile(r"Collected : (\d+)")


def instructions_of(root: Path) -> int:
    """Instructions of one start and stop with the source of a checkout."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ready = folder / "ready.json"
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder / 'profile'}", sys.executable]
        command += ["-m", "ottla", "start", "--port", "0", "--data-dir", str(folder / "data")]
        environment = {**os.environ, "PYTHONPATH": str(root / "src"), "PYTHONHASHSEED": "0"}
        with (folder / "log").open("w+") as log:
            process = subprocess.Popen([*command, "--ready-file", str(ready)], env=environment, stderr=log, cwd=folder)
            deadline = time.monotonic() + TIMEOUT_S
            while not ready.exists() and process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.1)
            process.terminate()
            process.wait(TIMEOUT_S)
            log.seek(0)
            text = log.read()
        found = COLLECTED.search(text)
        if found is None or not ready.exists():
            raise SystemExit(f"no count of {root}:\n{text}")
        return int(found[1])


def main() -> None:
    """Count this checkout, and another one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", type=Path, metavar="DIR", help="root of another checkout")
    options = parser.parse_args()
    here = instructions_of(ROOT)
    print(f"{ROOT}: {here / 1e6:.0f} million instructions")
    if options.base is not None:
        base = instructions_of(options.base.resolve())
        print(f"{options.base}: {base / 1e6:.0f} million instructions, ratio {here / base:.3f}")


if __name__ == "__main__":
    main()
