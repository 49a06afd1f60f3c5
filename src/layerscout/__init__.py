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
    from layerscout.data import Task as Task
    from layerscout.encoder import Encoder as Encoder
    from layerscout.errors import InputError as InputError
    from layerscout.errors import LayerscoutError as LayerscoutError
    from layerscout.scanning import Scan as Scan
    from layerscout.scanning import plot as plot
    from layerscout.scanning import scan as scan

# Loaded when first used, since most of it needs torch.
_PUBLIC = {
    "Encoder": "layerscout.encoder",
    "InputError": "layerscout.errors",
    "LayerscoutError": "layerscout.errors",
    "Scan": "layerscout.scanning",
    "Task": "layerscout.data",
    "plot": "layerscout.scanning",
    "scan": "layerscout.scanning",
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
