"""Type widening for a table and the records to load."""

from __future__ import annotations

from typing import Any

import pytest

pa = pytest.importorskip("pyarrow", reason="needs the extra `pipeline`")

from ottla.pipeline.transform.widening import adapted, widened  # noqa: E402

I32, I64, F32, F64, TEXT = pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string()


def struct(**fields: Any) -> Any:
    return pa.struct(list(fields.items()))


@pytest.mark.parametrize(
    ("held", "found", "both"),
    [
        (I32, I64, I64),
        (I64, I32, I64),
        (F32, F64, F64),
        (I64, F64, None),
        (I64, TEXT, None),
        (pa.decimal128(10, 2), pa.decimal128(20, 2), pa.decimal128(20, 2)),
        (pa.decimal128(10, 2), pa.decimal128(20, 3), None),
        (TEXT, TEXT, TEXT),
        (TEXT, pa.timestamp("us"), None),
        (pa.list_(I32), pa.list_(I64), pa.list_(I64)),
        (pa.list_(I32), I32, None),
        (pa.map_(TEXT, I32), pa.map_(TEXT, I64), pa.map_(TEXT, I64)),
        (pa.map_(TEXT, I32), pa.map_(I32, I32), None),
        (struct(a=I32), struct(b=TEXT, a=I64), struct(a=I64, b=TEXT)),
        (struct(a=I32), struct(a=TEXT), None),
    ],
)
def test_widened_type_of_two(held: Any, found: Any, both: Any) -> None:
    assert widened(held, found) == both


def test_unfitting_fields_leave_table_unchanged_others_grow() -> None:
    held = struct(a=I32, b=I64, l=pa.list_(struct(x=I64)))
    found = struct(a=I64, b=TEXT, l=pa.list_(struct(x=TEXT, y=F64)), new=TEXT)
    assert adapted(held, found) == struct(a=I64, b=I64, l=pa.list_(struct(x=I64, y=F64)), new=TEXT)
    assert adapted(held, found, widen=False) == struct(a=I32, b=I64, l=pa.list_(struct(x=I64, y=F64)), new=TEXT)


def test_fields_differing_in_case_only_are_not_added() -> None:
    """Readers of tables can't distinguish them, so a table with both would be unreadable."""
    held, found = struct(s=struct(a=I64)), struct(s=struct(A=TEXT, b=TEXT), S=TEXT)
    both = struct(s=struct(a=I64, b=TEXT))
    assert adapted(held, found) == both
    assert widened(held, found) == both


def test_objects_keyed_by_data_are_adapted_in_linear_time() -> None:
    """Quadratic work on 20,000 fields would take half an hour."""
    held, found = (struct(o=pa.struct([(f"{kind}{number}", I64) for number in range(20_000)])) for kind in "ab")
    assert adapted(held, found).field("o").type.num_fields == 40_000
