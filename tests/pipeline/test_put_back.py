"""Commands on a rolled back table, with a real broker: no lag of 0, and a remedy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

deltalake = pytest.importorskip("deltalake", reason="needs the extra `pipeline`")
pytest.importorskip("pyspark", reason="needs the extra `pipeline`")

from ottla.app import main  # noqa: E402
from ottla.common.runbooks import LOAD_REFUSED  # noqa: E402
from ottla.pipeline.operations import doctor  # noqa: E402

from .topics import produce  # noqa: E402

pytestmark = [pytest.mark.pipeline, pytest.mark.usefixtures("commands_in_session")]


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main.cli, ["pipeline", *map(str, arguments)])


@pytest.mark.promise("P3")
def test_restored_table_is_refused_until_accepted(bootstrap: str, topic: str, tmp_path: Path) -> None:
    table = tmp_path / "table"
    load = ("load", "-t", topic, "--table", table, "-b", bootstrap)
    for number in range(2):
        produce(bootstrap, topic, [{"value": b"%d" % number, "partition": 0}])
        assert run(*load).exit_code == 0
    deltalake.DeltaTable(table).restore(1)

    refused = run(*load)
    assert (refused.exit_code, refused.stdout, refused.stderr.count("\n")) == (2, "", 1), refused.output
    assert "version 3 (RESTORE) rolled it back below its load of version 2 with 1 row" in refused.stderr
    remedy = "restore version 2, or load into another table, or leave them out with --on-rollback skip"
    assert refused.stderr.endswith(f"{remedy}. See {LOAD_REFUSED}.\n")
    shown = run("status", table, "-b", bootstrap)
    assert (shown.exit_code, shown.stdout.count("rows of loads are missing")) == (2, 1), shown.output
    assert "version 3 (RESTORE)" in shown.stderr
    [status] = json.loads(run("status", table, "-b", bootstrap, "--json").stdout)
    assert {part["lag"] for part in status["partitions"]} == {None}
    [finding] = doctor._rollback(table, None)
    assert (finding.check, finding.ok, "version 3 (RESTORE)" in finding.detail) == ("table rows", False, True)

    accepted = run(*load, "--on-rollback", "skip")
    assert accepted.exit_code == 0, accepted.output
    assert "was left unchanged: version 3 (RESTORE)" in accepted.stderr
    assert run(*load).stdout.startswith("Nothing new")
    [status] = json.loads(run("status", table, "-b", bootstrap, "--json").stdout)
    assert {part["lag"] for part in status["partitions"]} == {0}
    [finding] = doctor._rollback(table, None)
    assert finding.ok
    assert deltalake.DeltaTable(table).to_pyarrow_table().num_rows == 1
