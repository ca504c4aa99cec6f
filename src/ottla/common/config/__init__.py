"""Settings: their tables, types, bounds and parsing. What a setting does is in the package that reads it."""
