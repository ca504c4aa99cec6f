"""Report of a load about its schema and values: new columns, fields without a column, bad values by reason.

The driver fills a SchemaReport while it settles the schema. Each task fills a Tally while it decodes, and returns it as
text in its manifest row. Both count a bounded number of names.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from ottla.pipeline.transform.columns import match_key
from ottla.pipeline.transform.decoder import add_bounded
from ottla.pipeline.transform.json_inference import NAME, InferredFields, LeftOut

UNSEEN = "in no record that was inspected"
_VALUE = re.compile(r" is (?:'(?:[^'\\]|\\.)*'|[-+0-9.eE]+(?:\.\.\. \(\d+ characters\))?)|(?<= columns, got )\d+: .*")
_NUMBER = re.compile(r"(?<![\w'.-])\d+")


@dataclass(slots=True)
class SchemaReport:
    """`columns`: added to the table. `left_out`: path -> field without a column, of the inspected records.
    `spellings`: name -> number of inspected objects that spell it in two ways. `renamed`: path -> name in the table."""

    columns: list[str] = field(default_factory=list)
    left_out: dict[str, LeftOut] = field(default_factory=dict)
    spellings: dict[str, int] = field(default_factory=dict)
    renamed: dict[str, str] = field(default_factory=dict)

    def add(self, inferred: InferredFields, fields: pa.Schema, columns: Sequence[str]) -> None:
        """Add inferred fields, of which `fields` have columns."""
        kept = set(fields.names)
        refused = {name: LeftOut(0, NAME) for name in inferred.schema.names if name not in kept}
        known = dict(_paths("", pa.struct(list(fields))))
        left_out = {path: one for path, one in inferred.left_out.items() if match_key(path) not in known}
        self.left_out |= refused | left_out
        self.spellings |= inferred.spellings
        self.renamed |= {path: known[key] for path in inferred.renamed if (key := match_key(path)) in known}
        self.columns += columns

    def fields_without_column(self, unknown: Mapping[str, int]) -> list[dict[str, str | int]]:
        """Fields without a column, the commonest first; `unknown`: the counts of the tasks by name, at any level."""
        counts: Counter[str] = Counter()
        for name, count in unknown.items():
            counts[match_key(name)] += count
        found: list[dict[str, str | int]] = []
        named = set()
        for path, one in self.left_out.items():
            name = match_key(path.rpartition(".")[2].removesuffix("[]"))
            named.add(name)
            found.append({"field": path, "values": max(counts[name], one.values), "why": one.why})
        found += [
            {"field": name, "values": count, "why": UNSEEN}
            for name, count in unknown.items()
            if match_key(name) not in named
        ]
        return sorted(found, key=lambda one: (-int(one["values"]), str(one["field"])))


def _paths(path: str, type_: pa.DataType) -> Iterator[tuple[str, str]]:
    """(path, name) of all fields, paths as `match_key` returns them, with `[]` behind those of lists."""
    if pa.types.is_struct(type_):
        for part in type_:
            inner = f"{path}.{match_key(part.name)}".removeprefix(".")
            yield inner, part.name
            yield from _paths(inner, part.type)
    elif pa.types.is_list(type_):
        yield from _paths(f"{path}[]", type_.value_type)


@dataclass(slots=True)
class Tally:
    """Counts of decoded records: `unknown` by the name of a field without a column, `reasons` of dead letters,
    `nulled`: bad values whose records were kept."""

    unknown: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    nulled: int = 0

    def add_reasons(self, reasons: Iterable[str]) -> None:
        """Count reasons without the values that they quote."""
        add_bounded(self.reasons, Counter(map(reason_kind, reasons)))

    def to_text(self) -> str:
        """JSON for a manifest row; empty if nothing was counted."""
        if not (self.unknown or self.reasons or self.nulled):
            return ""
        return json.dumps([self.unknown, self.reasons, self.nulled])

    def add_text(self, text: str) -> None:
        """Add what `to_text` returned."""
        if text:
            unknown, reasons, nulled = json.loads(text)
            add_bounded(self.unknown, unknown)
            add_bounded(self.reasons, reasons)
            self.nulled += nulled


def reason_kind(reason: str) -> str:
    """A reason without the value and the numbers in it, so that those of one kind are equal."""
    return _NUMBER.sub("N", _VALUE.sub(lambda match: " is ..." if match[0].startswith(" is") else "N", reason))
