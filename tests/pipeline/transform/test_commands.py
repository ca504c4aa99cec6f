"""`ottla pipeline load --decode` with a real broker and a real Spark, which then queries the columns."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

pytest.importorskip("pyspark", reason="needs the extra `pipeline`")

from ottla.pipeline import cli
from ottla.pipeline.model.events import page_views
from ottla.pipeline.sinks.delta import DeltaTarget
from ottla.pipeline.sql.query import register_tables, run_sql

from ..topics import new_topic, produce

pytestmark = pytest.mark.pipeline


@pytest.mark.usefixtures("commands_in_session")
def test_load_and_query(bootstrap: str, spark: Any, tmp_path: Path) -> None:
    def run(topic: str, table: str, decode: str, values: list[bytes]) -> Any:
        produce(bootstrap, topic, ({"value": value, "partition": number % 2} for number, value in enumerate(values)))
        arguments = ["load", "-t", topic, "--table", str(tmp_path / table), "--decode", decode, "--json"]
        result = CliRunner().invoke(cli.pipeline, [*arguments, "--bootstrap-server", bootstrap])
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    lines = list(page_views(3_000))
    summary = run(new_topic(bootstrap, 2), "decoded-views", "access-log", [*lines, b"odd"])
    assert (summary["rows"], summary["dead_letters"]) == (3_000, 1)
    register_tables(spark, [DeltaTarget(tmp_path / "decoded-views")])
    found = run_sql(spark, "select path, count(*) n, sum(bytes) b from decoded_views where status = 200 group by path")
    expected: dict[str, Counter[str]] = {}
    for line in lines:
        fields = line.decode().split()
        if fields[8] == "200":
            expected.setdefault(fields[6], Counter()).update(n=1, b=int(fields[9]))
    assert {row["path"]: Counter(n=row["n"], b=row["b"]) for row in found.to_pylist()} == expected

    documents = new_topic(bootstrap, 2)
    run(documents, "decoded-json", "json", [b'{"id":%d,"n":{"x":%d}}' % (number, number) for number in range(10)])
    run(documents, "decoded-json", "json", [b'{"id":10,"n":{"x":1,"y":["new"]},"more":1.5}'])
    register_tables(spark, [DeltaTarget(tmp_path / "decoded-json")])
    found = run_sql(spark, "select id, n.x, n.y, more from records order by id")
    assert [tuple(row.values()) for row in found.to_pylist()] == [
        *((number, number, None, None) for number in range(10)),
        (10, 1, ["new"], 1.5),
    ]
