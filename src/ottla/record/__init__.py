"""Record batches in format v2: view, builder, validation, walk over the records, compression.

Start at `batch` to read, `builder` to write, `validate` for what the produce path checks. Formats v0 and v1 are
`legacy`.
"""
