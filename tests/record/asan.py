"""Run the hostile corpus and mutations through the compiled walk under AddressSanitizer. Opt-in:

    python tests/record/asan.py [--mutations 200000] [--seed 1]

Builds `_batch.pyx` with -fsanitize=address,undefined in a temporary directory (gcc or clang, Cython and setuptools
are needed) and starts itself again with the sanitizer's runtime preloaded. Bodies are in `array('B')` under
PYTHONMALLOC=malloc: an allocation of exactly their size, so that a read of one byte beyond it is reported. Then it
repeats the run with a planted defect, a removed length check, and fails unless the sanitizer finds it: a run that
detects nothing must not pass. Exit code 0 on success.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import random
import subprocess
import sys
import sysconfig
import tempfile
from array import array
from pathlib import Path
from types import ModuleType
from typing import Any

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parents[1] / "src" / "ottla" / "record" / "_batch.pyx"
PLANTED = ("if length < 1 or length > end - at:", "if length < 1:")
FLAGS = ["-fsanitize=address,undefined", "-fno-omit-frame-pointer", "-g", "-O1"]


def load(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{path} can't be imported")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def build(directory: Path, source: str) -> Path:
    """Compile that source with the sanitizers, and return the module."""
    compiler = os.environ.get("CC", "gcc")
    directory.mkdir()
    (directory / "_batch.pyx").write_text(source)
    c_file, module = directory / "_batch.c", directory / "_batch.so"
    subprocess.run([sys.executable, "-m", "cython", "-3", directory / "_batch.pyx", "-o", c_file], check=True)
    include = sysconfig.get_path("include")
    subprocess.run([compiler, "-shared", "-fPIC", *FLAGS, f"-I{include}", c_file, "-o", module], check=True)
    return module


def runtime() -> str:
    """Return the path of the sanitizer's library."""
    compiler = os.environ.get("CC", "gcc")
    name = "libasan.so" if "gcc" in compiler else "libclang_rt.asan-x86_64.so"
    found = subprocess.run([compiler, f"-print-file-name={name}"], check=True, capture_output=True, text=True)
    return found.stdout.strip()


def run_sanitized(module: Path, mutations: int, seed: int) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "LD_PRELOAD": runtime(),
        "PYTHONMALLOC": "malloc",
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
        "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
    }
    command = [sys.executable, str(HERE / "asan.py"), "--module", str(module)]
    command += ["--mutations", str(mutations), "--seed", str(seed)]
    return subprocess.run(command, env=environment, check=False, capture_output=True, text=True)


def exercise(module: Path, mutations: int, seed: int) -> int:
    """Run every function on every body, in the sanitized process; returns the number of bodies."""
    from ottla.common.errors import InvariantError
    from ottla.record.errors import InvalidRecord

    batch = load("ottla.record._batch", module)
    corpus = load("ottla_record_corpus", HERE / "corpus.py")
    done = 0
    for cases in (corpus.cases(), corpus.mutations(random.Random(seed), mutations)):
        for _, body, count in cases:
            buffer = memoryview(array("B", body))
            whole = ("walk_records", "index_records", "max_timestamp", "parse_records")
            calls: list[tuple[str, tuple[Any, ...]]] = [(name, (buffer, 0, len(body), count)) for name in whole]
            calls += [
                ("find_timestamp", (buffer, 0, len(body), count, 1, 0)),
                ("oversized_record", (buffer, 0, len(body), count, 12)),
                ("refused_records", (buffer, 0, len(body), count, True, 5, 0, 70, 2)),
                ("parse_headers", (buffer, 0, len(body))),
            ]
            for name, arguments in calls:
                try:
                    getattr(batch, name)(*arguments)
                except (InvalidRecord, InvariantError):
                    continue
            done += 1
    return done


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mutations", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--module", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.module:
        print(f"{exercise(options.module, options.mutations, options.seed)} bodies")
        return 0
    source = SOURCE.read_text()
    if PLANTED[0] not in source:
        raise SystemExit("the line that the planted defect replaces is gone: name another one in PLANTED")
    with tempfile.TemporaryDirectory() as directory:
        sound = run_sanitized(build(Path(directory, "sound"), source), options.mutations, options.seed)
        sys.stdout.write(sound.stdout)
        if sound.returncode:
            sys.stderr.write(sound.stderr)
            return 1
        planted = run_sanitized(build(Path(directory, "planted"), source.replace(*PLANTED)), 1000, options.seed)
    if planted.returncode == 0 or "AddressSanitizer" not in planted.stderr:
        sys.stderr.write(f"the planted defect was not found:\n{planted.stderr}")
        return 1
    print("no error; the planted defect was found")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
