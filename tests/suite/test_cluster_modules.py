"""Every module of tests/cluster is listed by the metadata log that it runs on."""

from __future__ import annotations

from pathlib import Path

from tests.cluster import metadata_kinds


def test_every_module_is_listed() -> None:
    listed = [*metadata_kinds.ON_ZOOKEEPER, *metadata_kinds.MORE_ON_ZOOKEEPER, *metadata_kinds.QUORUM_ONLY]
    assert sorted(listed) == sorted(path.stem for path in Path(metadata_kinds.__file__).parent.glob("test_*.py"))
