"""States that are computed once: fingerprints, pooled states, trunks, and examples made of them."""

from layerscout.cache.examples import (
    Examples,
    batch,
    batches,
    first_process,
    logits,
    loss_of,
    plain_accelerator,
    predict,
    resumed,
    together,
)
from layerscout.cache.fingerprints import content_key, encoder_fingerprint, task_fingerprint
from layerscout.cache.states import Kept, States, kept
from layerscout.cache.trunks import DEFAULT_LIMIT, Trunk
