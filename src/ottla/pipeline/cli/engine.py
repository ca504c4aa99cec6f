"""`--engine`: the engine of the commands that read topics into a table."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from ottla.pipeline.spark.engines import AUTO, LOAD_ENGINES, LOCAL, SPARK
from ottla.pipeline.spark.session import is_local, local_attempts, parallelism, require_spark

if TYPE_CHECKING:
    from ottla.pipeline.load.engine import EngineChoice, OpenSession


def engine_option(function: Any) -> Any:
    """`--engine` as `engine`."""
    return click.option(
        "--engine",
        type=click.Choice(LOAD_ENGINES),
        default=AUTO,
        show_default=True,
        help="Engine of the tasks: processes of this machine (local) or Spark. auto: local up to 4 GiB of stored "
        "records, unless options of Spark are set.",
    )(function)


def engine_choice(engine: str, master: str, conf: Mapping[str, str], open_spark: OpenSession) -> EngineChoice:
    """The choice of an engine by the options of the current command.

    Raises OperatorError at once if the engine is Spark in any case and can't start, click.UsageError for options that
    contradict each other.
    """
    from ottla.pipeline.load.engine import EngineChoice

    if engine == LOCAL and conf:
        raise click.UsageError("--conf and --environment are Spark's: they have no effect with --engine local")
    if engine == LOCAL and not is_local(master):
        raise click.UsageError("--engine local runs on this machine: leave --master out, or name local[N]")
    spark_option = _spark_option(conf)
    if engine == SPARK or (engine == AUTO and spark_option):
        require_spark(master)  # before requests to brokers, and before the table is created
    return EngineChoice(
        requested=engine,
        spark_option=spark_option,
        workers=parallelism(master),
        attempts=local_attempts(master),
        open_spark=open_spark,
        require_spark=partial(require_spark, master),
    )


def _spark_option(conf: Mapping[str, str]) -> str:
    context = click.get_current_context()
    if context.get_parameter_source("master") is not ParameterSource.DEFAULT:
        return "--master"
    if conf:
        return "--environment" if context.params.get("environment") is not None else "--conf"
    return ""
