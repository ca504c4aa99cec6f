"""Opening a log from its files after a clean stop, a crash or damage."""
