"""Run the command line as `python -m layerscout`."""

from layerscout.cli import main

main()
