"""Client history of one compacted topic: the latest record of each key remains, and older ones may be removed.

The rules are those of `LogHistory` with two exceptions. At the end, each acknowledged or served record is still at its
offset, or a later record of its key exists. A reader with manual assignment may skip a record if a later one of its key
exists at the end. It also reads that later record, so it ends with the latest record of every key.
"""

from __future__ import annotations

from collections.abc import Mapping

from simulation.history.log import Contents, Gap, LogHistory, Place

KEYS = 7


class CompactedHistory(LogHistory):
    """See the module. A value's number determines its key."""

    def key_of(self, value: str) -> bytes | None:
        """See `LogHistory`."""
        return b"%d" % (int(value.rpartition(":")[2]) % KEYS)

    def _passed_over(self, gap: Gap) -> None:
        """Check the gap at the end: only the final log shows which records were superseded."""
        self._gaps.append(gap)

    def _check_places(self, contents: Contents, places: dict[Place, str], rule: str, what: str) -> None:
        latest = {partition: self._latest(records) for partition, records in contents.items()}
        kept = {}
        for (partition, offset), value in places.items():
            found = contents.get(partition, {}).get(offset)
            if found is not None or latest.get(partition, {}).get(self.key_of(value), -1) < offset:
                kept[partition, offset] = value
        super()._check_places(contents, kept, rule, what)

    def _check_gap(self, gap: Gap, records: Mapping[int, str]) -> None:
        latest = self._latest(records)
        not_superseded = {offset: value for offset, value in records.items() if latest[self.key_of(value)] == offset}
        super()._check_gap(gap, not_superseded)

    def _latest(self, records: Mapping[int, str]) -> dict[bytes | None, int]:
        return {self.key_of(records[offset]): offset for offset in sorted(records)}
