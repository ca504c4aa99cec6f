"""Writes `docs/llms.txt`, a list of the documents for language models (https://llmstxt.org).

An entry has the title and the first sentence of a document. `make docs` runs it. With `--check`, as in `make check`, it
writes nothing and fails if the file is outdated.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from documents import README, first_pages, first_paragraph, first_sentence, linked_pages, sections, title

FILE = Path(__file__).with_name("llms.txt")


def llms_file() -> str:
    """Content of the file: title, summary, and the links of each section."""
    parts = [f"# {title(README)}\n\n> {first_paragraph(README)}\n"]
    pages = linked_pages(first_pages()) - {README}
    for name, entries in sections(pages).items():
        links = [f"- [{title(page)}]({os.path.relpath(page, FILE.parent)}): {first_sentence(page)}" for page in entries]
        parts.append("\n".join([f"\n## {name}\n", *links, ""]))
    return "".join(parts)


def main(arguments: list[str]) -> int:
    """Writes the file, or with `--check` compares it. Returns the exit code."""
    text = llms_file()
    if arguments != ["--check"]:
        FILE.write_text(text, encoding="utf-8")
        return 0
    if FILE.read_text(encoding="utf-8") == text:
        return 0
    print("docs/llms.txt is outdated: run `make docs`", file=sys.stderr)
    return 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
