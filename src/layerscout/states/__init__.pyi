from .examples import (
    Examples as Examples,
    compute_logits as compute_logits,
    follow_first as follow_first,
    is_first_process as is_first_process,
    join_process_group as join_process_group,
    make_accelerator as make_accelerator,
    make_batch as make_batch,
    make_batches as make_batches,
    predict as predict,
    read_inputs as read_inputs,
    resume_from_states as resume_from_states,
)
from .fingerprints import (
    fingerprint_encoder as fingerprint_encoder,
    fingerprint_task as fingerprint_task,
    hash_content as hash_content,
)
from .pooled import (
    PooledStates as PooledStates,
    States as States,
    find_states as find_states,
    pool_states as pool_states,
)
from .store import (
    DEFAULT_LIMIT as DEFAULT_LIMIT,
    CacheError as CacheError,
    cache_folder as cache_folder,
    cache_path as cache_path,
    check_limit as check_limit,
    clear_cache as clear_cache,
    count_unfinished as count_unfinished,
    find_cached as find_cached,
    list_cache as list_cache,
    write_entry as write_entry,
)
from .trunks import (
    ProcessGroup as ProcessGroup,
    Trunk as Trunk,
    run_trunk as run_trunk,
)
