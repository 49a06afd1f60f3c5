"""What the interpreter and a notebook show of a result: one line; what was found, and a picture."""

from base64 import b64encode

import pytest
import vl_convert

from layerscout.comparing import compare
from layerscout.evaluating import evaluate
from layerscout.plans import Plan
from layerscout.reporting import Displayed, html as pages, render_result
from layerscout.scanning import scan
from layerscout.states import clear_cache
from scan_content import scan as scanned
from tuned import cheaply, load, task_of


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("display")
    encoder, task = load(folder / "<b>"), task_of(held=12)
    tuned = cheaply(encoder, task, "top:1")
    tuned.save(folder / "tuned")
    return {
        "scan": scan(encoder, task, progress=False),
        "tune": tuned,
        "evaluate": evaluate(folder / "tuned" / "model", task, progress=False),
        "compare": compare(encoder, task, progress=False),
    }


@pytest.mark.parametrize(
    ("verb", "line", "draws"),
    [
        ("scan", "<Scan: {model} on made up, best of 4 states by head_quality: ", True),
        ("tune", "<Result: (4, 4, 4) of {model} on made up, accuracy ", False),
        ("evaluate", "<Evaluation: {model} on made up, accuracy ", False),
        ("compare", "<Comparison: {model} on 12 rows of made up>", True),
    ],
)
def test_a_result_shows_itself(results, verb, line, draws):
    result = results[verb]
    content = result.as_dict()
    model = (content.get("model") or content["models"][0])["name"]
    shown = result._repr_mimebundle_()
    assert shown["text/plain"] == repr(result)
    assert repr(result).startswith(line.format(model=model)) and "\n" not in repr(result)
    picture, page = shown.get("image/svg+xml"), shown["text/html"]
    assert "<b>" not in page  # a name stays text
    if draws:
        assert picture.startswith("<svg") and b64encode(picture.encode()).decode() in page
    else:
        assert picture is None and "<table" in page


def test_a_plan_draws_its_blocks():
    picture = Plan((2, 3), 3)._repr_svg_()
    assert picture.count("#e0701a") == 2 and 'aria-label="(2, 3, 3)"' in picture
    assert "in colour" in picture and "in colour" not in Plan((), 3)._repr_svg_()
    assert repr(Plan((2, 3), 3)) == "Plan(tuned=(2, 3), head=3, embeddings=False)"


def test_the_script_of_pages_is_bundled_once(tmp_path, monkeypatch):
    bundled = []
    monkeypatch.setattr(vl_convert, "javascript_bundle", lambda lines: bundled.append(lines) or "1")
    for cache in ("one", "one", "two"):
        monkeypatch.setenv("LAYERSCOUT_CACHE", str(tmp_path / cache))
        pages._load_template.cache_clear()  # as a new process
        assert "<script>1</script>" in render_result(scanned())
    pages._load_template.cache_clear()
    assert len(bundled) == 2
    assert [path.suffix for path in (tmp_path / "one" / "page").iterdir()] == [".js"]
    assert clear_cache() > 0 and not [*(tmp_path / "two" / "page").iterdir()]


def test_what_is_displayed_says_what_its_file_holds():
    with pytest.raises(TypeError, match="as_dict"):
        type("Shown", (Displayed,), {})()
