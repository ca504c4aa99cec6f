"""Options that several commands of `ottla pipeline` share."""

from __future__ import annotations

import functools
from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from ottla.cli.command import settings_option
from ottla.pipeline.session import DEFAULT_MASTER
from ottla.pipeline.transform.decode_options import FORMATS, DecodeOptions

TABLE_FORMATS = ("delta", "iceberg", "parquet")

SIZE_UNITS = {"": 1, "b": 1, "k": 1 << 10, "kib": 1 << 10, "m": 1 << 20, "mib": 1 << 20, "g": 1 << 30, "gib": 1 << 30}


def parse_size(ctx: click.Context, parameter: click.Parameter, value: str) -> int:
    """Bytes, with an optional unit: 1048576, 256MiB, 1g."""
    text = value.strip().lower()
    digits = text.rstrip("bgikm")
    unit = text[len(digits) :].strip()
    if not digits.strip().isdecimal() or unit not in SIZE_UNITS or int(digits) < 1:
        raise click.BadParameter(f"{value!r} is not a size such as 1048576 or 256MiB", ctx, parameter)
    return int(digits) * SIZE_UNITS[unit]


def master_option(function: Any) -> Any:
    return click.option(
        "--master",
        default=DEFAULT_MASTER,
        show_default=True,
        metavar="URL",
        help="Where Spark runs: local[N], spark://host:7077, sc://host:15002 or any other master.",
    )(function)


def conf_option(function: Any) -> Any:
    return settings_option("--conf", help_text="A Spark setting, such as spark.driver.memory=4g; may be repeated.")(
        function
    )


def catalog_option(function: Any) -> Any:
    """--catalog as `catalog_url`."""
    return click.option(
        "--catalog",
        "catalog_url",
        metavar="URL",
        help="URL of an Iceberg REST catalog; --table is then a name in it, such as lake.clicks.",
    )(function)


def with_decode_options(function: Any) -> Any:
    """Options that say what values are; the command gets them as one argument, `decode_options`."""

    @click.option(
        "--decode",
        type=click.Choice(FORMATS),
        default="raw",
        show_default=True,
        help="What values are; their fields become columns.",
    )
    @click.option(
        "--schema",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="FILE",
        help="The fields of values: a StructType in JSON as df.schema.json() of Spark gives it, an Avro schema, "
        "or a descriptor set of protoc.",
    )
    @click.option("--pattern", metavar="REGEX", help="With --decode regex: RE2's syntax; named groups are the columns.")
    @click.option("--message", metavar="NAME", help="With --decode protobuf: the message that values are.")
    @click.option(
        "--schema-registry",
        metavar="URL",
        help="Registry of the schemas whose ids values begin with; user:password@ before its host logs in.",
    )
    @functools.wraps(function)
    def collected(*arguments: Any, **named: Any) -> Any:
        given = {option.name: named.pop(option.name) for option in fields(DecodeOptions)}
        return function(*arguments, decode_options=DecodeOptions(**given), **named)

    return collected
