"""One Spark session with Spark's own Kafka connector for all tests in the folder."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from spark_process import SparkProcess

from ottla.pipeline.spark.session import MINIMUM_JAVA, java_version


@pytest.fixture(scope="session")
def spark(
    spark_connector: list[Path], spark_python: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkProcess]:
    version = java_version(Path(shutil.which("java") or "java"))
    if version is None or version < MINIMUM_JAVA:
        pytest.skip(f"Spark needs Java {MINIMUM_JAVA} or newer, and this machine's is {version}")
    process = SparkProcess(spark_python, spark_connector, tmp_path_factory.mktemp("spark") / "spark.log")
    yield process
    process.close()
