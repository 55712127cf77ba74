import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import matplotlib
import numpy as np
import pytest
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from PIL import Image

from scalepod.figures import figure_to_array, modes_figure, save_array, save_figure, scalogram_figure


@pytest.fixture
def pixels():
    return np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype=np.uint8)


def test_pixels_of_a_figure(analysis):
    figure = scalogram_figure(analysis, "layer")
    pixels = figure_to_array(figure)
    assert pixels.dtype == np.uint8
    assert pixels.shape == (832, 1040, 3)
    exact = np.asarray(figure.canvas.buffer_rgba())[..., :3].astype(int)
    assert np.abs(pixels - exact).max() <= 4
    assert len(np.unique(pixels)) <= 32
    assert (pixels[0, 0] == 255).all()


def test_a_figure_is_drawn_once_unless_it_changes(analysis, monkeypatch):
    figure = scalogram_figure(analysis, "layer")
    draws = []
    draw = figure.canvas.draw
    monkeypatch.setattr(figure.canvas, "draw", lambda: (draws.append(1), draw()))
    first = figure_to_array(figure)
    assert np.array_equal(figure_to_array(figure), first)
    assert len(draws) == 1
    figure.texts[0].set_text("another title")
    assert not np.array_equal(figure_to_array(figure), first)


def test_other_canvas_is_refused():
    figure = Figure()
    FigureCanvasSVG(figure)
    with pytest.raises(TypeError, match="FigureCanvasSVG"):
        figure_to_array(figure)


def test_saved_file_holds_the_pixels(analysis, tmp_path):
    figure = scalogram_figure(analysis, "layer")
    path = save_figure(figure, tmp_path / "new" / "folder" / "layer.png")
    assert path == tmp_path / "new" / "folder" / "layer.png"
    assert np.array_equal(np.asarray(Image.open(path)), figure_to_array(figure))
    assert path.stat().st_size < 200_000


def test_saving_replaces_an_older_file(pixels, tmp_path):
    path = tmp_path / "a.png"
    save_array(255 - pixels, path)
    save_array(pixels, path)
    assert np.array_equal(np.asarray(Image.open(path)), pixels)
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.png"]


def test_a_failing_write_leaves_the_older_file_and_no_half_one(pixels, tmp_path, monkeypatch):
    path = save_array(pixels, tmp_path / "a.png")

    def fail(self, file, **options):
        file.write(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(Image.Image, "save", fail)
    with pytest.raises(OSError, match="disk full"):
        save_array(255 - pixels, path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.png"]
    assert np.array_equal(np.asarray(Image.open(path)), pixels)


def test_pyplot_is_not_used(tmp_path):
    script = f"""
import sys, torch, torchmetrics  # torchmetrics imports pyplot itself
sys.modules["matplotlib.pyplot"] = None  # from here on an import of it fails
from scalepod import ScalePOD
from scalepod.figures import confidence_figure, modes_figure, overview_figure, save_figure, scalogram_figure
monitor = ScalePOD()
monitor.update(torch.rand(4, 16, 16).tril())
analysis = monitor.compute()
layers = {{"x": analysis}}
for figure in (modes_figure(analysis, "x"), scalogram_figure(analysis, "x")):
    save_figure(figure, {str(tmp_path / "x.png")!r})
for draw in (overview_figure, confidence_figure):
    save_figure(draw(layers, "x"), {str(tmp_path / "x.png")!r})
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "x.png").exists()


def test_pyplot_does_not_know_the_figures(analysis):
    import matplotlib.pyplot as plt

    backend = matplotlib.get_backend()
    figures = [scalogram_figure(analysis, "layer") for _ in range(3)]
    figure_to_array(figures[0])
    assert plt.get_fignums() == []
    assert matplotlib.get_backend() == backend


def test_style_of_the_user_is_neither_taken_nor_changed(analysis):
    expected = figure_to_array(modes_figure(analysis, "layer"))
    with matplotlib.rc_context({"axes.facecolor": "black", "text.color": "white", "figure.facecolor": "black",
                                "font.size": 20.0, "axes.grid": True, "lines.linewidth": 9.0}):  # fmt: skip
        before = dict(matplotlib.rcParams)
        figure = modes_figure(analysis, "layer")
        assert np.array_equal(figure_to_array(figure), expected)
        assert dict(matplotlib.rcParams) == before


def test_threads_draw_the_same_pictures(analysis):
    before = dict(matplotlib.rcParams)
    expected = figure_to_array(scalogram_figure(analysis, "layer"))
    with ThreadPoolExecutor(3) as pool:
        drawn = list(pool.map(lambda _: figure_to_array(scalogram_figure(analysis, "layer")), range(3)))
    assert all(np.array_equal(pixels, expected) for pixels in drawn)
    assert dict(matplotlib.rcParams) == before
