"""`ottla pipeline snapshot` on a real broker and a real Spark, and the other commands on its table."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

confluent_kafka = pytest.importorskip("confluent_kafka")
pytest.importorskip("deltalake", reason="needs the extra `pipeline`")
pytest.importorskip("pyspark", reason="needs the extra `pipeline`")

from ottla.app import main  # noqa: E402
from ottla.client.admin.cluster import Cluster  # noqa: E402
from ottla.testing import Broker  # noqa: E402

pytestmark = [pytest.mark.pipeline, pytest.mark.usefixtures("commands_in_session")]

numbers = itertools.count()


@pytest.fixture
def bootstrap(ottla_broker: Broker) -> str:
    return ottla_broker.bootstrap_servers


@pytest.fixture
def topic(bootstrap: str) -> str:
    """A new topic of two partitions."""
    name = f"snapshot-{next(numbers)}"
    with Cluster(bootstrap) as cluster:
        cluster.topics.create(name, 2)
    return name


def run(*arguments: str | Path) -> Any:
    """JSON output of a command, None for JSON null."""
    result = CliRunner().invoke(main.cli, ["pipeline", *map(str, arguments), "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def refusal(*arguments: str | Path) -> str:
    result = CliRunner().invoke(main.cli, ["pipeline", *map(str, arguments)])
    assert (result.exit_code, result.stdout) == (2, "")
    return result.stderr


def produce(bootstrap: str, topic: str, pairs: dict[str, Any], *, commit: bool = True) -> None:
    """JSON values in one transaction, a deletion for None."""
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": f"t-{next(numbers)}"})
    producer.init_transactions(30)
    producer.begin_transaction()
    for key, value in pairs.items():
        producer.produce(topic, None if value is None else json.dumps(value), key)
    assert producer.flush(30) == 0
    if commit:
        producer.commit_transaction(30)
    else:
        producer.abort_transaction(30)


def test_a_table_of_users(bootstrap: str, topic: str, tmp_path: Path) -> None:
    table = tmp_path / "users"
    snapshot = ("snapshot", "-t", topic, "--table", table, "--decode", "json", "-b", bootstrap)
    produce(bootstrap, topic, {f"u{number}": {"name": f"n{number}"} for number in range(50)})
    produce(bootstrap, topic, {"u1": {"name": "aborted"}, "new": {"name": "aborted"}}, commit=False)
    first = run(*snapshot, "--buckets", "3")
    assert (first["records"], first["inserted"], first["buckets"]) == (50, 50, 3)
    produce(bootstrap, topic, {"u1": {"name": "other", "age": 7}, "u2": None, "u50": {"name": "n50"}})
    second = run(*snapshot)
    assert (second["records"], second["inserted"], second["updated"], second["deleted"]) == (3, 1, 1, 1)
    rows = run("sql", "select cast(key as string) as k, name, age from users order by k", "--table", table)
    names = {f"u{number}": (f"n{number}", None) for number in range(51) if number != 2} | {"u1": ("other", 7)}
    assert {row["k"]: (row["name"], row["age"]) for row in rows} == names
    assert len(rows) == len(names)
    assert run(*snapshot)["version"] is None
    [status] = run("status", table, "-b", bootstrap)
    assert sum(part["rows"] for part in status["partitions"]) == 50
    assert {part["lag"] for part in status["partitions"]} == {0}
    run("compact", "--table", table)
    assert run("vacuum", "--table", table, "--retention-hours", "0")["old_files"] > 0
    assert run("sql", "select count(*) as n from users", "--table", table) == [{"n": 50}]
    assert "is a snapshot with one row a key" in refusal("load", "-t", topic, "--table", table, "-b", bootstrap)
    assert "was created with 3 buckets, not 4" in refusal(*snapshot, "--buckets", "4")
    assert "was created without --history" in refusal(*snapshot, "--history")
