from .extraction import Extractor as Extractor, ReadingForecast as ReadingForecast
from .model_scores import GRADIENT_EXAMPLES as GRADIENT_EXAMPLES, read_states as read_states
from .planning import Planning as Planning, name_head as name_head
from .result import Scan as Scan
from .run import scan as scan
from .sampling import (
    ScanContext as ScanContext,
    draw_sample as draw_sample,
    find_rivals as find_rivals,
)
from .scoring import (
    Sample as Sample,
    estimate_states as estimate_states,
    score_states as score_states,
    warn_of_rare_classes as warn_of_rare_classes,
)
