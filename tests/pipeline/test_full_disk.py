"""Tables on a full disk, in unreadable or unwritable directories: one error sentence each, nothing half-done.

Without Spark: the task of a load, its commit, compact, vacuum and status run in one process for all formats.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

for _name in ("pyarrow", "deltalake", "pyiceberg", "cronsim"):
    pytest.importorskip(_name, reason="needs the extras `pipeline` and `iceberg`")

from ..faults.small_disk import MEGABYTE, SmallDisk, needs_root  # noqa: E402
from ..faults.test_operator_mistakes import WITHOUT_RIGHTS, needs_setpriv  # noqa: E402
from .limits import RUN_S  # noqa: E402

pytestmark = [pytest.mark.root, needs_root]

DRIVER = Path(__file__).with_name("disk_driver.py")
KINDS = ("delta", "iceberg", "parquet")
Outcomes = dict[str, list[str] | None]


def outcomes(python: list[str], root: Path, trouble: str) -> Outcomes:
    done = subprocess.run(
        [*python, str(DRIVER), str(root), trouble], capture_output=True, text=True, timeout=RUN_S, check=False
    )
    assert done.returncode == 0, done.stderr
    found: Outcomes = json.loads(done.stdout)
    return found


def require_sentences(found: Outcomes, root: Path, reason: str) -> None:
    """Each error names cause and place in one line."""
    for name, error in found.items():
        if error is not None:
            kind, text = error
            assert kind == "OperatorError", (name, error)
            assert str(root) in text, (name, error)
            said = text.lower().replace("database or disk is full", reason)  # as SQLite has it
            assert reason in said, (name, error)
            assert "\n" not in text, (name, error)


def failed(found: Outcomes) -> set[str]:
    return {name for name, error in found.items() if error is not None}


def test_a_full_disk(tmp_path: Path) -> None:
    """Existing data can be read, vacuumed (except Iceberg: expiring snapshots needs a file), and loads continue
    later."""
    with SmallDisk(tmp_path, 2 * MEGABYTE) as disk:
        found = outcomes([disk.python], disk.path, "full")
    require_sentences(found, disk.path, "no space left on device")
    assert failed(found) == {f"{kind} {name}" for kind in KINDS for name in ("load", "compact", "new")} | {
        "iceberg vacuum"
    }


@needs_setpriv
@pytest.mark.parametrize("trouble", ["locked", "unwritable"])
def test_directories_without_rights(tmp_path: Path, trouble: str) -> None:
    found = outcomes([*WITHOUT_RIGHTS, sys.executable], tmp_path, trouble)
    reasons = found.pop("found", None) or []
    require_sentences(found, tmp_path, "permission denied")
    if trouble == "locked":
        assert failed(found) == {f"{kind} {name}" for kind in KINDS for name in ("load", "compact", "vacuum", "rows")}
        assert len(reasons) == len(KINDS)
        assert all("permission denied" in reason for reason in reasons)
    else:
        assert {f"{kind} {name}" for kind in KINDS for name in ("load", "compact", "new")} <= failed(found)
        assert not {f"{kind} rows" for kind in KINDS} & failed(found)


@pytest.mark.pipeline
def test_full_disk_during_shuffle_is_reported(tmp_path: Path) -> None:
    """One error sentence without Spark's own output, and no leftovers; with free space the same command succeeds."""
    pytest.importorskip("pyspark", reason="needs the extra `pipeline`")
    table = tmp_path / "table"
    from ottla.pipeline.model.decode import SCHEMA
    from ottla.pipeline.sinks.delta import DeltaTarget

    DeltaTarget(table).ensure(SCHEMA)
    dealt = "select /*+ REPARTITION(8) */ repeat(sha2(cast(id as string), 512), 4) as text from range(200000)"
    statement = f"select count(distinct text) as texts from ({dealt})"
    query = ["pipeline", "sql", statement, "--table", str(table), "--csv", "--master", "local[2]"]
    with SmallDisk(tmp_path, 3 * MEGABYTE) as disk:
        found = [
            subprocess.run(
                [disk.python, "-m", "ottla", *query],
                env={**os.environ, "TMPDIR": str(place)},
                capture_output=True,
                text=True,
                timeout=RUN_S,
                check=False,
            )
            for place in (disk.path, tmp_path)
        ]
        assert os.listdir(disk.outside) == []
    full, done = found
    assert (full.returncode, full.stdout) == (2, "")
    assert full.stderr.startswith("ottla: the query failed: No space left on device, in Spark's scratch directory"), (
        full.stderr
    )
    assert len(full.stderr.splitlines()) == 1
    assert (done.returncode, done.stdout.split()) == (0, ["texts", "200000"]), done.stderr
