"""Tables in an S3 bucket: behaviour that differs from a directory, such as kills and leases; `test_formats.py` tests
the common behaviour."""

from __future__ import annotations

import itertools
import signal
import urllib.request
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from ottla.common.errors import OperatorError

pytest.importorskip("pyarrow", reason="needs the extra `pipeline`")
pytest.importorskip("deltalake", reason="needs the extra `pipeline`")
pytest.importorskip("obstore", reason="needs the extra `object-stores`")
pytest.importorskip("moto")
pytest.importorskip("flask_cors")

import obstore
from obstore.exceptions import GenericError

from ottla.pipeline.load.compact import compact
from ottla.pipeline.load.driver import rows_schema
from ottla.pipeline.load.leased_files import leased_files
from ottla.pipeline.load.leases import held_lease
from ottla.pipeline.operations.vacuum import vacuum
from ottla.pipeline.sinks import delta
from ottla.pipeline.sinks.dataset import open_dataset
from ottla.pipeline.sinks.open_table import open_table
from ottla.pipeline.sinks.table import Table, UnknownCommitError
from ottla.pipeline.stores.object_store import ObjectStore
from ottla.pipeline.stores.open_store import open_store

from ..forks import Forks
from ..memory_cluster import MemoryCluster
from ..s3_server import BUCKET, S3Server
from .loads import commit, load, make_cluster, plan_load, topic_rows, write_files

numbers = itertools.count()


@pytest.fixture(params=["delta", "parquet"])
def table(request: pytest.FixtureRequest, s3_server: S3Server) -> Table:
    return open_table(f"s3://{BUCKET}/{next(numbers)}/table", format=request.param)


def rows(table: Table) -> list[tuple[int, int]]:
    found = open_dataset(table.layout(), table.schema(), table.files()).to_table(columns=["partition", "offset"])
    return sorted(zip(found.column("partition").to_pylist(), found.column("offset").to_pylist(), strict=True))


@pytest.mark.parametrize("put", range(4))
def test_a_kill_while_committing(s3_server: S3Server, committer: Forks, table: Table, put: int) -> None:
    """After a kill at any put the next load adds the rest."""
    kind = type(table).__name__.removesuffix("Target").lower()
    kill = partial(s3_server.kill_at_put, number=put)
    assert committer.run(kind, table.location, "after", before=kill) == -signal.SIGKILL
    cluster = make_cluster()
    before = rows(table) if table.exists() and table.files() else []
    assert before in ([], topic_rows(cluster))
    assert (load(cluster, table) is None) == bool(before)
    assert rows(table) == topic_rows(cluster)


def test_files_of_an_unreported_commit_stay(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store carries it out later: the table then refers to these files."""
    cluster = make_cluster()
    late: list[partial[Any]] = []
    plan = plan_load(cluster, table)
    table.ensure(rows_schema(table, None))

    def lose(request: Callable[..., Any], *arguments: Any, **named: Any) -> Exception:
        late.append(partial(request, *arguments, **named))
        return GenericError("no answer")

    def lose_put(*arguments: Any, **named: Any) -> None:
        raise lose(*arguments, **named)

    def load_without_answer() -> None:
        with leased_files(table, "one"), monkeypatch.context() as patch:
            files = write_files(cluster, table, plan, "one")
            patch.setattr(delta, "_write", partial(lose, delta._write))
            patch.setattr(obstore, "put", partial(lose_put, obstore.put))
            commit(table, plan, files, "one")

    with pytest.raises(UnknownCommitError, match="the next load checks it"):
        load_without_answer()
    late[0]()
    assert rows(table) == topic_rows(cluster)
    assert load(cluster, table) is None


def test_upkeep_beside_a_load(cluster: MemoryCluster, table: Table) -> None:
    for _ in range(3):
        cluster.partitions["clicks", 0].append_values([b"more"])
        load(cluster, table)
    cluster.partitions["clicks", 0].append_values([b"more"])
    plan = plan_load(cluster, table)
    with held_lease(open_store(table.location), "running") as lease:
        files = write_files(cluster, table, plan, "running")
        assert compact(open_table(table.location)).files_after == 1
        assert vacuum(open_table(table.location), timedelta(0)).running_loads == ["running"]
        lease.require()
        commit(table, plan, files, "running")
    assert rows(table) == topic_rows(cluster)


def test_revoked_lease_is_not_renewed(s3_server: S3Server) -> None:
    store = open_store(f"s3://{BUCKET}/{next(numbers)}")
    with held_lease(store, "one") as lease:
        store.remove(lease.path)
        with pytest.raises(OperatorError, match=r"the lease s3://.* is gone"):
            lease.require()
    assert list(store.files()) == []


def test_removed_bucket_is_not_reported_as_revoked_lease(s3_server: S3Server) -> None:
    bucket = f"{s3_server.url}/removed"
    urllib.request.urlopen(urllib.request.Request(bucket, method="PUT")).close()
    message = r"the lease s3://removed/table/_leases/one can't be renewed: .*\(NoSuchBucket\); fix the cause"
    with held_lease(open_store("s3://removed/table"), "one") as lease:
        lease.store.remove(lease.path)
        urllib.request.urlopen(urllib.request.Request(bucket, method="DELETE")).close()
        with pytest.raises(OperatorError, match=message):
            lease.require()


def test_a_store_without_conditional_puts_is_refused(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(f"s3://{BUCKET}/{next(numbers)}")
    monkeypatch.setattr(ObjectStore, "create", ObjectStore.replace)
    with pytest.raises(OperatorError, match="lets two writers create the same file"), held_lease(store, "one"):
        pass


def test_invalid_requests_are_refused_in_one_sentence(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OperatorError, match=r"can't contain an Iceberg table .* --catalog"):
        open_table(f"s3://{BUCKET}/iceberg", format="iceberg")
    with pytest.raises(OperatorError, match="is not a location in an object store"):
        open_table("s3://")
    with pytest.raises(OperatorError, match=r"The specified bucket does not exist \(NoSuchBucket\)"):
        open_table("s3://none/table")
    assert "tests" not in repr(open_store(f"s3://{BUCKET}/table"))
