"""Names of decoded fields beside Kafka's columns."""

from __future__ import annotations

import pytest

pa = pytest.importorskip("pyarrow", reason="needs the extra `pipeline`")

from ottla.pipeline.model.decode import SCHEMA  # noqa: E402
from ottla.pipeline.transform.columns import (  # noqa: E402
    MAX_NAME_LENGTH,
    column_name,
    field_name,
    usable_names,
    with_paths_of_their_own,
)


def test_fields_named_like_kafka_columns_get_prefix() -> None:
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


def test_no_two_fields_have_one_path() -> None:
    number, text = pa.int64(), pa.string()
    found = pa.schema(
        {
            "a": pa.struct({"b": number, "c": number, "d.e": number, "d": pa.struct({"E": text, "f": text})}),
            "a.b": text,
            "l": pa.list_(pa.struct({"x": number})),
            "l.element": text,
            "m": pa.map_(text, number),
            "m.value": text,
            "headers.element.key": text,
            "only": pa.struct({"x": number}),
        }
    )
    held = pa.schema({"only.x": text, "headers": SCHEMA.field("headers").type, "a.c": text})
    kept = {
        "a": pa.struct({"b": number, "d.e": number, "d": pa.struct({"f": text})}),
        "l": found.field("l").type,
        "m": found.field("m").type,
    }
    assert with_paths_of_their_own(found, held) == pa.schema(kept)
    assert with_paths_of_their_own(found, found) == found  # a table that has both keeps them
