"""The format in an ordinary program, run by the Python of a virtual environment."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs the extra `pipeline`")

from ottla.pipeline.spark.session import find_java, launch_home

from ..limits import RUN_S

pytestmark = pytest.mark.pipeline

PROGRAM = """
import os, sys
from pyspark.sql import SparkSession
import ottla.spark

def count():
    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    ottla.spark.register(spark)
    reader = spark.read.format("ottla").option("kafka.bootstrap.servers", sys.argv[1]).option("subscribe", sys.argv[2])
    print(reader.load().count(), "records", flush=True)
    (module,) = spark.sparkContext.parallelize([0], 1).map(lambda _: __import__("pyspark").__file__).collect()
    print("from an archive" if ".zip" in module else "from files", flush=True)
    spark.stop()

count()
os.environ["PYSPARK_PYTHON"] = sys.argv[3]
count()  # another session, on the Java of the first
"""


def run(python3: Path, bootstrap: str, topic: str) -> subprocess.CompletedProcess[str]:
    """Run the program with `python3` first on PATH, which is also the Python of its second session."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK"))}
    java_home = launch_home(find_java(), python3.parent / "java")
    inherited |= {"JAVA_HOME": str(java_home), "PATH": f"{python3.parent}:{os.environ['PATH']}"}
    command = [sys.executable, "-c", PROGRAM, bootstrap, topic, str(python3)]
    return subprocess.run(command, env=inherited, capture_output=True, text=True, timeout=RUN_S, check=False)


@pytest.fixture
def python3(tmp_path: Path) -> Path:
    """A Python that can't run workers."""
    path = tmp_path / "python3"
    path.write_text("#!/bin/sh\necho not this one >&2\nexit 1\n")
    path.chmod(0o755)
    return path


def test_workers_have_the_programs_python_unless_one_is_named(
    python3: Path, bootstrap: str, topic: str, produce: Callable[..., None]
) -> None:
    produce([b"1", b"2", b"3"])
    done = run(python3, bootstrap, topic)
    assert done.stdout == "3 records\nfrom files\n", done.stderr[-2000:]
    assert done.returncode != 0
    assert "not this one" in done.stderr


def test_schema_request_needs_no_arrow() -> None:
    """Some Spark processes only need the columns; Arrow would be half of their memory."""
    program = (
        "import sys; from ottla.pipeline.datasource.provider import OttlaDataSource as Source; "
        "Source({'kafka.bootstrap.servers': 'a:1', 'subscribe': 'b'}).schema(); "
        "print(sorted({'numpy', 'pandas', 'pyarrow'} & sys.modules.keys()))"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"
