"""Errors, files, progress and the Ray cluster: what every other room needs and no model knows."""

from layerscout.runtime.checks import check_integer, check_number
from layerscout.runtime.errors import (
    InputError,
    LayerscoutError,
    escape_controls,
    first_line,
    unknown,
)
from layerscout.runtime.files import (
    CacheError,
    cache_folder,
    cache_path,
    check_checkpoint_folder,
    check_output_folder,
    clear_cache,
    count_unfinished,
    find_cached,
    is_half_written,
    list_cache,
    lock_folder,
    make_output_folder,
    read_json,
    remove_folder,
    replace_files,
    replace_folder,
    sha256_of,
    tidy,
    write_entry,
    write_files,
)
from layerscout.runtime.progress import Show, show_progress
from layerscout.runtime.ray import check_resources, choose_gpus, join_cluster, run_on_cluster
