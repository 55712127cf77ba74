"""The report: one file, nothing of it taken for markup, the same every time, its numbers those of the analyses."""

import base64
import io
import re
from html.parser import HTMLParser

import pytest
from PIL import Image
from run_folders import LAYERS, layers_of, write_run

from scalepod.reports.document import report
from scalepod.reports.html import Markup, element, page, table
from scalepod.reports.runs import open_runs
from scalepod.reports.tables import value_with_error

EVIL = '01_<script>alert("x")</script>&'


class Reader(HTMLParser):
    """Tags, attributes and text of a page; complains of elements that are not closed."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.words, self.open = [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())


@pytest.fixture(scope="module")
def folders(tmp_path_factory, early, late):
    """Two runs of one layer; the second begins where the first ends."""
    before, after = ({LAYERS[0]: layers[LAYERS[0]]} for layers in (early, late))
    folder = tmp_path_factory.mktemp("report")
    known = {"model": "my.Model", "data": "text.txt", "options": {"n_snapshots": 24, "bands": {"fine": 4.0}}}
    first = write_run(folder / "first", {0: before, 10: after}, **known)
    return [first, write_run(folder / "second", {10: before}, documents=None)]


@pytest.fixture(scope="module")
def written(folders):
    return report(open_runs(folders))


@pytest.fixture(scope="module")
def read(written):
    return Reader(written)


def test_nothing_is_loaded_from_elsewhere(read):
    assert read.open == []
    assert not {"script", "link", "iframe", "object", "embed"} & set(read.tags)
    for name, value in read.attributes:
        assert name in ("lang", "charset", "name", "content", "class", "src", "alt"), name
        assert name != "src" or value.startswith("data:image/png;base64,")
    (style,) = [word for word in read.words if "overflow-x" in word]
    assert "url(" not in style
    assert "@import" not in style
    assert "http" not in style


def test_it_fits_a_phone(read):
    assert ("content", "width=device-width, initial-scale=1") in read.attributes
    assert read.tags.count("table") == sum(1 for name, value in read.attributes if value in ("values", "facts"))
    assert read.attributes.count(("class", "scroll")) == read.tags.count("table") + read.tags.count("img")
    assert any(".scroll { overflow-x: auto; }" in word for word in read.words)


def test_pictures_are_whole_and_described(read):
    sources = [value for name, value in read.attributes if name == "src"]
    assert len(sources) == sum(1 for name, value in read.attributes if name == "alt" and value)
    for source in sources:
        Image.open(io.BytesIO(base64.b64decode(source.partition(",")[2]))).verify()
    assert len(sources) == 3 + 2 * 2 + 2, "scalograms, lag modes, training; two a run; one a layer"


def test_what_was_run(read):
    for words in ("my.Model", "text.txt", "24 of 24 tokens", "fine 4", "not on record"):
        assert words in read.text


def test_what_was_found(read, late):
    assert "first, step 10" in read.text
    assert "From step 0 to step 10:" in read.text
    layer = late[LAYERS[0]]
    error = layer.confidence.stderrs()["mean_lag"]
    assert f"The mean lag is {value_with_error(layer.mean_lag, error)} tokens." in read.text
    assert "energy of the fluctuation: rose in 01 " in read.text
    assert "Compared with first" in read.text
    assert "energy of the fluctuation: smaller in 01 " in read.text
    assert "What not to conclude" in read.text
    assert "Holm" in read.text


def test_of_one_run_the_values_are_a_table(folders, early):
    written = report(open_runs(folders[:1]), step=0)
    read = Reader(written)
    assert "first, step 0" in read.text
    assert "From step" not in read.text
    assert "Compared with" not in read.text
    layer = early[LAYERS[0]]
    assert value_with_error(layer.energy, layer.confidence.stderrs()["energy"]) in read.text
    assert report(open_runs(folders[:1]), step=0) == written, "the same files give the same page"


def test_names_and_labels_are_escaped(tmp_path):
    layers = layers_of(names=(EVIL,), n_snapshots=5, n_tokens=8)
    folder = write_run(tmp_path, {0: layers}, model="<b>bold</b>", options={"<i>": "<u>"})
    read = Reader(report(open_runs([folder], ["<img src=x>&"])))
    assert "script" not in read.tags
    assert not {"i", "u"} & set(read.tags)
    assert "<b>bold</b>" in read.text
    assert "<img src=x>&" in read.text
    assert "01 <script" in read.text
    assert 'alert("x")' in "".join(value or "" for name, value in read.attributes if name == "alt")


def test_too_few_documents_are_said(tmp_path, unsure):
    one = {LAYERS[0]: unsure[LAYERS[0]]}
    folder = write_run(tmp_path, {0: one, 1: one})
    text = Reader(report(open_runs([folder]))).text
    assert "Nothing could be tested: that takes standard errors" in text
    assert "No standard errors and no test of 01" in text


def test_elements():
    assert element("p", "a < b", element("b", "&"), class_='"') == '<p class="&quot;">a &lt; b<b>&amp;</b></p>'
    assert isinstance(element("p"), Markup)
    assert "<th>&lt;1</th><td>2</td>" in table(("x", "y"), [("<1", "2")])
    assert page("t & t", "<x>").count("&lt;x&gt;") == 1
    assert re.match(r"<!DOCTYPE html>\n<html lang=\"en\"><head>", page("t"))
