"""Commands of `ottla pipeline` with a closed or full standard output: the work is done, and they end with an error.

`tests/cli/test_outlets.py` tests the same for the tools, `tests/app/test_ending.py` for every command's help.
"""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs the extra `pipeline`")
deltalake = pytest.importorskip("deltalake", reason="needs the extra `pipeline`")

from ..outlets import OUTLETS, Ends  # noqa: E402
from .committed import read_committed  # noqa: E402
from .topics import new_topic, produce  # noqa: E402

pytestmark = [pytest.mark.pipeline, pytest.mark.usefixtures("commands_in_session")]


def test_nothing_can_be_printed(
    bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    ended = Ends(monkeypatch, capfd)
    topic, servers = new_topic(bootstrap, 1), ("-b", bootstrap)
    produce(bootstrap, topic, [{"value": b"one", "partition": 0}])
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"id": 1}\n')
    for outlet, end in OUTLETS.items():
        name, table = outlet.replace(" ", "-"), tmp_path / "table"
        pushed, replayed = (new_topic(bootstrap, 1) for _ in range(2))
        commands: list[tuple[str | Path, ...]] = [
            ("load", "-t", topic, "--table", table, "--json", *servers),
            ("load", "-t", topic, "--table", table, *servers),
            ("status", table, *servers),
            ("status", table, "--json", *servers),
            ("sql", "select offset from records", "--table", table),
            ("sql", f"select value from topic.`{topic}`", "--csv", *servers),
            ("push", rows, "--topic", pushed, "--push-id", name, "--json", *servers),
            ("replay", "--topic", topic, "--to-topic", replayed, "--replay-id", name, "--json", *servers),
            ("compact", "--table", table, "--json"),
            ("vacuum", "--table", table),
        ]
        for command in commands:
            assert ended(outlet, "pipeline", *command) == end, (outlet, command)
        if outlet != "beside a closed input":  # else it continues and starts Spark
            assert ended(outlet, "pipeline", "doctor", *servers) == end
        assert [deltalake.DeltaTable(str(table)).to_pyarrow_table().num_rows] == [1]
        for target, value in ((pushed, b'{"id": 1}'), (replayed, b"one")):
            assert [one.value() for one in read_committed(bootstrap, target)] == [value]
