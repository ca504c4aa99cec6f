"""Record batches in format v2: view, builder, validation, walk over the records, compression.

`batch` reads batches, `builder` writes them, `validate` has the checks of the produce path. Formats v0 and v1 are in
`legacy`.
"""
