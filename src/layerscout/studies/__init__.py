"""Studies: recipes, the trials that they ask for, and their tables, charts and reports."""

from layerscout.studies.backends import Backend, Ray
from layerscout.studies.estimates import Estimate, estimate
from layerscout.studies.loading import list_recipes, load_recipe, read_recipe_text, read_value
from layerscout.studies.recipe import Recipe
from layerscout.studies.reports import Reported, report, write_report
from layerscout.studies.run import Study, study
from layerscout.studies.trial import Trial
