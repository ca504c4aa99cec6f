"""Commands around loads: the demo, health checks, status, progress, vacuum, push of tables into topics."""
