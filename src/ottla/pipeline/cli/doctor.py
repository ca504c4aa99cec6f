"""`ottla pipeline doctor`: checks of the prerequisites of a load."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import click

from ottla.cli.command import connection_options, counted, json_option, security
from ottla.cli.schema_options import registry_options
from ottla.common.errors import OperatorError
from ottla.pipeline.cli.options import (
    TableLocation,
    catalog_option,
    spark_options,
    topics_option,
)
from ottla.pipeline.cli.pipeline_command import PipelineCommand, print_report
from ottla.pipeline.operations.doctor import Finding, Subject, examine


@click.command(
    cls=PipelineCommand,
    examples=(
        "ottla pipeline doctor",
        "ottla pipeline doctor --table lake/clicks --json",
        "ottla pipeline doctor --master spark://host:7077 -b broker:9092",
        "ottla pipeline doctor --topics clicks --group ottla-load.clicks.default",
        "ottla pipeline doctor --topics clicks --table lake.clicks --catalog http://catalog:8181",
    ),
)
@click.option(
    "--table",
    type=TableLocation(),
    help="Directory of a table, existing or planned, or its URL in an object store; without it no table is checked.",
)
@catalog_option
@topics_option("Topics to check for read access; may be repeated.", required=False)
@click.option("--group", "groups", multiple=True, help="Group to check for offset commits; may be repeated.")
@click.option(
    "--transactional-id",
    "transactional_ids",
    multiple=True,
    help="Transactional id to check for writes; may be repeated.",
)
@registry_options
@spark_options
@json_option
@connection_options
def doctor(
    table: Path | str | None,
    catalog_url: str | None,
    topics: list[str],
    groups: tuple[str, ...],
    transactional_ids: tuple[str, ...],
    schema_registry: str | None,
    schema_registry_ca: Path | None,
    master: str,
    conf: Mapping[str, str],
    as_json: bool,
    bootstrap_server: str,
) -> None:
    """Check the prerequisites of a load.

    Checks the packages of 'ottla[pipeline]', Java, the master, memory, every broker at its advertised address, and a
    Spark session with a Python worker that imports the modules of a load. With the options also: read access to topics,
    offset commits of groups, writes under transactional ids, the table location, the catalog and the schema registry. A
    failed check is printed with a remedy. The exit code is 2 if a check failed.

    A load publishes its offsets in the group ottla-load.TABLE.default. A push stores its progress in the group
    ottla-push-ID, which is also its transactional id.
    """
    findings = []
    subject = Subject(
        bootstrap_server,
        master,
        conf,
        table,
        catalog_url,
        topics,
        schema_registry,
        schema_registry_ca,
        security(),
        groups,
        transactional_ids,
    )
    for finding in examine(subject):
        findings.append(finding)
        if not as_json:
            click.echo(line(finding))
    if as_json:
        print_report([asdict(finding) for finding in findings])
    failed = sum(not finding.ok for finding in findings)
    if failed:
        raise OperatorError(f"{failed} of {counted(len(findings), 'check')} failed")


def line(finding: Finding) -> str:
    """One check as a line of text."""
    return f"{'ok' if finding.ok else 'FAILED':<7} {finding.check + ':':<20} {finding.detail}"
