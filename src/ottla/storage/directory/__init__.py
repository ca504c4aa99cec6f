"""Log directories and the management of all logs in them: loading, moves between directories, cleaner scheduling."""
