"""Names of the tables of topics: a template with `{topic}` gives each topic a table of its own.

**Invariant:** no two topics are loaded into one table by a template.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from ottla.common.errors import OperatorError
from ottla.pipeline.sinks.table import DEAD_LETTER_DIRECTORY

PLACE = "{topic}"
HIDDEN_PREFIX = "topic"
"""Prefix of a directory for a name that begins with `.` or `_`: readers of lake tables skip such directories."""
_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}", re.ASCII)
_REPLACED_IN_CATALOG = str.maketrans(".-", "__")


class TableAssignment(NamedTuple):
    """A topic and its table; with a `refusal` the topic can't be loaded."""

    topic: str
    table: str
    refusal: OperatorError | None = None


def table_of(template: str, topic: str, *, in_catalog: bool) -> str:
    """The location of a topic's table: `template` with the topic's name in place of PLACE.

    `in_catalog`: it is a table name in a catalog, where `.` separates namespaces and SQL does not accept `-` in plain
    names; both are replaced by `_`. Raises OperatorError for a name that Kafka does not allow, such as one with a
    slash.
    """
    if not _TOPIC_NAME.fullmatch(topic):
        raise OperatorError(f"the topic name {topic!r} is not valid in Kafka, so the topic gets no table")
    if in_catalog:
        name = topic.translate(_REPLACED_IN_CATALOG)
    else:
        name = f"{HIDDEN_PREFIX}{topic}" if topic.startswith((".", "_")) else topic
    return template.replace(PLACE, name)


def assign_tables(template: str, topics: Iterable[str], *, in_catalog: bool) -> list[TableAssignment]:
    """The table of each topic, by `table_of`. Topics that would get the same table are refused, all of them.

    Names in a catalog are compared without regard to case, as many catalogs do. There the name of a topic's table of
    dead letters is taken, too.
    """
    found: dict[str, TableAssignment] = {}
    users: dict[str, list[str]] = {}
    for topic in dict.fromkeys(topics):
        try:
            table = table_of(template, topic, in_catalog=in_catalog)
        except OperatorError as error:
            found[topic] = TableAssignment(topic, template, error)
            continue
        found[topic] = TableAssignment(topic, table)
        taken = (table.casefold(), f"{table}{DEAD_LETTER_DIRECTORY}".casefold()) if in_catalog else (table,)
        for name in taken:
            users.setdefault(name, []).append(topic)
    for name, rivals in users.items():
        if len(rivals) > 1:
            refusal = OperatorError(
                f"topics {', '.join(map(repr, rivals))} would share the table {name}: load them one at a time with "
                "--topics and different values of --table"
            )
            for topic in rivals:
                if found[topic].refusal is None:
                    found[topic] = found[topic]._replace(refusal=refusal)
    return list(found.values())
