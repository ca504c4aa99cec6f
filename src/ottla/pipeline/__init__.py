"""Topics into lake tables, exactly once, by PySpark."""
