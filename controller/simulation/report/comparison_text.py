"""Prints the results of a campaign as tables, or returns them as JSON."""

from collections.abc import Mapping
from typing import Any, Final

from rich.box import SIMPLE_HEAD

from controller.printing import plain_console, print_table
from controller.simulation.policies.comparison import Campaign, Interval
from controller.simulation.world.worker_time import ACTIVITIES, WorkerAccount

_NOTHING_DAYS: Final = 1e-6
_HEADS: Final = {
    "training": "train", "detection": "detect", "transition": "recover", "recomputation": "rerun",
    "manual": "by hand", "slow": "slow", "waiting": "wait", "repair": "repair",
}  # fmt: skip
"""Short headings, so that the table fits into 80 columns."""


def as_json(campaign: Campaign) -> dict[str, Any]:
    """Return a campaign as JSON, in weighted FLOP and GPU-hours. Equal runs give equal bytes."""
    scenario, (used, cut) = campaign.setup.scenario, campaign.days
    return {
        "scenario": scenario.name,
        "title": scenario.title,
        "seeds": campaign.num_seeds,
        "days_used": used,
        "days_cut": cut,
        "is_interrupted": campaign.is_interrupted,
        "initial_split": campaign.setup.split,
        "unmeasured": list(campaign.setup.unmeasured),
        "origins": scenario.origins,
        "policies": {name: _policy(each) for name, each in campaign.accounts.items()},
        "ratios": {name: ratio.as_json() for name, ratio in campaign.ratios.items()},
    }


def _policy(accounts: list[WorkerAccount]) -> dict[str, Any]:
    return {
        "waf": Interval.of([each.waf for each in accounts]).as_json(),
        "ettr": Interval.of([each.ettr for each in accounts]).as_json(),
        "availability": Interval.of([each.availability for each in accounts]).as_json(),
        "incidents": Interval.of([each.num_incidents for each in accounts]).as_json(),
        "plans": plans.as_json() if (plans := _plans(accounts)) else None,
        "gpu_hours": mean_hours(accounts),
    }


def _plans(accounts: list[WorkerAccount]) -> Interval | None:
    numbers = [each.num_plans for each in accounts if each.num_plans is not None]
    return Interval.of(numbers) if numbers else None


def mean_hours(accounts: list[WorkerAccount]) -> dict[str, float]:
    """Return the mean GPU-hours by activity."""
    return {
        name: sum(each.gpu_hours[name] for each in accounts) / len(accounts) for name in ACTIVITIES
    }


def _eflop(flop: float) -> str:
    return f"{flop / 1e18:,.0f}" if flop >= 1e20 else f"{flop / 1e18:.3g}"


def print_campaign(campaign: Campaign) -> None:
    """Print a campaign as tables."""
    console = plain_console()
    scenario = campaign.setup.scenario
    split = ", ".join(f"{name} {size}" for name, size in campaign.setup.split.items())
    console.print(f"{scenario.name}: {scenario.title}")
    console.print(f"initial split: {split}; {campaign.num_seeds} seed(s)")
    console.print(days_text(campaign))
    if unknown := unmeasured_text(campaign):
        console.print(unknown)
    print_table(
        console,
        (
            "policy",
            "weighted EFLOP",
            "unicron / policy",
            "ettr",
            "availability",
            "incidents",
            "plans",
        ),
        [_row(name, accounts, campaign.ratios) for name, accounts in campaign.accounts.items()],
        numbers=range(1, 7),
    )
    print_table(
        console,
        ("% of GPU-hours", *_HEADS.values()),
        [_shares(name, accounts) for name, accounts in campaign.accounts.items()],
        numbers=range(1, 1 + len(_HEADS)),
        box=SIMPLE_HEAD,
    )


def days_text(campaign: Campaign) -> str:
    """Return how many days were simulated, and how many days of the trace were not."""
    used, cut = campaign.days
    rest = f", {cut:.1f} days of the trace cut" if cut >= _NOTHING_DAYS else ""
    return f"days: {used:.1f} used{rest}"


def unmeasured_text(campaign: Campaign) -> str:
    """Return what of the throughput is not measured anywhere; empty if nothing."""
    names = ", ".join(campaign.setup.unmeasured)
    return f"throughput is estimated; not measured: {names}; expect larger errors" if names else ""


def _row(
    name: str, accounts: list[WorkerAccount], ratios: Mapping[str, Interval]
) -> tuple[str, ...]:
    ratio, plans = ratios.get(name), _plans(accounts)
    return (
        name,
        _eflop(Interval.of([each.waf for each in accounts]).mean),
        _ratio(ratio) if ratio else "",
        f"{100 * Interval.of([each.ettr for each in accounts]).mean:.1f} %",
        f"{100 * Interval.of([each.availability for each in accounts]).mean:.1f} %",
        f"{Interval.of([each.num_incidents for each in accounts]).mean:.0f}",
        f"{plans.mean:.0f}" if plans else "",
    )


def _ratio(ratio: Interval) -> str:
    low, high = f"{ratio.low:.2f}", f"{ratio.high:.2f}"
    return f"{ratio.mean:.2f}" + (f" ({low}-{high})" if low != high else "")


def _shares(name: str, accounts: list[WorkerAccount]) -> tuple[str, ...]:
    hours = mean_hours(accounts)
    total = sum(hours.values())
    return (name, *(f"{100 * hours[each] / total:.2f}" for each in _HEADS))
