"""What holds for all tests."""

from __future__ import annotations

import signal

from hypothesis import settings

# An example that takes long says something about the machine, not about the code.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")

# Who ignores signals, as a shell does with SIGINT for a job in the background and nohup with SIGHUP, would hand this on
# to each process of a test.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
