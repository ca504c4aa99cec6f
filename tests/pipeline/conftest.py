"""One Spark session for all tests of the directory; broker fixtures come from `ottla.testing`."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest

from ottla.common.errors import OperatorError
from ottla.pipeline.spark.session import EXTRA_MODULES, open_session
from ottla.pipeline.sql.topic_views import DATABASE, DATABASE_SETTING
from ottla.testing import Broker

from .s3_server import ACCESS, BUCKET, S3Server


@pytest.fixture(scope="session", autouse=True)
def light_java() -> Iterator[None]:
    """Java of every Spark of these tests, in separate processes as well."""
    try:
        from .light_java import archive_in_the_making, java_home

        home = java_home()
    except (ImportError, OperatorError):  # without Spark or Java, which the tests themselves check
        yield
        return
    with pytest.MonkeyPatch.context() as patch, archive_in_the_making(home):
        patch.setenv("JAVA_HOME", str(home))
        yield


@pytest.fixture(scope="session")
def spark(light_java: None) -> Iterator[Any]:
    """A local session on two cores; skips when the extra is missing."""
    for name in EXTRA_MODULES:
        pytest.importorskip(name, reason="needs the extra `pipeline`")
    settings = {DATABASE_SETTING: DATABASE, "spark.sql.shuffle.partitions": "2"}
    with open_session("local[2]", "ottla tests", settings) as session:
        yield session


@pytest.fixture
def commands_in_session(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run commands in this process with the shared session, in place of a session of their own."""
    for module in ("replay", "sql", "stream", "table_run"):
        monkeypatch.setattr(f"ottla.pipeline.cli.{module}.open_session", lambda *_: nullcontext(spark))


@pytest.fixture(scope="module")
def s3_server() -> Iterator[S3Server]:
    """An S3 server with a bucket; the environment of this process refers to it."""
    pytest.importorskip("obstore", reason="needs the extra `object-stores`")
    pytest.importorskip("moto")
    pytest.importorskip("flask_cors")
    server = S3Server()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (ACCESS | {"AWS_ENDPOINT_URL": server.url}).items():
            patch.setenv(name, value)
        urllib.request.urlopen(urllib.request.Request(f"{server.url}/{BUCKET}", method="PUT")).close()
        yield server
    server.stop()


@pytest.fixture
def bootstrap(ottla_broker: Broker) -> str:
    return ottla_broker.bootstrap_servers


@pytest.fixture
def topic(bootstrap: str) -> str:
    """A new topic of three partitions."""
    from .topics import new_topic

    return new_topic(bootstrap, 3)
