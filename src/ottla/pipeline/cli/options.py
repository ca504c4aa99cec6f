"""Options that several commands of `ottla pipeline` share."""

from __future__ import annotations

from typing import Any

import click

from ottla.cli.command import settings_option
from ottla.pipeline.session import DEFAULT_MASTER

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
