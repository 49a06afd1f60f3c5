"""Studies: recipes, the trials that they ask for, and their tables, charts and reports."""

from layerscout.studies.backends import Backend, Ray
from layerscout.studies.recipe import Recipe, load_recipe, read_value, recipe_text, shipped
from layerscout.studies.reports import report
from layerscout.studies.run import Estimate, Study, estimate, study
from layerscout.studies.trial import Trial
