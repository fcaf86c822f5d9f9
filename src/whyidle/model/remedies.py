"""What can be changed about a training without touching its script: names, types, and how a person writes it.

    num_workers prefetch_factor persistent_workers pin_memory in_order    arguments of the DataLoader
    sharing_strategy    how tensors travel between processes: `file_system` or `file_descriptor`
    worker_threads      most threads that libraries start inside one worker
    cpus                `all`: the training may use every CPU of the machine

A set of such settings is a tuple of (name, value) in the order of SETTING_TYPES: it can be compared and hashed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

SettingValue = int | bool | str
Settings = tuple[tuple[str, SettingValue], ...]

LOADER_ARGUMENTS = (
    "num_workers",
    "prefetch_factor",
    "persistent_workers",
    "pin_memory",
    "in_order",
)
SETTING_TYPES: dict[str, type] = {
    "num_workers": int,
    "prefetch_factor": int,
    "persistent_workers": bool,
    "pin_memory": bool,
    "in_order": bool,
    "sharing_strategy": str,
    "worker_threads": int,
    "cpus": str,
}
"""Every setting there is, in the order in which a person would read them."""


def make_settings(values: Mapping[str, SettingValue]) -> Settings:
    """Put settings in order.

    Raises:
        ValueError: a name is unknown or a value has the wrong type.

    >>> make_settings({"in_order": False, "num_workers": 4})
    (('num_workers', 4), ('in_order', False))
    """
    for name, value in values.items():
        if name not in SETTING_TYPES:
            raise ValueError(
                f"setting {name!r}; expected one of {', '.join(SETTING_TYPES)}"
            )
        if type(value) is not SETTING_TYPES[name]:
            expected = SETTING_TYPES[name].__name__
            raise ValueError(f"setting {name} is {value!r}; expected {expected}")
    return tuple((name, values[name]) for name in SETTING_TYPES if name in values)


def loader_arguments(settings: Settings) -> str:
    """Write the settings that are arguments of a DataLoader, as they stand in a call.

    >>> loader_arguments((("num_workers", 4), ("in_order", False), ("worker_threads", 1)))
    'num_workers=4, in_order=False'
    """
    return ", ".join(
        f"{name}={value}" for name, value in settings if name in LOADER_ARGUMENTS
    )


def describe_settings(settings: Settings) -> str:
    """Write all settings in short; `unchanged` when there are none.

    >>> describe_settings((("num_workers", 4), ("cpus", "all"))), describe_settings(())
    ('num_workers=4, cpus=all', 'unchanged')
    """
    return ", ".join(f"{name}={value}" for name, value in settings) or "unchanged"


def other_lines(settings: Settings) -> tuple[str, ...]:
    """Say how to make the changes that are not arguments of the DataLoader, a line each."""
    said = []
    for name, value in settings:
        match name:
            case "sharing_strategy":
                said.append(
                    f'torch.multiprocessing.set_sharing_strategy("{value}") before the loader is built'
                )
            case "worker_threads":
                said.append(
                    f"in worker_init_fn: torch.set_num_threads({value}); cv2.setNumThreads({value}) where OpenCV is "
                    f"used; OMP_NUM_THREADS={value} for the workers"
                )
            case "cpus":
                said.append(
                    "start the training without the CPU mask (taskset, cpuset, the launcher's binding)"
                )
            case _:
                pass
    return tuple(said)
