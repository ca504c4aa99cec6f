"""Shared code generation of the reader and writer compilers: lines, constants, runs of fixed-size fields."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ottla.protocol.schema import ArrayType, Field, Primitive, schema_of


class Source:
    """Python source under construction, with the namespace in which it will run."""

    __slots__ = ("_counter", "_indent", "_lines", "namespace")

    def __init__(self, namespace: dict[str, Any]) -> None:
        self.namespace = namespace
        self._lines: list[str] = []
        self._indent = 0
        self._counter = 0

    def line(self, text: str) -> None:
        self._lines.append("    " * self._indent + text)

    def indent(self) -> None:
        self._indent += 1

    def dedent(self) -> None:
        self._indent -= 1

    def fresh(self, prefix: str) -> str:
        """Return a variable name that is unused in this function."""
        self._counter += 1
        return f"{prefix}{self._counter}"

    def constant(self, prefix: str, value: Any) -> str:
        """Add a value to the namespace and return its new name."""
        name = self.fresh(prefix)
        self.namespace[name] = value
        return name

    def compile(self, name: str, title: str) -> Callable[..., Any]:
        """Run the source and return the function `name` that it defines; `title` appears in tracebacks."""
        exec(compile("\n".join(self._lines) + "\n", f"<{title}>", "exec"), self.namespace)
        function: Callable[..., Any] = self.namespace[name]
        return function


def is_fixed(field: Field) -> bool:
    """Return whether the field always has the same number of bytes."""
    return isinstance(field.type, Primitive) and field.type.size > 0


def untagged(fields: tuple[Field, ...], version: int) -> list[Field]:
    """Return the fields in the body at `version`, in order."""
    return [field for field in fields if version in field.versions and version not in field.tagged]


def tagged(fields: tuple[Field, ...], version: int) -> list[Field]:
    """Return the fields in the tag section at `version`, sorted by tag, as KIP-482 requires."""
    present = [field for field in fields if version in field.versions and version in field.tagged]
    return sorted(present, key=lambda field: field.tag or 0)


def runs(fields: list[Field]) -> Iterator[list[Field]]:
    """Split into maximal runs of fixed-size fields (one `struct` call each) and single other fields."""
    run: list[Field] = []
    for field in fields:
        if is_fixed(field):
            run.append(field)
            continue
        if run:
            yield run
            run = []
        yield [field]
    if run:
        yield run


def minimum_size(item: Primitive | type, version: int, *, flexible: bool) -> int:
    """Return the minimum size of one array element, which limits a count before memory is allocated."""
    if isinstance(item, Primitive):
        if item.size:
            return item.size
        if flexible:
            return 1
        return 2 if item.name == "string" else 4
    size = 1 if flexible else 0
    for field in untagged(schema_of(item).fields, version):
        if isinstance(field.type, ArrayType):
            size += 1 if flexible else 4
        elif isinstance(field.type, Primitive):
            size += minimum_size(field.type, version, flexible=flexible)
        else:
            nullable = version in field.nullable
            size += 1 if nullable else minimum_size(field.type, version, flexible=flexible)
    return max(size, 1)
