"""Errors, files, progress and the Ray cluster: what every other room needs and no model knows."""

from layerscout.runtime.errors import (
    DiskError,
    InputError,
    LayerscoutError,
    check_integer,
    check_number,
    escape_controls,
    first_line,
    make_unknown_error,
)
from layerscout.runtime.files import (
    check_checkpoint_folder,
    check_no_tuning,
    check_output_folder,
    is_half_written,
    lock_folder,
    make_output_folder,
    read_json,
    remove_folder,
    replace_files,
    replace_folder,
    sha256_of,
    tidy,
    write_files,
)
from layerscout.runtime.progress import Show, log_warnings, show_progress
from layerscout.runtime.ray import Cluster, run_on_cluster
from layerscout.runtime.yaml import read_yaml, write_yaml
