"""The house: imports run downward only, and each library has its place."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "layerscout"

FLOORS = {
    "errors": 0,
    "options": 1,
    "progress": 0,
    "sentences": 0,
    "files": 1,
    "mean_linear": 1,
    "metrics": 1,
    "moments": 1,
    "plans": 1,
    "sampling": 1,
    "tables": 1,
    "tracking": 1,
    "tridiagonal": 1,
    "columns": 2,
    "diagnostics": 2,
    "edits": 2,
    "folds": 2,
    "methods": 2,
    "neighbours": 2,
    "settings": 2,
    "similarity": 2,
    "spectra": 2,
    "squares": 2,
    "transferability": 2,
    "variability": 2,
    "checkpoints": 3,
    "costs": 3,
    "data": 3,
    "probes": 3,
    "scores": 3,
    "answers": 4,
    "encoder": 4,
    "findings": 4,
    "presets": 4,
    "charts": 5,
    "fingerprints": 5,
    "surgery": 5,
    "adapting": 6,
    "exports": 6,
    "figures": 6,
    "gradients": 6,
    "heads": 6,
    "snapshots": 6,
    "states": 6,
    "trunks": 6,
    "deltas": 7,
    "editing": 6,
    "examples": 7,
    "results": 7,
    "scans": 7,
    "scoring": 7,
    "training": 8,
    "choosing": 8,
    "reading": 8,
    "comparison": 9,
    "scanning": 9,
    "evaluation": 10,
    "outcomes": 10,
    "terminal": 15,
    "tuning": 11,
    "stand_ins": 4,
    "recipes": 5,
    "study_charts": 7,
    "summaries": 6,
    "trials": 12,
    "prices": 13,
    "backends": 13,
    "cluster": 2,
    "shards": 4,
    "spreading": 10,
    "studies": 14,
    "reports": 15,
    "study_commands": 16,
    "cli": 17,
}

HOMES = {
    "transformers": {"adapting", "checkpoints", "exports", "heads", "mean_linear", "surgery"},
    "huggingface_hub": {"checkpoints", "tables"},
    "datasets": {"tables"},
    "pyarrow": {"shards", "tables"},
    "altair": {"charts", "study_charts"},
    "vl_convert": {"charts"},
    "jinja2": {"figures"},
    "pydantic": {"recipes"},
    "yaml": {"recipes", "reports"},
    "typer": {"cli", "options", "study_commands"},
    "accelerate": {"examples", "surgery", "tracking", "training"},
    "peft": {"adapting", "surgery"},
    "ray": {"cluster"},
    "scipy": {
        "diagnostics",
        "folds",
        "metrics",
        "probes",
        "spectra",
        "summaries",
        "transferability",
        "tridiagonal",
        "variability",
    },
    "sklearn": {"metrics", "neighbours"},
    "threadpoolctl": {"scoring"},
    "platformdirs": {"files"},
    "safetensors": {"deltas", "snapshots"},
    "torch": {
        "cluster",
        "spreading",
        "adapting",
        "examples",
        "mean_linear",
        "deltas",
        "editing",
        "evaluation",
        "outcomes",
        "prices",
        "moments",
        "probes",
        "scores",
        "checkpoints",
        "encoder",
        "fingerprints",
        "gradients",
        "squares",
        "heads",
        "reading",
        "scanning",
        "scoring",
        "snapshots",
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
