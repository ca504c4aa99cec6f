"""Counts of a load: fields without a column, bad values by reason."""

from __future__ import annotations

from collections import Counter

import pytest

pa = pytest.importorskip("pyarrow", reason="needs the extra `pipeline`")

from ottla.pipeline.load.summary import value_notes  # noqa: E402
from ottla.pipeline.model.plan import DeadLettersError, LetterLimit  # noqa: E402
from ottla.pipeline.transform import schema_report  # noqa: E402
from ottla.pipeline.transform.json_inference import EMPTY, UNION, infer_json  # noqa: E402
from ottla.pipeline.transform.schema_report import SchemaReport, Tally, reason_kind  # noqa: E402


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("the field 'c2' is 3.5, which its column of type int64 can't hold", "the field 'c2' is ..., which its column "
         "of type int64 can't hold"),
        ("the field 'd' is 'it\\'s', which", "the field 'd' is ..., which"),
        ("CSV parse error: Expected 3 columns, got 2: secret,7", "CSV parse error: Expected N columns, got N"),
        ("the value is not UTF-8: bad start at byte 4", "the value is not UTF-8: bad start at byte N"),
    ],
)  # fmt: skip
def test_reasons_are_counted_without_their_values(reason: str, kind: str) -> None:
    assert reason_kind(reason) == kind


def test_tallies_of_tasks_add_up() -> None:
    one, both = Tally(Counter(a=1), Counter(bad=2), 3), Tally()
    both.add_text(one.to_text())
    both.add_text(one.to_text())
    both.add_text(Tally().to_text())
    assert both == Tally(Counter(a=2), Counter(bad=4), 6)
    assert Tally().to_text() == ""


def test_number_of_counted_names_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    from ottla.pipeline.transform import decoder

    monkeypatch.setattr(decoder, "MAX_COUNTED", 2)
    tally = Tally()
    tally.add_text(Tally(Counter(a=1, b=1, c=1)).to_text())
    tally.add_text(Tally(Counter(b=1, c=1)).to_text())
    assert tally.unknown == {"a": 1, "b": 2}


def test_fields_without_column_are_listed_with_counts() -> None:
    inferred = infer_json([b'{"ok":1,"mixed":1,"none":null}', b'{"mixed":"x"}'])
    report = SchemaReport()
    report.add(inferred, inferred.schema, ["ok"])
    found = report.fields_without_column({"mixed": 20, "rare": 3})
    assert found == [
        {"field": "mixed", "values": 20, "why": UNION},
        {"field": "rare", "values": 3, "why": schema_report.UNSEEN},
        {"field": "none", "values": 1, "why": EMPTY},
    ]
    report = SchemaReport(spellings={"id": 4}, renamed={"n.a b": "a_b"})
    notes = value_notes(Tally(reasons=Counter(bad=2), nulled=1), found, report)
    assert [note.partition(":")[0] for note in notes] == [
        "reasons of dead letters",
        "1 records could not be decoded",
        "fields without a column, with the number of values",
        "fields with another name in the table, which can't have all of their characters",
        "names with several spellings in one object, of which one is read",
    ]
    assert "mixed (20: values of several types); rare (3" in notes[2]
    assert notes[3].endswith(": 'n.a b' as a_b")


def test_dead_letters_beyond_limit_are_refused() -> None:
    LetterLimit(2).check(2, 0)
    LetterLimit(percent=10).check(1, 9)
    with pytest.raises(DeadLettersError, match="3 of 3 records can't be stored, and --max-dead-letters is 2"):
        LetterLimit(2).check(3, 0)
    with pytest.raises(DeadLettersError, match=r"2 of 11 .* is 10%"):
        LetterLimit(percent=10).check(2, 9)
    assert DeadLettersError.exit_code == 3
