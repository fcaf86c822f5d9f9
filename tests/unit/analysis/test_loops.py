"""Loops that work element by element: which are told apart from others, and what is advised in their place."""

from __future__ import annotations

from textwrap import dedent

import pytest

from tests.conftest import REPOSITORY
from whyidle.analysis.loop_advice import advise_steps, describe_loop
from whyidle.analysis.loops import ElementLoop, find_element_loop

MASK = "for x in data:\n    if not 0 <= x < 9:\n        continue\n    out[x] = 1"
GRID = "for i in range(h):\n    for j in range(w):\n        out[i, j] = i * j"
NEAREST = """
for y in data:
    near = min(out, key=lambda p: abs(p - y))
    self.z[y] = y
"""


def _find(body: str, hot: str) -> ElementLoop | None:
    source = "def work(data, out, self, rng):\n" + "".join(
        f"    {line}\n" for line in dedent(body).strip().splitlines()
    )
    line = 1 + next(at for at, text in enumerate(source.splitlines()) if hot in text)
    return find_element_loop(source, line, "work")


def _advise(body: str, hot: str) -> str:
    found = _find(body, hot)
    assert found is not None
    return "\n".join(advise_steps(found))


def _advise_file(path: str, hot: str, function: str) -> tuple[str, list[str]]:
    source = (REPOSITORY / path).read_text()
    line = 1 + next(at for at, text in enumerate(source.splitlines()) if hot in text)
    found = find_element_loop(source, line, function)
    assert found is not None
    return describe_loop(found), advise_steps(found)


@pytest.mark.parametrize(
    ("body", "hot"),
    [
        ("for path in data:\n    out.append(read(path))", "read"),
        ("for name in data:\n    out.append(read(self.folder / name))", "read"),
        ("for step in self.transforms:\n    data = step(data)", "step(data)"),
        ("for _ in range(12):\n    data = np.fft.irfft(np.hanning(9) * data)", "fft"),
        ("for i, path in enumerate(data):\n    out[i] = read(path)", "read"),
        ("for key, value in data.items():\n    data[key] = value * 2", "value * 2"),
        ("for word in data:\n    text = text + ' ' + word", "word"),
        ("noisy = data + rng.normal(size=data.shape)", "noisy"),
        ("def broken(:", "broken"),
    ],
    ids="files paths transforms repeats stored mapping text array no-python".split(),
)
def test_loop_over_whole_things_is_left_alone(body: str, hot: str) -> None:
    """There is no array operation for reading files, nor a loop where there is none."""
    assert _find(body, hot) is None


@pytest.mark.parametrize(
    ("body", "hot", "advice"),
    [
        ("for i in range(len(data)):\n    out[i] = data[i] * 2", "out[i]", "`data[:]` for `data[i]`"),
        ("for x, y in data:\n    out[int(y), int(x)] += 1", "out[", "`x, y = np.asarray(data).T`"),
        ("for x, y in data:\n    out[y, x] += 1", "out[", "`np.add.at(out, (y, x), 1)`"),
        ("for a, b in zip(data, out):\n    total += a * b", "total", "`total += (a * b).sum()` once"),
        ("for x in data:\n    out.append(math.sqrt(x))", "sqrt", "`np.sqrt` for `math.sqrt`"),
        ("out = [float(x) for x in data.split(',')]", "float", "dtype=float)` parses all at once"),
        ("for i, (x, y) in enumerate(data):\n    out[i] = x * y", "out[i]", "`x, y = np.asarray(data).T`"),
        ("for i, row in data.iterrows():\n    total += row['a'] * row['b']", "total", "`data['name'].to_numpy()`"),
        (MASK, "out[x]", "`keep = (0 <= x) & (x < 9)`"),
        (GRID, "out[", "`i = np.arange(h)[:, None]`, `j = np.arange(w)`"),
        (NEAREST, "near = ", "`out[key.argmin(axis=0)]`"),
    ],
    ids="index points histogram sum math parse enumerate frame mask grid nearest".split(),
)  # fmt: skip
def test_advice_uses_the_names_of_the_loop(body: str, hot: str, advice: str) -> None:
    """What to write stands there in numpy's terms, for this loop."""
    assert advice in _advise(body, hot)


@pytest.mark.parametrize(
    ("body", "hot", "name"),
    [
        ("for x in data:\n    y = 0.9 * y + 0.1 * x", "0.9", "y"),
        ("for i in range(9):\n    out[i] = out[i - 1] + data[i]", "out[i]", "out"),
    ],
    ids=["filter", "neighbour"],
)
def test_loop_whose_passes_need_each_other_is_to_be_compiled(
    body: str, hot: str, name: str
) -> None:
    """No array operation does that, and none is promised."""
    advice = _advise(body, hot)

    assert f"needs `{name}` of the pass before" in advice
    assert "numba" in advice


@pytest.mark.parametrize(
    "body",
    [
        "for x in data:\n    total = total + x",
        "for x in data:\n    best = max(best, x * x)",
        "for i, x in enumerate(data):\n    if x * x < best:\n        best = x * x\n        at = i",
    ],
    ids=["sum", "largest", "smallest-and-where"],
)
def test_sums_and_extremes_are_no_obstacle(body: str) -> None:
    """There is a reduction for each."""
    found = _find(body, body.splitlines()[-1].strip())

    assert found is not None
    assert found.carried == ()


def test_map_loop_of_the_example_is_turned_inside_out() -> None:
    """The story's own loop: points at once, the short loops kept, a mask, the larger value."""
    told, steps = _advise_file(
        "examples/polygon_segmentation/targets.py", "heat[r, c] = value", "outline_maps"
    )

    assert "through `points` element by element in Python, 3 loops deep" in told
    assert "`x, y = (points[:, 0] / STRIDE).T`" in steps[0]
    assert "keep the short loops over `dy` and `dx` outside" in steps[1]
    assert "(0 <= x) & (x < columns)" in steps[2]
    assert "`np.maximum.at(heat, (r, c), value)`" in steps[-1]


def test_patches_around_points_are_made_at_once_each() -> None:
    """Ranges that begin at the point cannot be one grid; a Gaussian is separable."""
    _, steps = _advise_file(
        "scenarios/python_loop/train.py", "value = math.exp", "draw_points"
    )

    assert steps[0].startswith("keep the loop over the points, and make each patch at once")
    assert "separable" in steps[1]


CALLED = """
def value_at(x, y):
    return 0.5 * x + y

def render(height, width):
    for row in range(height):
        for column in range(width):
            out[row, column] = value_at(column, row)

def read(path):
    return open(path).read()

def read_all(paths):
    for path in paths:
        out.append(read(path))
"""


def test_function_that_is_called_for_each_element_leads_to_its_caller_s_loop() -> None:
    """The hot line is in the small function, what to change is the loop around it."""
    found = find_element_loop(CALLED, 3, "value_at")

    assert found is not None
    assert (found.function, found.first_line, len(found.levels)) == ("render", 6, 2)
    assert "`row = np.arange(height)[:, None]`" in advise_steps(found)[0]


def test_function_that_does_more_than_arithmetic_does_not() -> None:
    """Calling a reader for each path is no loop over elements."""
    assert find_element_loop(CALLED, 11, "read") is None
