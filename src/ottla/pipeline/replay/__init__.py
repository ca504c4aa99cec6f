"""A range of a topic or of a table once more, into a topic or a table of its own: nothing is ever rewound in place.

Whoever consumes a topic again from an older offset mixes what was with what will be; a replay has a target that is new,
and an id. Run again under that id it goes on where it was: by `ottla.pipeline.operations.push` into a topic, as a load
of its own into a table.

**Invariant:** a target holds the rows of one replay only: it is refused when it has others, and the replay's progress
does not say that they are its own.
"""
