"""Plain data as YAML."""

import json

from hypothesis import example, given, strategies as st

from layerscout.runtime import read_yaml, write_yaml

VALUES = st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False)
TRICKY = st.sampled_from(["1e-4", "5E3", "yes", "~", "2020-01-01", "- a", "a: b", "\t", "0x1f"])


@example({"\x85": "a\u2028b\u2029"})
@given(st.dictionaries(st.text(min_size=1) | TRICKY, VALUES | TRICKY | st.lists(TRICKY)))
def test_what_is_written_is_read(content):
    assert json.dumps(read_yaml(write_yaml(content))) == json.dumps(content)
