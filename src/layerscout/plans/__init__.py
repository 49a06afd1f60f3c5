"""What is tuned and how, as values: plans, edits, methods, training settings, costs."""

import lazy_loader

# Each name is loaded when first used: a verb needs its own request alone.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
