"""Writes the results of a campaign as one HTML page with plots. The page needs no network."""

import html
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from controller.simulation.policies.comparison import UNICRON, Campaign
from controller.simulation.report.comparison_text import (
    as_json,
    days_text,
    mean_hours,
    unmeasured_text,
)
from controller.simulation.world.worker_time import ACTIVITIES

_COLOURS: Final = {
    "training": "#2a9d5c", "detection": "#d1495b", "transition": "#edae49",
    "recomputation": "#9c6ade", "manual": "#5b8def", "slow": "#c9a227", "waiting": "#b8c0cc",
    "repair": "#6b7280",
}  # fmt: skip
_STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 62rem; padding: 0 1rem; color: #1f2937 }
table { border-collapse: collapse; margin: 1rem 0 } th, td { padding: .25rem .8rem; text-align: right }
th:first-child, td:first-child { text-align: left } thead { border-bottom: 2px solid #d1d5db }
tbody tr { border-bottom: 1px solid #e5e7eb } .paper { color: #2a9d5c } .ours { color: #b45309 }
svg text { font: 12px system-ui, sans-serif; fill: #374151 }
"""
_LEFT: Final = 150
_WIDTH: Final = 620
_ROW: Final = 26


def write_report(campaign: Campaign, directory: Path) -> Path:
    """Write ``index.html`` and ``simulation.json``; return the page.

    Raises:
        OSError: They can't be written.
    """
    directory.mkdir(parents=True, exist_ok=True)
    answer = json.dumps(as_json(campaign), indent=1, sort_keys=True)
    (directory / "simulation.json").write_text(answer + "\n", encoding="utf-8")
    page = directory / "index.html"
    page.write_text(_page(campaign), encoding="utf-8")
    return page


def _page(campaign: Campaign) -> str:
    scenario = campaign.setup.scenario
    title = html.escape(f"{scenario.name}: {scenario.title}")
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style></head><body>
<h1>{title}</h1>
<p>{campaign.num_seeds} seed(s), {days_text(campaign)}. Initial split: {html.escape(_split(campaign))}.{_notice(campaign)}</p>
<h2>Accumulated WAF of Unicron, divided by each policy's</h2>
{_ratio_plot(campaign)}
{_table(campaign)}
<h2>GPU-hours by activity</h2>
{_hours_plot(campaign)}
{_legend()}
<h2>Inputs</h2>
<table><thead><tr><th>key</th><th>from</th><th>value</th></tr></thead><tbody>{_inputs(campaign)}</tbody></table>
</body></html>
"""


def _notice(campaign: Campaign) -> str:
    text = unmeasured_text(campaign)
    return f" {html.escape(text[0].upper() + text[1:])}." if text else ""


def _split(campaign: Campaign) -> str:
    return ", ".join(f"{name} {size}" for name, size in campaign.setup.split.items())


def _ratio_plot(campaign: Campaign) -> str:
    """Draw a bar per ratio, with its confidence interval, and a line at 1."""
    ratios = campaign.ratios
    if not ratios:
        return f"<p>No ratios: a run of {UNICRON} and of another policy is needed.</p>"
    most = max(1.0, *(ratio.high for ratio in ratios.values()))
    parts = []
    for row, (name, ratio) in enumerate(ratios.items()):
        y = row * _ROW
        parts += [
            _label(name, y),
            _bar(0, ratio.mean / most, y, "#2a9d5c"),
            _whisker(ratio.low / most, ratio.high / most, y),
            _note(ratio.high / most, y, f"{ratio.mean:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"),
        ]
    one, height = _x(1 / most), len(ratios) * _ROW
    parts.append(f'<line x1="{one}" x2="{one}" y1="0" y2="{height}" stroke="#9ca3af"/>')
    return _svg(parts, height)


def _hours_plot(campaign: Campaign) -> str:
    """Draw a stacked bar per policy."""
    parts = []
    for row, (name, accounts) in enumerate(campaign.accounts.items()):
        hours, y, done = mean_hours(accounts), row * _ROW, 0.0
        total = sum(hours.values()) or 1.0
        parts.append(_label(name, y))
        for activity in ACTIVITIES:
            share = hours[activity] / total
            tip = f"{activity}: {hours[activity]:,.0f} GPU-hours, {100 * share:.2f} %"
            parts.append(_bar(done, done + share, y, _COLOURS[activity], tip))
            done += share
    return _svg(parts, len(campaign.accounts) * _ROW)


def _table(campaign: Campaign) -> str:
    answer, ratios = as_json(campaign)["policies"], campaign.ratios
    rows = []
    for name, policy in answer.items():
        ratio = f"{ratios[name].mean:.3f}" if name in ratios else ""
        cells = (
            name, f"{policy['waf']['mean']:.4g}", ratio, f"{100 * policy['ettr']['mean']:.2f} %",
            f"{100 * policy['availability']['mean']:.2f} %",
            f"{policy['incidents']['mean']:.1f}",
        )  # fmt: skip
        rows.append(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in cells)}</tr>")
    heads = ("policy", "weighted FLOP", "Unicron / policy", "ettr", "availability", "incidents")
    head = "".join(f"<th>{each}</th>" for each in heads)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _legend() -> str:
    marks = (
        f'<span style="color:{colour}">&#9632;</span> {name}' for name, colour in _COLOURS.items()
    )
    return f"<p>{' &nbsp; '.join(marks)}</p>"


def _inputs(campaign: Campaign) -> str:
    scenario = campaign.setup.scenario
    values: Mapping[str, Any] = scenario.values.model_dump()
    return "".join(
        f'<tr><td>{html.escape(key)}</td><td class="{origin}">{origin}</td>'
        f'<td style="text-align:left">{html.escape(_words(_value(values, key)))}</td></tr>'
        for key, origin in sorted(scenario.origins.items())
    )


def _value(values: Mapping[str, Any], key: str) -> object:
    group, _, name = key.partition(".")
    return values[group][name] if name else values[group]


def _words(value: object) -> str:
    """Return a value as text: tables with their keys, lists with semicolons."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_words(each)}" for key, each in value.items() if each is not None)
    if isinstance(value, (list, tuple)):
        return "; ".join(_words(each) for each in value)
    return str(value)


def _x(share: float) -> float:
    return round(_LEFT + share * _WIDTH, 1)


def _bar(begin: float, end: float, y: int, colour: str, tip: str = "") -> str:
    width = round(max(0.0, (end - begin) * _WIDTH), 1)
    title = f"<title>{html.escape(tip)}</title>" if tip else ""
    return (
        f'<rect x="{_x(begin)}" y="{y + 2}" width="{width}" height="16" fill="{colour}">'
        f"{title}</rect>"
    )


def _whisker(begin: float, end: float, y: int) -> str:
    return (
        f'<line x1="{_x(begin)}" x2="{_x(end)}" y1="{y + 10}" y2="{y + 10}"'
        ' stroke="#111827" stroke-width="2"/>'
    )


def _note(share: float, y: int, text: str) -> str:
    return f'<text x="{_x(share) + 6}" y="{y + 14}">{html.escape(text)}</text>'


def _label(name: str, y: int) -> str:
    return f'<text x="{_LEFT - 8}" y="{y + 14}" text-anchor="end">{html.escape(name)}</text>'


def _svg(parts: Sequence[str], height: int) -> str:
    width = _LEFT + _WIDTH + 170
    return f'<svg viewBox="0 0 {width} {height}" width="{width}" role="img">{"".join(parts)}</svg>'
