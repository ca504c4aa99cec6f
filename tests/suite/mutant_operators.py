"""Test of the operators of cosmic-ray on a sample. `make mutants` installs them and runs this file first."""

from __future__ import annotations

from .mutants import mutants_of, mutated
from .test_mutants import SOURCE


def test_mutants_are_of_code_with_effect() -> None:
    found = mutants_of("adder.py", SOURCE)
    assert sorted(position[0] for position in found) == [12, 17, 17, 19]
    texts = {mutated(mutant, SOURCE) for each in found.values() for mutant in each}
    assert SOURCE.replace("= 2", "= 3") in texts
    assert SOURCE.replace("value > self", "value >= self") in texts
    assert SOURCE.replace("value + self", "value - self") in texts
