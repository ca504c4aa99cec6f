"""One REST catalog for all tests in the folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from catalog_process import CatalogProcess


@pytest.fixture(scope="session")
def catalog(iceberg_classpath: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CatalogProcess]:
    for name in ("pyiceberg", "sqlalchemy", "pyarrow", "pyspark"):
        pytest.importorskip(name, reason="needs the extras `pipeline` and `iceberg`")
    process = CatalogProcess(iceberg_classpath, tmp_path_factory.mktemp("catalog"))
    yield process
    process.stop()
