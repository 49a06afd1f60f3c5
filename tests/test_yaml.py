"""Plain data as YAML."""

import json

import pytest
from hypothesis import example, given, strategies as st

from inputs import expect_refused
from layerscout.yaml import read_yaml, write_yaml

VALUES = st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False)
TRICKY = st.sampled_from(["1e-4", "5E3", "yes", "~", "2020-01-01", "- a", "a: b", "\t", "0x1f"])


@example({"\x85": "a\u2028b\u2029"})
@given(st.dictionaries(st.text(min_size=1) | TRICKY, VALUES | TRICKY | st.lists(TRICKY)))
def test_what_is_written_is_read(content):
    assert json.dumps(read_yaml(write_yaml(content))) == json.dumps(content)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: 1\nb:\n  c: 1\n  c: 2", "not valid YAML, line 4: found duplicate key"),
        ("a: 1\nb: &b\n  - *b", "an alias is inside the value that it repeats; write that out"),
        ("a: *b", "line 1: found undefined alias"),
        (
            f"a: &a [1{', 1' * 999}]\nb: [*a{', *a' * 99}]",
            "it has more than 100,000 values, with those that aliases repeat (101,105); write",
        ),
    ],
)
def test_what_no_option_needs_is_refused_where_it_is(text, words):
    expect_refused(words, read_yaml, text)


def test_aliases_and_merges_are_read():
    text = "a: &a {x: [1, 2]}\nb: *a\nc: {<<: *a, y: 3}"
    assert read_yaml(text) == {
        "a": {"x": [1, 2]},
        "b": {"x": [1, 2]},
        "c": {"x": [1, 2], "y": 3},
    }
