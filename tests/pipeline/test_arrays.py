"""Arrays built without pandas equal those of pyarrow, and a reading task uses no others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

np = pytest.importorskip("numpy", reason="needs the extra `pipeline`")
pa = pytest.importorskip("pyarrow", reason="needs the extra `pipeline`")

from ottla.pipeline.model.arrays import binaries, flags, numbers, repeated, texts  # noqa: E402

READ = """
import sys

sys.path.insert(0, sys.argv[1])

from tests.pipeline.memory_cluster import MemoryCluster

from ottla.common.kafka.ids import uuid_to_string
from ottla.pipeline.datasource.rows import RangePartition, RowReader
from ottla.pipeline.load.land import LandSettings, land_task
from ottla.pipeline.model.plan import OffsetRange
from ottla.pipeline.sinks.table import FileLayout
from ottla.pipeline.load.tasks import as_arrow
from ottla.record.builder import RecordData, build_batch

cluster = MemoryCluster()
cluster.create("views", 1)
cluster.partitions["views", 0].append(build_batch(
    [RecordData(1_700_000_000_000, None, b"one", [("kind", b"x"), ("none", None)]),
    RecordData(1_700_000_000_000, b"key", None)]
))
whole = OffsetRange("views", uuid_to_string(cluster.topic_ids["views"]), 0, 0, 2, 0, 0)
reader = RowReader(cluster.open, "read_committed", "fail", headers=True)
print([batch.num_rows for batch in reader.read(RangePartition((whole,)))])
layout = FileLayout(sys.argv[2])
row = land_task(0, whole, LandSettings(cluster.open, layout, layout, "load1"))
print(as_arrow(row).column("rows").to_pylist())
print(sorted({"numpy", "pandas", "pyarrow"} & set(sys.modules)))
"""


@pytest.mark.parametrize("kind", [np.int32, np.int64])
@pytest.mark.parametrize("count", [0, 1, 8, 9])
def test_numbers(kind: type, count: int) -> None:
    values = np.arange(2 * count, dtype=kind)[::2] - 3
    absent = np.arange(count) % 3 == 1
    assert numbers(values).equals(pa.array(values))
    assert numbers(values, absent).equals(pa.array(values, mask=absent))
    assert numbers(values, np.zeros(count, np.bool_)).null_count == 0


@pytest.mark.parametrize("count", [0, 1, 8, 9])
def test_flags(count: int) -> None:
    values = np.arange(count) % 3 == 1
    assert flags(values).equals(pa.array(values, pa.bool_()))


def test_texts_and_bytes() -> None:
    assert texts([]).equals(pa.array([], pa.string()))
    assert texts(["", "a", "käse", ""]).equals(pa.array(["", "a", "käse", ""]))
    assert repeated("views", 3).equals(pa.array(["views"] * 3))
    for values in ([], [None], [b"", None, b"\xff\x00", b"abc", None]):
        found = binaries(values)
        found.validate(full=True)
        assert found.equals(pa.array(values, pa.binary()))


def test_a_task_that_reads_imports_no_pandas(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    command = [sys.executable, "-c", READ, str(Path(__file__).parents[2]), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "[2]"
    assert done.stdout.splitlines()[-1] == "['numpy', 'pyarrow']"
