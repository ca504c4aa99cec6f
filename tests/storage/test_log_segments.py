"""Segment set of a log, replaced at once under readers, and the order of its offsets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.common.errors import InvariantError
from ottla.storage.files.descriptors import Descriptors, Folder
from ottla.storage.log.log_segments import NO_HIGH_WATERMARK, LogOffsets, LogSegments
from ottla.storage.segment.segment import Segment

OFFSET = st.integers(0, 20)


@pytest.mark.promise("R2")
@given(
    st.booleans(),
    st.lists(st.tuples(st.sampled_from(["append", "commit", "delete records", "cut", "restart"]), OFFSET)),
)
def test_the_high_watermark_stays_between_start_and_end(replicated, moves):
    offsets = LogOffsets(3, 10, 5)
    if replicated:
        offsets.begin_high_watermark(0)
    for move, offset in moves:
        if move == "append":
            offsets.log_end_offset += offset
        elif move == "commit" and replicated:
            offsets.high_watermark = max(offsets.high_watermark, min(offset, offsets.log_end_offset))
        elif move == "delete records" and offsets.log_start_offset < offset <= offsets.log_end_offset:
            offsets.advance_log_start_offset(offset)
        elif move == "cut" and offset <= offsets.log_end_offset:
            offsets.cut(offset)
        elif move == "restart":
            offsets.restart_at(offset)
        assert offsets.log_start_offset <= offsets.high_watermark_or_end <= offsets.log_end_offset
        assert offsets.flushed_offset <= offsets.log_end_offset
        assert replicated is (offsets.high_watermark != NO_HIGH_WATERMARK)
        if not replicated:
            assert offsets.high_watermark_or_end == offsets.log_end_offset


class TestReplace:
    @pytest.fixture
    def folder(self, disk):
        disk.makedirs("/d")
        return Folder(Descriptors(disk, 10), "/d")

    def segment(self, folder, base_offset, data=b""):
        segment = Segment.create(folder, base_offset, 0, 4096)
        if data:
            segment.data.append(data, len(data))
        return segment

    def test_replaced_segments_are_ordered_and_regions_stay_valid(self, folder):
        first, second, active = (self.segment(folder, base, b"%d" % base) for base in (0, 10, 20))
        segments = LogSegments([first, second, active])
        segments.recent[20] = 0
        region = first.data.region(0, 1)
        before = segments.holding(0)
        first.mark_deleted()
        merged = self.segment(folder, 0, b"m")
        segments.replace([first, second], [merged])
        first.close()
        assert list(segments) == [merged, active]
        assert before == (first, second, active), "an iteration continues over its own set"
        assert segments.holding(15) == (merged, active)
        assert segments.active is active
        assert segments.recent == {20: 0}
        assert region.read_all() == b"0"
        region.release()

    def test_another_active_segment_has_no_known_places(self, folder):
        segments = LogSegments([self.segment(folder, 0)])
        segments.recent[0] = 0
        added = self.segment(folder, 5)
        segments.replace((), (added,))
        assert segments.active is added
        assert not segments.recent

    def test_invalid_segment_set_is_rejected(self, folder):
        only = self.segment(folder, 0)
        segments = LogSegments([only])
        with pytest.raises(InvariantError):
            segments.replace([only], [])
        with pytest.raises(InvariantError):
            segments.replace([], [Segment(folder, 0, 0, 0, 4096)])
        assert list(segments) == [only]
