"""Errors, files, progress and the Ray cluster: what every other room needs and no model knows."""

from layerscout.runtime.checks import real, whole
from layerscout.runtime.errors import InputError, LayerscoutError, first_line, printable, unknown
from layerscout.runtime.files import (
    CacheError,
    alone,
    cache_entries,
    cache_folder,
    cache_path,
    caching,
    check_checkpoint_folder,
    check_output_folder,
    clear_cache,
    find_cached,
    half_written,
    output_folder,
    read_json,
    remove_folder,
    replacing,
    replacing_folder,
    sha256_of,
    tidy,
    unfinished,
    write_files,
)
from layerscout.runtime.progress import Show, progress
from layerscout.runtime.ray import check_resources, given_gpus, joined, spread
