"""What is refused of data, with the line that says why, and what is warned of."""

import codecs
import math
from typing import Any

import pytest

from inputs import Write, as_csv, as_jsonl, expect_refused, many
from layerscout.data import Task

# --- Files -------------------------------------------------------------------------------------

GOOD = "text,label\na,0\nb,1\n"
SST2 = "sentence,label\na,0\nb,1\nc,0\nd,{}\n"
OUTSIDE = "0 negative, 1 positive … '{}' … line 5 … --task"
NO_WORDS = "PATH has no words; it must hold a word and its tag on each line"
SAME_COLUMNS = "PATH must have a word first, its tag last, and the same columns on every line: "
LISTED = "every row must have a list of labels"
FLAGS = as_csv({"text": ["a", "b"], "x": [0, 1], "y": [1, ""]})
FLAG = "columns of one label each must hold 0 or 1"
WORDS = as_jsonl(
    {"tokens": [["Ann", "Lee"], ["Bonn"]], "tags": [["B-PER", "I-PER"], ["B-LOC"]]}
    | {"a": ["x", "y"], "b": [1, 0], "c": [0, 1], "d": [["joy"], []]}
)
SEVERAL = as_csv({"sentence": ["a", "b"], "label": ["x|y", ""], "y": [0, 1]})
SEPARATOR = "--label-separator must be the separator of labels in one column, such as '|', got "
NUMBERS = as_jsonl({"text": [1, 2, 3, 4], "label": [0, 1, 0, 1]})
NAMED = "a,b,text,label\nk,l,m,1\nn,o,p,2\n"
COPA = {"premise": ["a"], "question": ["why"], "choice1": ["b"], "choice2": ["c"], "label": [0]}


def choices(label: Any, second: Any = ("e", "f", "g", "h")) -> str:
    endings = [list("abcd"), list(second) if isinstance(second, tuple) else second]
    return as_jsonl({"ctx": ["s", "t"], "endings": endings, "label": ["3", label]})


def cell(written: str) -> str:
    return as_csv({"text": ["a", "b"], "label": ['["x"]', written]})


def flag(value: Any) -> str:
    return as_jsonl({"text": ["a", "b"], "x": [0, 1], "y": [1, value]})


FILES: list[tuple[str, str | bytes, str, dict[str, Any]]] = [
    # Files that are none of their kind.
    ("x.csv", "", "is empty", {}),
    ("x.tsv", "", "is empty", {}),
    ("x.jsonl", "", "is empty", {}),
    ("x.jsonl", "\n\n", "is empty", {}),
    ("x.csv", "\n\n", "is empty", {}),
    ("x.csv", "text,label\n", "no rows", {}),
    ("x.tsv", "text\tlabel", "no rows", {}),
    ("x.csv", "text,text,label\na,b,1\n", "must differ … 'text' 2 times", {}),
    ("x.tsv", "a\tb\tb\n", "must differ … 'b' 2 times", {}),
    ("x.csv", GOOD + "c\n", "2 columns … 1 field … line 4", {}),
    ("x.csv", GOOD + '"c\nd",0\ne,f,1\n', "2 columns … 3 fields … line 6", {}),
    ("x.tsv", "text\tlabel\na\t0\nb\t1\tc\n", "2 columns … 3 fields … line 3", {}),
    ("x.csv", GOOD + '"c,0\n', "not valid CSV … line 4 … unexpected end of data", {}),
    ("x.csv", GOOD + '"c"d,0\n', "not valid CSV … line 4", {}),
    ("x.csv", GOOD.encode() + b"caf\xe9,1\nna\xc3\xafve,1\n",
     "UTF-8 … 0xe9 … line 4, and UTF-8 in line 5; convert one of them … --encoding", {}),
    ("x.csv", GOOD.encode() + b"na\xc3\xafve,1\ncaf\xe9,1\n", "0xe9 in line 5, and UTF-8 in line 4",
     {}),
    ("x.tsv", b"text\tlabel\n\x81\t1\n", "UTF-8 … 0x81 … line 2; give … --encoding", {}),
    ("x.csv", GOOD.encode() + "текст текста из ряда,1\n".encode("cp1251"),
     "0xf2 in line 4, and is not of a Western language; give its encoding with --encoding", {}),
    ("x.csv", GOOD.encode() + b"caf\xe9,1\n", "is not UTF-8 after line", {"encoding": "utf-8"}),
    ("x.csv", GOOD, "`encoding` must be one that Python knows … 'utf-0'", {"encoding": "utf-0"}),
    ("x.parquet", "", "`encoding` is for text files, got PATH; leave", {"encoding": "utf-8"}),
    ("x.csv", codecs.BOM_UTF16_LE + GOOD.encode("utf-16-le")[:-1], "is not UTF-16 after line", {}),
    ("x.csv", GOOD.encode() + b"c\0d,1\n", "NUL … line 4", {}),
    ("x.tsv", b"text\tlabel\na\0\t1\n", "NUL … line 2", {}),
    ("x.jsonl", b'{"text": "\0"}', "NUL … line 1", {}),
    ("x.csv", GOOD.encode("utf-8") + b"\xed\xa0\x80,1\n", "UTF-8 … line 4", {}),
    ("x.jsonl", '{"text": "a"', "JSON … line 1", {}),
    ("x.jsonl", '{"text": "a", "label": 0}\n[1]\n', "JSON object … line 2 is [1]", {}),
    ("x.jsonl", "[\n{}]", "line 1 is not JSON", {}),
    ("x.jsonl", "[" * 100_000, "line 1 is not JSON", {}),
    ("x.jsonl", "1" * 10_000, "line 1 is not JSON", {}),
    ("x.jsonl", '{"text": "a", "label": 0}\n{"text": "b"}\n', "'label' … line 2 … text", {}),
    ("x.jsonl", '\n{"text": "a", "label": 0}\n\n{"text": "b"}\n', "line 4", {"label": "label"}),
    ("x.json", '[{"text": "a"}, 3]', "item 2 is 3", {}),
    ("x.json", '[{"text": "a"},\n{', "line 2 is not JSON", {}),
    ("x.parquet", "", "cannot read … Parquet", {}),
    ("x.parquet", "PAR1 nothing PAR1", "cannot read … Parquet", {}),
    ("x.xlsx", b"PK", "save the sheet as CSV", {}),
    ("x.parquet.gz", b"PK", "data files must be", {}),
    ("x.csv.gz", GOOD, "Not a gzipped file", {}),
    ("x.txt", "{}", ".jsonl", {}),
    ("x.txt", "a", ".csv", {}),
    ("noend", "a", ".csv", {}),
    ("x.csv", "text^label\ngood, fine^yes\n", "1 column, but 2 fields in line 2 … (--sep)", {}),
    ("x.csv", "text^label\ngood^yes\n", "has text^label; give the separator … --sep", {}),
    *(("x.csv", GOOD, "`sep` must be one character such as ;, or tab, got", {"sep": sep})
      for sep in ("", ";;", "\n", '"')),
    ("x.jsonl", NUMBERS, "`sep` is for fields of CSV and TSV files, got", {"sep": ";"}),
    ("x.conll", "", NO_WORDS, {}),
    ("x.conllu", "# a\n\n", NO_WORDS, {}),
    ("x.conll", "a O\nb\n", SAME_COLUMNS + "line 2 has 1, and others 2; correct the line",
     {}),
    ("x.bio", "\na\n", "which column holds the labels … has tokens; add a column of labels", {}),
    ("x.iob", "a O\n\nb NN O\n", "line 3 has 3, and others 2", {}),
    ("x.conllu", "# a\n1\ta\tO\n", "must have ten tab-separated … line 2 has 3 … to .conll", {}),
    ("x.conll", "a O\nb B-X\n" * 300, "a blank line after each … among its 600 words; add", {}),
    ("x.conll", "a O\nb B-X\n" * 300 + "\n\n", "a blank line after each … 600 words; add", {}),
    ("x.conll", b"a O\n\0 O\n", "NUL … line 2", {}),
    ("x.csv", b"PK\3\4x", "PATH is a spreadsheet or another ZIP archive; save it as CSV", {}),
    ("x.jsonl", b"\x1f\x8bx", "PATH is packed by gzip; add .gz to its name", {}),
    ("x.csv", b"PAR1x", "PATH is Parquet; let its name end in .parquet", {}),
    ("x.conll", "a O\nb O\n", "at least 2 tags: column 'tags' of PATH has only 'O'", {}),
    # Columns.
    ("x.csv", NAMED, "unknown column 'txt' … 'text' … known: a, b", {"text": "txt"}),
    ("x.csv", NAMED, "unknown column 'lable' … 'label'", {"label": "lable"}),
    ("x.csv", NAMED, "unknown column 'd'", {"text": "a", "text_pair": "d"}),
    ("x.csv", NAMED, "--text-pair needs --text", {"text_pair": "a"}),
    ("x.csv", NAMED, "different columns", {"text": "a", "label": "a"}),
    ("x.csv", many("0,1"), "sst2 needs the columns sentence or sentence1 … text, label",
     {"task": "sst2"}),
    ("x.csv", many("0,1"), "unknown task 'sst' … did you mean", {"task": "sst"}),
    ("x.csv", many(), "leave out --text", {"task": "copa", "text": "text"}),
    # Texts.
    ("x.jsonl", NUMBERS, "must be strings … 1 (int) … --text", {}),
    ("x.jsonl", as_jsonl({"text": ["a", 2, "c", "d"], "label": [0, 1, 0, 1]}), "2 (int) … line 2",
     {"text": "text"}),
    ("x.jsonl", as_jsonl({"text": ["a", None, None, "d"], "label": [0, 1, 0, 1]}),
     "2 null … line 2", {}),
    ("x.jsonl", '{"text": "\\ud83d\\ude00", "label": 0}\n{"text": "a\\ud800", "label": 1}\n' * 2,
     "surrogate … line 2", {}),
    ("x.csv", "text,label\n ,0\n ,1\n ,0\n ,1\n", "must not all be empty … 'text'", {}),
    ("x.jsonl", as_jsonl(COPA), "'cause' or 'effect'", {"task": "copa"}),
    ("x.jsonl", choices("4"), "'4' … line 2", {"task": "hellaswag"}),
    ("x.jsonl", choices(""), "1 missing … line 2", {"task": "hellaswag"}),
    ("x.jsonl", choices(-1), "1 missing", {"task": "hellaswag"}),
    ("x.jsonl", choices(0, "x"), "list of at least 1 … 'x' … line 2", {"task": "hellaswag"}),
    # Labels.
    ("x.csv", many("0.5,1"), "--task … --regression … line 2 … 0.5", {}),
    *(("x.csv", f'text,label\n"a\nb",1\nc,{gap}\nd,{gap}\n', "2 missing … line 4", {})
      for gap in ("", "nan", "NaN")),
    ("x.csv", many("x,x"), "at least 2 classes … 'x'", {}),
    ("x.csv", "text,label\na,x\nb,x\nc,y\n", "at least 2 examples … 'y' … line 4 … add "
     "some, or name another column", {}),
    *(("x.csv", SST2.format(value), OUTSIDE.format(value), {"task": "sst2"})
      for value in ("2", "1.5", "good", "1e400")),
    ("x.csv", "sentence,label\na,0\nb,0\n", "no 'positive'", {"task": "sst2"}),
    ("x.jsonl", as_jsonl({"sentence": ["a", "b"], "labels": [[0], [0, 1]]}),
     "line 1 … leave out --task and --regression", {"task": "sst2"}),
    # Several labels.
    ("x.csv", cell("joy"), LISTED + " … 'joy' (str) beside '[\"x\"]' in line 3", {}),
    ("x.csv", cell(""), LISTED + " … 1 missing, the first in line 3 … write [] for a text without",
     {}),
    ("x.csv", cell("[joy]"), LISTED + ' … \'[joy]\' in line 3 … write it as JSON, such as ["joy"',
     {}),
    ("x.csv", cell("[1.5]"), "1.5 (float) in line 3", {}),
    *(("x.jsonl", flag(value), f"{FLAG}: PATH has {value!r} in line 2, column 'y'; correct it, or "
       "name one column that holds all labels", {"label": "x,y"}) for value in (2, None, "yes")),
    ("x.csv", FLAGS, FLAG + " … '' in line 3 … 'y'", {"label": "x,y"}),
    ("x.csv", FLAGS, "unknown column 'z'", {"label": "x,z"}),
    ("x.csv", FLAGS, "must be different columns, got x, x", {"label": ["x", "x"]}),
    ("x.csv", FLAGS, "different columns", {"text": "text", "label": "x,text"}),
    ("x.csv", FLAGS, SEPARATOR + "an empty string; leave it out",
     {"label": "x", "label_separator": ""}),
    ("x.csv", FLAGS, SEPARATOR + "2 columns of labels; leave it out",
     {"label": "x,y", "label_separator": "|"}),
    ("x.jsonl", as_jsonl({"text": ["a", "b"], "label": ["x|y", 3]}), "--label-separator splits "
     "strings: PATH has 3 (int) in line 2, column 'label'; leave out --label-separator, or write "
     "strings", {"label_separator": "|"}),
    ("x.csv", SEVERAL, "cola needs one label in each row … split at '|'",
     {"task": "cola", "label_separator": "|"}),
    ("x.csv", SEVERAL, "--regression needs one label in each row",
     {"regression": True, "label_separator": "|"}),
    ("x.csv", SEVERAL, "are read from several columns", {"regression": True, "label": "label,y"}),
    # Words are of one text and one kind.
    ("x.jsonl", WORDS, "a label must be one string or number … leave out --task",
     {"regression": True}),
    ("x.jsonl", WORDS, "texts must be strings", {"text": "tokens", "text_pair": "a"}),
    ("x.jsonl", WORDS, "a task of words needs a list of words … split at '|'",
     {"label_separator": "|"}),
    ("x.jsonl", WORDS, "a task of words needs … from several columns",
     {"text": "tokens", "label": "b,c"}),
    ("x.jsonl", WORDS, "one string or number … line 1 … --regression",
     {"task": "cola", "text": "a", "label": "tags"}),
    ("x.jsonl", WORDS, "texts must be strings",
     {"task": "go_emotions", "text": "tokens", "label": "d"}),
    ("x.jsonl", as_jsonl({"tokens": ["a", "b"], "tags": [["O"], ["O"]]}),
     "wnut17 needs a list of words", {"task": "wnut17"}),
    ("x.jsonl", WORDS, "labels must be all ids or all names of the task's classes (0 O, 1 B-corp … "
     "'B-PER' in line 1 … --task", {"task": "wnut17"}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content", "words", "options"), FILES)
def test_files(
    write: Write, name: str, content: str | bytes, words: str, options: dict[str, Any]
) -> None:
    path = write(name, content)
    line = expect_refused(words.replace("PATH", str(path)), Task.load, path, **options)
    assert "--regression" not in line or "regression" in f"{words}{options}"


# --- Lists -------------------------------------------------------------------------------------

AT = "in row 1 (counted from 0), column"
FINITE = "finite numbers … row 2"
ONE = "a label must be one string or number … row 1 … name another with --label"
MISSING = "every row needs a label … 2 missing … row 1"
LONG = [f"'s {number} certainly laudable {'words ' * 20}" for number in range(95)]
REGRESSION = {"regression": True}
REMEDY = "write the names of its labels, or name columns of 0 and 1 with --label joy,fear"
ITEMS = "labels in lists must be strings or integers: task has "
NEEDED = "a task needs a label that some rows have and others lack: of the labels in 'label' of "

LABELS: list[tuple[list[Any], str, dict[str, Any]]] = [
    ([0.5, 1.0], "classes must be strings or integers … 0.5 … row 0 … --regression … --task", {}),
    *(([1.0, 2.0, x], FINITE, REGRESSION) for x in ("x", "inf", True, math.inf, 10**400, "1.5")),
    ([1.5, 1.5], "differ", REGRESSION),
    ([[0], [0, 1]], "leave out --task and --regression", REGRESSION),
    *(([1, value], "row 1 … write all of them as lists", {}) for value in ([1, 2], [])),
    *(([1, value], ONE, {}) for value in ({"a": 1}, b"x")),
    *((["x", gap, "x", gap], MISSING, {}) for gap in (None, math.nan, "")),
    (["1", 1], "one type … int, str", {}),
    ([True, 1], "one type … bool, int", {}),
    (list(range(50)), "at least 2 examples … '0' and of 49 other classes … --regression", {}),
    ([*LONG, *"abcdeabcde"], "most examples need a class that others … of 94 other classes in "
     "row 0 … is it the column of labels? name another with --label", {}),
    *((["x", "y", f"x{mark} y", f"y{mark}z", "a, b"], "at least 2 examples … for several "
       f"labels per text use --label-separator {mark!r}", {}) for mark in "|;,"),
    # Where others have several, one is quoted.
    ([*LONG, *"ab" * 40], f"has 1 of {LONG[0]!r:.60} and of 94 other classes in row 0", {}),
    ([["x"], "y"], "every row must have a list of labels: task has 'y' (str) beside ['x'] "
     f"{AT} 'label'; write all of them as lists", {}),
    ([["x"], None, None], "every row must have a list of labels: task has 2 missing, the first "
     f"{AT} 'label'; write [] for a text without labels", {}),
    ([["x"], ["y", ["x"]]], f"{ITEMS}['x'] (list) {AT} 'label'; {REMEDY}", {}),
    ([["x"], [math.nan]], f"{ITEMS}nan (float) {AT} 'label'; {REMEDY}", {}),
    ([["x"], [None]], f"{ITEMS}None (NoneType) {AT} 'label'; {REMEDY}", {}),
    ([[True, False], [False, True]], f"{ITEMS}True (bool) in row 0 … column 'label'; {REMEDY}", {}),
    ([[1, 0, 0], [0, 1, 1]], "lists must name the labels of a text: task has 3 times 0 or 1 in "
     f"row 0 (counted from 0), column 'label'; {REMEDY}", {}),
    ([["x"], ["y", " "]], f"labels in lists must have a name: task has ' ' {AT} 'label'; {REMEDY}",
     {}),
    ([["1"], [1]], "labels must be of one type: column 'label' of task mixes int, str; write them "
     "all as strings", {}),
    ([[], []], NEEDED + "task, no row has any; name another column with --label, or add rows", {}),
    ([["x"], ["x"]], NEEDED + "task, each row has all of them; name another column with --label, "
     "or add rows", {}),
]  # fmt: skip


@pytest.mark.parametrize(("labels", "words", "options"), LABELS)
def test_labels(labels: list[Any], words: str, options: dict[str, Any]) -> None:
    texts = [f"text {number}" for number in range(len(labels))]
    expect_refused(words, Task.from_lists, texts, labels, **options)


TEXTS: list[tuple[Any, Any, str]] = [
    (["a", "b", "c"], [0, 1], "3 texts and 2 labels"),
    ("abcd", [0, 1, 0, 1], "must be a list"),
    ([], [], "no rows"),
    ([1, 2, 3, 4], list("xyxy"), "1 (int) … row 0"),
    (["a", math.nan, "c", "d"], [0, 1, 0, 1], "1 null … row 1"),
    ([[], []], [[], []], "no words in column 'text'; it needs some"),
    ([["", " "]], [["O", "B-X"]], "must not all be empty"),
    ([["a"], ["b", "c"]], [["O"], ["O"]], "every word must have a tag: task has 2 words and 1 tags "
     f"{AT} 'label'; correct the row"),
    ([["a"], ["b", 3]], [["O"], ["O", "X"]], f"words must be strings: task has 3 (int) {AT} 'text';"
     " write it as a string"),
    ([["a"], [None]], [["O"], ["X"]], f"words must be strings: task has None (NoneType) {AT} "
     "'text'; write it as a string"),
    ([["a"], ["b"]], [["O"], None], "every row must have a list of tags: task has 1 missing, the "
     f"first {AT} 'label'; write one for each word, or drop the row"),
    ([["a"], ["b"]], [["O"], [None]], "tags must be strings or integers: task has None (NoneType) "
     f"{AT} 'label'; write its name or number"),
    ([["a"], ["b"]], [["O"], [""]], f"tags must have a name: task has '' {AT} 'label'; write its "
     "name or number"),
    ([["a"], ["b", "c"]], [[0], [1, -100]], f"every word must have a tag: task has -100 {AT} "
     "'label'; write one tag for each word; words are split into tokens later"),
    ([["a"], ["b"]], ["x", "y"], "every row must have a list of tags: task has 'x' (str) in row 0 "
     "(counted from 0), column 'label'; name another column"),
    ([["a"], "b"], [["O"], ["X"]], "every row must have a list of words: task has 'b' (str) beside "
     f"['a'] {AT} 'text'; write all of them as lists"),
    ([["a"], None], [["O"], ["X"]], "every row must have a list of words: task has 1 missing, the "
     f"first {AT} 'text'; fill or drop the row"),
    ([["a"], ["b"]], [["O"], ["O"]], "a task needs at least 2 tags: column 'label' of task has "
     "only 'O'; name another column with --label, or add rows"),
    *((texts, [["O"], ["X"]], "texts and labels must be valid Unicode: task has half of a surrogate"
       f" pair {AT} 'text'; repair it") for texts in ([["a"], ["b\ud800"]], ["a", "b\ud800"])),
    (["a", "b"], ["x", "\ud800"], f"must be valid Unicode … {AT} 'label'"),
]  # fmt: skip


@pytest.mark.parametrize(("texts", "labels", "words"), TEXTS)
def test_texts(texts: Any, labels: Any, words: str) -> None:
    expect_refused(words, Task.from_lists, texts, labels)


FLOAT32 = "numbers to predict must be at most 1e+15 in size, for float32: task has "
SCALE = "correct it, or scale the column"
NUMBER_LABELS: list[tuple[list[Any], str]] = [
    ([0.5, 1e300, 2], f"{FLOAT32}1e+300 {AT} 'label'; {SCALE}"),
    ([1, -(10**16), 2], f"{FLOAT32}-1e+16 {AT} 'label'; {SCALE}"),
    ([1, 2, 10**400], "needs finite numbers … row 2"),
    ([1.7e9, 1.7e9 + 1, 1.7e9 + 9], "differ in float32 … within 9 of 1.7e+09; subtract the mean"),
    ([1e-300, 2e-300, 0], "differ in float32 … within 2e-300 of 1e-300; … scale the column"),
    ([3.5, 3.5, 3.5], "labels that differ: column 'label' of task is 3.5 in every row"),
]


@pytest.mark.parametrize(("labels", "words"), NUMBER_LABELS)
def test_numbers(labels: list[Any], words: str) -> None:
    expect_refused(words, Task.from_lists, list("abc"), labels, regression=True)


def test_numbers_of_any_usual_size() -> None:
    for labels in ([1e15, -1e15], [1e-30, 2e-30], [1700000000, 1700100000], [0, 1], [900, 1000]):
        task = Task.from_lists(["a", "b"], labels, regression=True)
        assert task.train.labels.tolist() == labels
        said = ["in size, and a head starts near 0" in line for line in task.warnings]
        assert said == [True] * (max(labels) > 1000)


# --- Warnings ----------------------------------------------------------------------------------

ALIKE = "differ only in case or spaces"
SAME = "write them alike if they are the same"
ORPHANS = "continue a span that did not begin; they are read as its beginning (I- as B-)"
WARNED: list[tuple[Any, Any, tuple[str, ...], list[str]]] = [
    (list("abc"), [["all", "x", "x"], ["all"], ["x", "all", "all"]], ("all", "x"),
     ["labels that every row of task has, so that nothing can be learnt from them: all"]),
    (list("abc"), [["joy", "fear"], ["Joy "], []], ("Joy ", "fear", "joy"),
     [f"labels of task {ALIKE}: 'Joy ', 'joy'; {SAME}"]),
    (list("abcdefgh"), [" cat ", "cat", "Cat", "NA"] * 2, (" cat ", "Cat", "NA", "cat"),
     [f"classes of task {ALIKE}: ' cat ', 'Cat', 'cat'; {SAME}", "'NA' is read as a class of task; "
      "if it means a missing label, leave the label empty and use --drop-missing"]),
    *((list("abcdefghij"), ["x", "y", f"x{mark} y", f"y{mark}z", "a, b"] * 2,
       tuple(sorted(["x", "y", f"x{mark} y", f"y{mark}z", "a, b"])),
       [f"'x{mark} y' is read as one class of task; for several labels per text use "
        f"--label-separator {mark!r}"]) for mark in "|;,"),
    (list("abcdefgh"), ["Smith, John", "Smith, Ann", "Doe", "a | b"] * 2,
     ("Doe", "Smith, Ann", "Smith, John", "a | b"), []),
    ([["a", "b", "c"]], [["B-Per", "B-PER", "O"]], ("B-PER", "B-Per", "O"),
     [f"tags of task {ALIKE}: 'B-PER', 'B-Per'; {SAME}"]),
    ([["a", "b", "c"], ["d"], ["e", "f", "g"]],
     [["I-PER", "I-PER", "O"], ["I-LOC"], ["B-LOC", "I-PER", "E-PER"]],
     ("B-LOC", "E-PER", "I-LOC", "I-PER", "O"), [f"3 of 7 tags of task {ORPHANS}"]),
    # A span does not go on in the next sentence.
    ([["a"], ["b"], ["c"]], [["B-X"], ["I-X"], ["O"]], ("B-X", "I-X", "O"),
     [f"1 of 3 tags of task {ORPHANS}"]),
    ([["", " "], ["a", "b"]], [["O", "B-X"], ["O", "O"]], ("B-X", "O"),
     ["1 of 2 rows of task have an empty text"]),
]  # fmt: skip


@pytest.mark.parametrize(("texts", "labels", "names", "lines"), WARNED)
def test_warnings(texts: Any, labels: Any, names: tuple[str, ...], lines: list[str]) -> None:
    task = Task.from_lists(texts, labels)
    assert (task.labels, list(task.warnings)) == (names, lines)
