"""The commands with a table in an S3 bucket, a real broker and a real Spark."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

pytest.importorskip("pyspark", reason="needs the extra `pipeline`")

from ottla.pipeline import cli

from .s3_server import BUCKET
from .topics import produce

pytestmark = pytest.mark.pipeline


@pytest.mark.usefixtures("commands_in_session", "s3_server")
@pytest.mark.parametrize("table_format", ["delta", "parquet"])
def test_a_table_is_loaded_asked_and_kept(bootstrap: str, topic: str, table_format: str) -> None:
    table = f"s3://{BUCKET}/{table_format}/clicks"

    def run(*arguments: str) -> Any:
        result = CliRunner().invoke(cli.pipeline, [*arguments, "--json"])
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    for part in range(2):
        numbers = range(part * 30, part * 30 + 30)
        produce(bootstrap, topic, ({"value": b'{"id":%d}' % one, "partition": one % 3} for one in numbers))
        options = ("--format", table_format, "--decode", "json", "--bootstrap-server", bootstrap)
        assert run("load", "-t", topic, "--table", table, *options)["rows"] == 30
    assert run("compact", "--table", table)["files_after"] == 1
    run("vacuum", "--table", table, "--retention-hours", "0")
    [found] = run("sql", "select count(*) n, count(distinct id) ids, max(id) top from clicks", "--table", table)
    assert found == {"n": 60, "ids": 60, "top": 59}
    [held] = run("status", table, "--bootstrap-server", bootstrap)
    assert sorted((each["partition"], each["committed"], each["lag"]) for each in held["partitions"]) == [
        (number, 20, 0) for number in range(3)
    ]
