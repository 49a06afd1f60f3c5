"""Comparing the states of one or several models."""

from layerscout.comparing.comparison import Comparison, compare
