"""`ottla pipeline load --decode` with a real broker and a real Spark, which then queries the columns."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

confluent_kafka = pytest.importorskip("confluent_kafka")
pytest.importorskip("pyspark", reason="needs the extra `pipeline`")

from ottla.client.cluster import Cluster  # noqa: E402
from ottla.pipeline import cli  # noqa: E402
from ottla.pipeline.cli import load as load_command  # noqa: E402
from ottla.pipeline.events import page_views  # noqa: E402
from ottla.pipeline.query import register_tables, run_sql  # noqa: E402
from ottla.pipeline.sinks.delta import DeltaTarget  # noqa: E402
from ottla.testing import Broker  # noqa: E402

pytestmark = pytest.mark.pipeline


def produce(broker: Broker, topic: str, values: list[bytes]) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 5})
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % 2)
    assert producer.flush(30) == 0


def test_load_and_query(ottla_broker: Broker, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_command, "open_session", lambda *_: nullcontext(spark))
    with Cluster(ottla_broker.bootstrap_servers) as cluster:
        cluster.create_topic("decoded-views", 2)
        cluster.create_topic("decoded-json", 2)
    lines = list(page_views(3_000))
    produce(ottla_broker, "decoded-views", [*lines, b"odd"])

    def run(topic: str, decode: str) -> Any:
        arguments = ["load", "-t", topic, "--table", str(tmp_path / topic), "--decode", decode, "--json"]
        arguments += ["--bootstrap-server", ottla_broker.bootstrap_servers]
        result = CliRunner().invoke(cli.pipeline, arguments)
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    summary = run("decoded-views", "access-log")
    assert (summary["rows"], summary["dead_letters"]) == (3_000, 1)
    register_tables(spark, [DeltaTarget(tmp_path / "decoded-views")])
    found = run_sql(spark, "select path, count(*) n, sum(bytes) b from decoded_views where status = 200 group by path")
    expected: dict[str, Counter[str]] = {}
    for line in lines:
        fields = line.decode().split()
        if fields[8] == "200":
            expected.setdefault(fields[6], Counter()).update(n=1, b=int(fields[9]))
    assert {row["path"]: Counter(n=row["n"], b=row["b"]) for row in found.to_pylist()} == expected

    produce(ottla_broker, "decoded-json", [b'{"id":%d,"n":{"x":%d}}' % (number, number) for number in range(10)])
    run("decoded-json", "json")
    produce(ottla_broker, "decoded-json", [b'{"id":10,"n":{"x":1,"y":["new"]},"more":1.5}'])
    run("decoded-json", "json")
    register_tables(spark, [DeltaTarget(tmp_path / "decoded-json")])
    found = run_sql(spark, "select id, n.x, n.y, more from records order by id")
    assert [tuple(row.values()) for row in found.to_pylist()] == [
        *((number, number, None, None) for number in range(10)),
        (10, 1, ["new"], 1.5),
    ]
