"""State that can revert to an earlier log offset, and be read as of one."""

from ottla.timeline.registry import Snapshot, SnapshotRegistry
from ottla.timeline.timeline_dict import TimelineDict
from ottla.timeline.timeline_value import TimelineValue

__all__ = ["Snapshot", "SnapshotRegistry", "TimelineDict", "TimelineValue"]
