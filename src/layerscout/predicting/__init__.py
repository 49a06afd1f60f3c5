"""Predicting with a tuned model: texts in Python, or the rows of files of any size."""

from layerscout.predicting.predictor import Predictor, check_strings, find_shares, load
from layerscout.predicting.run import Predictions, predict
