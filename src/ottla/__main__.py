"""The command `ottla`, which is also `python -m ottla`: where it begins, before anything else is imported.

Python turns Ctrl-C into an exception from its own first instruction on, which an import that is under way shows as a
traceback. So a signal has its plain meaning, a silent end, until a command has something to clean up and asks for the
exception (`ottla.cli.command.interruptible`, `ottla.app.start`). `_signal` is built into the interpreter; `signal`
would import 20 ms of modules first.
"""

import _signal  # type: ignore[import-not-found]


def main() -> None:
    """Entry point of the process."""
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:  # one that a shell has it ignore stays ignored
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    from ottla.app.main import main as run

    run()


if __name__ == "__main__":
    main()
