"""Names of decoded fields beside Kafka's columns."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow", reason="needs the extra `pipeline`")

from ottla.pipeline.decode import SCHEMA
from ottla.pipeline.transform.columns import column_name, field_name, usable_names


def test_no_field_takes_a_column_of_kafka_and_each_is_found_again() -> None:
    fields = [*SCHEMA.names, "Offset", "id", "value_id"]
    columns = [column_name(field) for field in fields]
    assert not {column.lower() for column in columns} & set(SCHEMA.names)
    assert columns[-3:] == ["value_Offset", "id", "value_id"]
    assert [field_name(column) for column in columns] == fields


def test_names_that_a_table_can_have_side_by_side() -> None:
    assert usable_names(["id", "ID", "", "a b", "a=b", "x\ny", "caf\u00e9", "a.b", "\u202e"]) == [
        "id",
        "caf\u00e9",
        "a.b",
    ]
