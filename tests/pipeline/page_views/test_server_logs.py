"""Server logs through the commands as a user types them, compared with plain Python.

The logs are generated (`server_logs.py`). OTTLA_LOGS names a directory with real ones: one `.log` in the combined
format and one `.jsonl` of status documents of NGINX Plus, of any length.
"""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

pytest.importorskip("pyspark", reason="needs the extra `pipeline`")

from tests.pipeline.page_views.oracle import AccessLine, Oracle, Row, access_line
from tests.pipeline.page_views.server_logs import access_lines, status_documents
from tests.pipeline.page_views.trial import EXAMPLES, Outcome, Trial

from ottla.app import main
from ottla.pipeline.stream.definition import read_definition

pytestmark = [pytest.mark.pipeline, pytest.mark.timeout(900), pytest.mark.usefixtures("commands_in_session")]

LOGS = os.environ.get("OTTLA_LOGS")
GENERATED = {".log": partial(access_lines, 500), ".jsonl": partial(status_documents, 40)}
RUNS = 2
"""Number of parts in which the files come; streams and the snapshot run after each."""
TRAFFIC = """
name = "traffic"

[sources.status]
topic = "status"
decode = "json"
event_time = "timestamp_millis(value_timestamp)"
watermark = "10 minutes"

[query]
sql = '''
select window.start as since, count(*) as documents, max(requests.total) as requests,
    max(connections.active) as active, max(server_zones.`ZONE`.responses.`4xx`) as refused
from status group by window(event_time, '5 minutes')
'''
output = "update"

[result]
table = "traffic"
keys = ["since"]
"""
Run = Callable[..., None]


def lines_of(suffix: str) -> list[bytes]:
    if LOGS is None:
        return GENERATED[suffix]()
    (path,) = Path(LOGS).absolute().glob(f"*{suffix}")
    return path.read_bytes().splitlines()


def parts(lines: list[bytes]) -> list[list[bytes]]:
    size = -(-len(lines) // RUNS)
    return [lines[begin : begin + size] for begin in range(0, len(lines), size)]


@pytest.fixture
def run(bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command of `ottla` in the directory of the test."""
    monkeypatch.chdir(tmp_path)

    def run(*command: str, given: bytes | None = None) -> None:
        result = CliRunner().invoke(main.cli, [*command, "-b", bootstrap], input=given, catch_exceptions=False)
        assert result.exit_code == 0, result.output

    return run


@pytest.fixture
def trial(spark: Any, bootstrap: str, tmp_path: Path) -> Trial:
    return Trial(spark, bootstrap, tmp_path)


def test_an_access_log_in_windows_and_sessions(run: Run, trial: Trial) -> None:
    """The ten-minute windows of every address, with alerts for some, and its visits."""
    lines, oracle = lines_of(".log"), Oracle()
    for topic in ("access", "alerts"):
        run("topic", "create", topic, "--partitions", "3")
    for part in parts(lines):
        run("produce", "access", given=b"\n".join(part) + b"\n")
        for name in ("security", "reporting"):
            run("pipeline", "stream", str(EXAMPLES / f"{name}.toml"), "--once")
        oracle.run({"access": [(b"", line) for line in part]})
    for name, expected in (("security", oracle.alerts()), ("reporting", oracle.reporting())):
        assert expected, name
        outcome = Outcome(name)
        outcome.compare(trial.results(read_definition(EXAMPLES / f"{name}.toml")), expected)
        trial.say(f"{name}: {len(lines):,} lines, {outcome.rows:,} rows")
        assert outcome.is_equal, outcome
    run("pipeline", "load", "--topics", "access", "--table", "access", "--decode", "access-log")
    assert Counter(loaded_lines(trial)) == Counter(map(expected_line, lines))
    assert not (trial.lake / "access" / "_dead_letters").exists()


def expected_line(line: bytes) -> AccessLine:
    """A request that is not of the form `METHOD path PROTOCOL` is null in all three columns."""
    parsed = access_line(line)
    return parsed if len(parsed.request.split()) == 3 else parsed._replace(request="")


def loaded_lines(trial: Trial) -> list[AccessLine]:
    columns = ("client", "time", "method", "path", "protocol", "status", "bytes", "agent")
    return [
        AccessLine(client, int(time.timestamp()), " ".join(filter(None, request)), status, size, agent)
        for client, time, *request, status, size, agent in trial.rows("access", *columns)
    ]


def test_nested_documents_in_windows_and_snapshots(run: Run, trial: Trial, tmp_path: Path) -> None:
    """Windows with replaced rows, the latest document of each worker, and every document unchanged."""
    lines = lines_of(".jsonl")
    documents = [json.loads(line) for line in lines]
    zone = next(iter(documents[0]["server_zones"]))
    (tmp_path / "traffic.toml").write_text(TRAFFIC.replace("ZONE", zone))
    run("topic", "create", "status", "--partitions", "3")
    for number, part in enumerate(parts(lines)):
        file = tmp_path / f"status-{number}.jsonl"
        file.write_bytes(b"\n".join(part) + b"\n")
        run("pipeline", "push", str(file), "--topic", "status", "--key-column", "pid")
        run("pipeline", "stream", "traffic.toml", "--once")
        run("pipeline", "snapshot", "--topics", "status", "--table", "latest")
    traffic, latest = Outcome("traffic"), Outcome("latest")
    traffic.compare(trial.results(read_definition(tmp_path / "traffic.toml")), windows(documents, zone))
    latest.compare(
        trial.rows("latest", "key", "value"),
        set({b"%d" % document["pid"]: line for document, line in zip(documents, lines, strict=True)}.items()),
    )
    trial.say(f"{len(lines):,} documents: {traffic.rows} windows, {latest.rows} workers")
    assert traffic.is_equal, traffic
    assert latest.is_equal, latest
    run("pipeline", "load", "--topics", "status", "--table", "status", "--decode", "json", "--numbers", "exact")
    names = {"value_timestamp" if name == "timestamp" else name: name for name in documents[0]}
    loaded = (dict(zip(names.values(), row, strict=True)) for row in trial.rows("status", *names))
    assert Counter(map(text, map(without_nulls, loaded))) == Counter(map(text, documents))


def windows(documents: list[Any], zone: str) -> set[Row]:
    """(since, documents, requests, active, refused)"""
    found: dict[int, list[Any]] = defaultdict(list)
    for document in documents:
        at = document["timestamp"] // 1000
        found[at - at % 300].append(document)
    return {
        (
            since,
            len(each),
            max(document["requests"]["total"] for document in each),
            max(document["connections"]["active"] for document in each),
            max(document["server_zones"][zone]["responses"]["4xx"] for document in each),
        )
        for since, each in found.items()
    }


def without_nulls(value: Any) -> Any:
    """A document without the null columns of other documents."""
    if isinstance(value, dict):
        return {name: without_nulls(one) for name, one in value.items() if one is not None}
    return [without_nulls(one) for one in value] if isinstance(value, list) else value


def text(document: Any) -> str:
    return json.dumps(document, sort_keys=True)
