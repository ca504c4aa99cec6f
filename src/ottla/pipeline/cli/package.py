"""`ottla pipeline package`: archive with the packages that the workers of a cluster need besides Spark and Python."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from ottla.cli.command import counted, json_option, print_json, size_text
from ottla.pipeline.cli.options import GivenPath
from ottla.pipeline.cli.pipeline_command import PipelineCommand
from ottla.pipeline.spark.environment import write_environment
from ottla.pipeline.spark.session import require_extra


@click.command(
    cls=PipelineCommand,
    examples=(
        "ottla pipeline package --output environment.tar.gz",
        "ottla pipeline load -t clicks --table /lake/t --master spark://host:7077 --environment environment.tar.gz",
    ),
)
@click.option(
    "--output",
    "-o",
    required=True,
    type=GivenPath(dir_okay=False),
    help="Output file, such as environment.tar.gz.",
)
@json_option
def package(output: Path, as_json: bool) -> None:
    """Package Ottla for Spark workers.

    Packs Ottla and the packages that it imports. Workers then need only Spark, and a Python of the same version and
    platform as this one, found as python3.N on their PATH. Commands with --master take the file as --environment. Other
    programs pass it to Spark as spark.archives=FILE#environment with spark.pyspark.python=./environment/bin/python.
    """
    require_extra()
    environment = write_environment(output)
    size = output.stat().st_size
    if as_json:
        print_json({"path": str(output), "size_bytes": size, **asdict(environment)})
        return
    click.echo(
        f"Packed Ottla {environment.ottla} and {counted(len(environment.packages), 'package')} for Python "
        f"{environment.python} on {environment.platform} into {output}, {size_text(size)}."
    )
