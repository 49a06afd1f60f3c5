from . import scores as scores
from .comparing import Comparison as Comparison, compare as compare
from .data import Task as Task
from .errors import InputError as InputError, LayerscoutError as LayerscoutError
from .estimator import TextClassifier as TextClassifier
from .evaluating import Evaluation as Evaluation, evaluate as evaluate
from .models import (
    Encoder as Encoder,
    add_formats as add_formats,
    build as build,
    edit as edit,
    freeze as freeze,
    lora_config as lora_config,
    truncate as truncate,
    unload as unload,
)
from .plans import (
    Adapter as Adapter,
    Full as Full,
    LoRA as LoRA,
    Plan as Plan,
    PrefixTuning as PrefixTuning,
)
from .predicting import (
    Predictions as Predictions,
    Predictor as Predictor,
    load as load,
    predict as predict,
)
from .reporting import plot as plot
from .scanning import Scan as Scan, scan as scan
from .studies import Study as Study, report as report, study as study
from .tuning import Result as Result, tune as tune

__version__: str
