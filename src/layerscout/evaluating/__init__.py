"""Evaluating a tuned model cut at each state, with blocks skipped, or under other edits."""

from layerscout.evaluating.ablations import HEAD_EXAMPLES
from layerscout.evaluating.evaluation import Evaluation, evaluate
