from .advice import name_head as name_head
from .block_scores import GRADIENT_EXAMPLES as GRADIENT_EXAMPLES
from .cluster import scan_shards as scan_shards
from .description import describe_model as describe_model, describe_task as describe_task
from .extraction import (
    Extractor as Extractor,
    warn_of_cut_inputs as warn_of_cut_inputs,
    warn_of_dropped_words as warn_of_dropped_words,
)
from .planning import Planning as Planning
from .probing import read_states as read_states
from .result import Scan as Scan
from .run import scan as scan
