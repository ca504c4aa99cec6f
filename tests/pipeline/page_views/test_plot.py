"""examples/streams/plot.py: a non-empty plot of each existing table."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("matplotlib", reason="needs the extra `plots`")
pytest.importorskip("pandas", reason="needs the extra `pipeline`")
deltalake = pytest.importorskip("deltalake", reason="needs the extra `pipeline`")

import pandas as pd  # noqa: E402
from examples.streams.plot import PICTURES, main  # noqa: E402
from matplotlib import image  # noqa: E402

START = pd.Timestamp("2026-03-02T08:00:00Z")
TABLES: dict[str, dict[str, object]] = {
    "activity": {"user": "ann", "views": 3},
    "relevance": {"page": "/a", "shown": 40, "followed": 10},
    "top-pages": {"page": "/a", "place": 1, "views": 7},
    "alerts": {"client": "192.0.2.1", "requests": 200, "refused": 50},
    "monitoring": {"requests": 100, "failed": 2, "p50": 0.1, "p95": 0.3, "p99": 0.9},
    "visits": {"client": "192.0.2.1", "views": 2},
}
"""Columns of each table, without the times of its windows."""


def write(path: Path, row: dict[str, object]) -> None:
    times = pd.date_range(START, periods=4, freq="h")
    rows = pd.DataFrame({"since": times, "until": times + pd.Timedelta("1h")}).assign(**row)
    deltalake.write_deltalake(str(path), rows)


def test_a_picture_of_each_table(tmp_path: Path) -> None:
    assert TABLES.keys() == PICTURES.keys()
    for table, row in TABLES.items():
        write(tmp_path / "lake" / table, row)
    main(tmp_path / "lake", tmp_path / "pictures")
    drawn = {path.stem: path for path in (tmp_path / "pictures").iterdir()}
    assert drawn.keys() == {"windows", *(name for name, _ in PICTURES.values())}
    for path in drawn.values():
        assert len({tuple(pixel) for row in image.imread(path)[::4] for pixel in row[::4].round(1)}) > 2, path


def test_missing_tables_have_no_plot(tmp_path: Path) -> None:
    main(tmp_path, tmp_path / "pictures")
    assert [path.name for path in (tmp_path / "pictures").iterdir()] == ["windows.png"]
