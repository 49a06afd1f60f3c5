"""The command line: one file for each verb."""

from layerscout.cli.app import app, main
