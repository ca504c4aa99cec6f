"""The documents of the repository: sections, titles and first sentences. For `build_site.py` and `generate_llms.py`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
SECTIONS = {
    "Guides": ["docs/guides/*.md"],
    "Operations": ["docs/operations/README.md", "docs/operations/*.md", "deploy/helm/ottla/*.md"],
    "Runbooks": ["docs/operations/runbooks/*.md"],
    "Reference": ["docs/guarantees.md", "docs/evidence.md", "docs/configuration.md", "docs/reference/*.md"],
    "Internals": ["docs/internals/architecture.md", "docs/internals/*.md"],
    "Benchmarks": ["docs/benchmarks.md", "bench/*.md", "bench/results/*.md"],
    "Examples": ["examples/*/*.md"],
    "Project": ["CHANGELOG.md", "CONTRIBUTING.md", "compat/README.md"],
}
"""Sections with the pages that they contain, first match first."""
SENTENCE = re.compile(r"(?<=[.!?])\s")
NOT_PROSE = re.compile(r"[#|!>-]|\d+\. ")
LINK = re.compile(r"\]\((?![a-z]+:|#)([^)#\s]+)")
FENCE = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(rf"{FENCE.pattern}|`[^`\n]+`", FENCE.flags)
INLINE_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")


def first_pages() -> Iterator[Path]:
    """README, CHANGELOG, CONTRIBUTING and the pages below docs/."""
    yield from (README, ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md")
    yield from sorted((ROOT / "docs").rglob("*.md"))


def _targets(page: Path) -> Iterator[Path]:
    """Existing files of the repository that a page links. Zensical reports the others."""
    for target in LINK.findall(CODE.sub("", page.read_text(encoding="utf-8"))):
        path = (page.parent / target).resolve()
        if path.is_file() and path.is_relative_to(ROOT):
            yield path


def linked_files(pages: Iterable[Path]) -> set[Path]:
    """The pages and all files that links lead to."""
    found: set[Path] = set()
    open_pages = list(pages)
    while open_pages:
        page = open_pages.pop()
        if page not in found:
            found.add(page)
            open_pages += _targets(page) if page.suffix == ".md" else ()
    return found


def linked_pages(pages: Iterable[Path]) -> set[Path]:
    """The pages and all Markdown files that links lead to."""
    return {path for path in linked_files(pages) if path.suffix == ".md"}


def title(page: Path) -> str:
    """The first heading of a page."""
    first = page.read_text(encoding="utf-8").partition("\n")[0]
    if not first.startswith("# "):
        raise ValueError(f"{page} does not start with a title")
    return first.removeprefix("# ").strip()


def sections(pages: Iterable[Path]) -> dict[str, list[Path]]:
    """The pages by section, in the order of `SECTIONS`. Raises ValueError if a page has no section."""
    rest = set(pages)
    found: dict[str, list[Path]] = {}
    for name, patterns in SECTIONS.items():
        matches = dict.fromkeys(page for pattern in patterns for page in sorted(ROOT.glob(pattern)) if page in rest)
        found[name] = list(matches)
        rest -= matches.keys()
    if rest:
        raise ValueError(f"docs/documents.py has no section for {sorted(str(page) for page in rest)}")
    return found


def first_paragraph(page: Path) -> str:
    """The first paragraph that is not a heading, list, table, picture or code, as one line without links."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    blocks = (block.strip() for block in text.split("\n\n"))
    paragraph = next((block for block in blocks if block and not NOT_PROSE.match(block)), None)
    if paragraph is None:
        raise ValueError(f"{page} has no paragraph")
    return INLINE_LINK.sub(r"\1", " ".join(paragraph.split()))


def first_sentence(page: Path) -> str:
    """The first sentence of the first paragraph."""
    return SENTENCE.split(first_paragraph(page), maxsplit=1)[0].rstrip(":")
