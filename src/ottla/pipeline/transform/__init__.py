"""What the values of records mean: decoders to columns, the schema they have, the names and types that a table
takes."""
