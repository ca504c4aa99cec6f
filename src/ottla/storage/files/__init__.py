"""Files of a log directory other than segments: checkpoints, epochs, names, `meta.properties`."""
