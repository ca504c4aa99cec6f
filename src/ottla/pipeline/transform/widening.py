"""Type widening: the common Arrow type of a table's column and of new values.

Only promotions that both Delta and Iceberg consider safe are made: a wider signed integer or float, and a decimal with
more digits before the point. The elements of lists and the values of maps are widened likewise. Structs get new fields,
except those that differ from an existing one only in case. All other types stay as in the table.

Pure functions. `target_schema` uses them for tables; `avro_schema` and `value_format` use them for inferred fields.
"""

from __future__ import annotations

import pyarrow as pa

from ottla.pipeline.transform.columns import match_key, usable_names


def widened(held: pa.DataType, found: pa.DataType) -> pa.DataType | None:
    """The type for values of both; None if there is none, also for a part of a nested type."""
    if pa.types.is_struct(held) and pa.types.is_struct(found):
        return _widened_struct(held, found)
    if _is_list(held) and _is_list(found):
        inner = widened(held.value_type, found.value_type)
        return None if inner is None else pa.list_(held.value_field.with_type(inner))
    if pa.types.is_map(held) and pa.types.is_map(found):
        inner = widened(held.item_type, found.item_type)
        return None if inner is None or held.key_type != found.key_type else pa.map_(held.key_type, inner)
    if held == found:
        return held
    for holds in (pa.types.is_signed_integer, pa.types.is_floating):
        if holds(held) and holds(found):
            return max(held, found, key=lambda type_: type_.bit_width)
    if pa.types.is_decimal(held) and pa.types.is_decimal(found) and held.scale == found.scale:
        return max(held, found, key=lambda type_: type_.precision)
    return None


def adapted(held: pa.DataType, found: pa.DataType, *, widen: bool = True) -> pa.DataType:
    """The widened type, or `held` if there is none: values that don't fit become dead letters.

    Fields of structs are checked one by one. Without `widen` they are added, and all types stay.
    """
    if pa.types.is_struct(held) and pa.types.is_struct(found):
        parts = {part.name: part for part in held}
        for part in _placeable(held, found):
            mine = parts.get(part.name)
            parts[part.name] = mine.with_type(adapted(mine.type, part.type, widen=widen)) if mine else part
        return pa.struct(list(parts.values()))
    if _is_list(held) and _is_list(found):
        return pa.list_(held.value_field.with_type(adapted(held.value_type, found.value_type, widen=widen)))
    return (widened(held, found) if widen else None) or held


def respelled(found: pa.DataType, held: pa.DataType) -> pa.DataType:
    """`found` with the names of fields as `held` spells them, where they are spellings of one name."""
    if pa.types.is_struct(found) and pa.types.is_struct(held):
        parts = {match_key(part.name): part for part in held}
        fields = []
        for part in found:
            mine = parts.get(match_key(part.name))
            fields.append((mine.name, respelled(part.type, mine.type)) if mine else (part.name, part.type))
        return pa.struct(fields)
    if _is_list(found) and _is_list(held):
        return pa.list_(respelled(found.value_type, held.value_type))
    return found


def _widened_struct(held: pa.DataType, found: pa.DataType) -> pa.DataType | None:
    parts = {part.name: part for part in held}
    for part in _placeable(held, found):
        mine = parts.get(part.name)
        type_ = widened(mine.type, part.type) if mine else part.type
        if type_ is None:
            return None
        parts[part.name] = mine.with_type(type_) if mine else part
    return pa.struct(list(parts.values()))


def _placeable(held: pa.StructType, found: pa.StructType) -> list[pa.Field]:
    """The fields of `found` that a struct can have beside those of `held`: none that differs in case only from one."""
    names = found.names
    new = set(names)  # pyarrow builds its list of names again at each use
    return [found.field(name) for name in usable_names([*held.names, *names]) if name in new]


def _is_list(type_: pa.DataType) -> bool:
    return bool(pa.types.is_list(type_) or pa.types.is_large_list(type_))
