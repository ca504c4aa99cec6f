"""Differences between two texts: every line is shown with its number and sign, whatever it contains."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.console.diffs import LAYOUTS, MAX_LINES, compare, difference

from .test_parts import ATTACKS, Elements, parsed


def signs(node: object) -> tuple[list[str], list[str]]:
    """The removed and the added lines."""
    found: dict[str, list[str]] = {"del": [], "ins": []}

    class Signed(Elements):
        tag = ""

        def handle_starttag(self, tag, attrs):
            super().handle_starttag(tag, attrs)
            if tag in found:
                self.tag = tag
                found[tag].append("")

        def handle_endtag(self, tag):
            if tag == self.tag:
                self.tag = ""

        def handle_data(self, data):
            if self.tag:
                found[self.tag][-1] += str.__str__(data)

    page = Signed()
    page.feed(str(node))
    page.close()
    return found["del"], found["ins"]


def test_changed_lines_have_sign_and_number_among_their_context():
    older = "\n".join(["first", *map(str, range(20)), "last"])
    found = compare(older, older.replace("last", "LAST"))
    for layout in LAYOUTS:
        text = parsed(difference(found, layout)).content
        assert "18 unchanged lines" in text, text
        assert "22-last" in text
        assert "22+LAST" in text
        assert signs(difference(found, layout)) == (["last"], ["LAST"])


@given(st.lists(st.sampled_from("abc"), max_size=12), st.lists(st.sampled_from("abc"), max_size=12))
def test_both_layouts_show_the_same_changes(older, newer):
    found = compare("\n".join(older), "\n".join(newer))
    shown = [signs(difference(found, layout)) for layout in LAYOUTS]
    assert shown[0] == shown[1]
    assert len(shown[0][1]) - len(shown[0][0]) == len(found.newer) - len(found.older)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_attacks_stay_text_in_differences(layout):
    found = compare("\n".join(ATTACKS), "\n".join(f"{each}x" for each in ATTACKS))
    names = set(parsed(difference(found, layout)).names)
    assert names <= {"div", "table", "caption", "thead", "tbody", "tr", "th", "td", "span", "del", "ins"}


def test_long_texts_are_cut_and_cost_little():
    older = "\n".join(f"{number % 251} {number % 7}" for number in range(3 * MAX_LINES))
    newer = "\n".join(reversed(older.split("\n")))
    started = time.process_time()
    found = compare(older, newer)
    difference(found, LAYOUTS[0])
    assert time.process_time() - started < 5
    assert (len(found.older), found.left) == (MAX_LINES, (2 * MAX_LINES, 2 * MAX_LINES))
