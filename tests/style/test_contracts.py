"""Every import contract is effective: each forbidden import is planted in a copy of the tree, and lint-imports reports
it.

In the copy every package, also a reserved one, gets a module that imports all other packages, all modules that are
forbidden for a pure package, and all libraries that the broker must not load. So a contract is compared with everything
that it should find, not with an example.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .tree import ROOT, SOURCE, report

CONTRACTS: dict[str, dict[str, Any]] = {
    contract["name"]: contract
    for contract in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
}
LAYERS = "Layers: imports point down only, every package has a place"
COORDINATORS = "Coordinators know their runtime, not each other"
ROOMS = "Rooms of handlers know nothing of each other"
SIMULATION = "The installed package does not know the simulation"
NESTED = {
    # A contract over the rooms of a package: that package.
    COORDINATORS: "coordinator",
    ROOMS: "server.handlers",
    "Rooms of storage import down only": "storage",
    "Rooms of the server import down only": "server",
    "Rooms of common import down only": "common",
    "Rooms of the client import down only": "client",
    "Rooms of the pipeline import down only": "pipeline",
}
WITH_LOOSE_MODULES = {"Rooms of common import down only"}
"""Layers whose package also contains modules outside of the layers."""

WIRE = "Tools reach a cluster only over the wire"
PURE = "State machines are pure: no loop, socket, clock, randomness or operating system"
LIBRARIES = "The broker imports no client library, no web framework, no Spark and no Arrow"
ZOOKEEPER = "Code for ZooKeeper and Kafka 0.9 is imported by its registrations only"

PLANTED_READER = "cli.planted_reader"
"""A module that imports all code for ZooKeeper."""

Forbidden = set[tuple[str, str]]
"""Forbidden imports by module, without the leading `ottla.`."""


def layers(contract: str) -> list[list[str]]:
    """The layers of a contract from the highest down; a place that is reserved is in parentheses."""
    return [layer.split(" | ") for layer in CONTRACTS[contract]["layers"]]


def names(contract: str) -> list[str]:
    """All names in the layers of a contract."""
    return [name.strip("()") for layer in layers(contract) for name in layer]


def tools() -> list[str]:
    """The tools between process and broker."""
    found = names(LAYERS)
    return found[found.index("app") + 1 : found.index("server")]


def pointing_up(contract: str, prefix: str = "") -> Forbidden:
    """Every import from a layer to one above it, or beside it."""
    found: Forbidden = set()
    above: list[str] = []
    for layer in layers(contract):
        beside = [prefix + name.strip("()") for name in layer]
        above += beside
        found |= {(importer, imported) for importer in beside for imported in above if imported != importer}
    return found


def broker_in_tools() -> Forbidden:
    """A tool knows its client, the bytes of the protocol and of records, and what all share."""
    known = {"client", "security", "protocol", "record", "common"}
    found = {(tool, package) for tool in CONTRACTS[WIRE]["source_modules"] for package in names(LAYERS)}
    found = {(tool.removeprefix("ottla."), package) for tool, package in found if package not in known}
    allowed = {("console", "cli"), ("console", "search"), ("pipeline", "cli"), ("spark", "pipeline")}
    allowed |= {(tool, "schemas") for tool in ("pipeline", "console", "cli", "search")}
    return {(tool, package) for tool, package in found if tool != package} - allowed


def rim_in_pure_packages() -> Forbidden:
    """The process and the tools are free; of the broker, four packages touch one thing or another."""
    free = {"app", "pipeline", "console", "cli", "testing", "api", "client"}
    rim = {("server", "asyncio"), ("server", "socket"), ("storage", "threading")}
    rim |= {
        ("net", "asyncio"),
        ("net", "os"),
        ("net", "socket"),
        ("net", "ssl"),
        ("security", "os"),
        ("security", "ssl"),
    }
    pure = [name for name in names(LAYERS) if name not in free]
    return {(name, module) for name in pure for module in CONTRACTS[PURE]["forbidden_modules"]} - rim


def libraries_of_tools() -> Forbidden:
    """Only the pipeline and both clients have them."""
    found = {(name, library) for name in names(LAYERS) for library in CONTRACTS[LIBRARIES]["forbidden_modules"]}
    return {each for each in found if each[0] != "pipeline"} - {
        ("api", "confluent_kafka"),
        ("client", "confluent_kafka"),
        *(("console", library) for library in ("htpy", "starlette", "uvicorn")),
    }


def zookeeper_elsewhere() -> Forbidden:
    """Each package and each room beside those for ZooKeeper imports them, and one module all that is protected."""
    protected = [name.removeprefix("ottla.") for name in CONTRACTS[ZOOKEEPER]["protected_modules"]]
    found = {(PLANTED_READER, module) for module in protected}
    for contract, prefix in ((LAYERS, ""), *((contract, f"{package}.") for contract, package in NESTED.items())):
        places = [prefix + name for name in names(contract)]
        found |= {(place, other) for place in places for other in places if other in protected}
    return {(importer, imported) for importer, imported in found if importer not in protected}


FORBIDDEN = {
    LAYERS: pointing_up(LAYERS),
    **{contract: pointing_up(contract, f"{package}.") for contract, package in NESTED.items()},
    SIMULATION: {("ottla", "simulation")},
    WIRE: broker_in_tools(),
    PURE: rim_in_pure_packages(),
    LIBRARIES: libraries_of_tools(),
    ZOOKEEPER: zookeeper_elsewhere(),
}


def run_contracts(tree: Path) -> subprocess.CompletedProcess[str]:
    """The contracts of pyproject.toml over the copy at `tree`."""
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()", "--no-cache"]
    environment = {"PYTHONPATH": f"{tree / 'src'}:{tree}", "PATH": "/usr/bin:/bin", "COLUMNS": "1000"}
    return subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, timeout=280, check=False)


def copy_tree(folder: Path) -> Path:
    """A copy of the source and the contracts."""
    ignored = shutil.ignore_patterns("*.so", "*.pyx", "*.c", "__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", folder / "src", ignore=ignored)
    shutil.copytree(ROOT / "simulation", folder / "simulation", ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def is_taken(place: Path) -> bool:
    """Whether a package or a module with that name exists."""
    return place.exists() or place.with_suffix(".py").exists()


def plant(tree: Path, package: str, statements: list[str]) -> None:
    """Plant a module in `package` (as `coordinator.group`), which is created if it is only reserved."""
    folder = tree / "src" / "ottla" / package.replace(".", "/")
    folder.with_suffix(".py").unlink(missing_ok=True)  # a place may be taken by a module
    if not folder.exists():
        folder.mkdir()
        (folder / "__init__.py").write_text('"""A package that is to come."""\n')
    (folder / "planted.py").write_text("\n".join(['"""Planted."""', *statements, ""]))


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Findings of lint-imports for each contract, on a tree in which every package imports everything."""
    tree = copy_tree(tmp_path_factory.mktemp("planted"))
    foreign = CONTRACTS[PURE]["forbidden_modules"] + CONTRACTS[LIBRARIES]["forbidden_modules"]
    nested = ((contract, f"{package}.", []) for contract, package in NESTED.items())
    for contract, prefix, rest in ((LAYERS, "", foreign), *nested):
        packages = [prefix + name for name in names(contract)]
        for package in packages:
            imported = [f"ottla.{other}.planted" for other in packages if other != package] + rest
            plant(tree, package, [f"import {name}" for name in imported])
    for package in ("", *NESTED.values()):
        folder = tree / "src" / "ottla" / package.replace(".", "/")
        (folder / "homeless.py").write_text('"""Has no place."""\n')
    writer = '"""Planted."""\nimport ottla.storage.log.log\nimport simulation.loop\n'
    (tree / "src/ottla/cli/planted_writer.py").write_text(writer)
    reader = "".join(f"import {name}\n" for name in CONTRACTS[ZOOKEEPER]["protected_modules"])
    (tree / "src/ottla" / f"{PLANTED_READER.replace('.', '/')}.py").write_text(f'"""Planted."""\n{reader}')
    printed = run_contracts(tree).stdout
    sections = re.split(r"\n(.+)\n-{10,}\n", printed[printed.index("Broken contracts") :])
    return dict(zip(sections[1::2], sections[2::2], strict=True))


def imports_in(section: str) -> Iterator[tuple[str, str]]:
    """The forbidden imports of a section."""
    for line in re.findall(r"^(\S+) is not allowed to import (\S+):$", section, re.MULTILINE):
        importer, imported = (name.removeprefix("ottla.") for name in line)
        yield importer, imported
    for line in re.findall(r"^- (\S+) -> (\S+) \(l\.", section, re.MULTILINE):  # of a protected module
        importer, imported = (name.removeprefix("ottla.").removesuffix(".planted") for name in line)
        yield importer, imported


def test_contracts_hold(tmp_path: Path) -> None:
    result = run_contracts(copy_tree(tmp_path))
    assert result.returncode == 0, result.stdout


def test_every_contract_is_tried() -> None:
    assert FORBIDDEN.keys() == CONTRACTS.keys()
    assert all(FORBIDDEN.values())


def difference(contract: str, found: Forbidden) -> Iterator[str]:
    """How the findings of a contract differ from the imports that it forbids."""
    forbidden = FORBIDDEN[contract]
    yield from (f"{contract}: {importer} -> {imported} not found" for importer, imported in sorted(forbidden - found))
    yield from (f"{contract}: {importer} -> {imported} is allowed" for importer, imported in sorted(found - forbidden))


def test_planted_violations_are_found(planted: dict[str, str]) -> None:
    report(each for name in FORBIDDEN for each in difference(name, set(imports_in(planted[name]))))


def test_packages_without_a_place_are_found(planted: dict[str, str]) -> None:
    homeless = {LAYERS: "ottla.homeless"}
    homeless |= {name: f"ottla.{package}.homeless" for name, package in NESTED.items()}
    report(
        f"{contract}: {name} not found"
        for contract, name in homeless.items()
        if contract not in WITH_LOOSE_MODULES and f"- {name}\n" not in planted[contract]
    )


def test_of_storage_a_tool_may_only_read_files(planted: dict[str, str]) -> None:
    assert "ottla.cli.planted_writer -> ottla.storage.log.log" in planted[WIRE]
    assert "ottla.storage.repair.reader" not in planted[WIRE]


def test_reserved_packages_do_not_exist() -> None:
    """So that an existing package can't silently be missing from its layer."""
    folders = {LAYERS: SOURCE, **{name: SOURCE / package.replace(".", "/") for name, package in NESTED.items()}}
    for contract, folder in folders.items():
        reserved = {name.strip("()") for layer in layers(contract) for name in layer if name.startswith("(")}
        absent = {name for name in names(contract) if not is_taken(folder / name)}
        report(f"{contract}: {name} is reserved and exists, or is absent" for name in sorted(reserved ^ absent))


def test_every_tool_is_held_to_the_wire() -> None:
    here = {f"ottla.{tool}" for tool in tools() if is_taken(SOURCE / tool)}
    assert set(CONTRACTS[WIRE]["source_modules"]) == here
