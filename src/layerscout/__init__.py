"""Find out which layers of a pretrained text model are worth tuning, before you tune.

import layerscout as ls

scan = ls.scan(ls.Encoder.load("roberta-large"), ls.Task.load("reviews.csv"))
scan.best()     # the best state, by the scan's first score
scan.table()    # every state, as a data frame
ls.plot(scan)   # the curve
"""

import logging
from typing import Any

import lazy_loader

# Silent unless the program that uses it sets up logging, as is usual for a library.
logging.getLogger(__name__).addHandler(logging.NullHandler())

# The public names stand in `__init__.pyi`; each is loaded when first used, since most need torch.
_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    if name == "__version__":  # read when it is asked for: it costs as much as --help
        from importlib.metadata import version

        return version("layerscout")
    return _load(name)
