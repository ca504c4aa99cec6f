"""Log directories and what manages all logs in them: loading, moves between directories, the log cleaner's schedule."""
