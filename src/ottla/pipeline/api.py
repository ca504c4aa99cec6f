"""Loads, status and maintenance of lake tables in Python programs and notebooks.

    from ottla.pipeline.api import load, status

    result = load("views", "lake/views", decode="json")
    print(result.rows, result.dead_letters, result.columns_added)

The functions correspond to the commands `ottla pipeline load`, `status`, `redrive`, `compact` and `vacuum`, and return
their results as dataclasses. All errors are `OttlaError`:

- `OperatorError`: the call fails until the problem is corrected, or a broker or store can't be reached;
- `DataLossError`: records were deleted or replaced before they were loaded;
- `DeadLettersError`: more dead letters than `PlanSettings.max_dead_letters`; nothing was committed;
- `KafkaError`: an error of a broker, by its code;
- `OttlaError` itself: another load or a compaction committed first, or an engine ended. A repeated call is always safe.

Importing this module imports neither Arrow nor Spark.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from ottla.cli.command import DEFAULT_BOOTSTRAP_SERVER
from ottla.client.wire.security import PLAINTEXT, ClientSecurity
from ottla.common.errors import KafkaError, OperatorError, OttlaError
from ottla.pipeline.model.plan import Boundary, DataLossError, DeadLettersError, LetterLimit, PlanSettings
from ottla.pipeline.spark.engines import AUTO, LOAD_ENGINES
from ottla.pipeline.spark.session import (
    DEFAULT_MASTER,
    local_attempts,
    open_session,
    parallelism,
    require_lake,
    require_spark,
    with_small_jvm,
)
from ottla.pipeline.transform.decode_options import FORMATS, DecodeOptions

if TYPE_CHECKING:
    from ottla.pipeline.load.compact import CompactSummary
    from ottla.pipeline.load.driver import LoadSummary, Observer
    from ottla.pipeline.load.engine import EngineChoice, OpenSession
    from ottla.pipeline.operations.redrive import RedriveSummary
    from ottla.pipeline.operations.status import TableStatus
    from ottla.pipeline.operations.vacuum import VacuumSummary
    from ottla.pipeline.sinks.table import Table
    from ottla.pipeline.transform.value_format import ValueFormat

__all__ = [
    "Boundary",
    "DataLossError",
    "DeadLettersError",
    "DecodeOptions",
    "KafkaError",
    "LetterLimit",
    "OperatorError",
    "OttlaError",
    "PlanSettings",
    "compact",
    "load",
    "open_table",
    "redrive",
    "status",
    "vacuum",
]

Location = str | os.PathLike[str]


def open_table(
    location: Location, *, format: str | None = None, partition_by: Sequence[str] = (), catalog_url: str | None = None
) -> Table:
    """A table for the other functions, which need not exist yet: a directory, or the URL of an object store.

    `format`: delta (the default), iceberg or parquet, of a new table. `partition_by`: partition columns of a new table.
    `catalog_url`: URL of an Iceberg REST catalog; `location` is then a table name such as `lake.views`. Raises
    OperatorError, also for an existing table with another format or other partition columns.
    """
    require_lake()
    from ottla.pipeline.sinks.open_table import open_table as open_one

    return open_one(location, format=format, partition_by=partition_by, catalog_url=catalog_url)


def load(
    topics: str | Sequence[str],
    table: Location | Table,
    *,
    bootstrap_servers: str = DEFAULT_BOOTSTRAP_SERVER,
    decode: str | DecodeOptions = "raw",
    settings: PlanSettings | None = None,
    engine: str | EngineChoice | OpenSession = AUTO,
    group: str | None = None,
    security: ClientSecurity = PLAINTEXT,
    observer: Observer | None = None,
) -> LoadSummary:
    """Load the new records of topics into a table exactly once.

    `decode`: format of values (raw, json, avro, protobuf, csv, regex or access-log), or all options for them.
    `settings`: pipeline id, isolation level, boundaries, limits; None is one task per CPU. `engine`: auto, local or
    spark, as in the command; a function that opens a session, such as `lambda: contextlib.nullcontext(spark)`, runs the
    tasks on an existing session of Spark. `group`: consumer group that gets the offsets for lag tools; None for the
    default of the command, empty for none. `observer` receives each step.

    Returns rows, dead letters with their reasons, offset ranges, new columns and the version of the table, None if
    there was nothing new. Raises OttlaError, see the module.
    """
    target = _opened(table)
    from ottla.pipeline.load.driver import load as run

    settings = settings or PlanSettings(parallelism=parallelism(DEFAULT_MASTER), source="auto")
    return run(
        [topics] if isinstance(topics, str) else topics,
        target,
        bootstrap_servers,
        _choice(engine) if isinstance(engine, str) else engine,
        settings,
        observer,
        _value_format(decode, target),
        group=f"ottla-load.{target.name}.{settings.pipeline_id}" if group is None else group,
        security=security,
    )


def status(
    *tables: Location,
    bootstrap_servers: str = DEFAULT_BOOTSTRAP_SERVER,
    catalog_url: str | None = None,
    isolation: str = "read_committed",
    security: ClientSecurity = PLAINTEXT,
) -> list[TableStatus]:
    """Offsets, lag, rows and dead letters of tables, by partition.

    `tables`: directories with a table or with tables below them; names of tables with `catalog_url`. A table that can't
    be read is in the result with its `error`. Raises OperatorError if a directory has no table, or no broker answers.
    """
    require_lake()
    from ottla.pipeline.load.driver import CLIENT_ID
    from ottla.pipeline.operations.status import locate_tables, statuses

    return statuses(
        locate_tables(tables, catalog_url),
        bootstrap_servers,
        catalog_url=catalog_url,
        client_id=CLIENT_ID,
        isolation=isolation,
        security=security,
    )


def redrive(
    table: Location | Table, decode: str | DecodeOptions, *, reason: str = "", dry_run: bool = False
) -> RedriveSummary:
    """Decode the dead letters of a table again, those with `reason` in theirs; needs no broker.

    `decode`: as for `load`. `dry_run` changes nothing. Returns the numbers of dead letters that became rows, and that
    still can't be decoded. Raises OttlaError, see the module.
    """
    target = _opened(table)
    from ottla.pipeline.operations.redrive import redrive as run

    return run(target, _value_format(decode, target), reason=reason, dry_run=dry_run)


def compact(table: Location | Table, *, target_bytes: int = 256 << 20) -> CompactSummary:
    """Merge small files of a table into files of about `target_bytes`; loads may run at the same time.

    Returns the numbers of files before and after. Raises OttlaError, see the module.
    """
    target = _opened(table)
    from ottla.pipeline.load.compact import compact as run

    return run(target, target_bytes)


def vacuum(
    table: Location | Table, *, retention: timedelta = timedelta(days=7), dry_run: bool = False
) -> VacuumSummary:
    """Remove files that no version of the last `retention` needs, and those of killed loads; loads may run meanwhile.

    `dry_run` only counts them. Returns the numbers of files and their bytes. Raises OperatorError.
    """
    target = _opened(table)
    from ottla.pipeline.operations.vacuum import vacuum as run

    return run(target, retention, dry_run=dry_run)


def _opened(table: Location | Table) -> Table:
    return open_table(table) if isinstance(table, str | os.PathLike) else table


def _value_format(decode: str | DecodeOptions, target: Table) -> ValueFormat | None:
    from ottla.pipeline.transform.open_format import open_format

    options = DecodeOptions(decode) if isinstance(decode, str) else decode
    if options.decode not in FORMATS:
        raise OperatorError(f"{options.decode!r} is not a format of values: use one of {', '.join(FORMATS)}")
    return open_format(options, exact_fields=target.layout().partition_columns)


def _choice(engine: str) -> EngineChoice:
    if engine not in LOAD_ENGINES:
        raise OperatorError(f"{engine!r} is not an engine: use one of {', '.join(LOAD_ENGINES)}")
    from ottla.pipeline.load.engine import EngineChoice

    return EngineChoice(
        requested=engine,
        workers=parallelism(DEFAULT_MASTER),
        attempts=local_attempts(DEFAULT_MASTER),
        open_spark=partial(open_session, DEFAULT_MASTER, "ottla pipeline", with_small_jvm({})),
        require_spark=partial(require_spark, DEFAULT_MASTER),
    )
