"""Copy of a range of a topic or of a table into a topic or a table of its own: nothing is rewound in place.

A consumer that reads a topic again from an older offset mixes old and new records. A replay has a new target instead,
and an id. Run again under that id it resumes: by `ottla.pipeline.operations.push` into a topic, as a load
of its own into a table.

**Invariant:** a target has the rows of one replay only: it is refused if it has rows that the replay's progress does
not cover.
"""
