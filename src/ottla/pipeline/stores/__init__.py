"""Where the files of a table lie: a directory of this machine, or a prefix of an object store."""
