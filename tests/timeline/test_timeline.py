"""Timeline objects compared with plain dicts that are copied at every snapshot."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.scale import size

from ottla.common.errors import InvariantError
from ottla.timeline import SnapshotRegistry, TimelineDict, TimelineValue

KEYS = st.sampled_from("abcdef")
VALUES = st.integers(0, 9)


class TimelineModel(RuleBasedStateMachine):
    """Two dicts and a value in one registry; the model stores whole copies by offset."""

    @initialize()
    def begin(self) -> None:
        self.registry = SnapshotRegistry()
        self.dicts = [TimelineDict[str, int](self.registry), TimelineDict[str, int](self.registry)]
        self.value = TimelineValue(self.registry, 0)
        self.model: list[dict[str, int]] = [{}, {}]
        self.model_value = 0
        self.copies: dict[int, tuple[list[dict[str, int]], int]] = {}
        self.offset = 0

    @rule(which=st.integers(0, 1), key=KEYS, value=VALUES)
    def put(self, which: int, key: str, value: int) -> None:
        self.dicts[which][key] = value
        self.model[which][key] = value

    @rule(which=st.integers(0, 1), key=KEYS)
    def delete(self, which: int, key: str) -> None:
        if key in self.model[which]:
            del self.model[which][key]
            del self.dicts[which][key]
        else:
            with pytest.raises(KeyError):
                del self.dicts[which][key]

    @rule(which=st.integers(0, 1), key=KEYS)
    def pop(self, which: int, key: str) -> None:
        assert self.dicts[which].pop(key, None) == self.model[which].pop(key, None)

    @rule(which=st.integers(0, 1), key=KEYS, value=VALUES)
    def setdefault(self, which: int, key: str, value: int) -> None:
        assert self.dicts[which].setdefault(key, value) == self.model[which].setdefault(key, value)

    @rule(which=st.integers(0, 1), entries=st.dictionaries(KEYS, VALUES), in_place=st.booleans())
    def update(self, which: int, entries: dict[str, int], in_place: bool) -> None:
        if in_place:
            self.dicts[which] |= entries
        else:
            self.dicts[which].update(entries)
        self.model[which].update(entries)

    @rule(which=st.integers(0, 1))
    def clear(self, which: int) -> None:
        self.dicts[which].clear()
        self.model[which].clear()

    @precondition(lambda self: any(self.model))
    @rule()
    def popitem(self) -> None:
        which = 0 if self.model[0] else 1
        key, value = self.dicts[which].popitem()
        assert self.model[which].pop(key) == value

    @rule(value=VALUES)
    def put_value(self, value: int) -> None:
        self.value.value = value
        self.model_value = value

    @rule(step=st.integers(1, 3))
    def snapshot(self, step: int) -> None:
        self.offset += step
        self.registry.snapshot(self.offset)
        self.registry.snapshot(self.offset)
        self.copies[self.offset] = ([dict(entries) for entries in self.model], self.model_value)

    @precondition(lambda self: self.copies)
    @rule(data=st.data())
    def revert(self, data: st.DataObject) -> None:
        offset = data.draw(st.sampled_from(sorted(self.copies)))
        self.registry.revert_to(offset)
        copies, self.model_value = self.copies[offset]
        self.model = [dict(entries) for entries in copies]
        self.copies = {at: copy for at, copy in self.copies.items() if at <= offset}
        self.offset = offset

    @precondition(lambda self: self.copies)
    @rule(data=st.data(), past=st.integers(0, 1))
    def delete_up_to(self, data: st.DataObject, past: int) -> None:
        offset = data.draw(st.sampled_from(sorted(self.copies))) + past
        self.registry.delete_up_to(offset)
        self.copies = {at: copy for at, copy in self.copies.items() if at >= offset}

    @invariant()
    def same(self) -> None:
        assert [dict(entries) for entries in self.dicts] == self.model
        assert self.value.value == self.model_value
        assert self.registry.offsets() == sorted(self.copies)
        for offset, (copies, value) in self.copies.items():
            assert self.value.value_at(offset) == value
            for entries, copy in zip(self.dicts, copies, strict=True):
                assert dict(entries.items_at(offset)) == copy
                assert sorted(entries.values_at(offset)) == sorted(copy.values())
                for key in "abcdef":
                    assert entries.get_at(key, offset, -1) == copy.get(key, -1)


TimelineModel.TestCase.settings = settings(max_examples=size(15, 150), stateful_step_count=30, deadline=None)
TestTimelineModel = TimelineModel.TestCase


def test_object_of_reverted_snapshot_is_as_new() -> None:
    registry = SnapshotRegistry()
    groups: TimelineDict[str, TimelineDict[str, int]] = TimelineDict(registry)
    registry.snapshot(10)
    groups["g"] = TimelineDict(registry)
    groups["g"]["member"] = 1
    inner = groups["g"]
    assert groups.get_at("g", 10) is None
    registry.revert_to(10)
    assert not groups
    assert not inner


def test_removed_object_is_restored_with_contents() -> None:
    registry = SnapshotRegistry()
    groups: TimelineDict[str, TimelineDict[str, int]] = TimelineDict(registry)
    groups["g"] = TimelineDict(registry)
    groups["g"]["member"] = 1
    registry.snapshot(10)
    groups["g"]["member"] = 2
    del groups["g"]["member"]
    del groups["g"]
    past = groups.get_at("g", 10)
    assert past is not None
    assert dict(past.items_at(10)) == {"member": 1}
    registry.revert_to(10)
    assert groups == {"g": {"member": 1}}


def test_a_registry_without_snapshots_records_nothing() -> None:
    registry = SnapshotRegistry()
    entries: TimelineDict[int, int] = TimelineDict(registry)
    for key in range(1000):
        entries[key] = key
    registry.snapshot(1)
    assert registry.latest is not None
    assert registry.latest.deltas == {}


def test_committed_changes_leave_no_delta() -> None:
    registry = SnapshotRegistry()
    entries: TimelineDict[int, int] = TimelineDict(registry)
    registry.snapshot(0)
    for offset in range(1, 100):
        entries[offset % 7] = offset
        registry.snapshot(offset)
        registry.delete_up_to(offset)
        assert registry.offsets() == [offset]
        assert registry.latest is not None
        assert registry.latest.deltas == {}


def test_entry_costs_as_much_as_in_a_dict() -> None:
    registry = SnapshotRegistry()
    entries: TimelineDict[int, int] = TimelineDict(registry)
    registry.snapshot(0)
    for key in range(100_000):
        entries[key] = key
    registry.snapshot(1)
    registry.delete_up_to(1)
    plain = dict.fromkeys(range(100_000))
    assert sys.getsizeof(entries) <= sys.getsizeof(plain) + 64


@pytest.mark.parametrize(
    "misuse",
    [
        lambda registry, entries: registry.snapshot(4),
        lambda registry, entries: registry.revert_to(4),
        lambda registry, entries: registry.revert_to(6),
        lambda registry, entries: entries.get_at("a", 4),
        lambda registry, entries: entries.items_at(6),
        lambda registry, entries: TimelineValue(registry, 1).value_at(7),
    ],
)
def test_offsets_without_a_snapshot_are_refused(
    misuse: Callable[[SnapshotRegistry, TimelineDict[str, int]], object],
) -> None:
    registry = SnapshotRegistry()
    registry.snapshot(5)
    with pytest.raises(InvariantError):
        misuse(registry, TimelineDict(registry))


def test_floor() -> None:
    registry = SnapshotRegistry()
    assert registry.floor(10) is None
    for offset in (5, 9, 12):
        registry.snapshot(offset)
    assert [registry.floor(offset) for offset in (4, 5, 8, 9, 11, 12, 99)] == [None, 5, 5, 9, 9, 12, 12]


def test_missing_keys_raise_as_in_a_dict() -> None:
    entries: TimelineDict[str, int] = TimelineDict(SnapshotRegistry())
    with pytest.raises(KeyError):
        entries.pop("a")
    with pytest.raises(KeyError):
        entries.popitem()
