"""Comparing the states of models, and evaluating a tuned model under edits."""

from layerscout.analysis.ablations import HEAD_EXAMPLES
from layerscout.analysis.comparison import Comparison, compare
from layerscout.analysis.evaluation import Evaluation, evaluate
