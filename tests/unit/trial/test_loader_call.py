"""Arguments of a loader are set where that is certain, and all else is left as it was, with the reason."""

from __future__ import annotations

import textwrap

import pytest

from whyidle.errors import UsageError
from whyidle.trial.loader_call import Edited, set_arguments

HEAD = "from torch.utils.data import DataLoader\n"


def edit(
    code: str, line: int = 0, had_workers: bool = True, **values: int | bool
) -> Edited:
    """Set arguments in the first line with a loader, or in another one."""
    source = HEAD + textwrap.dedent(code)
    if not line:
        lines = source.splitlines()
        line = 1 + next(at for at, text in enumerate(lines) if at and "Loader(" in text)
    return set_arguments(source.encode(), line, values, had_workers=had_workers)


def text_of(edited: Edited) -> str:
    """The edited text without its head."""
    return edited.source.decode().removeprefix(HEAD)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "x = DataLoader(data, batch_size=8)\n",
            "x = DataLoader(data, batch_size=8, num_workers=4, in_order=False)\n",
        ),
        (
            "x = DataLoader( data,num_workers = 2 )  # two\n",
            "x = DataLoader( data,num_workers = 4,in_order=False )  # two\n",
        ),
        (
            "x = DataLoader(data, 8, True, None, None, 2)\n",
            "x = DataLoader(data, 8, True, None, None, 4, in_order=False)\n",
        ),
        (
            "x = DataLoader(\n    data,\n    num_workers=2,  # two\n    timeout=9,  # s\n)\n",
            "x = DataLoader(\n    data,\n    num_workers=4,  # two\n    timeout=9,  # s\n    in_order=False,\n)\n",
        ),
        (
            "x = DataLoader(\n\tdata,\n\tnum_workers=2  # two\n)\n",
            "x = DataLoader(\n\tdata,\n\tnum_workers=4,  # two\n\tin_order=False\n)\n",
        ),
        (
            "x = DataLoader(\n    data\n)\n",
            "x = DataLoader(\n    data,\n    num_workers=4,\n    in_order=False\n)\n",
        ),
        (
            "x = DataLoader(data,\n               num_workers=2)\r\n",
            "x = DataLoader(data,\n               num_workers=4,\n               in_order=False)\r\n",
        ),
    ],
    ids=["line", "spaces", "position", "commas", "tabs", "one", "aligned"],
)
def test_call_keeps_its_form(before: str, after: str) -> None:
    """Literals are replaced and arguments added in the style of the call; comments stay with their arguments."""
    edited = edit(before, num_workers=4, in_order=False)

    assert text_of(edited) == after
    assert edited.by_hand == ()
    # The result says the same when it is edited again.
    assert (
        set_arguments(
            edited.source, 2, {"num_workers": 4, "in_order": False}, had_workers=True
        ).changes
        == ()
    )


@pytest.mark.parametrize(
    "imported",
    [
        "from torch.utils.data import DataLoader as Loader\nx = Loader(data)\n",
        "import torch\nx = torch.utils.data.DataLoader(data)\n",
        "import torch.utils.data as d\nx = d.DataLoader(data)\n",
        "from torch.utils import data\nx = data.DataLoader(data)\n",
        "from torch.utils.data import *\nx = DataLoader(data)\n",
        "class MyLoader(DataLoader):\n    pass\nx = MyLoader(data)\n",
        "class Mine(DataLoader):\n    def __init__(self, data):\n        super().__init__(data)\n",
    ],
)
def test_loader_is_known_by_any_name(imported: str) -> None:
    """Arguments are added to whatever is torch's own class."""
    source = (HEAD + imported).encode()
    line = len((HEAD + imported).splitlines())

    edited = set_arguments(source, line, {"num_workers": 4}, had_workers=True)

    assert "data, num_workers=4)" in edited.source.decode()


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("x = DataLoader(data, num_workers=config['n'])\n", "it comes from `config['n']`"),
        ("N = 2\nx = DataLoader(data, num_workers=N)\n", "gets its value in line 2"),
        ("x = DataLoader(data, **options)\n", "it may come from `**options`"),
        ("x = DataLoader(*parts)\n", "it may come from `*parts`"),
        (
            "p.add_argument('--workers')\nx = DataLoader(data, num_workers=args.workers)\n",
            "give --workers 4, or change its default in line 2",
        ),
        ("x = lib.GraphLoader(data)\n", "is not torch's own DataLoader"),
    ],
)
def test_what_is_not_certain_is_left(code: str, reason: str) -> None:
    """The text stays as it is, and the reason says where the value comes from."""
    edited = edit(code, num_workers=4)

    assert text_of(edited) == code
    assert edited.changes == ()
    (left,) = edited.by_hand
    assert (left.name, left.value) == ("num_workers", 4)
    assert reason in left.reason


def test_literal_of_another_loader_is_replaced() -> None:
    """A value that stands in the call is that argument's, whatever the class."""
    edited = edit("x = lib.GraphLoader(data, num_workers=2)\n", num_workers=4)

    assert text_of(edited) == "x = lib.GraphLoader(data, num_workers=4)\n"


def test_arguments_that_need_workers_wait_for_them() -> None:
    """With the number of workers left to a person who had none, prefetching would be an error."""
    code = "x = DataLoader(data, num_workers=args.workers)\n"

    edited = edit(code, num_workers=4, persistent_workers=True, had_workers=False)

    assert [one.name for one in edited.by_hand] == ["num_workers", "persistent_workers"]
    assert edited.changes == ()


@pytest.mark.parametrize(
    ("code", "line", "said"),
    [
        ("x = DataLoader(a), DataLoader(b)\n", 2, "2 calls there build a loader"),
        ("x = instantiate(cfg.loader)\n", 2, "it holds `x = instantiate(cfg.loader)`"),
        ("x = DataLoader(a\n", 2, "cannot be parsed"),
        ("x = 1\n", 9, "it holds ``"),
    ],
)
def test_line_without_one_loader_is_refused(code: str, line: int, said: str) -> None:
    """Nothing is guessed: the message says what is there."""
    with pytest.raises(UsageError, match="cannot be edited") as caught:
        edit(code, line, num_workers=4)

    assert said in caught.value.message


def test_call_that_begins_in_the_line_is_meant() -> None:
    """Of loaders inside each other the line of the run tells which."""
    code = "x = DataLoader(\n    Wrapped(\n        DataLoader(data, num_workers=1),\n    ),\n    num_workers=2,\n)\n"

    outer, inner = edit(code, 2, num_workers=4), edit(code, 4, num_workers=4)

    assert outer.changes == ("num_workers=4 (was 2)",)
    assert inner.changes == ("num_workers=4 (was 1)",)
