"""Small studies for tests: a recipe, a run of it, and the records that it leaves."""

import json
from pathlib import Path

from layerscout.studies import make_recipe, study

QUICK = {"epochs": 2, "batch_size": 16, "examples": 32, "sample_seed": 0}


def recipe(tiny, data, *, axes=None, grids=None, settings=None, tuned=None, **more):
    """Make a recipe that tunes a model; settings that are None are left out."""
    settings = {**QUICK, "learning_rate": 1e-3, **(settings or {})}
    grid = {
        "axes": {
            "model": {"tiny": str(tiny)},
            "task": [{"data": str(data), "name": "reviews"}],
            **(axes or {"plan": ["top:1", "full"], "seed": [0, 1]}),
        },
        "settings": {name: value for name, value in settings.items() if value is not None},
        **(tuned or {}),
    }
    return make_recipe({"title": "a study", "grids": {"tuned": grid, **(grids or {})}, **more})


def records(folder):
    """Return all records without what no two runs have in common."""
    contents = {}
    for path in sorted((Path(folder) / "trials").glob("[!.]*.json")):
        record = json.loads(path.read_text())
        for name in ("seconds", "ended"):
            del record[name]
        if record["result"]:
            record["result"].pop("seconds", None)
        contents[path.stem] = record
    return contents


def run(wanted, folder, **options):
    """Run a study and return it, and the keys of the trials that ran."""
    ran = []

    def note(trial, record, before):
        if not before:
            ran.append(trial.key)

    return study(wanted, folder, progress=False, on_trial=note, **options), ran


def tuned(value, share=0.5, **more):
    """Return what a record holds of a tuning that reached a value at a share of the FLOPs."""
    return {
        "keep": "best",
        "metric": "accuracy",
        "majority": 0.5,
        "best": {"epoch": 2, "value": value},
        "curve": [{"epoch": 1, "value": value / 2, "loss": 0.7}],
        "flops": {"train": share, "full_train": 1.0, "inference": 1.0, "full_inference": 4.0},
        "seconds": {"train": 1.0, "evaluate": 0.5, "example": share / 100},
        "parameters": {"total": 10, "trainable": 3},
        **{"warnings": [], "device": "cpu", "precision": "float32", "threads": 1},
    } | more


def record(verb, result, **more):
    """Return the record of a trial that is done."""
    shared = {"verb": verb, "status": "done", "seconds": 2.0, "models": ["tiny"], "task": "cola"}
    return {**shared, "arguments": {}, "result": result, **more}
