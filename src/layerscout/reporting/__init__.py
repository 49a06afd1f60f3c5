"""From the plain values that the verbs write to words, tables, charts and HTML."""

import lazy_loader

# Each name is loaded when first used: a saved scan is planned without torch.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
