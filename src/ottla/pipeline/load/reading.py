"""Input of a run: the plan of the records to read, their source, and their decoder."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from ottla.client.admin.cluster import Cluster
from ottla.common.errors import OperatorError
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.pipeline.load.land import LandSettings, OpenCluster
from ottla.pipeline.model.failure import os_reason
from ottla.pipeline.model.plan import LoadPlan, PlanSettings, make_plan
from ottla.pipeline.model.rollback import Rollback
from ottla.pipeline.sinks.dataset import open_dataset
from ottla.pipeline.sinks.table import FileLayout, Table
from ottla.pipeline.sinks.writer import new_load_id
from ottla.pipeline.sources.segments import open_source
from ottla.pipeline.sources.source import ReadRange
from ottla.pipeline.transform.columns import RESERVED_COLUMNS
from ottla.pipeline.transform.record_decoder import RecordDecoder
from ottla.pipeline.transform.schema_report import SchemaReport
from ottla.pipeline.transform.target_schema import settle
from ottla.pipeline.transform.value_format import ValueFormat

Planner = Callable[[Cluster, Table, Sequence[str], PlanSettings, Table], LoadPlan]
"""Plans the new records for a table and for its table of dead letters."""


@dataclass(frozen=True, slots=True)
class PlannedRead:
    """`seconds` is the duration of planning."""

    plan: LoadPlan
    open_cluster: OpenCluster
    """For tasks: waits for brokers that are temporarily unreachable."""
    read_range: ReadRange
    decoder: RecordDecoder | None
    settings: PlanSettings
    seconds: float
    report: SchemaReport = field(default_factory=SchemaReport)
    letters_there: Mapping[TopicPartition, frozenset[int]] = field(default_factory=dict)

    def land_settings(self, layout: FileLayout, letters_layout: FileLayout) -> LandSettings:
        """Settings of a new load into a table and its table of dead letters."""
        return LandSettings(
            open_cluster=self.open_cluster,
            layout=layout,
            letters_layout=letters_layout,
            load_id=new_load_id(),
            isolation=self.settings.isolation,
            on_data_loss=self.settings.on_data_loss,
            letters_held=self.plan.letters.held,
            letters_there=self.letters_there,
            record_decoder=self.decoder,
            read_range=self.read_range,
            bounds=self.plan.bounds,
        )


def find_reading(
    topics: Sequence[str],
    target: Table,
    open_cluster: Callable[..., AbstractContextManager[Cluster]],
    settings: PlanSettings,
    value_format: ValueFormat | None,
    *,
    planner: Planner = make_plan,
    reserved_columns: frozenset[str] = RESERVED_COLUMNS,
) -> PlannedRead:
    """Plan the new records of `topics` for `target`, and add the columns that `target` needs for them.

    `open_cluster` takes `recently_reachable` as `Cluster` does.
    `value_format`: decodes values to columns, none of which gets a name of `reserved_columns`; None leaves values
    unchanged. Raises OperatorError (also for a table that was rolled back), DataLossError, KafkaError.
    """
    started = time.monotonic()
    letters = target.dead_letters()
    accepted = [accepted_rollback(table, settings) for table in (target, letters)]
    with open_cluster() as cluster:
        plan = planner(cluster, target, topics, settings, letters)
        plan.accepted_rollback, plan.letters.accepted_rollback = accepted
        plan.notes += [
            f"the table {table.location} was left unchanged: {found.what}"
            for table, found in zip((target, letters), accepted, strict=True)
            if found is not None
        ]
        read_range = open_source(settings.source if plan.tasks else "fetch", cluster)
        decoder, report = None, SchemaReport()
        if value_format is not None and plan.tasks:
            keeps_bad = settings.on_mismatch == "null"
            decoder = settle(
                value_format,
                target,
                cluster,
                plan.ranges,
                settings.isolation,
                reserved_columns,
                report=report,
                keeps_bad=keeps_bad,
            )
        elif plan.tasks:
            plan.notes += _null_columns(target, reserved_columns)
    there = _letters_there(letters, plan)
    in_tasks = partial(open_cluster, recently_reachable=True)
    return PlannedRead(plan, in_tasks, read_range, decoder, settings, time.monotonic() - started, report, there)


def _letters_there(letters: Table, plan: LoadPlan) -> dict[TopicPartition, frozenset[int]]:
    """Offsets of the dead letters of a load that died before it committed its rows, in the ranges of a plan.

    Raises OperatorError.
    """
    held = plan.letters.held
    starts = {key: one.start_offset for one in plan.ranges if (key := (one.topic, one.partition)) in held}
    found: dict[TopicPartition, set[int]] = {key: set() for key, start in starts.items() if start < held[key]}
    if not found:
        return {}
    columns, least = ["topic", "partition", "offset"], min(starts[key] for key in found)
    try:
        dataset = open_dataset(letters.layout(), letters.schema(), letters.files())
        for batch in dataset.to_batches(columns=columns, filter=pc.field("offset") >= least):
            for topic, partition, offset in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                key = (topic, partition)
                if key in found and starts[key] <= offset < held[key]:
                    found[key].add(offset)
    except (OSError, pa.ArrowException) as error:
        raise OperatorError(
            f"a file of the dead letters {letters.location} can't be read: {os_reason(error)}"
        ) from error
    return {key: frozenset(offsets) for key, offsets in found.items()}


def accepted_rollback(table: Table, settings: PlanSettings) -> Rollback | None:
    """The rollback that the operator accepts, None for a table without one. Raises RolledBackError."""
    found = table.rollback()
    if found is not None and (settings.on_rollback != "skip" or not found.is_skippable):
        raise found.refusal(table.location, with_option=settings.on_rollback is not None)
    return found


def _null_columns(target: Table, reserved_columns: frozenset[str]) -> list[str]:
    """Warn an operator that --decode may be missing; empty for a table without decoded columns."""
    names = [name for name in target.schema().names if name not in reserved_columns] if target.exists() else []
    others = f" and {len(names) - 1} others" if len(names) > 1 else ""
    text = "decoded by earlier loads and null in the new rows, since --decode is missing"
    return [f"the table {target.location} has the column {names[0]!r}{others}, {text}"] if names else []
