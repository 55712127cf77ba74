import numpy as np
import pytest
from matplotlib.figure import Figure

from scalepod.figures.axes import _compress, _expand, _power_of_ten, count_axis, lag_axis, plain, scale_axis
from scalepod.figures.style import band_colors
from scalepod.figures.words import percent


@pytest.fixture
def ax():
    return Figure().add_subplot()


def ticks(axis):
    return [axis.get_major_formatter()(value) for value in axis.get_major_locator()()]


@pytest.mark.parametrize(
    ("n_tokens", "signed", "every", "expected"),
    [
        (1, False, 1, "0"),
        (2, False, 1, "0 1"),
        (17, False, 1, "0 1 2 4 8 16"),
        (16, False, 1, "0 1 2 4 8"),
        (128, False, 2, "0 1 4 16 64"),
        (2048, False, 5, "0 1 32 1024"),
        (128, True, 1, "−32 −8 −2 0 2 8 32"),
        (128, True, 2, "−64 −4 0 4 64"),
        (2, True, 2, "0"),
    ],
)
def test_lag_ticks(ax, n_tokens, signed, every, expected):
    lag_axis(ax, n_tokens, signed=signed, every=every)
    assert " ".join(ticks(ax.xaxis)) == expected


def test_lag_scale_inverts_itself_and_is_odd():
    lag = np.array([-1000.0, -3.0, -0.5, 0.0, 0.5, 1.0, 3.0, 7.0, 1000.0])
    assert np.allclose(_expand(_compress(lag)), lag)
    assert np.allclose(_compress(-lag), -_compress(lag))
    assert np.allclose(_compress([0, 1, 3, 7, 15]), [0, 1, 2, 3, 4])


def test_scale_ticks_lie_inside(ax):
    scale_axis(ax, np.array([1.9, 10.0, 70.0]))
    assert ticks(ax.yaxis) == ["2", "4", "8", "16", "32", "64"]


@pytest.mark.parametrize(("counts", "expected"), [([1, 4], "1 2 5"), ([3, 18], "1 2 5 10 20"), ([2, 150], "1 10 100")])
def test_count_ticks(ax, counts, expected):
    ax.plot(counts, counts)
    count_axis(ax)
    assert " ".join(ticks(ax.xaxis)) == expected
    assert ax.get_xlim()[0] < min(counts)
    assert ax.get_xlim()[1] > max(counts)


@pytest.mark.parametrize(("value", "text"), [(1e-3, "10⁻³"), (0.1, "10⁻¹"), (1.0, "1"), (100.0, "100"), (1e12, "10¹²")])
def test_powers_of_ten(value, text):
    assert _power_of_ten(value) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [(1.0, "100 %"), (0.0996, "10 %"), (0.0994, "9.9 %"), (0.001, "0.1 %"), (0.0009, "< 0.1 %"), (0.0, "0 %")],
)
def test_percent(share, text):
    assert percent(share) == text


def test_plain_numbers():
    assert [plain(value) for value in (-16, 0.0, 0.25, 1.5)] == ["−16", "0", "0.25", "1.5"]


def test_bands_get_darker_with_the_lag():
    def luminance(color):
        return sum(int(color[i : i + 2], 16) for i in (1, 3, 5))

    for count in range(6):
        colors = band_colors([f"band {k}" for k in range(count)])
        shades = [luminance(color) for color in colors.values()]
        assert len(colors) == count
        assert shades == sorted(set(shades), reverse=True)
