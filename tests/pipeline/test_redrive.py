"""Dead letters that can be decoded now become rows, each once, despite kills, races and concurrent loads."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ottla.common.errors import OperatorError, OttlaError

pytest.importorskip("deltalake", reason="needs the extra `pipeline`")

import pyarrow as pa

from ottla.pipeline import cli
from ottla.pipeline.load.compact import compact
from ottla.pipeline.model.decode import MAX_TIMESTAMP_MS
from ottla.pipeline.operations.redrive import RedriveSummary, redrive
from ottla.pipeline.operations.vacuum import vacuum
from ottla.pipeline.sinks.dataset import open_dataset
from ottla.pipeline.sinks.open_table import open_table
from ottla.pipeline.sinks.table import StaleCommitError, Table
from ottla.pipeline.stores.open_store import open_store

from .forks import Forks
from .redriven import FIRST, REPAIRED
from .s3_server import BUCKET
from .transform.conftest import Lake

KINDS = ("delta", "iceberg", "parquet")
VALUES = (b"1,x", b"2,y,z", b'"open', b"3,v,w", b"4,u", None)
"""FIRST can't decode the values at the offsets 1 to 3, and REPAIRED only the one at 2."""
LOADED = [(0, 1, "x"), (4, 4, "u"), (5, None, None)]
REDRIVEN = [(0, 1, "x", None), (1, 2, "y", "z"), (3, 3, "v", "w"), (4, 4, "u", None), (5, None, None, None)]
STEPS = ("written", "added", "removed", *map(str, range(0, 14, 2)))


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    if request.param == "iceberg":
        pytest.importorskip("pyiceberg", reason="needs the extra `iceberg`")
    return str(request.param)


@pytest.fixture
def make_lake(kind: str, tmp_path: Path) -> Callable[..., Lake]:
    """A table that was loaded with three dead letters."""

    def made(*partition_by: str) -> Lake:
        lake = Lake(tmp_path / "lake", partition_by, kind)
        lake.produce(*VALUES)
        lake.load(FIRST)
        return lake

    return made


@pytest.fixture
def lake(make_lake: Callable[..., Lake]) -> Lake:
    return make_lake()


@pytest.fixture(scope="module")
def killed() -> Iterator[Forks]:
    forks = Forks(Path(__file__).with_name("redriven.py"))
    yield forks
    forks.close()


def run(lake: Lake, value_format: Any = REPAIRED, **named: Any) -> RedriveSummary:
    return redrive(open_table(lake.table.location), value_format, **named)


def rows(lake: Lake) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in lake.rows()]


def counts(summary: RedriveSummary) -> tuple[int, int, int]:
    return summary.rows, summary.already_loaded, summary.dead_letters


def offsets(table: Table) -> list[int]:
    dataset = open_dataset(table.layout(), table.schema(), table.files())
    return sorted(dataset.to_table(columns=["offset"]).column("offset").to_pylist())


def check_done(lake: Lake) -> None:
    """The records that can be decoded are rows, the others letters; another run changes nothing."""
    assert rows(lake) == REDRIVEN
    assert list(lake.letters()) == [2]
    versions = lake.table.version(), lake.table.dead_letters().version()
    assert (counts(again := run(lake)), again.version) == ((0, 0, 1), None)
    assert (lake.table.version(), lake.table.dead_letters().version()) == versions


@pytest.mark.promise("P6")
def test_letters_that_can_be_decoded_become_rows(lake: Lake) -> None:
    assert (rows(lake), list(lake.letters())) == (LOADED, [1, 2, 3])
    stored = lake.letters()[2]
    summary = run(lake)
    assert (counts(summary), summary.version) == ((2, 0, 1), lake.table.version())
    assert (summary.columns_added, lake.letters()) == (["c"], {2: stored})
    assert list(summary.dead_letter_reasons) == list(summary.present_reasons) == [stored]
    check_done(lake)
    lake.produce(b"5,t,s", b"6,r")
    lake.load(FIRST)
    assert counts(run(lake)) == (1, 0, 1)
    assert rows(lake) == [*REDRIVEN, (6, 5, "t", "s"), (7, 6, "r", None)]


def test_row_is_that_of_its_record(make_lake: Callable[..., Lake], tmp_path: Path, kind: str) -> None:
    """The rows equal those of a load that decodes the records at once, also with partitions."""
    lake, other = make_lake("topic", "date"), Lake(tmp_path / "other", ("topic", "date"), kind)
    run(lake)
    other.produce(*VALUES)
    other.load(REPAIRED)

    def whole(table: Table) -> list[dict[str, Any]]:
        found = open_dataset(table.layout(), table.schema(), table.files()).to_table().sort_by("offset")
        return [row for row in found.to_pylist() if row["offset"] in (1, 3)]

    assert whole(lake.table) == whole(other.table) != []


def test_reason_selects(lake: Lake) -> None:
    summary = run(lake, reason="not closed")
    assert (counts(summary), summary.unselected) == ((0, 0, 1), 2)
    assert (rows(lake)[0][:3], list(lake.letters())) == (LOADED[0], [1, 2, 3])
    summary = run(lake, reason="got 3")
    assert (counts(summary), summary.unselected) == ((2, 0, 0), 1)
    check_done(lake)


def test_dry_run_changes_nothing(lake: Lake) -> None:
    before = lake.table.version(), lake.table.schema()
    summary = run(lake, dry_run=True)
    assert (counts(summary), summary.columns_added, summary.version) == ((2, 0, 1), ["c"], None)
    assert (lake.table.version(), lake.table.schema()) == before
    assert list(lake.letters()) == [1, 2, 3]


@pytest.mark.promise("P6")
@pytest.mark.parametrize("step", STEPS)
def test_killed_at_each_step(lake: Lake, killed: Forks, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    outcome = killed.run(str(lake.table.location), step)
    ends = {-signal.SIGKILL, 0} if step.isdecimal() else {-signal.SIGKILL}  # a format may need fewer operations
    assert outcome in ends
    held = [row[0] for row in rows(lake)]
    assert len(set(held)) == len(held)
    assert {*held, *lake.letters()} == set(range(len(VALUES)))
    with monkeypatch.context() as patch:
        patch.setattr("ottla.pipeline.load.leases.EXPIRY_S", -1)
        vacuum(lake.table)
    run(lake)
    check_done(lake)
    there = {file.name for file in open_store(lake.table.location).files() if file.name.startswith("part-")}
    named = lake.table.named_files() | lake.table.dead_letters().named_files()
    assert there <= {Path(path).name for path in named}


def test_of_two_redrives_one_is_refused(lake: Lake) -> None:
    steps: list[str] = []

    def race(step: str) -> None:
        steps.append(step)
        if step == "written":
            run(lake)

    with pytest.raises(StaleCommitError, match="another redrive"):
        run(lake, reached=race)
    assert steps == ["written"]
    check_done(lake)


def test_redrive_completes_one_that_added_its_rows(lake: Lake) -> None:
    """The late one then has nothing to remove, and says so."""

    def race(step: str) -> None:
        if step == "added":
            assert counts(run(lake)) == (0, 2, 1)

    with pytest.raises(OttlaError, match=r"2 rows were added .* run it again"):
        run(lake, reached=race)
    check_done(lake)


@pytest.mark.parametrize("step", ["written", "added"])
def test_concurrent_load_and_redrive_are_both_right(lake: Lake, step: str) -> None:
    def race(name: str) -> None:
        if name == step:
            lake.produce(b"5,t,s", b"6,r")
            lake.load(FIRST)

    assert counts(run(lake, reached=race)) == (2, 0, 1)
    assert (rows(lake), list(lake.letters())) == ([*REDRIVEN, (7, 6, "r", None)], [2, 6])
    assert counts(run(lake)) == (1, 0, 1)
    assert rows(lake)[-2:] == [(6, 5, "t", "s"), (7, 6, "r", None)]


def test_compaction_of_letters_during_redrive(lake: Lake) -> None:
    lake.produce(b"5,t,s")
    lake.load(FIRST)

    def race(step: str) -> None:
        if step == "written":
            compact(lake.table.dead_letters())

    with pytest.raises(OttlaError, match="run it again"):
        run(lake, reached=race)
    assert counts(run(lake)) == (0, 3, 1)
    assert (rows(lake), list(lake.letters())) == ([*REDRIVEN, (6, 5, "t", "s")], [2])


def test_letters_of_a_load_that_did_not_commit(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next load reads their records again, and may decode them: no row is doubled."""

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    lake.produce(b"5,t,s")
    with monkeypatch.context() as patch:
        patch.setattr(lake.table, "commit", die)
        with pytest.raises(KeyboardInterrupt):
            lake.load(FIRST)
    assert list(lake.letters()) == [1, 2, 3, 6]
    summary = run(lake)
    assert (counts(summary), summary.uncommitted) == ((2, 0, 1), 1)
    assert (rows(lake), list(lake.letters())) == (REDRIVEN, [2, 6])
    lake.load(REPAIRED)
    assert list(lake.letters()) == [2, 6]
    summary = run(lake)
    assert (counts(summary), summary.uncommitted) == ((0, 1, 1), 0)
    assert (rows(lake), list(lake.letters())) == ([*REDRIVEN, (6, 5, "t", "s")], [2])


@pytest.mark.parametrize("place", ["delta-s3", "parquet-s3", "iceberg-catalog"])
def test_tables_in_stores_and_catalogs(place: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    found, _, where = place.partition("-")
    lake = Lake(tmp_path / "unused", table_format="parquet")
    if where == "s3":
        request.getfixturevalue("s3_server")
        lake.table = open_table(f"s3://{BUCKET}/{tmp_path.name}/lake", format=found)
    else:
        pytest.importorskip("pyiceberg", reason="needs the extra `iceberg`")
        from .catalog_server import CatalogServer

        server = CatalogServer(tmp_path)
        request.addfinalizer(server.stop)
        lake.table = open_table("lake.clicks", catalog_url=server.url)
    lake.produce(*VALUES)
    lake.load(FIRST)
    assert counts(redrive(lake.table, REPAIRED)) == (2, 0, 1)
    assert counts(redrive(lake.table, REPAIRED)) == (0, 0, 1)
    assert (offsets(lake.table), offsets(lake.table.dead_letters())) == ([0, 1, 3, 4, 5], [2])


def test_times_that_no_table_can_hold_stay(lake: Lake) -> None:
    lake.cluster.partitions["clicks", 0].append_times(MAX_TIMESTAMP_MS + 1)
    lake.load(None)
    summary = run(lake, None, reason="timestamp")
    assert (counts(summary), list(lake.letters())) == ((0, 0, 1), [1, 2, 3, 6])


def test_tables_without_records_are_refused(tmp_path: Path) -> None:
    def refused(table: Any) -> str:
        with pytest.raises(OperatorError) as refusal:
            redrive(table, None)
        return str(refusal.value)

    assert "no table found" in refused(open_table(tmp_path / "none"))
    results = open_table(tmp_path / "results")
    results.ensure(pa.schema([("n", pa.int64())]))
    assert "has no column 'headers', so it was not created by `ottla pipeline load`" in refused(results)


def test_command(lake: Lake, tmp_path: Path) -> None:
    names = [("a", "long"), ("b", "string"), ("c", "string")]
    fields = [{"name": name, "type": type_, "nullable": True, "metadata": {}} for name, type_ in names]
    (tmp_path / "schema").write_text(json.dumps({"type": "struct", "fields": fields}))

    def invoke(*arguments: str) -> Any:
        return CliRunner().invoke(cli.pipeline, ["redrive", str(lake.table.location), *arguments])

    refusal = invoke()
    assert isinstance(refusal.exception, OperatorError)
    assert "name the format of the values with --decode" in str(refusal.exception)
    decode = ["--decode", "csv", "--schema", str(tmp_path / "schema")]
    planned = invoke(*decode, "--dry-run")
    assert planned.stdout.startswith(f"2 dead letters can be decoded and would be added to {lake.table.location} (")
    done = invoke(*decode, "--json")
    assert done.exit_code == 0, done.output
    summary = json.loads(done.stdout)
    assert (summary["rows"], summary["dead_letters"], summary["version"]) == (2, 1, lake.table.version())
    again = invoke(*decode)
    assert again.stdout.startswith(f"No dead letter can be added to {lake.table.location} (")
    assert "1 still can't be decoded: the value is several rows, or a quote in it is not closed (1)." in again.stdout
    check_done(lake)
