"""Options that several commands of `ottla pipeline` share."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import click

from ottla.cli.command import F, complete_topic, open_cluster, settings_option
from ottla.cli.schema_options import registry_options
from ottla.cli.times import parse_timestamp
from ottla.client.wire.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicInfo
from ottla.common.errors import OperatorError
from ottla.pipeline.model.plan import Boundary, LetterLimit
from ottla.pipeline.model.topic_filter import topic_filter
from ottla.pipeline.spark.environment import environment_settings
from ottla.pipeline.spark.session import DEFAULT_MASTER
from ottla.pipeline.transform.decode_options import DEFAULT_MAP_KEYS, ENVELOPES, FORMATS, NUMBERS, DecodeOptions

_SIZE = re.compile(r"(?P<digits>\d{1,19})\s*(?P<unit>[a-z]*)", re.ASCII)
_LETTER_LIMIT = re.compile(r"(?P<count>\d{1,18})|(?P<percent>\d{1,3}(?:\.\d{1,9})?)%", re.ASCII)
_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)
"""The characters that a topic's name can have; the broker checks all else."""
WHOLE_PERCENT = 100
MAX_SIZE_BYTES = (1 << 63) - 1
SIZE_UNITS = {"": 1, "b": 1, "k": 1 << 10, "kib": 1 << 10, "m": 1 << 20, "mib": 1 << 20, "g": 1 << 30, "gib": 1 << 30}

NAMED_BOUNDARIES = {"earliest": EARLIEST_TIMESTAMP, "latest": LATEST_TIMESTAMP}
BOUNDARY = "earliest|latest|offset:N|TIME"
MAX_OFFSET_DIGITS = 18


class GivenPath(click.Path):
    """A non-empty path: an unset shell variable would otherwise name the current directory."""

    def __init__(self, **kinds: bool) -> None:
        super().__init__(path_type=Path, **kinds)

    def convert(self, value: Any, parameter: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not os.fspath(value):
            self.fail("the path is empty", parameter, ctx)
        if "://" in str(value):
            self.fail(f"{value!r} is a URL, and this has to be a path of this machine", parameter, ctx)
        return super().convert(value, parameter, ctx)


def parse_size(ctx: click.Context, parameter: click.Parameter, value: str) -> int:
    """Parse bytes with an optional unit: 1048576, 256MiB, 1g; at most MAX_SIZE_BYTES."""
    match = _SIZE.fullmatch(value.strip().lower())
    size = int(match["digits"]) * SIZE_UNITS[match["unit"]] if match and match["unit"] in SIZE_UNITS else 0
    if not 0 < size <= MAX_SIZE_BYTES:
        raise click.BadParameter(f"{value!r} is not a size such as 1048576 or 256MiB, 8 EiB at most", ctx, parameter)
    return size


def parse_boundary(ctx: click.Context, parameter: click.Parameter, value: str | None) -> Boundary | None:
    """Parse `earliest`, `latest`, `offset:N`, or a time as in all commands."""
    if value is None:
        return None
    if value in NAMED_BOUNDARIES:
        return Boundary(timestamp=NAMED_BOUNDARIES[value])
    kind, colon, digits = value.partition(":")
    if colon and kind == "offset":
        if not (digits.isascii() and digits.isdecimal() and len(digits) <= MAX_OFFSET_DIGITS):
            raise click.BadParameter(f"{value!r} names no offset, as offset:1200 does", ctx, parameter)
        return Boundary(offset=int(digits))
    return Boundary(timestamp=parse_timestamp(value, parameter.opts[0]))


def parse_letter_limit(ctx: click.Context, parameter: click.Parameter, value: str | None) -> LetterLimit | None:
    """Parse a number of dead letters, or a percentage."""
    if value is None:
        return None
    match = _LETTER_LIMIT.fullmatch(value)
    if match is None or (match["percent"] and float(match["percent"]) > WHOLE_PERCENT):
        raise click.BadParameter(
            f"{value!r} is not a number of records such as 100, or a share such as 0.1%", ctx, parameter
        )
    return LetterLimit(int(match["count"])) if match["count"] else LetterLimit(percent=float(match["percent"]))


def master_option(function: Any) -> Any:
    return click.option(
        "--master",
        default=DEFAULT_MASTER,
        show_default=True,
        metavar="URL",
        help="Spark master: local[N], spark://host:7077, sc://host:15002 or any other.",
    )(function)


def spark_options(function: Any) -> Any:
    """`--master`, `--conf` and `--environment`.

    The function receives `master`, and `conf`, in which an environment is two settings of Spark.
    """

    @functools.wraps(function)
    def with_environment(*, master: str, conf: Mapping[str, str], environment: Path | None, **others: Any) -> Any:
        if environment is not None:
            conf = {**environment_settings(environment, master), **conf}
        return function(master=master, conf=conf, **others)

    archive = click.option(
        "--environment",
        type=GivenPath(exists=True, dir_okay=False),
        help="Archive of 'ottla pipeline package' with the packages for the workers of a cluster.",
    )
    settings = settings_option("--conf", help_text="Spark setting, such as spark.driver.memory=4g; may be repeated.")
    return master_option(settings(archive(with_environment)))


class TableLocation(GivenPath):
    """A directory path as typed, or the URL of an object store."""

    def convert(self, value: Any, parameter: click.Parameter | None, ctx: click.Context | None) -> Any:
        from ottla.pipeline.stores.locations import is_url

        return str(value) if is_url(value) else super().convert(value, parameter, ctx)


def absolute(location: Path | str, catalog_url: str | None = None) -> Path | str:
    """The location in a form that does not depend on the working directory; a catalog name is prefixed with its URL."""
    if catalog_url is not None:
        return f"{catalog_url} {location}"
    return location.absolute() if isinstance(location, Path) else location


def catalog_option(function: Any) -> Any:
    """--catalog as `catalog_url`."""
    return click.option(
        "--catalog",
        "catalog_url",
        metavar="URL",
        help="URL of an Iceberg REST catalog; --table is then a table name, such as lake.clicks.",
    )(function)


PLAN_OPTIONS = {
    "pipeline_id": click.option(
        "--pipeline-id", default="default", show_default=True, help="Pipeline id of the offsets in the table."
    ),
    "isolation": click.option(
        "--isolation",
        type=click.Choice(["read_committed", "read_uncommitted"]),
        default="read_committed",
        show_default=True,
        help="Isolation level of reads.",
    ),
    "max_bytes_per_task": click.option(
        "--max-bytes-per-task",
        callback=parse_size,
        default="256MiB",
        show_default=True,
        metavar="SIZE",
        help="Maximum stored bytes that a task reads.",
    ),
    "on_data_loss": click.option(
        "--on-data-loss",
        type=click.Choice(["fail", "skip"]),
        default="fail",
        show_default=True,
        help="Action if records were deleted before they were loaded, or a log was truncated below loaded offsets.",
    ),
    "on_rollback": click.option(
        "--on-rollback",
        type=click.Choice(["fail", "skip"]),
        default="fail",
        show_default=True,
        help="Action if the table was rolled back behind its newest load: fail, or skip the lost rows.",
    ),
    "on_mismatch": click.option(
        "--on-mismatch",
        type=click.Choice(["dead-letter", "null"]),
        default="dead-letter",
        show_default=True,
        help="Action if a value does not fit the columns: dead letter, or a row of nulls with reason and text in "
        "_corrupt.",
    ),
    "max_dead_letters": click.option(
        "--max-dead-letters",
        callback=parse_letter_limit,
        metavar="N|P%",
        help="Maximum dead letters of a load, as a number or a percentage of its records; a load with more commits "
        "nothing and exits with code 3.  [default: no limit]",
    ),
    "source": click.option(
        "--source",
        type=click.Choice(["auto", "fetch", "segments"]),
        default="auto",
        show_default=True,
        help="Read path of a task: local broker files if available (auto), always files, or always brokers.",
    ),
    "start": click.option(
        "--from",
        "start",
        callback=parse_boundary,
        metavar=BOUNDARY,
        help="Boundary where the first load of a pipeline id starts.  [default: earliest]",
    ),
    "end": click.option(
        "--to",
        "end",
        callback=parse_boundary,
        metavar=BOUNDARY,
        help="Boundary where this load ends.  [default: the log end]",
    ),
}
"""Options of a load's plan, by their names in `PlanSettings`."""


def _split_names(ctx: click.Context, parameter: click.Parameter, values: Sequence[str]) -> list[str]:
    names = [name.strip() for value in values for name in value.split(",") if name.strip()]
    for name in names:
        if not _TOPIC_NAME.fullmatch(name):
            raise click.BadParameter(
                f"{name!r} is not a topic name, and --topics takes no pattern; a regular expression for names is "
                "--topics-pattern of 'ottla pipeline load', topic_pattern of a source of 'ottla pipeline stream', or "
                "the option subscribePattern of the Spark format ottla",
                ctx,
                parameter,
            )
    return names


def topics_option(text: str, *, required: bool = True) -> Callable[[F], F]:
    """`--topics`; the function receives a list of names."""
    return click.option(
        "--topics",
        "-t",
        multiple=True,
        required=required,
        callback=_split_names,
        metavar="NAME,...",
        shell_complete=complete_topic,
        help=text,
    )


def topics_or_pattern(text: str) -> Callable[[F], F]:
    """`--topics`, not required, and `--topics-pattern`; the function receives a `TopicsPattern`, or None, for it."""
    pattern = click.option(
        "--topics-pattern",
        callback=_parse_pattern,
        metavar="REGEX",
        help="Regular expression (RE2) for whole names of topics to load, in place of --topics. Each run looks for new "
        "topics; internal topics are excluded.",
    )
    return lambda function: topics_option(text, required=False)(pattern(function))


@dataclass(frozen=True, slots=True)
class TopicsPattern:
    """A regular expression for names of topics; `matches` is its `topic_filter`."""

    text: str
    matches: Callable[[TopicInfo], bool]

    def find(self, bootstrap_server: str) -> list[str]:
        """The names of the present topics that match. Raises OperatorError if there are none, KafkaError."""
        with open_cluster(bootstrap_server) as cluster:
            names = [name for name, topic in cluster.topics.all().items() if self.matches(topic)]
        if not names:
            raise OperatorError(
                f"--topics-pattern {self.text!r} matches no topic of {bootstrap_server}; topics without the permission "
                "DESCRIBE are not listed"
            )
        return names


def _parse_pattern(ctx: click.Context, parameter: click.Parameter, value: str | None) -> TopicsPattern | None:
    return None if value is None else TopicsPattern(value, topic_filter(value, parameter.opts[0]))


def with_decode_options(function: Any) -> Any:
    """Options for the format of values; the command receives them as one argument, `decode_options`."""

    @click.option(
        "--decode",
        type=click.Choice(FORMATS),
        default="raw",
        show_default=True,
        help="Format of values; their fields become columns.",
    )
    @click.option(
        "--envelope",
        type=click.Choice(ENVELOPES),
        help="Format of change events of databases in values; the fields of their rows become columns.  "
        "[default: none]",
    )
    @click.option(
        "--schema",
        type=GivenPath(exists=True, dir_okay=False),
        metavar="FILE",
        help="Schema of values: a StructType in JSON from Spark's df.schema.json(), an Avro schema, "
        "or a descriptor set of protoc.",
    )
    @click.option(
        "--numbers",
        type=click.Choice(NUMBERS),
        help="Inferred numbers of JSON: double, except integers beyond 2**53, or exact: long without fractions in the "
        "first load, and later fractions are dead letters.  [default: double]",
    )
    @click.option(
        "--type",
        "types",
        multiple=True,
        callback=lambda _ctx, _parameter, values: tuple(values) or None,
        metavar="'NAME: TYPE'",
        help="Type of an inferred column of JSON or CSV, such as 'price: double' or 'tags: map<string,string>'; may be "
        "repeated.",
    )
    @click.option(
        "--map-keys",
        type=click.IntRange(0),
        help="Number of names beyond which a JSON object with values of one plain type is a map; 0 for none.  "
        f"[default: {DEFAULT_MAP_KEYS}]",
    )
    @click.option(
        "--pattern", metavar="REGEX", help="Pattern of --decode regex in RE2 syntax; named groups are columns."
    )
    @click.option("--message", metavar="NAME", help="Message type of --decode protobuf.")
    @registry_options
    @functools.wraps(function)
    def collected(*arguments: Any, **named: Any) -> Any:
        given = {option.name: named.pop(option.name) for option in fields(DecodeOptions)}
        return function(*arguments, decode_options=DecodeOptions(**given), **named)

    return collected
