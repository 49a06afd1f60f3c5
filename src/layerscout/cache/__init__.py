"""States that are computed once: fingerprints, pooled states, trunks, and examples made of them."""

from layerscout.cache.examples import Examples, make_batch, make_batches
from layerscout.cache.fingerprints import fingerprint_encoder, fingerprint_task, hash_content
from layerscout.cache.forward import compute_logits, compute_loss, predict, resume_from_states
from layerscout.cache.pooled_states import PooledStates, pool_states
from layerscout.cache.processes import is_first_process, join_team, make_accelerator
from layerscout.cache.states import States
from layerscout.cache.trunks import DEFAULT_LIMIT, Trunk
