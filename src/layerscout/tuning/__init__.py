"""Tuning what a plan names, from a cached trunk."""

from layerscout.tuning.plan_spec import needs_scan
from layerscout.tuning.result import Result, plain_json
from layerscout.tuning.run import tune
from layerscout.tuning.run_options import AlreadyDoneError, RunOptions
