"""Load generators in C, compiled on first use and after a change of their source or shared files."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

from harness.peers import ROOT

SHARED = ROOT / "bench" / "harness" / "generator.h"
FLAGS = ("-O2", "-std=gnu11", "-Wall", "-Wextra")


def compiled(source: Path) -> Path:
    """Returns the program of one source file. Raises RuntimeError without a compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        raise RuntimeError(f"{source.stem} needs a C compiler named cc, such as Debian's package gcc")
    digest = hashlib.sha256(source.read_bytes() + SHARED.read_bytes()).hexdigest()[:12]
    program = ROOT / ".cache" / "bench" / f"{source.stem}-{digest}"
    if not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        unfinished = program.with_suffix(".tmp")
        subprocess.run([compiler, *FLAGS, "-o", str(unfinished), str(source)], check=True)
        unfinished.replace(program)
    return program
