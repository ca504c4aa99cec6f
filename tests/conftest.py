"""What holds for all tests."""

from __future__ import annotations

from hypothesis import settings

# An example that takes long says something about the machine, not about the code.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")
