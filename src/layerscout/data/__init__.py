"""Labelled tasks: reading tables, choosing columns, targets, splits, samples and metrics."""

import lazy_loader

# Each name is loaded when first used: a task of whole texts needs neither words nor shards.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
