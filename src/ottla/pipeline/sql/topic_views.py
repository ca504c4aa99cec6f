"""Topics under their own names in SQL: `select ... from topic.views`.

Spark's global temporary views are in a database whose name is a setting. Here the name is `topic`, so that topics clash
with no table. Only topics that a statement names become visible.

**Invariant:** a statement gives the same result with and without filter pushdown. Spark has one plan of a view for all
its uses in a statement, so filters are only pushed down if one topic is read in one place.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from ottla.client.wire.security import PLAINTEXT, ClientSecurity
from ottla.common.errors import OperatorError
from ottla.pipeline.model.failure import spark_reason

DATABASE = "topic"
DATABASE_SETTING = "spark.sql.globalTempDatabase"
PUSHDOWN_SETTING = "spark.sql.python.filterPushdown.enabled"
COLUMNS = ("topic", "partition", "offset", "timestamp", "timestampType as timestamp_type", "key", "value", "headers")
"""The columns of a loaded table."""
_QUOTED = r"`(?:[^`]|``)+`|\"(?:[^\"]|\"\")+\""
_NAMED = re.compile(rf"(?:\b{DATABASE}|([`\"]){DATABASE}\1)\s*\.\s*({_QUOTED}|\w+)", re.IGNORECASE | re.ASCII)
"""A name after `topic.`, quoted as Spark does or as DuckDB."""
_SCAN = re.compile(r"\bRelationV2\[[^\]]*\] ottla\b")


def topics_in(statement: str, known: Iterable[str]) -> list[str]:
    """The existing topics that a statement names; SQL names differ by more than case.

    A name in a comment or a text counts as well, which does no harm. Raises OperatorError for two topics that differ by
    case only.
    """
    by_name: dict[str, list[str]] = {}
    for topic in known:
        by_name.setdefault(topic.lower(), []).append(topic)
    found = []
    for name in names_in(statement):
        alike = by_name.get(name.lower(), [])
        if len(alike) > 1:
            raise OperatorError(f"SQL ignores case, so it can't distinguish the topics {' and '.join(sorted(alike))}")
        found += alike
    return list(dict.fromkeys(found))


def names_in(statement: str) -> list[str]:
    """The names after `topic.` in a statement, each once."""
    return list(dict.fromkeys(_unquoted(name) for _, name in _NAMED.findall(statement)))


def _unquoted(name: str) -> str:
    quote = name[0]
    return name[1:-1].replace(quote * 2, quote) if quote in '`"' else name


def register_topics(
    spark: Any, topics: Iterable[str], bootstrap_servers: str, security: ClientSecurity = PLAINTEXT
) -> None:
    """Make topics visible as views of DATABASE: their committed records, up to the partitions' ends.

    Raises OperatorError where the driver lacks the Python version of the workers, in which Spark plans the read.
    """
    from py4j.protocol import Py4JJavaError

    from ottla.pipeline.datasource.provider import NAME, OttlaDataSource

    spark.dataSource.register(OttlaDataSource)
    for topic in topics:
        options = read_options(topic, bootstrap_servers) | security_options(security)
        reader = spark.read.format(NAME).options(**options)
        try:
            reader.load().selectExpr(*COLUMNS).createOrReplaceGlobalTempView(f"`{topic}`")
        except Py4JJavaError as error:
            raise OperatorError(f"Spark can't plan to read topic {topic!r}: {spark_reason(error)}") from error


def security_options(security: ClientSecurity) -> dict[str, str]:
    """The security settings as options of the data source; they name no file."""
    return {f"kafka.{name}": text for name, text in security.portable.items()}


def read_options(topic: str, bootstrap_servers: str) -> dict[str, str]:
    """Options of the data source for a topic that a statement names."""
    return {
        "kafka.bootstrap.servers": bootstrap_servers,
        "kafka.isolation.level": "read_committed",
        "includeHeaders": "true",
        "filterPushdown": "true",
        "subscribe": topic,
    }


def allow_pushdown(spark: Any, statement: str) -> None:
    """Set PUSHDOWN_SETTING for a statement: true where it reads one topic in one place."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    spark.conf.set(PUSHDOWN_SETTING, "false")
    try:
        plan = spark.sql(statement)._jdf.queryExecution().optimizedPlan().toString()
    except (PySparkException, Py4JJavaError):
        return  # running it reports the error
    spark.conf.set(PUSHDOWN_SETTING, str(len(_SCAN.findall(plan)) == 1).lower())
