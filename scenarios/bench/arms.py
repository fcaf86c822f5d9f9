"""What is run of a scenario at a setting: unchanged, watched, cured, slowed, changed, under other tools."""

from __future__ import annotations

from dataclasses import dataclass

from scenarios.truth import Scenario, TrueCause

GROUPS = ("without", "with", "cured", "parts", "marginal", "changes", "tools")
"""Kinds of arms, in the order in which they are of use; `--arms` chooses among them."""
SLOWED_BY = 1.0
"""The planted function is made longer by this part of itself: twice as long. Beyond a saturated loader the effect
is linear, so that a large change measures the derivative with less noise than a small one."""
LONGER_STEP = 0.25
"""The step is made longer by this part: little, so that a loader that is the limit stays it."""
SLOWABLE = frozenset({"compute", "sleep", "network", "storage", "python"})
"""Activities whose function can be made longer by doing more of the same. With a lock, others would wait as well."""
UNSLOWABLE_PARTS = frozenset({"disk", "cpu_quota", "cpu_mask", "neighbours"})
"""Surroundings that share a bandwidth or CPUs: a call that is longer does not take more of those."""

PERSISTENT = "persistent_workers=True"
"""A script whose loader has this already is not changed to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One way to run a scenario. `name` tells it apart in results."""

    name: str
    group: str
    cured: bool | str = False
    """True: all planted causes removed; a name: that one."""
    cause: int | None = None
    """The planted cause that is removed alone or slowed."""
    step_factor: float = 1.0
    """The step is so many times as long."""
    slowed: str | None = None
    """Function of the script that is made longer by `SLOWED_BY`."""
    loader: tuple[tuple[str, int | bool], ...] = ()
    """Arguments that every DataLoader gets instead of the script's own."""
    tool: str | None = None
    """Another tool that watches."""

    @property
    def watched(self) -> bool:
        """Whether whyidle watches, so that its code matters."""
        return self.group == "with"


def arms_of(
    scenario: Scenario, setting: int, groups: set[str], tools: list[str]
) -> list[Arm]:
    """List the arms of a scenario at a setting; those that make no sense there are left out."""
    found = [
        Arm(name="without", group="without"),
        Arm(name="with", group="with"),
        *cured_arms(scenario),
        *marginal_arms(scenario, setting),
        *change_arms(scenario, setting),
        *(Arm(name=f"tool:{it}", group="tools", tool=it) for it in tools),
    ]
    return [arm for arm in found if arm.group in groups]


def cured_arms(scenario: Scenario) -> list[Arm]:
    """Remove everything that is planted, and with several causes each alone."""
    if not scenario.causes:
        return []
    parts = [
        Arm(name=f"cured:{number}", group="parts", cured=it.cure or False, cause=number)
        for number, it in enumerate(scenario.causes)
        if it.removable_alone
    ]
    return [Arm(name="cured", group="cured", cured=True), *parts]


def marginal_arms(scenario: Scenario, setting: int) -> list[Arm]:
    """Make each planted function longer, and the step, to measure derivatives."""
    slowed = [
        Arm(
            name=f"slowed:{number}",
            group="marginal",
            slowed=it.place.functions[0],
            cause=number,
        )
        for number, it in enumerate(scenario.causes)
        if can_be_slowed(scenario, it)
    ]
    if not slowed or scenario.settings[setting].step_ms <= 0:
        return []
    return [
        *slowed,
        Arm(name="longer-step", group="marginal", step_factor=1 + LONGER_STEP),
    ]


def can_be_slowed(scenario: Scenario, cause: TrueCause) -> bool:
    """Say whether making the planted function longer means more of the cause."""
    shared = UNSLOWABLE_PARTS & {*scenario.environment}
    return cause.activity in SLOWABLE and bool(cause.place.functions) and not shared


def change_arms(scenario: Scenario, setting: int) -> list[Arm]:
    """Change the arguments of the loader, as a person would after a forecast."""
    workers = scenario.settings[setting].workers
    if not workers:
        return [loader_arm(num_workers=2)]
    fewer = [loader_arm(num_workers=workers - 1)] if workers > 1 else []
    persistent = PERSISTENT in scenario.script.read_text(encoding="utf-8")
    return [
        *fewer,
        loader_arm(num_workers=workers * 2),
        loader_arm(prefetch_factor=8),
        loader_arm(in_order=False),
        *([] if persistent else [loader_arm(persistent_workers=True)]),
    ]


def loader_arm(**arguments: int | bool) -> Arm:
    """Give the arm with these loader arguments."""
    words = ",".join(f"{name}={value}" for name, value in arguments.items())
    return Arm(name=f"change:{words}", group="changes", loader=tuple(arguments.items()))
