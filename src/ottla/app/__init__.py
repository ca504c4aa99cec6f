"""Process entry, config file, logging; the real clock, disk and network."""
