"""States that are computed once: fingerprints, pooled states, trunks, and examples made of them."""

from layerscout.cache.examples import (
    Examples,
    compute_logits,
    is_first_process,
    join_team,
    make_accelerator,
    make_batch,
    make_batches,
    predict,
    resume_from_states,
)
from layerscout.cache.fingerprints import fingerprint_encoder, fingerprint_task, hash_content
from layerscout.cache.pooled import PooledStates, States, pool_states
from layerscout.cache.trunks import DEFAULT_LIMIT, Team, Trunk, run_trunk
