"""The Java of every Spark of these tests, in processes of its own as well, since `JAVA_HOME` names it.

Tests end before the second compiler pays off, and half of a session's cost is to load and verify the same ten thousand
classes. They are taken from an archive of Java (class data sharing). A Spark that starts beside the first tests
creates it in `.cache`, where the next runs find it; Java itself ignores an archive of another Java or other jars.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pyspark

from ottla.pipeline.spark.session import LIGHT_JAVA, find_java

CACHE = Path(__file__).parents[2] / ".cache" / "spark-tests"

ARCHIVE = "classes.jsa"
MAKING = "OTTLA_TESTS_ARCHIVE"
"""Variable with Java's argument while an archive is created."""

_JAVA = """#!/bin/sh
# Made by tests/pipeline/light_java.py.
[ -n "$OTTLA_TESTS_ARCHIVE" ] || [ ! -f {archive} ] || set -- -XX:SharedArchiveFile={archive} "$@"
exec {java} {options} -Xlog:disable -Xlog:all=error:stderr $OTTLA_TESTS_ARCHIVE "$@"
"""
_TRAINING = """
from ottla.pipeline.spark.session import open_session

with open_session("local[2]", "class archive", {"spark.sql.shuffle.partitions": "1"}) as spark:
    rows = spark.range(0, 9, 1, 2).mapInArrow(lambda batches: batches, "id bigint")
    rows.createOrReplaceTempView("rows")
    spark.sql("select id % 2 as odd, count(*) as n from rows group by id % 2 order by odd").collect()
    java = spark.sparkContext._gateway.proc
java.stdin.close()
java.wait()
"""


def java_home() -> Path:
    """A directory with `bin/java`: one for each Java and each Spark, the same in every run. Raises OperatorError where
    no Java is found."""
    java = find_java()
    identity = f"{_JAVA} {java.executable.resolve()} {java.version} {pyspark.__version__} {pyspark.__file__}"
    home = CACHE / hashlib.sha256(identity.encode()).hexdigest()[:16]
    (home / "bin").mkdir(parents=True, exist_ok=True)
    if not (home / "bin" / "java").exists():
        names = {"java": java.executable, "archive": home / ARCHIVE}
        script = _JAVA.format(options=LIGHT_JAVA, **{name: shlex.quote(str(path)) for name, path in names.items()})
        descriptor, staged = tempfile.mkstemp(dir=home)
        with os.fdopen(descriptor, "w") as output:
            output.write(script)
        os.chmod(staged, 0o755)
        os.replace(staged, home / "bin" / "java")
    return home


@contextmanager
def archive_in_the_making(home: Path) -> Iterator[None]:
    """Create the archive if it is missing and no other process of the run creates it; an unfinished one is removed."""
    archive, staged = home / ARCHIVE, home / "staged"
    with (home / "lock").open("w") as lock, ExitStack() as stack:
        with suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not archive.exists():
                stack.callback(staged.unlink, missing_ok=True)
                stack.enter_context(_training(home, staged, archive))
        yield


@contextmanager
def _training(home: Path, staged: Path, archive: Path) -> Iterator[None]:
    environment = os.environ | {"JAVA_HOME": str(home), MAKING: f"-XX:ArchiveClassesAtExit={staged}"}
    process = subprocess.Popen(
        ["sh", "-c", '"$0" -c "$1" && mv "$2" "$3"', sys.executable, _TRAINING, str(staged), str(archive)],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
