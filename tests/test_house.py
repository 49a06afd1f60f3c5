"""The house: rooms import from rooms above them, and only what these offer."""

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from importlib import import_module
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "layerscout"

# From the top down: a room imports only from those before it.
ROOMS = (
    "errors",
    "files",
    "yaml",
    "progress",
    "cluster",
    "data",
    "plans",
    "scores",
    "models",
    "states",
    "reporting",
    "scanning",
    "predicting",
    "tuning",
    "estimator",
    "evaluating",
    "comparing",
    "studies",
    "cli",
)

# Rooms, or modules of rooms, that may import a library when the code runs.
HOMES = {
    "accelerate": {"states.examples", "models.shapes", "tuning"},
    "altair": {"reporting", "studies.charts"},
    "datasets": {"data"},
    "huggingface_hub": {"data", "models", "reporting.card"},
    "jinja2": {"reporting"},
    "onnxruntime": {"models"},
    "peft": {"models"},
    "platformdirs": {"states.store"},
    "pyarrow": {"data"},
    "pydantic": {"studies"},
    "ray": {"cluster"},
    "ruamel": {"yaml"},
    "safetensors": {"models", "tuning"},
    "sklearn": {"scores", "estimator"},
    "torch": {
        "states",
        "models",
        "cluster",
        "cli.threads",
        "evaluating",
        "comparing",
        "scanning",
        "scores",
        "studies",
        "tuning",
    },
    "transformers": {"models"},
    "typer": {"cli"},
    "vl_convert": {"reporting"},
}

Import = tuple[str, tuple[str, ...], bool]


def modules(room: str) -> list[str]:
    """Name every module of a room as `room.module`; its surface is `room.__init__`.

    A room that is a single module is that module.
    """
    inside = sorted(f"{room}.{path.stem}" for path in SOURCE.glob(f"{room}/*.py"))
    return inside or [room]


@cache
def imports(module: str) -> list[Import]:
    """Return (module, names, only for types) of every import, wherever in the module it stands."""
    return list(find_imports(module))


def find_imports(module: str) -> Iterator[Import]:
    tree = ast.parse((SOURCE / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8"))
    for_types = {
        child
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for child in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, (), node in for_types) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module, f"{module}: relative import"
            yield node.module, tuple(alias.name for alias in node.names), node in for_types


def test_every_folder_is_a_room_and_every_module_is_in_one():
    folders = {path.parent.name for path in SOURCE.glob("*/*.py")}
    single = {path.stem for path in SOURCE.glob("*.py")} - {"__init__", "__main__"}
    assert folders | single == set(ROOMS) and not folders & single


@pytest.mark.parametrize("room", ROOMS)
def test_a_module_imports_rooms_above_by_their_surface_and_its_own_room_by_module(room):
    found = [(module, *one) for module in modules(room) for one in imports(module)]
    for module, source, names, _ in found:
        if source.partition(".")[0] != "layerscout":
            continue
        _, *place = source.split(".")
        for above in place[:1] or names:
            assert above in ROOMS, f"{module} imports {source} {names}: not a room"
            assert ROOMS.index(above) <= ROOMS.index(room), f"{module} imports upward: {source}"
            inside = len(place) > 1 or above == room
            assert not inside or above == room, f"{module} reaches into {source}"


def test_modules_import_each_other_without_cycles():
    known = {module for room in ROOMS for module in modules(room)}
    graph: dict[str, set[str]] = {}
    for module in known:
        below = graph.setdefault(module, set())
        for source, names, _ in imports(module):
            room, _, inner = source.removeprefix("layerscout.").partition(".")
            if source.startswith("layerscout."):
                siblings = {f"{room}.{name}" for name in names} & known
                surface = room if room in known else f"{room}.__init__"
                below |= {f"{room}.{inner}"} if inner else siblings or {surface}
    assert known <= set(TopologicalSorter(graph).static_order())  # raises CycleError


@pytest.mark.parametrize("room", ROOMS)
def test_libraries_stay_in_their_rooms(room):
    for module in modules(room):
        found = {source.partition(".")[0] for source, _, types in imports(module) if not types}
        astray = [name for name in found if not {room, module} & HOMES.get(name, {room})]
        assert astray == [], module


@pytest.mark.parametrize("room", [path.parent.name for path in SOURCE.glob("*/__init__.pyi")])
def test_every_name_that_a_room_loads_late_is_there(room):
    surface = import_module(f"layerscout.{room}")
    assert all(hasattr(surface, name) for name in surface.__all__)
