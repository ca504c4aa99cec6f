"""One Spark session for all tests of the directory; broker fixtures come from `ottla.testing`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ottla.pipeline.session import EXTRA_MODULES, open_session


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A local session on two cores; skips when the extra is missing."""
    for name in EXTRA_MODULES:
        pytest.importorskip(name, reason="needs the extra `pipeline`")
    with open_session("local[2]", "ottla tests") as session:
        yield session
