"""Pretrained models: families, encoders, surgery, adapters, heads, gradients, exports."""

import lazy_loader

# Each name is loaded when first used: families are read without torch.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
