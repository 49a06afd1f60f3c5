"""The examples in the docstrings of public names do what they say."""

import doctest
import inspect

import pytest

import layerscout as ls
from layerscout.scores import SCORES

OF_ARRAYS = {f"scores.{key}": getattr(ls.scores, key) for key in SCORES if hasattr(ls.scores, key)}
PUBLIC = {name: getattr(ls, name) for name in ls.__all__ if not inspect.ismodule(getattr(ls, name))}


@pytest.mark.parametrize("name", [*PUBLIC, *OF_ARRAYS])
def test_examples_give_what_they_show(name):
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    examples = doctest.DocTestFinder().find(
        (PUBLIC | OF_ARRAYS)[name], name, module=False, globs={}
    )
    for example in examples:
        runner.run(example)
    assert runner.summarize(verbose=False).failed == 0
    assert name in PUBLIC or runner.tries, "a score of arrays has an example"
