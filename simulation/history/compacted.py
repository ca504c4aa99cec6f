"""All that clients know of one compacted topic: of each key the latest stays, and what it takes the place of may go.

The rules are those of `LogHistory` but for two. A record that was acknowledged or served is at its offset at the end,
or a later one of its key is. Who chose its partitions may pass over records, of each of which a later one of its key is
there at the end; since it comes to that as well, it ends with the latest of every key.
"""

from __future__ import annotations

from collections.abc import Mapping

from simulation.history.log import Contents, Gap, LogHistory, Place

KEYS = 7


class CompactedHistory(LogHistory):
    """See the module. A value has the key that its number gives, so that both are known from either side."""

    def key_of(self, value: str) -> bytes | None:
        """See `LogHistory`."""
        return b"%d" % (int(value.rpartition(":")[2]) % KEYS)

    def _passed_over(self, gap: Gap) -> None:
        """What lies there is known at the end only."""
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
