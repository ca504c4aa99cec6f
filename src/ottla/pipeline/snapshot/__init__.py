"""The latest value of each key of topics as a table, and with a history the earlier ones as well."""
