"""Studies: recipes, the trials that they ask for, and their tables, charts and reports."""

from layerscout.studies.arguments import expand_sweep
from layerscout.studies.cells import Cell
from layerscout.studies.context import TrialContext
from layerscout.studies.estimates import Estimate, estimate
from layerscout.studies.loading import (
    apply_change,
    list_recipes,
    load_recipe,
    make_recipe,
    read_recipe_text,
    read_value,
)
from layerscout.studies.recipe import Recipe
from layerscout.studies.reports import Reported, report, write_report
from layerscout.studies.run import Study, study
from layerscout.studies.runners import Backend, Local, Ray
from layerscout.studies.summaries import choose_rates, tidy_records
from layerscout.studies.tables import (
    Mean,
    average,
    compare_with_baseline,
    correlate_values,
    format_rounded,
    format_value,
    select_rows,
    summarise,
)
from layerscout.studies.trial import Store, Trial
