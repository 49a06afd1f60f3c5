"""Tuning what a plan names, from a cached trunk."""

from layerscout.tuning.choice import needs_scan
from layerscout.tuning.result import Result, plain_json
from layerscout.tuning.run import tune
from layerscout.tuning.running import AlreadyDoneError, Running
