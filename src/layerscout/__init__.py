"""Find out which layers of a pretrained text encoder are worth tuning, before you tune.

import layerscout as ls

scan = ls.scan(ls.Encoder.load("roberta-large"), ls.Task.load("reviews.csv"))
scan.best()     # the state where the classes lie furthest apart
scan.table()    # every state, as a data frame
ls.plot(scan)   # the curve
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from layerscout import scores as scores
    from layerscout.adapting import unload as unload
    from layerscout.charts import plot as plot
    from layerscout.comparison import Comparison as Comparison
    from layerscout.comparison import compare as compare
    from layerscout.data import Task as Task
    from layerscout.deltas import load as load
    from layerscout.editing import edit as edit
    from layerscout.encoder import Encoder as Encoder
    from layerscout.errors import InputError as InputError
    from layerscout.errors import LayerscoutError as LayerscoutError
    from layerscout.evaluation import Evaluation as Evaluation
    from layerscout.evaluation import evaluate as evaluate
    from layerscout.exports import truncate as truncate
    from layerscout.methods import Adapter as Adapter
    from layerscout.methods import Full as Full
    from layerscout.methods import LoRA as LoRA
    from layerscout.methods import PrefixTuning as PrefixTuning
    from layerscout.plans import Plan as Plan
    from layerscout.reports import report as report
    from layerscout.results import Result as Result
    from layerscout.scanning import scan as scan
    from layerscout.scans import Scan as Scan
    from layerscout.studies import Study as Study
    from layerscout.studies import study as study
    from layerscout.surgery import build as build
    from layerscout.surgery import freeze as freeze
    from layerscout.surgery import lora_config as lora_config
    from layerscout.tuning import tune as tune

# Loaded when first used, since most of it needs torch.
_PUBLIC = {
    "Adapter": "layerscout.methods",
    "Comparison": "layerscout.comparison",
    "Encoder": "layerscout.encoder",
    "Evaluation": "layerscout.evaluation",
    "Full": "layerscout.methods",
    "InputError": "layerscout.errors",
    "LayerscoutError": "layerscout.errors",
    "LoRA": "layerscout.methods",
    "Plan": "layerscout.plans",
    "PrefixTuning": "layerscout.methods",
    "Result": "layerscout.results",
    "Scan": "layerscout.scans",
    "Study": "layerscout.studies",
    "Task": "layerscout.data",
    "build": "layerscout.surgery",
    "compare": "layerscout.comparison",
    "edit": "layerscout.editing",
    "evaluate": "layerscout.evaluation",
    "freeze": "layerscout.surgery",
    "load": "layerscout.deltas",
    "lora_config": "layerscout.surgery",
    "plot": "layerscout.charts",
    "report": "layerscout.reports",
    "scan": "layerscout.scanning",
    "study": "layerscout.studies",
    "truncate": "layerscout.exports",
    "tune": "layerscout.tuning",
    "unload": "layerscout.adapting",
}

__all__ = ["scores", *_PUBLIC]


def __getattr__(name: str) -> Any:
    if name == "scores":
        return import_module("layerscout.scores")
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'layerscout' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
