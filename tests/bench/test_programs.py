"""The load generators in C: when they are recompiled."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from harness import programs


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_program_is_recompiled_when_its_sources_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared, source = tmp_path / "shared.h", tmp_path / "answer.c"
    monkeypatch.setattr(programs, "ROOT", tmp_path)
    monkeypatch.setattr(programs, "SHARED", shared)

    def answer() -> int:
        return subprocess.run([programs.compiled(source)], check=False).returncode

    shared.write_text("enum { FIRST = 1 };\n")
    source.write_text('#include "shared.h"\nint main(void) { return FIRST; }\n')
    assert answer() == 1
    shared.write_text("enum { FIRST = 2 };\n")
    assert answer() == 2
    source.write_text('#include "shared.h"\nint main(void) { return FIRST + 1; }\n')
    assert answer() == 3
    assert programs.compiled(source) == programs.compiled(source)
