"""The closing table of .ci/run: every part, every test folder, every skip with its reason, every failure with its."""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from collections import Counter, defaultdict
from pathlib import Path


def outcome(case: ET.Element) -> str:
    """passed, failed or skipped."""
    tags = {child.tag for child in case}
    if tags & {"failure", "error"}:
        return "failed"
    return "skipped" if "skipped" in tags else "passed"


MOST_CHARACTERS = 1_000
"""Of what a failure says here; the whole is above, where its part ran."""


def failure(case: ET.Element) -> str:
    """The test and the beginning of what it said, for a reader who has the end of the output alone."""
    found = next(child for child in case if child.tag in {"failure", "error"})
    return f"{case.get('classname')}::{case.get('name')}: {found.get('message', '')[:MOST_CHARACTERS]}"


def main(results: Path) -> int:
    """Print the table; 1 if anything failed."""
    total: Counter[str] = Counter()
    rows: list[tuple[str, str]] = []
    reasons: dict[str, Counter[str]] = defaultdict(Counter)
    failures: list[str] = []
    for line in (results / "parts").read_text().splitlines():
        name, code, seconds = line.split("\t")
        if code == "skipped":  # as a whole, with the reason in place of the seconds
            rows.append((name, f"SKIPPED: {seconds}"))
            reasons[name][seconds] += 1
            total["skipped"] += 1
            continue
        rows.append((name, f"{'ok' if code == '0' else f'FAILED ({code})'} in {seconds} s"))
        report = results / f"{name}.xml"
        if not report.exists():
            total["passed" if code == "0" else "failed"] += 1
            continue
        folders: dict[str, Counter[str]] = defaultdict(Counter)
        for case in ET.parse(report).iter("testcase"):
            parts = (case.get("classname") or "").split(".")
            folder = "/".join(parts[:2]) if len(parts) > 1 else parts[0]
            result = outcome(case)
            folders[folder][result] += 1
            total[result] += 1
            if result == "failed":
                failures.append(failure(case))
            if result == "skipped":
                reasons[folder][case.find("skipped").get("message", "")] += 1  # type: ignore[union-attr]
        for folder, counts in sorted(folders.items()):
            rows.append(
                (
                    f"  {folder}",
                    ", ".join(f"{counts[key]} {key}" for key in ("passed", "failed", "skipped") if counts[key]),
                )
            )
        if code != "0" and not any(counts["failed"] for counts in folders.values()):
            total["failed"] += 1
    width = max(len(name) for name, _ in rows)
    for name, text in rows:
        print(f"{name:<{width}}  {text}")
    for folder, counts in sorted(reasons.items()):
        for reason, count in counts.items():
            print(f"SKIPPED {count} in {folder}: {reason}")
    selection = results / "selection"
    if selection.exists():  # what ran beside the short forms, and what did not
        print(selection.read_text(), end="")
    for text in failures:
        print(f"FAILED {text}")
    print(f"{total['passed']} passed, {total['failed']} failed, {total['skipped']} skipped")
    return 1 if total["failed"] else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
