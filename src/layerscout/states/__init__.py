"""States that are computed once: fingerprints, pooled states, trunks, and examples made of them."""

import lazy_loader

# Each name is loaded when first used: what is kept is listed without torch.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
