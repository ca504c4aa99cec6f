"""Commands of `ottla pipeline` whose standard output takes nothing: what they do is done, and they end with a sentence.

`tests/app/test_ending.py` has the same of every command's help, and of what commands raise.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs the extra `pipeline`")
deltalake = pytest.importorskip("deltalake", reason="needs the extra `pipeline`")

from ottla.app import main  # noqa: E402

from .committed import read_committed  # noqa: E402
from .topics import new_topic, produce  # noqa: E402

pytestmark = [pytest.mark.pipeline, pytest.mark.usefixtures("commands_in_session")]

REFUSED = "ottla: cannot write to standard output: "
OUTLETS = {
    "full": (2, f"{REFUSED}no space left on device\n"),
    "closed": (2, f"{REFUSED}bad file descriptor\n"),
    "without a reader": (0, ""),
}


@contextmanager
def standard_output(outlet: str) -> Iterator[None]:
    """Descriptor 1 is something that takes nothing."""
    kept = os.dup(1)
    try:
        if outlet == "closed":
            os.close(1)
        elif outlet == "full":
            os.dup2(full := os.open("/dev/full", os.O_WRONLY), 1)
            os.close(full)
        else:
            unread, broken = os.pipe()
            os.close(unread)
            os.dup2(broken, 1)
            os.close(broken)
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def test_nothing_can_be_printed(
    bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def ended(outlet: str, *arguments: str | Path) -> tuple[object, str]:
        capfd.readouterr()
        with monkeypatch.context() as patch, standard_output(outlet):
            patch.setattr(sys, "argv", ["ottla", "pipeline", *map(str, arguments)])
            patch.setattr(sys, "stdout", None)  # where they were before comes back
            patch.setattr(sys, "stderr", None)
            with pytest.raises(SystemExit) as raised:
                main.main()
        return raised.value.code, capfd.readouterr().err

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
            ("doctor", *servers),
        ]
        for command in commands:
            assert ended(outlet, *command) == end, (outlet, command)
        assert [deltalake.DeltaTable(str(table)).to_pyarrow_table().num_rows] == [1]
        for target, value in ((pushed, b'{"id": 1}'), (replayed, b"one")):
            assert [one.value() for one in read_committed(bootstrap, target)] == [value]
