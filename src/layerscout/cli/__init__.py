"""The command line: one file for each verb."""

from layerscout.cli.entry import app, main
