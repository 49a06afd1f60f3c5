"""Scanning: every layer of an encoder scored on a task, from one forward pass."""

from layerscout.scanning.cluster import scan_shards
from layerscout.scanning.planning import Planning
from layerscout.scanning.result import Scan
from layerscout.scanning.run import (
    GRADIENT_EXAMPLES,
    described_model,
    described_task,
    in_memory,
    scan,
)
from layerscout.scanning.sampling import Reader, cut_inputs
