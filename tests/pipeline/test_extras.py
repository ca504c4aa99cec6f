"""A missing package is reported with the command that installs it, by every feature that needs it."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable

import pytest

from ottla.common.errors import OperatorError

pytest.importorskip("pyarrow", reason="needs the extra `pipeline`")
pytest.importorskip("deltalake", reason="needs the extra `pipeline`")

from ottla.pipeline.sinks.open_table import open_table
from ottla.pipeline.sql.duckdb_query import require_duckdb
from ottla.pipeline.stores.object_store import open_object_store

from .limits import RUN_S


@pytest.mark.parametrize(
    ("gone", "use", "sentence"),
    [
        ("pyiceberg", lambda: open_table("t", format="iceberg"), r"Iceberg tables need pyiceberg.*ottla\[iceberg\]"),
        ("duckdb", require_duckdb, r"--engine duckdb needs duckdb.*'ottla\[duckdb\]'"),
        ("obstore", lambda: open_object_store("s3://b/t"), r"object stores need obstore.*'ottla\[object-stores\]'"),
    ],
)
def test_every_missing_extra_names_the_command(
    monkeypatch: pytest.MonkeyPatch, gone: str, use: Callable[[], object], sentence: str
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == gone else real(name))
    with pytest.raises(OperatorError, match=sentence):
        use()


@pytest.mark.parametrize("package", ["pyspark", "pyarrow"])
def test_import_of_data_source_reports_missing_package(package: str) -> None:
    program = f"import sys; sys.modules[{package!r}] = None\ntry: import ottla.spark\nexcept ImportError as e: print(e)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=RUN_S, check=True)
    assert done.stdout.startswith("ottla.spark needs the packages of 'ottla[pipeline]': ")
    assert done.stdout.endswith("-m pip install 'ottla[pipeline]'`\n")
