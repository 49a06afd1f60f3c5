"""Scores of layers on plain arrays, and the table that names them."""

import lazy_loader

# Each name is loaded when first used: a saved scan is planned without torch.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
