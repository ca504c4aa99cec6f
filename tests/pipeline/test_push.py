"""`ottla pipeline push`: files and tables to a topic, exactly once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

pa = pytest.importorskip("pyarrow", reason="needs the extra `pipeline`")
pq = pytest.importorskip("pyarrow.parquet")
deltalake = pytest.importorskip("deltalake")

from ottla.client.admin.cluster import Cluster  # noqa: E402
from ottla.client.librdkafka.transaction_calls import ProducerHung  # noqa: E402
from ottla.client.librdkafka.transactional_producer import TransactionalProducer  # noqa: E402
from ottla.common.errors import OperatorError, OttlaError  # noqa: E402
from ottla.pipeline.cli import pipeline  # noqa: E402
from ottla.pipeline.operations.push import Observe  # noqa: E402
from ottla.pipeline.sinks.open_table import open_table  # noqa: E402
from ottla.pipeline.sinks.partitioned_writer import PartitionedWriter  # noqa: E402
from ottla.pipeline.sinks.table import Table, TableCommit  # noqa: E402
from ottla.pipeline.sinks.writer import new_load_id  # noqa: E402
from ottla.testing import Broker  # noqa: E402

from .committed import read_committed  # noqa: E402
from .limits import RUN_S  # noqa: E402

pytestmark = pytest.mark.pipeline

DRIVER = Path(__file__).with_name("push_driver.py")


@pytest.fixture
def run(bootstrap: str, topic: str) -> Callable[..., Result]:
    def run(*arguments: str | Path) -> Result:
        return CliRunner().invoke(pipeline, ["push", *map(str, arguments), "--topic", topic, "-b", bootstrap])

    return run


def records(bootstrap: str, topic: str, count: int = 0) -> list[tuple[Any, Any]]:
    found = [(message.key(), message.value()) for message in read_committed(bootstrap, topic, count)]
    return sorted(found, key=lambda pair: (pair[0] or b"", pair[1]))


def test_lines_of_json_go_as_they_are(bootstrap: str, topic: str, tmp_path: Path, run: Callable[..., Result]) -> None:
    path = tmp_path / "lines.jsonl"
    lines = [b'{"id": 1,  "n": 1.50}', '{"id": "zwei", "t": "ü"}'.encode(), b'{"id": null}']
    path.write_bytes(b"\r\n".join([*lines, b""]))
    result = run(path, "--key-column", "id", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) | {"seconds": 0} == {
        "push_id": json.loads(result.stdout)["push_id"],
        "topic": topic,
        "rows": 3,
        "transactions": 1,
        "seconds": 0,
        "resumed": False,
    }
    assert records(bootstrap, topic, 3) == [(None, lines[2]), (b"1", lines[0]), (b"zwei", lines[1])]
    again = run(path, "--key-column", "id")
    assert again.stdout == f"Nothing to add to {topic}, after the rows of earlier runs.\n"
    renamed = run(path, "--key-column", "id", "--push-id", "second")
    assert renamed.exit_code == 0, renamed.output
    assert len(records(bootstrap, topic, 6)) == 6


def test_rows_of_csv_become_objects_of_text(
    bootstrap: str, topic: str, tmp_path: Path, run: Callable[..., Result]
) -> None:
    path = tmp_path / "users.csv"
    path.write_text('id,name\n1,"Ann, B."\n2,\n')
    result = run(path, "--key-column", "id")
    assert result.exit_code == 0, result.output
    assert f"Pushed 2 rows to {topic} in 1 transaction: " in result.stdout
    assert records(bootstrap, topic, 2) == [(b"1", b'{"id":"1","name":"Ann, B."}'), (b"2", b'{"id":"2","name":null}')]


def test_nan_and_infinity_are_text_in_json(
    bootstrap: str, topic: str, tmp_path: Path, run: Callable[..., Result]
) -> None:
    path = tmp_path / "numbers.parquet"
    pq.write_table(pa.table({"a": [1.5, float("nan")], "b": [[float("inf")], []], "c": [b"\xff", b"x"]}), path)
    assert run(path).exit_code == 0
    assert [value for _, value in records(bootstrap, topic, 2)] == [
        b'{"a":"NaN","b":[],"c":"x"}',
        b'{"a":1.5,"b":["Infinity"],"c":"\\\\xff"}',
    ]


def test_a_table_gives_its_records_back(bootstrap: str, topic: str, tmp_path: Path, run: Callable[..., Result]) -> None:
    table = tmp_path / "table"
    headers = pa.array(
        [[{"key": "a", "value": b"1"}], None], pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    )
    times = pa.array([1_700_000_000_123_000] * 2, pa.timestamp("us", tz="UTC"))
    columns = {
        "topic": ["old"] * 2,
        "partition": [7, 8],
        "timestamp": times,
        "key": [b"k", None],
        "value": [b"v", None],
    }
    deltalake.write_deltalake(str(table), pa.table({**columns, "headers": headers}))
    result = run(table, "--keep-timestamps")
    assert result.exit_code == 0, result.output
    found = sorted(read_committed(bootstrap, topic, 2), key=lambda message: message.key() or b"")
    assert [(each.key(), each.value(), each.headers()) for each in found] == [
        (None, None, None),
        (b"k", b"v", [("a", b"1")]),
    ]
    assert {each.timestamp()[1] for each in found} == {1_700_000_000_123}


@pytest.mark.parametrize("kind", ["delta", "parquet", "iceberg"])
def test_partition_columns_of_a_table_are_pushed(
    bootstrap: str, topic: str, tmp_path: Path, run: Callable[..., Result], kind: str
) -> None:
    """Files of Delta and Parquet do not contain them; in a file that is older than a column it is null."""
    table = open_table(tmp_path / "table", format=kind, partition_by=["day", "n"])
    load_rows(table, {"day": date(2026, 3, 2), "n": 7, "name": "a/b"})
    load_rows(table, {"day": None, "n": 8, "name": "c", "later": "x"})
    result = run(tmp_path / "table", "--key-column", "n")
    assert result.exit_code == 0, result.output
    found = [(key, json.loads(value)) for key, value in records(bootstrap, topic, 2)]
    assert found == [
        (b"7", {"day": "2026-03-02", "n": 7, "name": "a/b", "later": None}),
        (b"8", {"day": None, "n": 8, "name": "c", "later": "x"}),
    ]


def load_rows(table: Table, row: dict[str, Any]) -> None:
    kinds = {"day": pa.date32(), "n": pa.int64(), "name": pa.string(), "later": pa.string()}
    schema = pa.schema([(name, kinds[name]) for name in row])
    layout = table.ensure(schema) if not table.exists() else table.layout()
    table.widen(schema)
    load_id = new_load_id()
    with PartitionedWriter(layout, schema, "rows", load_id) as writer:
        writer.add(pa.RecordBatch.from_pylist([row], schema))
        table.commit(TableCommit(load_id, writer.finish()))


def test_table_with_column_mapping_is_refused(bootstrap: str, topic: str, tmp_path: Path, run: Any) -> None:
    path = tmp_path / "table"
    deltalake.write_deltalake(path, pa.table({"a": [1]}))
    [log] = (path / "_delta_log").glob("*.json")
    log.write_text(log.read_text().replace('"configuration":{}', '"configuration":{"delta.columnMapping.mode":"name"}'))
    refused = run(path)
    assert isinstance(refused.exception, OperatorError), refused.output
    assert "has column mapping (delta.columnMapping.mode)" in str(refused.exception)


def test_values_without_a_python_type_are_pushed_whole(
    bootstrap: str, topic: str, tmp_path: Path, run: Callable[..., Result]
) -> None:
    columns = {
        "at": pa.array([1_000_000_001, 2_000_000_000], pa.time64("ns")),
        "m": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
        "in": pa.array([[{"m": [("k", 2)]}], []], pa.list_(pa.struct([("m", pa.map_(pa.string(), pa.int64()))]))),
        "id": pa.array([b"0123456789abcdef"] * 2, pa.uuid()),
    }
    pq.write_table(pa.table(columns), tmp_path / "rows.parquet")
    assert run(tmp_path / "rows.parquet", "--key-column", "id").exit_code == 0
    text = "30313233-3435-3637-3839-616263646566"
    found = [(key, json.loads(value)) for key, value in records(bootstrap, topic, 2)]
    assert found == [
        (text.encode(), {"at": "00:00:01.000000001", "m": {"k": 1}, "in": [{"m": {"k": 2}}], "id": text}),
        (text.encode(), {"at": "00:00:02", "m": None, "in": [], "id": text}),
    ]


@pytest.mark.parametrize(
    ("name", "content", "options", "sentence"),
    [
        ("rows.parquet", b"PAR1 not", (), "rows.parquet can't be read: "),
        (
            "rows.jsonl",
            b'{"a": 1}\nnonsense\n',
            ("--key-column", "a"),
            "line 2 of .* is not valid JSON: .*; nothing of it is in topic",
        ),
        ("rows.jsonl", b'{"b": 1}\n', ("--key-column", "a"), "line 1 of .* has no field 'a' for the key"),
        ("rows.csv", b"a,b\n1,2\n", ("--value-column", "c"), "has no column `c`, only: a, b"),
        ("rows.csv", b"a;b\n1;2\n", (), "names one column, 'a;b': separate cells by commas in place of ';'"),
        ("rows.json", b'[{"a": 1}]\n', (), "is an array and the whole file: convert each"),
        ("rows.csv", b"", (), "rows.csv is empty, but its first line must name the columns; nothing of it is in"),
        ("rows.csv", b'a\n1\n"2\n', (), "line 3 of .*rows.csv starts a row with an unclosed quote"),
        ("rows.csv", b"a,value,a\n1,2,3\n", (), "rows.csv has two columns of the name 'a'; rename one of them"),
        ("rows.txt", b"1\n", (), "the format of .* is unknown"),
        ("rows.csv", b"a\n1\n", ("--push-id", "a b"), "the id 'a b' must be 1 to 100 letters"),
    ],
)
def test_unpushable_input_is_refused_and_leaves_nothing(
    bootstrap: str,
    topic: str,
    tmp_path: Path,
    run: Callable[..., Result],
    name: str,
    content: bytes,
    options: tuple[str, ...],
    sentence: str,
) -> None:
    (tmp_path / name).write_bytes(content)
    result = run(tmp_path / name, *options)
    assert result.exit_code != 0
    assert isinstance(result.exception, Exception)
    with pytest.raises(Exception, match=sentence):
        raise result.exception
    assert "\n" not in str(result.exception)
    assert records(bootstrap, topic) == []


def test_rows_before_malformed_line_are_reported(
    bootstrap: str, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Callable[..., Result]
) -> None:
    """Also by a second run, which resumes after them."""
    monkeypatch.setattr("ottla.pipeline.operations.push.TRANSACTION_ROWS", 10_000)
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(f"{row}\n" for row in range(25_000)) + "{")
    for _ in range(2):
        result = run(path)
        assert isinstance(result.exception, OperatorError)
        assert str(result.exception) == (
            f"line 25,001 of {path} is not valid JSON: correct or remove it; convert documents of several lines with "
            f"`jq -c .`; the first 20,000 rows are in topic '{topic}' and stay there: push the others as a separate "
            "file, since a corrected file is another source"
        )
        assert len(records(bootstrap, topic, 20_000)) == 20_000


def test_a_pipe_is_refused(bootstrap: str, topic: str, tmp_path: Path, run: Callable[..., Result]) -> None:
    """Opening it would block until a writer comes, and its content can't be read twice."""
    path = tmp_path / "rows.csv"
    os.mkfifo(path)
    assert "is not a regular file" in str(run(path).exception)


def test_positions_that_another_program_set_are_refused(
    bootstrap: str, topic: str, tmp_path: Path, run: Callable[..., Result]
) -> None:
    """Such offsets say nothing about the rows: all of them would be sent a second time."""
    path = tmp_path / "lines.jsonl"
    path.write_bytes(b"1\n2\n")
    assert run(path, "--push-id", f"reset-{topic}").exit_code == 0
    with Cluster(bootstrap) as cluster:
        cluster.groups.commit_offsets(f"ottla-push-reset-{topic}", {(topic, 0): 1})
    refused = run(path, "--push-id", f"reset-{topic}")
    assert isinstance(refused.exception, OperatorError), refused.output
    assert f"group 'ottla-push-reset-{topic}' were set by another program" in str(refused.exception)
    assert len(records(bootstrap, topic, 2)) == 2


def test_another_source_under_the_same_id_is_refused(
    bootstrap: str, topic: str, tmp_path: Path, run: Callable[..., Result]
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("1\n2\n")
    assert run(path).exit_code == 0
    path.write_text("1\n2\n3\n")
    result = run(path)
    assert "was started with other rows" in str(result.exception)
    assert records(bootstrap, topic, 2) == [(None, b"1"), (None, b"2")]


def test_a_producer_that_the_library_loses(
    bootstrap: str, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Callable[..., Result]
) -> None:
    """As after a short outage of a broker: the next producer fences it and resumes after the last commit."""
    monkeypatch.setattr("ottla.pipeline.operations.push.TRANSACTION_ROWS", 1_000)
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(f"{row}\n" for row in range(5_000)))
    send_offsets, hung = TransactionalProducer.send_offsets, iter([False, True])

    def hanging_send_offsets(producer: TransactionalProducer, *offsets: Any) -> None:
        send_offsets(producer, *offsets)
        if next(hung, False):
            raise ProducerHung("group")

    monkeypatch.setattr(TransactionalProducer, "send_offsets", hanging_send_offsets)
    result = run(path, "--json")
    assert result.exit_code == 0, result.output
    summary = json.loads(result.stdout)
    assert (summary["rows"], summary["transactions"], summary["resumed"]) == (5_000, 5, False)
    assert sorted(int(value) for _, value in records(bootstrap, topic, 5_000)) == list(range(5_000))


@pytest.mark.parametrize("again", [True, False])
def test_topic_deleted_during_push(
    bootstrap: str, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Callable[..., Result], again: bool
) -> None:
    """The recreated topic gets all rows or none: no run resumes in it after rows of the old one."""
    monkeypatch.setattr("ottla.pipeline.operations.push.TRANSACTION_ROWS", 1_000)
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(f"{row}\n" for row in range(3_000)))
    first = iter([True])

    def go(positions: object, rows: int) -> None:
        if next(first, False):
            with Cluster(bootstrap) as cluster:
                cluster.topics.delete([topic])
                if again:
                    cluster.topics.create(topic, 1)

    @contextmanager
    def observed(*_: object, **__: object) -> Iterator[Observe]:
        yield go

    monkeypatch.setattr("ottla.pipeline.cli.push.progress_bar", observed)
    result = run(path)
    assert isinstance(result.exception, OttlaError)
    assert "\n" not in str(result.exception)
    if again:
        assert "was deleted and created again during the push" in str(result.exception)
        assert records(bootstrap, topic) == []
    else:
        with Cluster(bootstrap) as cluster:
            cluster.topics.create(topic, 1)
    assert run(path).exit_code == 0
    assert sorted(int(value) for _, value in records(bootstrap, topic, 3_000)) == list(range(3_000))


def test_a_broker_that_is_killed_and_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.pipeline.operations.push.TRANSACTION_ROWS", 1_000)
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(f"{row}\n" for row in range(4_000)))
    with Broker() as broker:
        with Cluster(broker.bootstrap_servers) as cluster:
            cluster.topics.create("t", 1)
        once = iter([True])

        def crash(positions: object, rows: int) -> None:
            if next(once, False):
                broker.restart(crash=True)

        @contextmanager
        def observed(*_: object, **__: object) -> Iterator[Observe]:
            yield crash

        monkeypatch.setattr("ottla.pipeline.cli.push.progress_bar", observed)
        arguments = ["push", str(path), "--topic", "t", "-b", broker.bootstrap_servers]
        result = CliRunner().invoke(pipeline, arguments)
        assert result.exit_code == 0, result.exception
        assert sorted(int(value) for _, value in records(broker.bootstrap_servers, "t", 4_000)) == list(range(4_000))


@pytest.mark.promise("P11")
@pytest.mark.parametrize("step", ["sent", "offsets", "committed"])
def test_killed_push_resumes(bootstrap: str, topic: str, tmp_path: Path, run: Callable[..., Result], step: str) -> None:
    """Killed in its second transaction; one file a transaction."""
    paths = [tmp_path / f"{number}.parquet" for number in range(3)]
    for number, path in enumerate(paths):
        values = [b"%d" % row for row in range(number * 800, (number + 1) * 800)]
        pq.write_table(pa.table({"value": values, "key": values}), path, row_group_size=100)
    command = [sys.executable, str(DRIVER), "2", step, "push", *map(str, paths), "--topic", topic, "-b", bootstrap]
    process = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S, env=os.environ, check=False)
    assert process.returncode == -signal.SIGKILL, process.stderr
    result = run(*paths, "--json")
    assert result.exit_code == 0, result.output
    summary = json.loads(result.stdout)
    assert summary["resumed"]
    assert summary["rows"] == (2_400 - (1_600 if step != "committed" else 2_400))
    values = [b"%d" % row for row in range(2_400)]
    assert records(bootstrap, topic, 2_400) == sorted(zip(values, values, strict=True))
