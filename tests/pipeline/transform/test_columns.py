"""Names of decoded fields beside Kafka's columns."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow", reason="needs the extra `pipeline`")

from ottla.pipeline.decode import SCHEMA
from ottla.pipeline.transform.columns import MAX_NAME_LENGTH, column_name, field_name, usable_names


def test_no_field_takes_a_column_of_kafka_and_each_is_found_again() -> None:
    prefixed = ["value_offset", "value_value_offset", "value_value", "VALUE_key"]
    fields = [*SCHEMA.names, *prefixed, "Offset", "id", "value_id"]
    columns = [column_name(field) for field in fields]
    assert not {column.lower() for column in columns} & set(SCHEMA.names)
    assert columns[-3:] == ["value_Offset", "id", "value_id"]
    assert len(set(columns)) == len(columns)
    assert [field_name(column) for column in columns] == fields


def test_names_that_a_table_can_have_side_by_side() -> None:
    longest = "x" * MAX_NAME_LENGTH
    assert usable_names(
        ["id", "ID", "", "a b", "a=b", "x\ny", "caf\u00e9", "a.b", "\u202e", longest, longest + "x"]
    ) == [
        "id",
        "caf\u00e9",
        "a.b",
        longest,
    ]
