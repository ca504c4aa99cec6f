"""What a run is going to read of some topics, and how: planned, from a source, decoded as was settled."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial

from ottla.client.admin.cluster import Cluster
from ottla.pipeline.load.land import LandSettings, OpenCluster
from ottla.pipeline.model.plan import LoadPlan, PlanSettings, make_plan
from ottla.pipeline.model.rollback import Rollback
from ottla.pipeline.sinks.table import FileLayout, Table
from ottla.pipeline.sinks.writer import new_load_id
from ottla.pipeline.sources.segments import open_source
from ottla.pipeline.sources.source import ReadRange
from ottla.pipeline.transform.columns import RESERVED_COLUMNS
from ottla.pipeline.transform.record_decoder import RecordDecoder
from ottla.pipeline.transform.target_schema import settle
from ottla.pipeline.transform.value_format import ValueFormat

Planner = Callable[[Cluster, Table, Sequence[str], PlanSettings, Table], LoadPlan]
"""Plans what a run brings into a table, and into that of its dead letters."""


@dataclass(frozen=True, slots=True)
class Reading:
    """`seconds` is how long it took to be found out."""

    plan: LoadPlan
    open_cluster: OpenCluster
    """For tasks: waits for brokers that are away for a moment."""
    read_range: ReadRange
    decoder: RecordDecoder | None
    settings: PlanSettings
    seconds: float

    def land_settings(self, layout: FileLayout, letters_layout: FileLayout) -> LandSettings:
        """Those of a new load into a table and that of its dead letters."""
        return LandSettings(
            open_cluster=self.open_cluster,
            layout=layout,
            letters_layout=letters_layout,
            load_id=new_load_id(),
            isolation=self.settings.isolation,
            on_data_loss=self.settings.on_data_loss,
            letters_held=self.plan.letters.held,
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
) -> Reading:
    """What is new in `topics` for `target`, which gets the columns that it needs for that.

    `open_cluster` takes `recently_reachable` as `Cluster` does.
    `value_format`: how values become columns, none of which gets a name of `reserved_columns`; None leaves values as
    they are. Raises OperatorError (for a table that was put back, too), DataLossError, KafkaError.
    """
    started = time.monotonic()
    letters = target.dead_letters()
    accepted = [accepted_rollback(table, settings) for table in (target, letters)]
    with open_cluster() as cluster:
        plan = planner(cluster, target, topics, settings, letters)
        plan.accepted_rollback, plan.letters.accepted_rollback = accepted
        plan.notes += [
            f"the table {table.location} was left as it is: {found.what}"
            for table, found in zip((target, letters), accepted, strict=True)
            if found is not None
        ]
        read_range = open_source(settings.source if plan.tasks else "fetch", cluster)
        decoder = None
        if value_format is not None and plan.tasks:
            decoder = settle(value_format, target, cluster, plan.ranges, settings.isolation, reserved_columns)
        elif plan.tasks:
            plan.notes += _null_columns(target, reserved_columns)
    in_tasks = partial(open_cluster, recently_reachable=True)
    return Reading(plan, in_tasks, read_range, decoder, settings, time.monotonic() - started)


def accepted_rollback(table: Table, settings: PlanSettings) -> Rollback | None:
    """What the operator leaves as it is, None where nothing is to be. Raises RolledBackError."""
    found = table.rollback()
    if found is not None and (settings.on_rollback != "skip" or not found.can_go_on):
        raise found.refusal(table.location, with_option=settings.on_rollback is not None)
    return found


def _null_columns(target: Table, reserved_columns: frozenset[str]) -> list[str]:
    """What an operator who forgot --decode should know; nothing of a table without decoded columns."""
    names = [name for name in target.schema().names if name not in reserved_columns] if target.exists() else []
    others = f" and {len(names) - 1} others" if len(names) > 1 else ""
    text = "which earlier loads decoded, null in these rows, whose values are not decoded without --decode"
    return [f"the table {target.location} has the column {names[0]!r}{others}, {text}"] if names else []
