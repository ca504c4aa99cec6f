"""Settings: tables, types, bounds and parsing. The package that reads a setting defines its effect."""
