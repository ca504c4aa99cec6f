"""Process entry, configuration file, logging, and the real clock, disk and network."""
