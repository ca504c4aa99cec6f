"""The shape of a snapshot is read from its table; tables of other shapes are refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.common.errors import OperatorError

pytest.importorskip("deltalake", reason="needs the extra `pipeline`")

import pyarrow as pa

from ottla.pipeline.cli.replay import _new_table
from ottla.pipeline.load.shape import Shape, require_no_snapshot, settled_shape, shape_of
from ottla.pipeline.model.decode import SCHEMA
from ottla.pipeline.replay.into_table import copy_rows
from ottla.pipeline.sinks.open_table import open_table

from ..sinks.loads import load, make_cluster

if TYPE_CHECKING:
    from .world import World


@pytest.mark.parametrize("history", [False, True])
def test_shape_is_read_from_table(make_world: Callable[..., World], kind: str, history: bool) -> None:
    world = make_world(kind, history=history, buckets=3)
    world.produce((b"a", b"1"))
    world.snapshot()
    shape = Shape(3, history)
    assert shape_of(world.open()) == shape
    assert settled_shape(world.open(), None, history=False) == shape
    assert settled_shape(world.open(), 3, history=history) == shape
    with pytest.raises(OperatorError, match="was created with 3 buckets, not 4; leave --buckets out"):
        settled_shape(world.open(), 4, history=False)
    if not history:
        with pytest.raises(OperatorError, match="created without --history"):
            settled_shape(world.open(), None, history=True)
    with pytest.raises(OperatorError, match="is a snapshot with one row a key"):
        require_no_snapshot(world.open())


def test_table_of_records_is_not_a_snapshot(kind: str, tmp_path: Path) -> None:
    table = open_table(tmp_path / "table", format=kind)
    require_no_snapshot(table)
    load(make_cluster(), table)
    require_no_snapshot(table)
    assert shape_of(table) is None
    with pytest.raises(OperatorError, match="was not created by `ottla pipeline snapshot`"):
        settled_shape(table, None, history=False)


def test_no_rows_are_copied_into_an_empty_snapshot(kind: str, tmp_path: Path) -> None:
    source, shape = open_table(tmp_path / "source"), Shape(4, history=False)
    load(make_cluster(), source)
    target = open_table(tmp_path / "snapshot", format=kind, partition_by=shape.partition_columns)
    target.ensure(pa.schema([*SCHEMA, *shape.own_columns]))
    with pytest.raises(OperatorError, match="is a snapshot with one row a key"):
        copy_rows(source, target, "replay", None, lambda: pytest.fail("Spark was started"))
    assert target.files() == []


def test_copied_snapshot_rows_are_not_a_snapshot(make_world: Callable[..., World], kind: str, tmp_path: Path) -> None:
    """As a snapshot the copy would refuse other rows, and the next snapshot run would remove some."""
    world = make_world(kind)
    world.produce((b"a", b"1"))
    world.snapshot()
    copied = _new_table(tmp_path / "copy", None, None, (), open_table(world.path))
    assert (copied.layout().partition_columns, shape_of(copied)) == ((), None)


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("/lake/key_bucket_4=1/t/key_bucket_4=3/current=true/part.parquet", (3, True)),
        ("/lake/key_bucket_4=3/current=False/part.parquet", (3, False)),
        ("/lake/key_bucket_4=3/part.parquet", None),
        ("/lake/key_bucket_5=3/current=true/part.parquet", None),
        ("/lake/part-key_bucket_4=3.parquet", None),
    ],
)
def test_bucket_from_file_path(path: str, place: tuple[int, bool] | None) -> None:
    shape = Shape(4, history=True)
    if place is not None:
        assert shape.place_of(path) == place
        return
    with pytest.raises(OperatorError, match="is not in a bucket"):
        shape.place_of(path)


def test_the_bucket_of_a_key_never_changes() -> None:
    """Existing tables depend on it."""
    import pyarrow as pa

    keys = pa.array([b"", b"123456789", b"user-17"])  # the second is the standard check input of CRCs
    assert Shape(1_000).buckets_of(keys).tolist() == [0, 0xCBF43926 % 1_000, 953]
