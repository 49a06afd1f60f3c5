"""The house: imports run downward only, and each library has its place."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "layerscout"

FLOORS = {
    "errors": 0,
    "files": 1,
    "sentences": 0,
    "plans": 1,
    "progress": 0,
    "moments": 1,
    "sampling": 1,
    "tables": 1,
    "columns": 2,
    "scores": 2,
    "costs": 2,
    "metrics": 2,
    "checkpoints": 3,
    "data": 3,
    "encoder": 4,
    "surgery": 5,
    "trunks": 5,
    "figures": 6,
    "exports": 6,
    "results": 7,
    "scanning": 7,
    "training": 7,
    "choosing": 8,
    "tuning": 9,
    "terminal": 10,
    "cli": 11,
}

HOMES = {
    "transformers": {"checkpoints", "exports", "surgery"},
    "huggingface_hub": {"checkpoints", "tables"},
    "datasets": {"tables"},
    "pyarrow": {"tables"},
    "altair": {"figures"},
    "vl_convert": {"figures"},
    "jinja2": {"figures"},
    "typer": {"cli"},
    "accelerate": {"surgery", "training"},
    "peft": {"surgery"},
    "sklearn": {"metrics"},
    "platformdirs": {"files"},
    "torch": {
        "moments",
        "scores",
        "checkpoints",
        "encoder",
        "scanning",
        "surgery",
        "trunks",
        "training",
        "tuning",
    },
}


def imports(module):
    """Give (imported module, whether only for types) of every import, wherever it stands."""
    tree = ast.parse((SOURCE / f"{module}.py").read_text())
    for_types = {
        child
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for child in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node in for_types) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: relative import"
            if node.module == "layerscout":
                yield from ((f"layerscout.{a.name}", node in for_types) for a in node.names)
            else:
                yield node.module, node in for_types


def test_every_module_has_a_floor():
    assert {path.stem for path in SOURCE.glob("*.py")} - {"__init__"} == set(FLOORS)


@pytest.mark.parametrize("module", FLOORS)
def test_imports_run_downward_only(module):
    below = [name.split(".")[1] for name, _ in imports(module) if name.startswith("layerscout.")]
    upward = [name for name in below if FLOORS[name] >= FLOORS[module]]
    assert upward == []


@pytest.mark.parametrize("module", FLOORS)
def test_libraries_stay_in_their_place(module):
    found = {name.split(".")[0] for name, for_types in imports(module) if not for_types}
    astray = [library for library in found if module not in HOMES.get(library, {module})]
    assert astray == []
